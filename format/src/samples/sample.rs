//! A sample in the program's form, which goes into a block and comes out of it.

use crate::samples::details::Details;
use crate::tags::tags;
use serde::{Deserialize, Serialize};

tags! {
    /// Instruction set of the guest. Registers have the DWARF numbers of its ABI; the names are those that `uname -m`
    /// prints.
    #[derive(Serialize, Deserialize)]
    Arch: u8 {
        /// x86-64 (System V ABI, AMD64 supplement, figure 3.36).
        X86_64 = 0 "x86_64",
        /// AArch64 (DWARF for the Arm 64-bit architecture, section 4.1).
        Aarch64 = 1 "aarch64",
    }
}

tags! {
    /// State of a vCPU at a sample.
    State: u8 {
        /// Executing.
        Running = 0 "running",
        /// Waiting, with nothing executed for it.
        Blocked = 1 "blocked",
        /// Not brought up, or unplugged.
        Offline = 2 "offline",
        /// Paused by someone other than the recorder.
        Paused = 3 "paused",
        /// Able to execute, but without a processor: since the previous sample, or from now on.
        Ready = 4 "ready",
    }
}

tags! {
    /// Reason why a frame chain ends.
    Stop: u8 {
        /// The outermost frame was reached.
        Complete = 0 "complete",
        /// No walk was requested, or possible outside 64-bit mode: the instruction pointer only.
        NotWalked = 1 "not-walked",
        /// The limit of frames was reached.
        Depth = 2 "depth-limit",
        /// The chain continues beyond the stack bytes that were copied.
        Window = 3 "window-end",
        /// The time budget of a freeze was used up.
        Budget = 4 "time-budget",
        /// The chain turned back on itself.
        Cycle = 5 "cycle",
        /// A frame pointer is not valid: unaligned or outside the stack.
        BadPointer = 6 "bad-frame-pointer",
        /// Memory is missing.
        Unreadable = 7 "unreadable-memory",
        /// The program that walked the stack gives no reason.
        Unsaid = 8 "unsaid",
        /// Call frame information is damaged, or needs an unknown value.
        BadRule = 9 "bad-unwind-rule",
        /// The stack changed while it was read.
        Moved = 10 "moved",
    }
}

impl Stop {
    /// Description for messages, behind a number of stacks.
    pub fn describe(self) -> &'static str {
        match self {
            Stop::Complete => "whole",
            Stop::NotWalked => "of which only the innermost address was asked for",
            Stop::Depth => "with more frames than are kept",
            Stop::Window => "beyond the recorded stack bytes",
            Stop::Budget => "for which the freeze had no time left",
            Stop::Cycle => "that lead back to themselves",
            Stop::BadPointer => "where a frame pointer leads to no return address",
            Stop::Unreadable => "in memory that can't be read",
            Stop::Unsaid => "without a word why",
            Stop::BadRule => {
                "at code that no unwind rule covers, a wrong one, or a caller that cannot be known"
            }
            Stop::Moved => "that changed while they were read",
        }
    }
}

tags! {
    /// Kind of a frame's address.
    FrameKind: u8 {
        /// The next instruction to execute: of the sample itself, or of code that was interrupted.
        Exact = 0 "exact",
        /// A return address: the call is the instruction before it.
        Return = 1 "return",
    }
}

tags! {
    /// How a frame was found.
    Found: u8 {
        /// From a register or by following frame pointers.
        FramePointer = 0 "frame-pointer",
        /// By call frame information.
        Cfi = 1 "cfi",
        /// By a guess: a word on the stack that points behind a call.
        Scan = 2 "scan",
        /// As code that a trap interrupted: by the processor's trap frame, known by its shape.
        TrapFrame = 3 "trap-frame",
    }
}

/// One frame of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Guest virtual address.
    pub address: u64,
    /// Kind of address.
    pub kind: FrameKind,
    /// How the frame was found.
    pub found: Found,
}

impl Frame {
    /// A frame at the next instruction to execute.
    pub const fn exact(address: u64) -> Self {
        Frame {
            address,
            kind: FrameKind::Exact,
            found: Found::FramePointer,
        }
    }

    /// A return address found by frame pointer.
    pub const fn return_address(address: u64) -> Self {
        Frame {
            address,
            kind: FrameKind::Return,
            found: Found::FramePointer,
        }
    }

    /// Kind and origin in one byte (format-spec.md, section 5.2).
    pub(crate) fn kind_byte(self) -> u8 {
        self.kind.number() | self.found.number() << 4
    }

    /// An address inside the frame's instruction, for looking up symbols.
    pub fn lookup_address(self) -> u64 {
        match self.kind {
            FrameKind::Exact => self.address,
            FrameKind::Return => self.address.wrapping_sub(1),
        }
    }
}

