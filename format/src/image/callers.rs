//! Section 7, callers: those that a chain of frame pointers misses.

use super::section::{Entry, SectionReader};
use crate::error::Fault;
use crate::varint;

/// The caller of a function that has no frame pointer of its own. All are addresses of frames in the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MissedCaller {
    /// What the function called; 0 if that is elsewhere.
    pub callee: u64,
    /// The function.
    pub function: u64,
    /// The next frame of the chain; 0 if there is none.
    pub next: u64,
    /// The caller, which `next` called; 0 if `next` is the caller.
    pub caller: u64,
}

impl MissedCaller {
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        for address in [self.callee, self.function, self.next, self.caller] {
            varint::put(out, address);
        }
    }
}

impl Entry for MissedCaller {
    const LEAST_BYTES: usize = 4;

    fn read(reader: &mut SectionReader<'_>, _: &mut u64, _: usize) -> Result<Self, Fault> {
        Ok(MissedCaller {
            callee: reader.number()?,
            function: reader.number()?,
            next: reader.number()?,
            caller: reader.number()?,
        })
    }
}
