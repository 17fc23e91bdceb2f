//! A guest of 64 vCPUs that is computed rather than run, for recordings of hours in minutes.
//!
//! In each round, 8 vCPUs run and are somewhere else each time, in one of 512 stacks of 4 to 24
//! frames; 24 are blocked and stand in the same idle stack of 6 frames, except that each of them is
//! met running every 61st round; 32 are offline. That is what a large guest with little to do looks
//! like. Registers and stack memory are read as those of a real guest are, and walked. Time passes
//! only as the simulated freezes take it; every 100,003rd takes so long that deadlines are missed.
//!
//! All follows from the number of the round, so that a reader can tell what must be in the file.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use uniprof_record::ring::Sink;
use uniprof_record::simulated;
use uniprof_record::source::{Hot, Vcpu, Vcpus};
use uniprof_record::{Counters, Facts, Life, Source, SourceError, StopWorld};
use uprof::cold::{Target, TargetKind};
use uprof::{Arch, Details, Frame, Registers, State, Task};

/// Stacks of vCPUs that run; one more is the idle stack.
const STACKS: usize = 512;
const IDLE: usize = STACKS;
const VCPUS: u32 = 64;
const RUNNING: u32 = 8;
const ONLINE: u32 = 32;
const STACK_BASE: u64 = 0xffff_8800_0000_0000;
const CODE_BASE: u64 = 0xffff_ffff_8100_0000;
const FRAME_BYTES: u64 = 48;
/// Samples under way to the encoder at the most: less than the ring holds, so that a simulated
/// second, which takes no time, doesn't overrun it.
const MOST_UNDER_WAY: u64 = 3072;

/// How long it waits for the encoder then.
const BREATH: Duration = Duration::from_micros(100);

/// One stack: what lies in memory, and the chain that a walk must find.
struct Stack {
    address: u64,
    bytes: Vec<u8>,
    chain: Vec<Frame>,
}

/// What the guest does in each round.
pub struct Guest {
    stacks: Vec<Stack>,
}

fn mix(word: u64) -> u64 {
    let mixed = (word ^ word >> 31).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed ^ mixed >> 29
}

impl Stack {
    fn new(number: usize) -> Self {
        let number = number as u64;
        let depth = match number as usize {
            IDLE => 6,
            _ => 4 + mix(number / 4) % 21,
        };
        let address = STACK_BASE + number * 0x4000;
        // Neighbours in number share their outer half, as paths through a program do.
        let code = |level: u64| {
            let path = if level * 2 > depth {
                number / 8
            } else {
                number
            };
            CODE_BASE + mix(path * 64 + level) % 4096 * 0x80
        };
        let mut bytes = vec![0; ((depth + 1) * FRAME_BYTES) as usize];
        // The innermost address belongs to one stack alone.
        let mut chain = vec![Frame::exact(CODE_BASE + 0x100_0000 + number * 0x40)];
        for level in 1..depth {
            let at = ((level - 1) * FRAME_BYTES) as usize;
            let next = address + level * FRAME_BYTES;
            bytes[at..at + 8].copy_from_slice(&next.to_le_bytes());
            bytes[at + 8..at + 16].copy_from_slice(&code(level).to_le_bytes());
            chain.push(Frame::return_address(code(level)));
        }
        Stack {
            address,
            bytes,
            chain,
        }
    }
}

impl Guest {
    /// DWARF number of the register that counts rounds: r15.
    pub const COUNTER: u8 = 15;

    /// The guest before its first round.
    pub fn new() -> Self {
        Guest {
            stacks: (0..=IDLE).map(Stack::new).collect(),
        }
    }

    /// What a vCPU does in a round, and in which stack it is; `None` where it is offline.
    pub fn state(&self, round: u64, vcpu: u32) -> (State, Option<usize>) {
        if vcpu >= ONLINE {
            return (State::Offline, None);
        }
        if vcpu < RUNNING || (round + u64::from(vcpu)).is_multiple_of(61) {
            let draw = mix(round << 6 | u64::from(vcpu));
            // Some stacks are hot.
            let stack = (draw % STACKS as u64).min(draw >> 32 & (STACKS as u64 - 1));
            return (State::Running, Some(stack as usize));
        }
        (State::Blocked, Some(IDLE))
    }

