//! Finds the caller of a function without a frame, for a guest that runs on while its stack is read.
//!
//! Input: a chain of frame pointers whose frames don't fit, and the stack's bytes. Output: the chain with the caller
//! that it misses. Compilers leave out the frame of a leaf function, and then the chain goes from that function to the
//! caller of its caller. Unwind rules would need bytes of the same moment. Here the calls themselves are evidence: a
//! word above the stack pointer is the caller if its call leads to the innermost function, and if the word is in the
//! function to which the call of the next frame leads.

use super::call_sites::CallSites;
use crate::source::Vcpu;
use crate::source::plan::LEAF_STACK_BYTES;
use crate::source::slot::Slot;
use uprof::Frame;

/// Longest reach of a direct call (x86-64; on AArch64 it is shorter).
const CALL_REACH: u64 = 1 << 31;

/// Adds the missing caller to a chain whose innermost frame is the only one that fits. Returns how many frames fit with
/// it. `stack` holds the bytes from the stack pointer on; `read` reads the guest's memory.
pub fn add(
    slot: &mut Slot,
    sites: &mut CallSites,
    vcpu: &Vcpu,
    stack: &[u8],
    mut read: impl FnMut(u64, &mut [u8]) -> usize,
) -> usize {
    let &[leaf, outer, ..] = slot.chain() else {
        return slot.chain().len();
    };
    let words = stack.as_chunks::<8>().0.iter().copied();
    for word in words.take(LEAF_STACK_BYTES as usize / 8) {
        let address = u64::from_le_bytes(word);
        if address.abs_diff(leaf.address) >= CALL_REACH {
            continue;
        }
        let caller = Frame::return_address(address);
        // Nothing is at address 0, so only a call through a register or memory would fit. That proves nothing.
        let nowhere = [Frame::exact(0), caller];
        if sites.fitting(vcpu, &[leaf, caller, outer], &mut read) == 3
            && sites.fitting(vcpu, &nowhere, &mut read) == 1
            && slot.insert_caller(caller)
        {
            return sites.fitting(vcpu, slot.chain(), read);
        }
    }
    1
}

#[cfg(test)]
mod tests {
    use super::*;
    use uprof::{Arch, Details, Registers, State, Task};

    /// main at 0x1000 calls middle at 0x2000 and other at 0x3000, and each of these calls the leaf at 0x4000. There
    /// is a call through a register before 0x2090.
    fn code(from: u64, into: &mut [u8]) -> usize {
        into.fill(0x90);
        let end = from + into.len() as u64;
        let target = match end {
            0x1010 => 0x2000,
            0x1020 => 0x3000,
            0x2010 | 0x3010 => 0x4000,
            0x2090 => {
                let start = into.len() - 2;
                into[start..].copy_from_slice(&[0xff, 0xd0]);
                return into.len();
            }
            _ => return into.len(),
        };
        let start = into.len() - 5;
        into[start] = 0xe8;
        let by = (i64::from(target) - end as i64) as i32;
        into[start + 1..].copy_from_slice(&by.to_le_bytes());
        into.len()
    }

    /// The chain of a leaf function at 0x4004 below `outer`, with these words on its stack.
    fn chain(outer: &[u64], words: &[u64]) -> Vec<u64> {
        let vcpu = Vcpu {
            task: Task { space: 0, vcpu: 0 },
            state: State::Running,
            registers: Registers::default(),
            handle: 0,
            details: Details::default(),
        };
        let mut sites = CallSites::new(Arch::X86_64);
        let mut slot = Slot::new(0);
        slot.push_frame(Frame::exact(0x4004));
        for address in outer {
            slot.push_frame(Frame::return_address(*address));
        }
        let stack: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let fitting = add(&mut slot, &mut sites, &vcpu, &stack, code);
        let frames = slot.chain().iter().take(fitting);
        frames.map(|frame| frame.address).collect()
    }

    #[test]
    fn a_caller_is_found_where_the_calls_on_both_sides_lead() {
        assert_eq!(
            chain(&[0x1010], &[7, u64::MAX, 0x2010]),
            [0x4004, 0x2010, 0x1010]
        );
        assert_eq!(
            chain(&[0x1020], &[0x2010, 0x3010]),
            [0x4004, 0x3010, 0x1020]
        );
        assert_eq!(
            chain(&[0x1020], &[0x2010]),
            [0x4004],
            "main didn't call it there"
        );
        assert_eq!(chain(&[0x1010], &[0x2011, 0x2008]), [0x4004], "no call");
        assert_eq!(
            chain(&[0x1010], &[0x2090]),
            [0x4004],
            "a call that may lead anywhere"
        );
        assert_eq!(chain(&[], &[0x2010]), [0x4004]);
        let mut words = vec![0; LEAF_STACK_BYTES as usize / 8];
        words.push(0x2010);
        assert_eq!(chain(&[0x1010], &words), [0x4004], "too far up");
    }
}
