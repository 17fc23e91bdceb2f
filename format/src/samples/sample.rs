//! A sample as the program sees it: the row that goes into a block and comes out of it.

use crate::samples::details::Details;
use crate::tags::tags;
use serde::{Deserialize, Serialize};

tags! {
    /// Instruction set of the guest. Registers have the DWARF numbers of its ABI; the names are those
    /// that `uname -m` prints.
    #[derive(Serialize, Deserialize)]
    Arch: u8 {
        /// x86-64 (System V ABI, AMD64 supplement, figure 3.36).
        X86_64 = 0 "x86_64",
        /// AArch64 (DWARF for the Arm 64-bit architecture, section 4.1).
        Aarch64 = 1 "aarch64",
    }
}

tags! {
    /// What a vCPU was doing when it was sampled.
    State: u8 {
        /// Executing.
        Running = 0 "running",
        /// Waiting: nothing was executed for it.
        Blocked = 1 "blocked",
        /// Not brought up, or unplugged.
        Offline = 2 "offline",
        /// Paused by someone other than the recorder.
        Paused = 3 "paused",
        /// Able to execute, but without a processor: since the sample before, or from now on.
        Ready = 4 "ready",
    }
}

tags! {
    /// Why a frame chain ends where it ends.
    Stop: u8 {
        /// The outermost frame was reached.
        Complete = 0 "complete",
        /// No walk was asked for: the instruction pointer only.
        NotWalked = 1 "not-walked",
        /// The most frames allowed were taken.
        Depth = 2 "depth-limit",
        /// The chain goes on beyond the stack bytes that were copied.
        Window = 3 "window-end",
        /// The time allowed for a freeze was used up.
        Budget = 4 "time-budget",
        /// The chain turned back on itself.
        Cycle = 5 "cycle",
        /// A frame pointer that can't be one: unaligned or outside the stack.
        BadPointer = 6 "bad-frame-pointer",
        /// Memory that is not there.
        Unreadable = 7 "unreadable-memory",
        /// Whoever walked the stack does not say.
        Unsaid = 8 "unsaid",
        /// Call frame information that needs what isn't known, or is damaged.
        BadRule = 9 "bad-unwind-rule",
        /// What changed while it was read.
        Moved = 10 "moved",
    }
}

impl Stop {
    /// The same for people, behind a number of stacks.
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
            Stop::BadRule => "at code that no unwind rule covers, or a wrong one",
            Stop::Moved => "that changed while they were read",
        }
    }
}

tags! {
    /// What the address of a frame is.
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
        /// As what a trap interrupted: the processor's trap frame, known by its shape.
        TrapFrame = 3 "trap-frame",
    }
}

/// One frame of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Guest virtual address.
    pub address: u64,
    /// What the address is.
    pub kind: FrameKind,
    /// How the frame was found.
    pub found: Found,
}

impl Frame {
    /// The next instruction to execute.
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

    /// An address inside the instruction that this frame is at: what to look symbols up by.
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

/// A register snapshot: register `n` (DWARF number) is there if bit `n` of the mask is.
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
    /// Which registers are there, a bit each.
    #[inline]
    pub fn mask(&self) -> u64 {
        self.mask
    }

    /// Values by number, as many as asked for (at most 64), to be copied at once; those that are not
    /// in the [mask](Self::mask) mean nothing.
    #[inline]
    pub fn first_values<const COUNT: usize>(&self) -> [u64; COUNT] {
        const { assert!(COUNT <= 64) };
        let mut values = [0; COUNT];
        values.copy_from_slice(&self.values[..COUNT]);
        values
    }

    /// The value of register `number`, or `None` where it was not recorded.
    #[inline]
    pub fn get(&self, number: u8) -> Option<u64> {
        let bit = 1u64.checked_shl(u32::from(number))?;
        (self.mask & bit != 0).then(|| self.values[usize::from(number)])
    }

    /// Sets register `number`; numbers of 64 and above are ignored, as the format has no place.
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

    /// Forgets all registers.
    pub fn clear(&mut self) {
        self.mask = 0;
    }

    /// The value that register `number` had last, also where the current row has none.
    pub(crate) fn remembered(&self, number: u8) -> u64 {
        self.values[usize::from(number)]
    }

    /// Leaves only the registers of `mask`; the others' values stay remembered.
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

/// Time that a task was off the processor, from the row's time on. Such a row is no sample taken now and
/// then: it was taken when the task left the processor, and its weight is this time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wait {
    /// Nanoseconds, all waits together.
    pub time_ns: u64,
    /// How many waits: the row's own, and shorter ones before it of which no stack was taken. They lie
    /// between the row's time and the end of the last. Never 0.
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
    /// When, in nanoseconds of the recording's monotonic clock.
    pub time_ns: u64,
    /// Of which vCPU or thread.
    pub task: Task,
    /// What that was doing.
    pub state: State,
    /// Frames, innermost first; empty where not even the instruction pointer is known.
    pub chain: &'a [Frame],
    /// Why the chain ends.
    pub stop: Stop,
    /// Numbers beside its stack.
    pub details: Details,
    /// Registers, if recorded.
    pub registers: Option<&'a Registers>,
    /// Raw stack bytes, if recorded.
    pub stack: Option<RawStack<'a>>,
    /// For how long the task was off the processor; `None` for a sample.
    pub wait: Option<Wait>,
}

impl<'a> Sample<'a> {
    /// A sample of which no more is known than where a running task was: its chain is whole.
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
