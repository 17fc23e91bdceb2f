//! Why a recording can't be opened, or one of its blocks can't be read.

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

/// Why the samples or spans of a block can't be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BlockError {
    /// The file can't be read.
    #[error("cannot read {name}: {source}")]
    Read {
        /// Name of the recording.
        name: String,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The file is no longer what it was when it was opened.
    #[error("the block at byte {offset} has changed")]
    Changed {
        /// Offset of the block in the file.
        offset: u64,
    },
    /// Its payload is damaged.
    #[error(transparent)]
    Decode(#[from] uprof::DecodeError),
    /// One of its rows is damaged.
    #[error(transparent)]
    Row(#[from] uprof::Fault),
}
