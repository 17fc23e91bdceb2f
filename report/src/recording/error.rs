//! Why a recording can't be opened.

/// Why a recording can't be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordingError {
    /// The file can't be read.
    #[error("cannot open {name}: {source}")]
    Read {
        /// The recording asked for.
        name: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// It isn't a recording that this version understands.
    #[error("cannot open {name}: {source}")]
    Open {
        /// The recording asked for.
        name: String,
        /// What is wrong.
        source: uprof::OpenError,
    },
    /// It is a recording of perf's, by its first bytes.
    #[error("{name} is a recording of perf: perf script -i {name} | uniprof import -o run.uprof -")]
    OfPerf {
        /// The recording asked for.
        name: String,
    },
    /// It has an unknown part that may not be ignored.
    #[error("cannot read {name}: {source}")]
    Critical {
        /// The recording asked for.
        name: String,
        /// The unknown part.
        source: uprof::DecodeError,
    },
    /// A piped recording can't be kept for reading.
    #[error(
        "cannot keep the recording that comes through the pipe: {source}; \
         set TMPDIR to a folder with room, or write the recording to a file"
    )]
    Spool {
        /// The system's error.
        source: std::io::Error,
    },
}
