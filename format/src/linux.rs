//! What a Linux kernel's own memory tells of its code: names by kallsyms ([`Kallsyms`]), unwind rules by ORC
//! ([`Orc`]), places in its structures by BTF ([`Btf`]). Recorder and report both ask here: the one has a guest's memory, the other an image.
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

/// A kernel as its memory tells of it.
#[derive(Debug)]
pub struct Kernel {
    /// Its symbols.
    pub kallsyms: Kallsyms,
    /// Its unwind rules, where it was built with ORC.
    pub orc: Option<Orc>,
    /// Its code, with some data between its parts.
    pub text: std::ops::Range<u64>,
}

/// What a kernel's tables are found by.
const MARKS: [&str; 7] = [
    "_stext",
    "_etext",
    // Code that is gone after the start, but for the frame of whoever was there first.
    "_einittext",
    "__start_orc_unwind_ip",
    "__stop_orc_unwind_ip",
    "__start_orc_unwind",
    "__stop_orc_unwind",
];

impl Kernel {
    /// Reads the tables of the kernel whose table of tokens has its digits at `digits` (see [`find`]).
    ///
    /// # Errors
    /// What is wrong with them, in a few words.
    #[cold]
    pub fn read(memory: &mut dyn KernelMemory, digits: u64) -> Result<Kernel, &'static str> {
        let kallsyms = Kallsyms::read(memory, digits)?;
        let [start, end, first_end, orc @ ..] = kallsyms.addresses_of(MARKS);
        let (Some(start), Some(end)) = (start, end.max(first_end)) else {
            return Err("it does not say where the code lies");
        };
        if start < KERNEL_HALF || end <= start || end - start > MOST_TEXT_BYTES {
            return Err("it says that code lies where none can");
        }
        let orc = match orc {
            [Some(ips), Some(ips_end), Some(rules), Some(rules_end)] => {
                Orc::read(memory, ips..ips_end, rules..rules_end)
            }
            _ => None,
        };
        Ok(Kernel {
            kallsyms,
            orc,
            text: start..end,
        })
    }
}

/// No kernel has more code in one piece.
const MOST_TEXT_BYTES: u64 = 256 << 20;

#[cfg(test)]
mod tests;
