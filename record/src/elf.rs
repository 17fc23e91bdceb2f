//! What the recorder reads of ELF files: program headers, by which [`build_id`] finds the build-id and `image` a
//! guest's code, and `symbols`, by which functions are found by name.
//!
//! Input: a function that reads the file. Output: its headers, unverified and limited in number. Source: System V
//! ABI, chapter 5 ("Program Header").

pub mod build_id;
mod symbols;
mod image;

pub use image::Image;

use std::io;

/// A part that is loaded.
pub const PT_LOAD: u32 = 1;
/// Notes.
pub const PT_NOTE: u32 = 4;
/// The part holds code.
pub const PF_X: u32 = 1;

/// Most program headers that are read.
const MOST_HEADERS: u16 = 128;

/// Fills a buffer from an offset of the file.
pub type Read<'r> = dyn Fn(&mut [u8], u64) -> io::Result<()> + 'r;

/// One header.
#[derive(Debug, Clone, Copy)]
pub struct ProgramHeader {
    /// `PT_LOAD`, `PT_NOTE`, …
    pub kind: u32,
    /// `PF_X`, …
    pub flags: u32,
    /// Where the part begins in the file.
    pub offset: u64,
    /// Address at which it is loaded.
    pub address: u64,
    /// Its bytes in the file.
    pub file_bytes: u64,
    /// Its bytes in memory.
    pub memory_bytes: u64,
}

/// Whether these are the first bytes of an ELF file.
pub fn is_elf(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\x7fELF")
}

/// Whether these are the first bytes of a supported ELF file: 64-bit, little-endian.
pub fn is_read(bytes: &[u8]) -> bool {
    is_elf(bytes) && bytes[4..].starts_with(&[2, 1])
}

/// The program headers of a 64-bit little-endian ELF file, `None` for each that can't be read. `None` if it is not
/// such a file.
pub fn read<'r>(from: &'r Read<'r>) -> Option<impl Iterator<Item = Option<ProgramHeader>> + 'r> {
    let mut header = [0; 64];
    from(&mut header, 0).ok()?;
    if !is_read(&header) {
        return None;
    }
    let start = u64::from_le_bytes(header[32..40].try_into().ok()?);
    let entry_bytes = u64::from(u16::from_le_bytes(header[54..56].try_into().ok()?));
    let count = u16::from_le_bytes(header[56..58].try_into().ok()?).min(MOST_HEADERS);
    Some((0..u64::from(count)).map(move |index| {
        let mut program = [0; 56];
        from(&mut program, start.checked_add(index * entry_bytes)?).ok()?;
        let half = |at: usize| Some(u32::from_le_bytes(program[at..at + 4].try_into().ok()?));
        let word = |at: usize| Some(u64::from_le_bytes(program[at..at + 8].try_into().ok()?));
        Some(ProgramHeader {
            kind: half(0)?,
            flags: half(4)?,
            offset: word(8)?,
            address: word(16)?,
            file_bytes: word(32)?,
            memory_bytes: word(40)?,
        })
    }))
}
