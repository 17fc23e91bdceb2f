//! Several hypercalls in one: `struct multicall_entry` of xen.h, for 64-bit callers.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `struct multicall_entry`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct MulticallEntry {
    /// Number of the hypercall.
    pub op: u64,
    /// Its answer: negative error numbers as two's complement.
    pub result: u64,
    /// Its arguments.
    pub arguments: [u64; 6],
}
const _: () = assert!(size_of::<MulticallEntry>() == 64);

impl MulticallEntry {
    /// One call with one argument.
    pub fn new(op: u64, argument: u64) -> Self {
        MulticallEntry {
            op,
            result: 0,
            arguments: [argument, 0, 0, 0, 0, 0],
        }
    }

    /// Xen's answer, or its error number.
    pub fn outcome(&self) -> Result<u64, i32> {
        let answer = self.result as i64;
        match answer {
            -4095..0 => Err(-answer as i32),
            _ => Ok(self.result),
        }
    }
}
