//! What a Linux kernel's own memory tells of its code: names by kallsyms ([`Kallsyms`]), unwind rules by ORC
//! ([`Orc`]), places in its structures by BTF ([`Btf`]). Recorder and report both ask here: the one has a guest's
//! memory, the other an image.
//!
//! Enters: memory by address ([`KernelMemory`]), whose contents may be anything and may change while they are
//! read. Leaves: tables that were checked, or why there are none. Nothing is read but through the trait, and no
//! more than the limits of each table allow.

mod btf;
mod find;
mod kallsyms;
pub mod orc;

pub use btf::Btf;
pub use find::{find, likely};
pub use kallsyms::{Function, Kallsyms};
pub use orc::Orc;

use std::ops::Range;

/// Bytes by kernel address.
pub trait KernelMemory {
    /// Reads from `address` upwards; returns the bytes read: fewer than asked for where memory is missing.
    fn read(&mut self, address: u64, into: &mut [u8]) -> usize;

    /// Exactly so many bytes.
    fn bytes(&mut self, address: u64, length: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; length];
        (self.read(address, &mut bytes) == length).then_some(bytes)
    }
}

/// First address of the kernel's half of an address space.
pub const KERNEL_HALF: u64 = 1 << 63;
/// How a kernel is called where an image has its path.
pub const KERNEL_PATH: &str = "[kernel]";

/// A kernel as its memory tells of it.
#[derive(Debug)]
pub struct Kernel {
    /// Its symbols.
    pub kallsyms: Kallsyms,
    /// Its unwind rules, where it was built with ORC.
    pub orc: Option<Orc>,
    /// Its code, with some data between its parts.
    pub text: Range<u64>,
    /// Where other things lie that it has.
    pub marks: Marks,
}

/// Where a kernel has what is asked of it beside its code; `None` where it has no such symbol.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Marks {
    /// What it calls itself (`linux_banner`).
    pub banner: Option<u64>,
    /// Its notes, as ELF has them.
    pub notes: Option<Range<u64>>,
    /// Its types; see [`Btf::read`].
    pub types: Option<Range<u64>>,
    /// Its first task (`init_task`).
    pub first_task: Option<u64>,
}

/// What a kernel's tables and marks are found by: all at once, as each question expands all names.
const MARKS: [&str; 13] = [
    "_stext",
    "_etext",
    // Code that is gone after the start, but for the frame of whoever was there first.
    "_einittext",
    "__start_orc_unwind_ip",
    "__stop_orc_unwind_ip",
    "__start_orc_unwind",
    "__stop_orc_unwind",
    "linux_banner",
    "__start_notes",
    "__stop_notes",
    "__start_BTF",
    "__stop_BTF",
    "init_task",
];

impl Kernel {
    /// Reads the tables of the kernel whose table of tokens has its digits at `digits` (see [`find`]).
    ///
    /// # Errors
    /// What is wrong with them, in a few words.
    #[cold]
    pub fn read(memory: &mut dyn KernelMemory, digits: u64) -> Result<Kernel, &'static str> {
        let kallsyms = Kallsyms::read(memory, digits)?;
        let found = kallsyms.addresses_of(MARKS);
        let [start, end, first_end, ips, ips_end, rules, rules_end, ..] = found;
        let [.., banner, notes, notes_end, types, types_end, first_task] = found;
        let (Some(start), Some(end)) = (start, end.max(first_end)) else {
            return Err("it does not say where the code lies");
        };
        if start < KERNEL_HALF || end <= start || end - start > MOST_TEXT_BYTES {
            return Err("it says that code lies where none can");
        }
        let range = |start: Option<u64>, end: Option<u64>| Some(start?..end?);
        let orc = range(ips, ips_end)
            .zip(range(rules, rules_end))
            .and_then(|(places, rules)| Orc::read(memory, places, rules));
        Ok(Kernel {
            kallsyms,
            orc,
            text: start..end,
            marks: Marks {
                banner,
                notes: range(notes, notes_end),
                types: range(types, types_end),
                first_task,
            },
        })
    }
}

/// No kernel has more code in one piece.
const MOST_TEXT_BYTES: u64 = 256 << 20;

/// How many of `len` come before the first that isn't.
fn behind(len: usize, is_before: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, len);
    while low < high {
        let middle = low + (high - low) / 2;
        match is_before(middle) {
            true => low = middle + 1,
            false => high = middle,
        }
    }
    low
}

#[cfg(test)]
mod tests;
