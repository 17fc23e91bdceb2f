//! Helpers of fake guests: vCPUs that always run, on stacks that never end.

use uniprof_record::source::{Vcpu, Vcpus};
use uprof::{Details, Registers, State, Task};

/// Adds `count` vCPUs, all of which are at the same address.
pub fn push_running(vcpus: &mut Vcpus, count: u32) {
    for vcpu in 0..count {
        let mut registers = Registers::default();
        registers.set(16, 0x1000);
        registers.set(7, 0x8000);
        registers.set(6, 0x8000);
        vcpus.push(Vcpu {
            task: Task { space: 0, vcpu },
            state: State::Running,
            registers,
            handle: 0,
            details: Details::default(),
        });
    }
}

/// Reads memory full of frames: each points to the next, 16 bytes up.
pub fn read_frames(address: u64, into: &mut [u8]) -> usize {
    for (at, word) in (address..).step_by(8).zip(into.chunks_exact_mut(8)) {
        let value = if at % 16 == 0 { at + 16 } else { 0x2000 + at };
        word.copy_from_slice(&value.to_le_bytes());
    }
    into.len()
}
