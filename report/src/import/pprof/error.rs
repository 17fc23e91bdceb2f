//! Why a pprof file can't be imported, in words: what is wrong with it, and what to do.

use std::io;

/// Why a pprof file can't be imported.
#[derive(Debug, thiserror::Error)]
pub enum PprofError {
    /// Reading failed, or it is no sound gzip.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The file ends within a field.
    #[error(
        "it ends in the middle of a field: the download or the copy is incomplete, or it is no pprof file"
    )]
    Cut,
    /// A wire type that protobuf no longer has.
    #[error("a field has wire type {0}: it is no pprof file")]
    WireType(u64),
    /// A number of more than ten bytes.
    #[error("a number is longer than 64 bits: it is no pprof file")]
    LongNumber,
    /// A field is longer than any sound one.
    #[error("a field of {0} bytes; at most 1 MiB are read of a string, a sample or a location")]
    LongField(u64),
    /// The file is too long.
    #[error(
        "it is longer than 256 MiB, or 1 GiB unpacked: split it by time, or choose fewer services or labels"
    )]
    TooLong,
    /// A table is too long.
    #[error("it has more than {1} {0}: split it by time, or choose fewer services or labels")]
    TooMany(&'static str, usize),
    /// A reference to an entry that no table has.
    #[error("it refers to {0} {1}, which it doesn't have: the file is damaged")]
    Missing(&'static str, u64),
    /// Two entries have the same number.
    #[error("{0} {1} is there twice: the file is damaged")]
    Twice(&'static str, u64),
    /// A string is not UTF-8.
    #[error("string {0} is no UTF-8: the file is damaged")]
    NoText(u64),
    /// A sample has too few or too many values.
    #[error(
        "sample {number} has {values} values, and the file has {types} types of them: the file is damaged"
    )]
    Values {
        /// The number of the sample, from 1.
        number: u64,
        /// How many values it has.
        values: usize,
        /// How many it should have.
        types: usize,
    },
    /// A value is negative.
    #[error(
        "sample {0} has a negative value: it is a difference of two profiles; import both, and use `uniprof diff`"
    )]
    Negative(u64),
    /// No type of values can be chosen.
    #[error(
        "{wanted}; the file has {types}; --sample-type NAME chooses one that counts or is a time"
    )]
    Type {
        /// What was looked for.
        wanted: String,
        /// The types of the file.
        types: String,
    },
    /// The values of the chosen type are neither counts nor times.
    #[error(
        "{0} is neither a count nor a time, and a recording has nothing else; the file has {1}"
    )]
    Unit(String, String),
    /// More samples than are imported.
    #[error(
        "{0} adds up to {1}, which is more than 10,000,000 samples; choose another type by --sample-type, or a shorter \
         time"
    )]
    Sum(String, u64),
}
