//! Makes a function of a program slower by a known amount of processor time, so that a profile can be compared with
//! what was planted.
//!
//! Input: a command, and an instruction of one of its images. The program runs under ptrace. Every few milliseconds
//! the instruction is overwritten by `int3; jmp .`: the thread that meets the breakpoint stops one byte behind it, and
//! is resumed, to spin there. Meanwhile the kernel counts its processor time. Then the instruction is put back, and
//! executed. Registers and memory are what they were. Output: the processor time of the run, and the part of it that
//! was planted. It never changes the code of a process while threads of that run.
//!
//! Code changes only while no thread of its process runs, and one thread spins at a time: others that meet the
//! breakpoint wait. Nothing outlives the tracer, as the kernel kills tracees then (`PTRACE_O_EXITKILL`).

mod trap;
mod registers;
mod program;
mod spins;
mod announced;

pub use announced::open;
pub use program::{Program, Run};
pub use spins::Plant;

use crate::source::SourceError;

/// Where a program is made slower.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// The image's path, as the process has it mapped.
    pub path: String,
    /// Where the instruction is in that file.
    pub file_offset: u64,
    /// The first bytes of the instruction, which must be there.
    pub bytes: [u8; SITE_BYTES],
}

/// Bytes that an instruction must have at least, so that no other one is overwritten.
pub const SITE_BYTES: usize = 3;

/// How far behind the instruction's address a thread spins.
pub const SPIN_OFFSET_BYTES: u64 = 1;

/// Says whether instructions of this processor can be overwritten.
///
/// # Errors
/// The processor is another one.
pub fn check_processor() -> Result<(), SourceError> {
    if cfg!(target_arch = "x86_64") {
        return Ok(());
    }
    Err(SourceError(
        "functions can be slowed down by a known amount on x86-64 only".into(),
    ))
}
