//! The instruction pointer of a stopped thread.

#[cfg(target_arch = "x86_64")]
use nix::{sys::ptrace, unistd::Pid};

/// The address at which a stopped thread goes on.
#[cfg(target_arch = "x86_64")]
pub fn instruction_pointer(tid: i32) -> Option<u64> {
    let registers = ptrace::getregs(Pid::from_raw(tid)).ok()?;
    Some(registers.rip)
}

/// Lets a stopped thread go on elsewhere.
#[cfg(target_arch = "x86_64")]
pub fn set_instruction_pointer(tid: i32, address: u64) {
    let tid = Pid::from_raw(tid);
    if let Ok(mut registers) = ptrace::getregs(tid) {
        registers.rip = address;
        let _ = ptrace::setregs(tid, registers);
    }
}

/// Not on this processor.
#[cfg(not(target_arch = "x86_64"))]
pub fn instruction_pointer(_: i32) -> Option<u64> {
    None
}

/// Not on this processor.
#[cfg(not(target_arch = "x86_64"))]
pub fn set_instruction_pointer(_: i32, _: u64) {}