/// A line of execution: a vCPU of a guest or a thread of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Task {
    /// Address space: the process id, or 0 for a guest.
    pub space: u32,
    /// vCPU number or thread id.
    pub vcpu: u32,
}

/// A register snapshot. Register `n` (a DWARF number) is present if bit `n` of the mask is set.
#[derive(Clone, Copy)]
pub struct Registers {
    mask: u64,
    values: [u64; 64],
}

impl Default for Registers {
    fn default() -> Self {
        Registers {
            mask: 0,
            values: [0; 64],
        }
    }
}

impl PartialEq for Registers {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Registers {}

impl std::fmt::Debug for Registers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl Registers {
    /// The registers that are present, a bit each.
    #[inline]
    pub fn mask(&self) -> u64 {
        self.mask
    }

    /// The first `COUNT` values by number (at most 64), for copying at once. Those that are not in the
    /// [mask](Self::mask) have no meaning.
    #[inline]
    pub fn first_values<const COUNT: usize>(&self) -> [u64; COUNT] {
        const { assert!(COUNT <= 64) };
        let mut values = [0; COUNT];
        values.copy_from_slice(&self.values[..COUNT]);
        values
    }

    /// The value of register `number`, or `None` if it was not recorded.
    #[inline]
    pub fn get(&self, number: u8) -> Option<u64> {
        let bit = 1u64.checked_shl(u32::from(number))?;
        (self.mask & bit != 0).then(|| self.values[usize::from(number)])
    }

    /// Sets register `number`. Numbers of 64 and above are ignored, as the format has no column for them.
    pub fn set(&mut self, number: u8, value: u64) {
        if let Some(slot) = self.values.get_mut(usize::from(number)) {
            *slot = value;
            self.mask |= 1 << number;
        }
    }

    /// Sets the registers from number 0 on, at once.
    #[inline]
    pub fn set_first<const COUNT: usize>(&mut self, values: &[u64; COUNT]) {
        const { assert!(COUNT < 64) };
        self.values[..COUNT].copy_from_slice(values);
        self.mask |= (1 << COUNT) - 1;
    }

    /// Removes all registers.
    pub fn clear(&mut self) {
        self.mask = 0;
    }

    /// The last value of register `number`, even if the current row has none.
    pub(crate) fn remembered(&self, number: u8) -> u64 {
        self.values[usize::from(number)]
    }

    /// Keeps only the registers of `mask`; the others' values stay remembered.
    pub(crate) fn keep_only(&mut self, mask: u64) {
        self.mask &= mask;
    }

    /// Numbers and values, in order of number.
    pub fn iter(&self) -> impl Iterator<Item = (u8, u64)> + '_ {
        bits(self.mask).map(|number| (number, self.values[usize::from(number)]))
    }
}

/// The numbers of the bits set in `mask`, lowest first.
pub(crate) fn bits(mut mask: u64) -> impl Iterator<Item = u8> {
    std::iter::from_fn(move || {
        let number = mask.trailing_zeros() as u8;
        (mask != 0).then(|| {
            mask &= mask - 1;
            number
        })
    })
}

/// Time that a task was off the processor, from the row's time on. Such a row is not a periodic sample. It was taken
/// when the task was switched out, and its weight is this time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wait {
    /// Total time of all waits, in nanoseconds.
    pub time_ns: u64,
    /// Number of waits: the row's own, and shorter ones before it for which no stack was taken. They lie between the
    /// row's time and the end of the last wait. Never 0.
    pub count: u64,
}

/// Raw stack bytes of one sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawStack<'a> {
    /// Guest virtual address of the first byte, normally the stack pointer.
    pub address: u64,
    /// The bytes, upwards from there.
    pub bytes: &'a [u8],
}

/// One sample, on its way into a file.
#[derive(Debug, Clone, Copy)]
pub struct Sample<'a> {
    /// Time in nanoseconds on the recording's monotonic clock.
    pub time_ns: u64,
    /// The vCPU or thread.
    pub task: Task,
    /// State of the vCPU or thread.
    pub state: State,
    /// Frames, innermost first; empty if not even the instruction pointer is known.
    pub chain: &'a [Frame],
    /// Why the chain ends.
    pub stop: Stop,
    /// Numbers beside the stack.
    pub details: Details,
    /// Registers, if recorded.
    pub registers: Option<&'a Registers>,
    /// Raw stack bytes, if recorded.
    pub stack: Option<RawStack<'a>>,
    /// How long the task was off the processor; `None` for a sample.
    pub wait: Option<Wait>,
}

impl<'a> Sample<'a> {
    /// A running sample with only a time, a task and a complete chain.
    pub fn bare(time_ns: u64, task: Task, chain: &'a [Frame]) -> Self {
        Sample {
            time_ns,
            task,
            state: State::Running,
            chain,
            stop: Stop::Complete,
            details: Details::default(),
            registers: None,
            stack: None,
            wait: None,
        }
    }
}
