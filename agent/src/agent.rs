//! The guest's side of the agent: the memory that it provides once, and the function that its timer interrupt calls.
//!
//! Input: interrupted registers. Output: records in rings (docs/agent-protocol.md, section 6.1). Must never block or
//! fault, and its time is bounded by the limits on frames and bytes.

use crate::machine::cycles;
use crate::ring::{CONTROL_WORDS, Ring};
use crate::walk::{self, Memory, Stop};
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Limit on vCPUs of a guest.
pub const MOST_VCPUS: u32 = 256;
/// Limit on return addresses of a sample.
pub const MOST_FRAMES: u32 = 256;
/// Limit on stack bytes of a sample.
pub const MOST_STACK_BYTES: u32 = 16384;

/// Words of a record before return addresses and stack.
pub(crate) const FIXED_WORDS: usize = 7;
const COST_WORD: u64 = 6;

/// Facts about the guest, which the agent sends in its hello.
#[derive(Debug, Clone)]
pub struct Guest<'a> {
    /// Name; the first 64 bytes are sent.
    pub name: &'a str,
    /// Build-id of the image, empty if it has none; the first 32 bytes are sent.
    pub build_id: &'a [u8],
    /// Address range of the image's code as loaded, empty if unknown.
    pub code: Range<u64>,
    /// Offset of that code in the image's file.
    pub code_offset: u64,
    /// Number of vCPUs. Each has an equal part of the memory.
    pub vcpus: u32,
    /// A clock common to all vCPUs, which an interrupt may read.
    pub clock: fn() -> u64,
    /// Frequency of that clock (Hz).
    pub clock_hz: u64,
    /// Frequency of [`cycles`] (Hz); 0 if unknown.
    pub cycles_hz: u64,
    /// Frequency of the timer interrupt (Hz); 0 if unknown.
    pub timer_hz: u32,
}

impl Default for Guest<'_> {
    /// A guest with one vCPU and no name; its clock is [`cycles`] at an assumed 1 GHz.
    fn default() -> Self {
        Guest {
            name: "",
            build_id: &[],
            code: 0..0,
            code_offset: 0,
            vcpus: 1,
            clock: cycles,
            clock_hz: 1_000_000_000,
            cycles_hz: 0,
            timer_hz: 0,
        }
    }
}

/// Registers at the moment of the interrupt.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct Registers {
    /// Instruction pointer.
    pub ip: u64,
    /// Stack pointer.
    pub sp: u64,
    /// Frame pointer (rbp, x29).
    pub fp: u64,
    /// Link register (x30); 0 on x86-64.
    pub lr: u64,
    /// Not 0 if the vCPU was idle, waiting for an interrupt.
    pub idle: u64,
}

/// The reason why an agent can't be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// The guest has no vCPU, or more than [`MOST_VCPUS`].
    Vcpus,
    /// The memory is too small; [`Agent::words`] returns the size needed.
    Memory,
    /// The clock has no frequency.
    Clock,
}

/// The agent of a guest.
pub struct Agent<'m, M> {
    memory: &'m [AtomicU64],
    words_each: usize,
    pub(crate) guest: Guest<'m>,
    stacks: M,
    /// Odd while samples are taken.
    epoch: AtomicU64,
    period_ticks: AtomicU64,
    frames: AtomicU32,
    stack_bytes: AtomicU32,
    /// Whether a client is attached.
    is_taken: AtomicBool,
}

impl<'m, M: Memory> Agent<'m, M> {
    /// Memory needed for `vcpus` vCPUs, in words, if each ring holds `samples` samples of `frames` return addresses and
    /// `stack_bytes` bytes.
    pub const fn words(vcpus: usize, samples: usize, frames: usize, stack_bytes: usize) -> usize {
        let ring = samples * (FIXED_WORDS + frames + stack_bytes.div_ceil(8));
        vcpus * (CONTROL_WORDS + ring.next_power_of_two())
    }

