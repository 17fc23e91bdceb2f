//! Why an image can't be used, and what to do.

use crate::mapped::MapError;

/// Why a file can't serve as an image.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// The file can't be read.
    #[error(transparent)]
    Map(#[from] MapError),
    /// Its first bytes aren't ELF's.
    #[error("cannot use {name} as an image: not an ELF file; give the kernel's ELF with --elf")]
    NotElf {
        /// The file.
        name: String,
    },
    /// It is a compressed kernel that can't be unpacked.
    #[error("cannot use {name} as an image: a compressed kernel (bzImage), but {what}")]
    Packed {
        /// The file.
        name: String,
        /// What is wrong.
        what: &'static str,
    },
    /// ELF of 32 bits, but not for i386, or big-endian.
    #[error(
        "cannot use {name} as an image: only little-endian ELF of 64 bits, or of 32 for i386, is supported"
    )]
    NotElf64 {
        /// The file.
        name: String,
    },
    /// ELF of 32 bits that can't be read.
    #[error("cannot use {name} as an image: its headers, of 32 bits, are damaged or cut short")]
    Narrow {
        /// The file.
        name: String,
    },
    /// ELF for a processor that isn't supported.
    #[error(
        "cannot use {name} as an image: it is for ELF machine {machine}; \
         x86-64 (62) and aarch64 (183) are supported"
    )]
    ForeignMachine {
        /// The file.
        name: String,
        /// `e_machine` of its header.
        machine: u16,
    },
    /// Its sections' names are longer together than any linker's.
    #[error(
        "cannot use {name} as an image: the names of its sections repeat themselves as no linker's do; \
         it is damaged or malicious; leave it out, or give another copy with --elf"
    )]
    EndlessNames {
        /// The file.
        name: String,
    },
    /// Its headers contradict its length.
    #[error("cannot use {name} as an image: {what} are damaged or cut short: {source}")]
    Broken {
        /// The file.
        name: String,
        /// Which part.
        what: &'static str,
        /// What the parser found.
        source: object::read::Error,
    },
}
