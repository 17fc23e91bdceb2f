//! Reads the recorder's share of ELF files: program headers, which [`build_id`] uses to find the build-id and `image`
//! to find a guest's code, and `symbols`, which finds functions by name.
//!
//! Input: a function that reads the file. Output: its headers, unverified and limited in number. Source: System V
//! ABI, chapter 5 ("Program Header").

pub mod build_id;
pub mod symbols;
mod image;

pub use image::{GivenImage, Image, ImageError, PROBES};

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
    /// Offset of the part in the file.
    pub offset: u64,
    /// Address at which it is linked to be loaded.
    pub address: u64,
    /// Its size in the file, in bytes.
    pub file_bytes: u64,
    /// Its size in memory, in bytes.
    pub memory_bytes: u64,
}

/// Whether these are the first bytes of an ELF file.
pub fn is_elf(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\x7fELF")
}

/// Whether these are the first bytes of an ELF file for guests: 64-bit, little-endian.
pub fn is_wide(bytes: &[u8]) -> bool {
    is_elf(bytes) && bytes[4..].starts_with(&[2, 1])
}

/// Whether these are the first bytes of an ELF file for processes: little-endian, of 64 bits or of 32.
pub fn is_read(bytes: &[u8]) -> bool {
    is_wide(bytes) || is_elf(bytes) && bytes[4..].starts_with(&[1, 1])
}

/// The program headers of a little-endian ELF file, with `None` for each that can't be read. Returns `None` if it is
/// not such a file.
pub fn read<'r>(from: &'r Read<'r>) -> Option<impl Iterator<Item = Option<ProgramHeader>> + 'r> {
    // A 32-bit file may be shorter than this.
    let mut header = [0; 64];
    from(&mut header[..52], 0).ok()?;
    if !is_read(&header) {
        return None;
    }
    let is_wide = is_wide(&header);
    let (start, sizes_at) = if is_wide {
        from(&mut header, 0).ok()?;
        (long(&header, 32)?, 54)
    } else {
        (word(&header, 28)?.into(), 42)
    };
    let entry_bytes = u64::from(half(&header, sizes_at)?);
    let count = half(&header, sizes_at + 2)?.min(MOST_HEADERS);
    Some((0..u64::from(count)).map(move |index| {
        let mut program = [0; 56];
        let program = &mut program[..if is_wide { 56 } else { 32 }];
        from(program, start.checked_add(index * entry_bytes)?).ok()?;
        if is_wide {
            wide_header(program)
        } else {
            narrow_header(program)
        }
    }))
}

fn wide_header(bytes: &[u8]) -> Option<ProgramHeader> {
    Some(ProgramHeader {
        kind: word(bytes, 0)?,
        flags: word(bytes, 4)?,
        offset: long(bytes, 8)?,
        address: long(bytes, 16)?,
        file_bytes: long(bytes, 32)?,
        memory_bytes: long(bytes, 40)?,
    })
}

fn narrow_header(bytes: &[u8]) -> Option<ProgramHeader> {
    Some(ProgramHeader {
        kind: word(bytes, 0)?,
        offset: word(bytes, 4)?.into(),
        address: word(bytes, 8)?.into(),
        file_bytes: word(bytes, 16)?.into(),
        memory_bytes: word(bytes, 20)?.into(),
        flags: word(bytes, 24)?,
    })
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at + 2)?;
    Some(u16::from_le_bytes(bytes.try_into().ok()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at + 8)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}
