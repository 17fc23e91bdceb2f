//! Samples a guest of its own: a machine of a few instructions that is interpreted by a thread of this program.
//!
//!     cargo run -p uniprof-record --example own_source -- own.uprof own.map
//!     uniprof report --symbols own.map own.uprof
//!
//! Its program calls `short` and `long` in turn; the second takes three times as long, and so it has three of four
//! samples. All that is the machine's own is in [`StopWorld`]: how it stands still, what its registers are, and how
//! its memory is read. When to sample, how to walk stacks and what to write is the recorder's.

use std::error::Error;
use std::fs::File;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use uniprof_record::ring::Sink;
use uniprof_record::source::{Hot, Vcpu, Vcpus};
use uniprof_record::{Counters, Facts, Life, Plan, Source, SourceError, StopWorld};
use uprof::cold::{Target, TargetKind};
use uprof::cpu::SpecialRegisters;
use uprof::{Arch, Details, Registers, State, Task};

const MAIN: u64 = 0x1000;
const SHORT: u64 = 0x2000;
const LONG: u64 = 0x3000;
/// The stack grows downwards from here.
const STACK_TOP: u64 = 0x10_0000;
const STACK_WORDS: usize = 16;

/// The machine's whole state.
struct Machine {
    ip: u64,
    sp: u64,
    fp: u64,
    stack: [u64; STACK_WORDS],
}

impl Machine {
    fn new() -> Machine {
        Machine {
            ip: MAIN,
            sp: STACK_TOP,
            fp: 0,
            stack: [0; STACK_WORDS],
        }
    }

    fn place(address: u64) -> usize {
        STACK_WORDS - ((STACK_TOP - address) / 8) as usize
    }

    fn push(&mut self, word: u64) {
        self.sp -= 8;
        self.stack[Machine::place(self.sp)] = word;
    }

    fn pop(&mut self) -> u64 {
        let word = self.stack[Machine::place(self.sp)];
        self.sp += 8;
        word
    }

    /// As x86-64 code with frame pointers does it.
    fn call(&mut self, function: u64) {
        // Where it goes on afterwards: behind the call.
        self.push(self.ip + 1);
        self.push(self.fp);
        self.fp = self.sp;
        self.ip = function;
    }

    fn ret(&mut self) {
        self.fp = self.pop();
        self.ip = self.pop();
    }

    /// Runs the program once around, and lets others look between any two instructions.
    fn run(shared: &Mutex<Machine>) {
        for (function, instructions) in [(SHORT, 2_000), (LONG, 6_000)] {
            lock(shared).call(function);
            (0..instructions).for_each(|_| lock(shared).ip += 1);
            lock(shared).ret();
        }
        lock(shared).ip = MAIN;
    }
}

fn lock(shared: &Mutex<Machine>) -> MutexGuard<'_, Machine> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The machine as the recorder sees it.
struct Guest {
    facts: Facts,
    shared: Arc<Mutex<Machine>>,
    /// As it was at the last freeze.
    stack: [u64; STACK_WORDS],
}

impl StopWorld for Guest {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    // The machine stands still while the lock is held. That is short, since all that it has is copied at once; a
    // guest with more memory would stay frozen until resume(), and read() would look at it meanwhile.
    fn freeze(&mut self, _now_ns: u64, vcpus: &mut Vcpus) -> Result<(), SourceError> {
        let machine = lock(&self.shared);
        let SpecialRegisters { ip, sp, fp } = Arch::X86_64.special_registers();
        let mut registers = Registers::default();
        registers.set(ip, machine.ip);
        registers.set(sp, machine.sp);
        registers.set(fp, machine.fp);
        self.stack = machine.stack;
        vcpus.push(Vcpu {
            task: Task { space: 0, vcpu: 0 },
            state: State::Running,
            registers,
            handle: 0,
            details: Details::default(),
        });
        Ok(())
    }

    fn read(&mut self, _vcpu: &Vcpu, address: u64, into: &mut [u8]) -> usize {
        if !(STACK_TOP - STACK_WORDS as u64 * 8..STACK_TOP).contains(&address) {
            return 0;
        }
        let words = &self.stack[Machine::place(address)..];
        let filled = into.chunks_exact_mut(8).zip(words);
        filled
            .map(|(bytes, word)| bytes.copy_from_slice(&word.to_le_bytes()))
            .count()
            * 8
    }

    fn resume(&mut self) -> Result<(), SourceError> {
        Ok(())
    }

    fn between(&mut self, _sink: &mut Sink) -> Result<Life, SourceError> {
        Ok(Life::Alive)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(recording), Some(map)) = (arguments.next(), arguments.next()) else {
        return Err("usage: own_source RECORDING MAP".into());
    };
    // As nm would print it.
    std::fs::write(
        map,
        format!("{MAIN:x} T main\n{SHORT:x} T short\n{LONG:x} T long\n"),
    )?;
    let shared = Arc::new(Mutex::new(Machine::new()));
    let guest = Guest {
        facts: Facts::new(Target {
            kind: TargetKind::Synthetic,
            name: "own".into(),
            vcpus: 1,
            ..Target::default()
        }),
        shared: Arc::clone(&shared),
        stack: [0; STACK_WORDS],
    };
    // Until the program ends.
    std::thread::spawn(move || {
        loop {
            Machine::run(&shared);
        }
    });
    let source = Source::of(Hot::StopWorld(Box::new(guest)));
    let plan = Plan {
        rate_hz: 499.0,
        duration: Some(Duration::from_secs(2)),
        ..Plan::default()
    };
    let counters = Arc::new(Counters::default());
    let summary = uniprof_record::record(source, File::create(recording)?, &plan, counters)?;
    println!("{} samples, {} bytes", summary.samples, summary.bytes);
    Ok(())
}
