//! Why a recording can't be opened.

/// Why a recording can't be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordingError {
    /// The file can't be read.
    #[error("cannot open {name}: {source}")]
    Read {
        /// Name of the recording.
        name: String,
        /// The error of the system.
        source: std::io::Error,
    },
    /// It isn't a recording that this version understands.
    #[error("cannot open {name}: {source}")]
    Open {
        /// Name of the recording.
        name: String,
        /// Why it isn't a valid recording.
        source: uprof::OpenError,
    },
    /// It is a recording of perf, according to its first bytes.
    #[error("{name} is a recording of perf: perf script -i {name} | uniprof import -o run.uprof -")]
    OfPerf {
        /// Name of the recording.
        name: String,
    },
    /// It has an unknown part that a reader must not ignore.
    #[error("cannot read {name}: {source}")]
    Critical {
        /// Name of the recording.
        name: String,
        /// The unknown part.
        source: uprof::DecodeError,
    },
    /// A recording from a pipe can't be stored for reading.
    #[error(
        "cannot keep the recording that comes through the pipe: {source}; \
         set TMPDIR to a folder with room, or write the recording to a file"
    )]
    Spool {
        /// The error of the system.
        source: std::io::Error,
    },
}