    /// Makes an agent with its rings in `memory`, which must be zeroed; stacks are read through `stacks`.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn new(memory: &'m [AtomicU64], guest: Guest<'m>, stacks: M) -> Result<Self, Refused> {
        if guest.vcpus == 0 || guest.vcpus > MOST_VCPUS {
            return Err(Refused::Vcpus);
        }
        if guest.clock_hz == 0 {
            return Err(Refused::Clock);
        }
        let agent = Agent {
            words_each: memory.len() / guest.vcpus as usize,
            memory,
            guest,
            stacks,
            epoch: AtomicU64::new(0),
            period_ticks: AtomicU64::new(0),
            frames: AtomicU32::new(0),
            stack_bytes: AtomicU32::new(0),
            is_taken: AtomicBool::new(false),
        };
        match agent.ring(0) {
            Some(_) => Ok(agent),
            None => Err(Refused::Memory),
        }
    }

    /// The ring of a vCPU.
    pub(crate) fn ring(&self, vcpu: u32) -> Option<Ring<'m>> {
        if vcpu >= self.guest.vcpus {
            return None;
        }
        let memory = self.memory.get(vcpu as usize * self.words_each..)?;
        Ring::over(memory.get(..self.words_each)?, FIXED_WORDS + 1)
    }

    /// Takes a sample of `vcpu` if one is due, and returns whether it did. Called by that vCPU's timer interrupt; not
    /// reentrant.
    ///
    /// Costs one load while no client is attached, otherwise at most [`MOST_FRAMES`] steps and [`MOST_STACK_BYTES`]
    /// bytes.
    #[inline]
    pub fn sample(&self, vcpu: u32, registers: &Registers) -> bool {
        let epoch = self.epoch.load(Ordering::Acquire);
        epoch & 1 == 1 && self.take(epoch, vcpu, registers)
    }

    #[inline(never)]
    fn take(&self, epoch: u64, vcpu: u32, registers: &Registers) -> bool {
        let began = cycles();
        let now = (self.guest.clock)();
        let Some(ring) = self.ring(vcpu) else {
            return false;
        };
        if !ring.is_due(epoch, now, self.period_ticks.load(Ordering::Relaxed)) {
            return false;
        }
        let frames = u64::from(self.frames.load(Ordering::Relaxed).min(MOST_FRAMES));
        let stack_bytes = self
            .stack_bytes
            .load(Ordering::Relaxed)
            .min(MOST_STACK_BYTES);
        let mut record = ring.begin();
        let Registers {
            ip,
            sp,
            fp,
            lr,
            idle,
        } = *registers;
        let mut is_room = [0, now, ip, sp, fp, lr, 0]
            .iter()
            .all(|&word| record.push(word));
        let mut stop = Stop::NotWalked;
        if is_room && frames > 0 {
            match walk::chain(&self.stacks, fp, frames, |caller| record.push(caller)) {
                Some(end) => stop = end,
                None => is_room = false,
            }
        }
        let callers = record.count() - FIXED_WORDS as u64;
        let mut stack_words = 0;
        while is_room && stack_words < u64::from(stack_bytes.div_ceil(8)) {
            let Some(word) = self.stacks.word((sp & !7).wrapping_add(8 * stack_words)) else {
                break;
            };
            is_room = record.push(word);
            stack_words += 1;
        }
        if !is_room {
            record.lose();
            return false;
        }
        let state = u64::from(idle != 0);
        let count = record.count();
        record.set(
            0,
            count | callers << 16 | (stop as u64) << 32 | state << 40 | stack_words << 48,
        );
        record.set(COST_WORD, cycles().wrapping_sub(began));
        record.end();
        true
    }

    /// Whether samples are taken.
    pub fn is_sampling(&self) -> bool {
        self.epoch.load(Ordering::Relaxed) & 1 == 1
    }

    /// Attaches a session's client, if none is attached. The session owns the rings until [`Agent::leave`].
    pub(crate) fn enter(&self) -> bool {
        !self.is_taken.swap(true, Ordering::Acquire)
    }

    /// Detaches the client.
    pub(crate) fn leave(&self) {
        self.stop();
        self.is_taken.store(false, Ordering::Release);
    }

    /// Starts sampling; returns the period, frames and stack bytes that will be used.
    pub(crate) fn start(&self, period_ns: u64, frames: u32, stack_bytes: u32) -> (u64, u32, u32) {
        self.stop();
        for vcpu in 0..self.guest.vcpus {
            if let Some(ring) = self.ring(vcpu) {
                ring.forget_all();
            }
        }
        let (frames, stack_bytes) = (frames.min(MOST_FRAMES), stack_bytes.min(MOST_STACK_BYTES));
        let ticks = u128::from(period_ns) * u128::from(self.guest.clock_hz) / 1_000_000_000;
        let ticks = u64::try_from(ticks).unwrap_or(u64::MAX).max(1);
        self.period_ticks.store(ticks, Ordering::Relaxed);
        self.frames.store(frames, Ordering::Relaxed);
        self.stack_bytes.store(stack_bytes, Ordering::Relaxed);
        self.epoch.fetch_add(1, Ordering::Release);
        (period_ns, frames, stack_bytes)
    }

    /// Stops sampling.
    pub(crate) fn stop(&self) {
        // Only the session that entered calls this.
        if self.is_sampling() {
            self.epoch.fetch_add(1, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct NoStacks;

    impl Memory for NoStacks {
        fn word(&self, _: u64) -> Option<u64> {
            None
        }
    }

    #[test]
    fn what_a_guest_says_wrongly_is_refused() {
        let memory: Vec<AtomicU64> = (0..4096).map(|_| AtomicU64::new(0)).collect();
        let guest = |vcpus| Guest {
            vcpus,
            ..Guest::default()
        };
        let new = |words: usize, guest| Agent::new(&memory[..words], guest, NoStacks).map(drop);
        assert_eq!(new(4096, guest(0)), Err(Refused::Vcpus));
        assert_eq!(new(4096, guest(257)), Err(Refused::Vcpus));
        assert_eq!(new(31, guest(2)), Err(Refused::Memory));
        assert_eq!(new(32, guest(2)), Ok(()));
        assert_eq!(new(0, guest(1)), Err(Refused::Memory));
        let clockless = Guest {
            clock_hz: 0,
            ..guest(1)
        };
        assert_eq!(new(4096, clockless), Err(Refused::Clock));
        let agent = Agent::new(&memory, guest(1), NoStacks).unwrap();
        assert!(
            !agent.sample(7, &Registers::default()),
            "there is no such vCPU"
        );
        assert_eq!(Agent::<NoStacks>::words(2, 10, 1, 8), 2 * (8 + 128));
    }
}
