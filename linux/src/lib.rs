//! Reads the tables in a Linux kernel's memory that describe the kernel: symbols from kallsyms ([`Kallsyms`]), unwind
//! rules from ORC ([`Orc`]), structure layouts from BTF ([`Btf`]). The recorder applies it to a guest's memory, and the
//! report to an image.
//!
//! Input: memory by address ([`KernelMemory`]), whose contents are not trusted and may change while they are read.
//! Output: checked tables, or the reason why there are none. All reads go through the trait and are bounded by each
//! table's limits.

#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]
#![forbid(unsafe_code)]

mod btf;
mod find;
mod kallsyms;
pub mod orc;

pub use btf::Btf;
pub use find::{find, find_bytes, likely};
pub use kallsyms::{Function, Kallsyms};
pub use orc::Orc;

use std::ops::Range;
use uprof::cpu::is_kernel_address;

/// Reads a kernel's memory by address.
pub trait KernelMemory {
    /// Reads from `address` upwards. Returns the number of bytes read, which is smaller than requested if memory is
    /// missing.
    fn read(&mut self, address: u64, into: &mut [u8]) -> usize;

    /// Reads exactly `length` bytes.
    fn bytes(&mut self, address: u64, length: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; length];
        (self.read(address, &mut bytes) == length).then_some(bytes)
    }
}

/// Path of a kernel's image in a recording.
pub const KERNEL_PATH: &str = "[kernel]";

/// A kernel, as described by its own tables.
#[derive(Debug)]
pub struct Kernel {
    /// Its symbols.
    pub kallsyms: Kallsyms,
    /// Its unwind rules, if it was built with ORC.
    pub orc: Option<Orc>,
    /// Its code, with some data between its parts.
    pub text: Range<u64>,
    /// Address of its symbols, in its read-only data.
    pub symbols: u64,
    /// Addresses of other data in it.
    pub marks: Marks,
}

/// Addresses in a kernel other than its code; `None` if it has no such symbol.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Marks {
    /// Its version text (`linux_banner`).
    pub banner: Option<u64>,
    /// Its ELF notes.
    pub notes: Option<Range<u64>>,
    /// Its types; see [`Btf::read`].
    pub types: Option<Range<u64>>,
    /// Its first task (`init_task`).
    pub first_task: Option<u64>,
}

/// Symbols by which a kernel's tables and marks are found. They are looked up together, as each lookup expands all
/// names.
const MARKS: [&str; 13] = [
    "_stext",
    "_etext",
    // Freed after boot, although the first task's stack still has a frame in it.
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
    /// Reads the tables of the kernel whose token table has its digits at `digits` (see [`find`]).
    ///
    /// # Errors
    /// Says in a few words what is wrong with them.
    #[cold]
    pub fn read(memory: &mut dyn KernelMemory, digits: u64) -> Result<Kernel, &'static str> {
        let kallsyms = Kallsyms::read(memory, digits)?;
        let found = kallsyms.addresses_of(MARKS);
        let [start, end, first_end, ips, ips_end, rules, rules_end, ..] = found;
        let [.., banner, notes, notes_end, types, types_end, first_task] = found;
        let (Some(start), Some(end)) = (start, end.max(first_end)) else {
            return Err("it does not say where its code is");
        };
        if !is_kernel_address(start) || end <= start || end - start > MOST_TEXT_BYTES {
            return Err("its code is said to be where no code can be");
        }
        let range = |start: Option<u64>, end: Option<u64>| Some(start?..end?);
        let orc = range(ips, ips_end)
            .zip(range(rules, rules_end))
            .and_then(|(places, rules)| Orc::read(memory, places, rules));
        Ok(Kernel {
            kallsyms,
            orc,
            text: start..end,
            symbols: digits,
            marks: Marks {
                banner,
                notes: range(notes, notes_end),
                types: range(types, types_end),
                first_task,
            },
        })
    }
}

/// Greatest size of a kernel's code in one piece.
const MOST_TEXT_BYTES: u64 = 256 << 20;

/// The first index below `len` for which `is_before` is false, by binary search; `len` if there is none.
fn behind(len: usize, is_before: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, len);
    while low < high {
        let middle = low + (high - low) / 2;
        if is_before(middle) {
            low = middle + 1
        } else {
            high = middle
        }
    }
    low
}

#[cfg(test)]
mod tests;
