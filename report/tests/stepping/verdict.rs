//! The result of stepping through one program.

use super::shadow::{Effect, Shadow};
use super::{Images, Known, Machine};
use std::collections::{BTreeMap, HashMap};
use uniprof_report::images::ImageAddress;
use uniprof_report::unwind::{Cache, Module, Options, Stack, Unwinder};
use uprof::cpu::SpecialRegisters;
use uprof::{Arch, Frame, Registers, Stop};

/// An instruction is not checked again after this many times.
const LOOKS_MAX: u32 = 32;

/// The result for one program.
#[derive(Default)]
pub struct Steps {
    pub taken: usize,
    /// Number of steps at which the frames were compared with the truth.
    pub looked_at: usize,
    /// Number of comparisons for each instruction.
    pub looks: HashMap<u64, u32>,
    pub frames: usize,
    /// Number of steps in signal handlers.
    pub in_signals: usize,
    /// Steps with wrong frames: their number and a description, by the function.
    pub wrong: BTreeMap<String, (usize, String)>,
    /// The same, if the frame with the wrong caller is in code without call frame information.
    pub without_rule: BTreeMap<String, (usize, String)>,
}

impl Steps {
    pub fn wrong_steps(&self) -> usize {
        self.wrong.values().map(|(times, _)| times).sum()
    }

    pub fn without_rule_steps(&self) -> usize {
        self.without_rule.values().map(|(times, _)| times).sum()
    }

    pub fn print(&self, name: &str) {
        println!(
            "{name}: {} steps, {} looked at, {} instructions, {} frames, {} in signal handlers: {} \
             wrong ({:.3} %), {} in code without call frame information",
            self.taken,
            self.looked_at,
            self.looks.len(),
            self.frames,
            self.in_signals,
            self.wrong_steps(),
            self.wrong_steps() as f64 * 100.0 / self.looked_at.max(1) as f64,
            self.without_rule_steps(),
        );
        let show = |what: &str, all: &BTreeMap<String, (usize, String)>| {
            for (place, (times, text)) in all.iter().take(12) {
                println!("    {what} {times} times: {place}: {text}");
            }
        };
        show("wrong", &self.wrong);
        show("no rule", &self.without_rule);
    }
}

/// The current mappings.
struct Mapped {
    modules: Vec<(Module, Known)>,
    unwinder: Unwinder,
}

impl Mapped {
    fn new(arch: Arch, images: &mut Images, machine: &mut dyn Machine) -> Mapped {
        let modules = images.modules(machine);
        let plain = modules.iter().map(|(module, _)| module.clone()).collect();
        Mapped {
            modules,
            unwinder: Unwinder::new(arch, plain),
        }
    }

    fn find(&self, address: u64) -> Option<(&Known, ImageAddress)> {
        let found = self.modules.iter();
        let (module, known) = found
            .filter(|(module, _)| (module.start..module.end).contains(&address))
            .max_by_key(|(module, _)| module.start)?;
        Some((known, ImageAddress(address.wrapping_sub(module.bias))))
    }

    fn has_rule(&self, frame: &Frame) -> bool {
        self.find(frame.lookup_address())
            .is_some_and(|(known, address)| {
                [address, ImageAddress(address.0 + 1)]
                    .into_iter()
                    .any(|at| known.rules.covers(at))
            })
    }

    fn name(&self, frame: &Frame) -> String {
        let Some((known, address)) = self.find(frame.lookup_address()) else {
            return format!("{:#x}", frame.address);
        };
        let image = known.image.name();
        let image = image.rsplit('/').next().unwrap_or(image);
        match known.symbols.find(address) {
            Some(found) => {
                let into = address.0 - found.start.0;
                format!("{image} {}+{into:#x} ({:#x})", found.name, address.0)
            }
            None => format!("{image} {:#x}", address.0),
        }
    }
}

/// A program that is being stepped, and the state of the comparison.
struct Walk<'m> {
    arch: Arch,
    machine: &'m mut dyn Machine,
    images: Images,
    mapped: Mapped,
    cache: Cache,
    frames: Vec<Frame>,
    shadow: Shadow,
    effects: HashMap<u64, Effect>,
    steps: Steps,
}

/// Takes up to `most` steps of `machine`. Its first instruction has no callers; or it is the first of `main`,
/// whose callers are assumed to be right if they lead to the start of the program.
pub fn step(arch: Arch, machine: &mut dyn Machine, is_main: bool, most: usize) -> Steps {
    let mut images = Images::default();
    let mapped = Mapped::new(arch, &mut images, machine);
    let mut walk = Walk {
        arch,
        machine,
        images,
        mapped,
        cache: Cache::new(),
        frames: Vec::new(),
        shadow: Shadow::default(),
        effects: HashMap::new(),
        steps: Steps::default(),
    };
    if is_main {
        walk.believe();
    }
    walk.run(most);
    walk.steps
}