    /// The stack that gives this chain.
    pub fn stack_of(&self, chain: &[Frame]) -> Option<usize> {
        self.stacks.iter().position(|stack| stack.chain == chain)
    }

    fn registers(&self, stack: usize) -> Registers {
        let of = &self.stacks[stack];
        let mut registers = Registers::default();
        for number in 0..=5 {
            registers.set(number, mix(stack as u64) >> (number * 8));
        }
        registers.set(6, of.address);
        registers.set(7, of.address.wrapping_sub(16));
        for number in 8..Self::COUNTER {
            registers.set(number, u64::from(number) << 32);
        }
        registers.set(16, of.chain[0].address);
        registers
    }
}

/// The guest as a source, which waits for the encoder where a real one would overrun the ring.
struct Simulated {
    facts: Facts,
    guest: Guest,
    /// As they were in the last round.
    vcpus: Vec<Vcpu>,
    round: u64,
    taken: u64,
    counters: Arc<Counters>,
}

/// The guest as something to be recorded; `counters` must be the recording's.
pub fn source(counters: Arc<Counters>) -> Source {
    let target = Target {
        kind: TargetKind::Synthetic,
        name: "simulated guest".into(),
        arch: Arch::X86_64,
        vcpus: VCPUS,
        ..Target::default()
    };
    let vcpu = |vcpu| Vcpu {
        task: Task { space: 0, vcpu },
        state: State::Offline,
        registers: Registers::default(),
        handle: 0,
        details: Details::default(),
    };
    let simulated = Simulated {
        facts: Facts::new(target),
        guest: Guest::new(),
        vcpus: (0..VCPUS).map(vcpu).collect(),
        round: 0,
        taken: 0,
        counters,
    };
    Source::of(Hot::StopWorld(Box::new(simulated)))
}

impl StopWorld for Simulated {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn freeze(&mut self, _: u64, vcpus: &mut Vcpus) -> Result<(), SourceError> {
        while self.taken - self.counters.samples.load(Ordering::Relaxed) > MOST_UNDER_WAY {
            std::thread::sleep(BREATH);
        }
        for vcpu in &mut self.vcpus {
            let (state, stack) = self.guest.state(self.round, vcpu.task.vcpu);
            if let Some(stack) = stack {
                if vcpu.registers.mask() == 0 || vcpu.handle != stack as u64 {
                    vcpu.registers = self.guest.registers(stack);
                }
                vcpu.handle = stack as u64;
                vcpu.registers.set(Guest::COUNTER, self.round);
            }
            vcpu.state = state;
            vcpus.push(*vcpu);
        }
        self.round += 1;
        self.taken += u64::from(VCPUS);
        Ok(())
    }

    fn read(&mut self, vcpu: &Vcpu, address: u64, into: &mut [u8]) -> usize {
        let stack = &self.guest.stacks[vcpu.handle as usize];
        let offset = address.wrapping_sub(stack.address.wrapping_sub(16)) as usize;
        let Some(bytes) = offset.checked_sub(16).and_then(|at| stack.bytes.get(at..)) else {
            // Below the frames lie 16 bytes of the innermost function's own.
            into.fill(0);
            let skipped = 16usize.saturating_sub(offset).min(into.len());
            let count = stack.bytes.len().min(into.len() - skipped);
            into[skipped..skipped + count].copy_from_slice(&stack.bytes[..count]);
            return skipped + count;
        };
        let count = bytes.len().min(into.len());
        into[..count].copy_from_slice(&bytes[..count]);
        count
    }

    fn resume(&mut self) -> Result<(), SourceError> {
        let long = self.round.is_multiple_of(100_003);
        simulated::advance(if long {
            350_000
        } else {
            8_000 + mix(self.round) % 8_192
        });
        Ok(())
    }

    fn between(&mut self, _: &mut Sink) -> Result<Life, SourceError> {
        Ok(Life::Alive)
    }
}