impl Walk<'_> {
    /// Takes the unwinder's frames at the start as the truth.
    fn believe(&mut self) {
        let registers = self.machine.registers();
        let sp_number = self.arch.special_registers().sp;
        let sp = registers.get(sp_number).unwrap();
        let stop = self.unwind(&registers, sp);
        let outermost = self.frames.last().map(|frame| self.mapped.name(frame));
        let outermost = outermost.unwrap_or_default();
        assert!(
            stop == Stop::Complete && outermost.contains(" _start+"),
            "{outermost}"
        );
        let callers: Vec<u64> = self.frames[1..].iter().map(|frame| frame.address).collect();
        self.shadow = Shadow::with(&callers, sp);
    }

    fn unwind(&mut self, registers: &Registers, sp: u64) -> Stop {
        let memory = Stack {
            base: sp,
            bytes: self.machine.stack(sp),
        };
        self.frames.clear();
        let (unwinder, cache) = (&self.mapped.unwinder, &mut self.cache);
        unwinder.unwind(
            cache,
            registers,
            &memory,
            Options::default(),
            &mut self.frames,
        )
    }

    fn run(&mut self, most: usize) {
        let SpecialRegisters {
            ip: pc_number,
            sp: sp_number,
            ..
        } = self.arch.special_registers();
        let special = |registers: &Registers| {
            let get = |number| registers.get(number).unwrap();
            (get(pc_number), get(sp_number))
        };
        let mut registers = self.machine.registers();
        for _ in 0..most {
            let (pc, sp) = special(&registers);
            if self.mapped.find(pc).is_none() {
                self.mapped = Mapped::new(self.arch, &mut self.images, self.machine);
            }
            self.steps.taken += 1;
            let looks = self.steps.looks.entry(pc).or_default();
            *looks += 1;
            if *looks <= LOOKS_MAX {
                self.check(&registers, pc, sp);
            }
            let mut effect = self.effect(pc);
            let Some(signalled) = self.machine.step() else {
                break;
            };
            registers = self.machine.registers();
            let (at, now) = special(&registers);
            let mut from = pc;
            if effect == Effect::SystemCall && at != pc + 4 {
                from = pc + 4;
                effect = self.effect(from);
            }
            let mut top = 0;
            if signalled || effect == Effect::Call {
                let stack = self.machine.stack(now);
                top = u64::from_le_bytes(*stack.first_chunk().unwrap());
            }
            if signalled {
                self.shadow.interrupted(pc, sp, now, top);
            } else {
                self.shadow.took(self.arch, effect, from, now, at, top);
            }
        }
    }

    fn effect(&mut self, at: u64) -> Effect {
        let machine = &mut self.machine;
        let effect = self.effects.entry(at);
        *effect.or_insert_with(|| Effect::of(self.arch, &machine.code(at)))
    }

    /// Compares the unwinder's frames with the truth.
    fn check(&mut self, registers: &Registers, pc: u64, sp: u64) {
        let stop = self.unwind(registers, sp);
        let steps = &mut self.steps;
        steps.looked_at += 1;
        steps.frames += self.frames.len();
        steps.in_signals += usize::from(self.shadow.is_in_signal());
        let truth = || [pc].into_iter().chain(self.shadow.callers());
        let same = self.frames.iter().zip(truth());
        let same = same
            .take_while(|(ours, truth)| ours.address == *truth)
            .count();
        let is_whole = same == self.frames.len() && truth().count() == same;
        if is_whole && stop == Stop::Complete {
            return;
        }
        // The caller that was found for this frame is wrong.
        let last = self.frames[same.max(1) - 1];
        let wanted = truth().nth(same);
        let place = format!("from {}", self.mapped.name(&self.frames[0]));
        let list = match self.mapped.has_rule(&last) {
            true => &mut steps.wrong,
            false => &mut steps.without_rule,
        };
        let entry = list.entry(place).or_insert_with(|| {
            let ours = self.frames.get(same).map(|frame| frame.found.name());
            let text = format!(
                "the caller of {} is {:x?}, not {ours:x?}; {}",
                self.mapped.name(&last),
                wanted,
                stop.name(),
            );
            (0, text)
        });
        entry.0 += 1;
    }
}
