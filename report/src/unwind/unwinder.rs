//! The unwinding loop. Input: registers, memory and modules. Output: frames, and the reason why there were no more.
//! Each step tries call frame information, then a trap frame's shape, then the frame pointer, then, only if
//! requested, a scan. The depth is limited.

use super::aarch64::Aarch64;
use super::cache::{Action, Cache, Owner, Plain, RuleId, Slot};
use super::cpu::Cpu;
use super::frameless::{CalledOn, Frameless};
use super::memory::Memory;
use super::modules::{Module, Modules};
use super::registers::Registers;
use super::returns::{Landing, address_taken, call_at, landing};
use super::rules::FoundRule;
use super::step::{self, Step, StepError};
use super::x86_64::{X86_64, trap_frame};
use crate::work;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use uprof::cpu::Call;
use uprof::cpu::is_kernel_address;
use uprof::image::{Cfa, Place, Save};
use uprof::{Arch, Found, Frame, FrameKind, Stop};

/// How many times the stack pointer may decrease while unwinding: once for each change between stacks of a kernel.
/// More is a loop.
const STACK_CHANGES_MAX: u32 = 8;

/// Most functions without a frame; Go's runtime has some twenty.
const FRAMELESS_MAX: usize = 64;
/// The largest function that is looked through for calls and addresses (bytes); of a longer one nothing is certain.
const CALLER_BYTES_MAX: u64 = 64 << 10;

/// The cost of looking for a call before one address, of a run's budget of steps.
const STEPS_PER_SEARCHED_BYTE: u64 = 16;

/// The cost of a frame, of a run's budget of steps.
const STEPS_PER_FRAME: u64 = 4;

/// Limits of unwinding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Most frames of one stack.
    pub depth_max: usize,
    /// Scan the stack if nothing else helps.
    pub scan: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            depth_max: 512,
            scan: false,
        }
    }
}

/// A number that no unwinder has yet.
fn next_number() -> u64 {
    static NUMBER: AtomicU64 = AtomicU64::new(1);
    NUMBER.fetch_add(1, Ordering::Relaxed)
}

/// What a rule says of a record of frame pointers: the caller's, and behind it the return address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordRule {
    /// Nothing against it, or there is no rule.
    Unsaid,
    /// The function keeps none: where it calls another, the rule counts from the stack pointer (x86-64), or it is a
    /// signal's return, whose caller a signal has interrupted.
    Missing,
    /// The function has no caller.
    Begins,
}

/// How unwinding ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Why.
    pub stop: Stop,
    /// The frame pointer of the last frame, if it is known.
    pub frame_pointer: Option<u64>,
    /// The place of that frame's return address by its rule, even if it was not recorded.
    pub return_slot: Option<u64>,
    /// A lower bound of that frame's stack pointer.
    pub floor: u64,
}

/// Unwinds stacks of one address space.
#[derive(Debug)]
pub struct Unwinder {
    modules: Modules,
    arch: Arch,
    /// The registers that rules found so far depend on, as a bit set. No other register has to be restored.
    needed: AtomicU64,
    /// Identifies the owner of cache entries.
    number: u64,
    /// Whether the modules are all the code.
    has_all_code: bool,
    /// Whether frame pointers may lead through interrupts.
    has_interrupts: bool,
    /// Whether the lower half has processes' code alone.
    has_processes: bool,
    /// Functions of Go's runtime.
    frameless: Vec<Frameless>,
}

impl Unwinder {
    /// An unwinder for guests with these modules. Overlaps are resolved, see `Modules`.
    pub fn new(arch: Arch, modules: Vec<Module>) -> Unwinder {
        let modules = Modules::new(modules);
        let special = match arch {
            Arch::X86_64 => special::<X86_64>(),
            Arch::Aarch64 => special::<Aarch64>(),
        };
        Unwinder {
            modules,
            arch,
            needed: AtomicU64::new(special),
            number: next_number(),
            has_all_code: false,
            has_interrupts: false,
            has_processes: false,
            frameless: Vec::new(),
        }
    }

    /// An unwinder for the same guest after `later` were mapped, one after the other, each over what was there.
    pub(crate) fn after(&self, later: impl Iterator<Item = Module>) -> Unwinder {
        let mut modules = self.modules.clone();
        later.for_each(|module| modules.lay(module));
        Unwinder {
            modules,
            needed: AtomicU64::new(self.needed.load(Ordering::Relaxed)),
            number: next_number(),
            frameless: self.frameless.clone(),
            ..*self
        }
    }

    /// Whether the modules are known to be all the code.
    pub(crate) fn has_all_code(&self) -> bool {
        self.has_all_code
    }

    /// How many pieces of its modules one made by [`Unwinder::after`] refers to.
    pub(crate) fn pieces(&self) -> usize {
        self.modules.pieces()
    }

    /// States that the modules are all the code: an address outside them is no return address.
    pub(crate) fn with_all_code(self, has_all_code: bool) -> Unwinder {
        Unwinder {
            has_all_code,
            ..self
        }
    }

    /// Lets frame pointers lead to code that doesn't follow a call: in a kernel they lead through interrupts to the
    /// interrupted code.
    pub(crate) fn with_interrupts(self, has_interrupts: bool) -> Unwinder {
        Unwinder {
            has_interrupts,
            ..self
        }
    }

    /// States that code in the lower half is a process's, which a kernel in the upper half never calls.
    pub(crate) fn with_processes(self, has_processes: bool) -> Unwinder {
        Unwinder {
            has_processes,
            ..self
        }
    }

    /// Adds functions that call others without a frame.
    pub(crate) fn with_frameless(mut self, more: Vec<Frameless>) -> Unwinder {
        self.frameless.extend(more);
        self.frameless.truncate(FRAMELESS_MAX);
        self
    }

    /// Whether some function's callers are not found as usual.
    pub(crate) fn has_frameless(&self) -> bool {
        !self.frameless.is_empty()
    }

    /// Where the function at `address` calls others, if its callers are not found as usual.
    pub(crate) fn frameless_at(&self, address: u64) -> Option<CalledOn> {
        let mut all = self.frameless.iter();
        all.find(|one| one.code.contains(&address))
            .map(|one| one.stack)
    }

    /// The number of the first of `frames` that may have another stack than that of its rules.
    pub(crate) fn switch_in(&self, frames: &[Frame]) -> Option<usize> {
        let is_switch = |frame: &Frame| match self.frameless_at(frame.lookup_address()) {
            None | Some(CalledOn::Same) => false,
            // It may have been interrupted behind the change of stacks.
            Some(CalledOn::Other) => true,
            Some(_) => frame.kind == FrameKind::Return,
        };
        if !self.has_frameless() {
            return None;
        }
        frames.iter().position(is_switch)
    }

    /// The return addresses of the calls in `code` that lead to `callee`, ascending.
    pub(crate) fn calls_in(&self, code: Range<u64>, callee: &Range<u64>) -> Vec<u64> {
        let length_bytes = code.end.saturating_sub(code.start);
        if length_bytes > CALLER_BYTES_MAX {
            return Vec::new();
        }
        work::take(STEPS_PER_SEARCHED_BYTE * length_bytes);
        let leads_there = |address: &u64| match self.call_before(*address) {
            Some(Call::Direct(target)) => callee.contains(&target),
            _ => false,
        };
        code.map(|at| at + 1).filter(leads_there).collect()
    }

    /// The only place in `code` that takes the address of the function at `start`, or of a word that holds it.
    pub(crate) fn address_taken_in(&self, code: Range<u64>, start: u64) -> Option<u64> {
        let module = self.modules.at(code.start)?;
        let image = module.image.as_ref().filter(|image| image.tells_code())?;
        let length_bytes = code.end.checked_sub(code.start)?;
        (length_bytes <= CALLER_BYTES_MAX).then(|| work::take(length_bytes))?;
        let from = module.image_address(code.start);
        let wanted = module.image_address(start);
        let offset = match self.arch {
            Arch::X86_64 => address_taken::<X86_64>(image, from, length_bytes, wanted),
            Arch::Aarch64 => address_taken::<Aarch64>(image, from, length_bytes, wanted),
        }?;
        Some(code.start + offset)
    }

    /// What `address`, a supposed return address, points to.
    pub(crate) fn landing(&self, address: u64) -> Landing {
        let found = match self.arch {
            Arch::X86_64 => landing::<X86_64>(&self.modules, address),
            Arch::Aarch64 => landing::<Aarch64>(&self.modules, address),
        };
        let is_code = self.arch.can_be_code(address)
            && (found != Landing::Unmapped || is_canonical(self.arch, address));
        if is_code { found } else { Landing::NoCode }
    }

    /// The call before `return_address`; `None` if the code is not known, or there is none.
    pub(crate) fn call_before(&self, return_address: u64) -> Option<Call> {
        let module = self.modules.at(return_address.wrapping_sub(1))?;
        let image = module.image.as_ref().filter(|image| image.tells_code())?;
        let call = match self.arch {
            Arch::X86_64 => call_at::<X86_64>(image, module.image_address(return_address)),
            Arch::Aarch64 => call_at::<Aarch64>(image, module.image_address(return_address)),
        }?;
        Some(match call {
            Call::Direct(target) => Call::Direct(target.wrapping_add(module.bias)),
            Call::Indirect => Call::Indirect,
        })
    }

    /// Whether `caller` can't have called the code at `inner`: it is in the kernel's half, and the code is a process's.
    pub(crate) fn is_kernel_above(&self, inner: u64, caller: u64) -> bool {
        self.has_processes && !is_kernel_address(inner) && is_kernel_address(caller)
    }

    /// Whether there is no code before the return address `address`.
    fn is_nowhere(&self, address: u64) -> bool {
        match self.landing(address) {
            Landing::NoCode => true,
            Landing::Unmapped => self.has_all_code,
            _ => false,
        }
    }

    /// Whether `address` can be a return address; the outermost need not follow a call.
    pub(crate) fn is_return(&self, address: u64, is_outermost: bool) -> bool {
        self.accepts(self.landing(address), is_outermost)
    }

    /// Whether an address with this content can be a return address; the outermost need not follow a call.
    pub(crate) fn accepts(&self, landing: Landing, is_outermost: bool) -> bool {
        match landing {
            Landing::Return | Landing::Outermost | Landing::Unread => true,
            Landing::Elsewhere => is_outermost || self.has_interrupts,
            Landing::NoFrame => is_outermost,
            Landing::Unmapped => !self.has_all_code,
            Landing::NoCode => false,
        }
    }

    /// What the rule of the function at `frame` says of its record of frame pointers.
    pub(crate) fn record_rule(&self, frame: &Frame) -> RecordRule {
        let address = frame.lookup_address();
        let module = self.modules.at(address);
        let Some(module) = module.filter(|_| self.arch == Arch::X86_64) else {
            return RecordRule::Unsaid;
        };
        let of_signal = || {
            module
                .rules
                .find_signal(module.image_address(frame.address))
        };
        let exact = || module.rule(frame.address);
        let found = module.rule(address).or_else(exact).or_else(of_signal);
        let Some((rule, set)) = found.and_then(|found| Some((found.rule()?, found.set))) else {
            return RecordRule::Unsaid;
        };
        let sp = self.arch.special_registers().sp;
        let is_lost =
            |save: &Save| save.register == rule.return_register && save.place == Place::Lost;
        match rule.cfa {
            _ if set.saves(rule).iter().any(is_lost) => RecordRule::Begins,
            _ if rule.is_trap => RecordRule::Missing,
            Cfa::Register { register, .. } if register == sp => RecordRule::Missing,
            _ => RecordRule::Unsaid,
        }
    }

    /// Whether some module has `address`.
    pub(crate) fn is_known(&self, address: u64) -> bool {
        self.modules.find(address).is_some()
    }

    /// Appends the frames of one stack to `frames`, innermost first, and returns why it ended.
    ///
    /// `registers` are those of the sample, by DWARF number, the program counter as number 16 (x86-64) or 32
    /// (aarch64); `memory` has its stack.
    pub fn unwind(
        &self,
        cache: &mut Cache,
        registers: &uprof::Registers,
        memory: &(impl Memory + ?Sized),
        options: Options,
        frames: &mut Vec<Frame>,
    ) -> Stop {
        self.unwind_to_end(cache, registers, memory, options, frames)
            .stop
    }

    /// The same, with what is known of the last frame, so that the caller can continue.
    pub(crate) fn unwind_to_end(
        &self,
        cache: &mut Cache,
        registers: &uprof::Registers,
        memory: &(impl Memory + ?Sized),
        options: Options,
        frames: &mut Vec<Frame>,
    ) -> End {
        let before = frames.len();
        // Which registers the rules read is known once they are found: a stack on which one reads another than those
        // before is unwound again. There are few registers, so this happens a few times in all.
        let end = loop {
            let needed = self.needed.load(Ordering::Relaxed);
            cache.serve(Owner {
                unwinder: self.number,
                needed,
            });
            let mut walk = Walk {
                unwinder: self,
                needed,
                cache,
                memory,
                options,
                frames,
            };
            let end = match self.arch {
                Arch::X86_64 => walk.run::<X86_64>(Registers::select(registers, needed)),
                Arch::Aarch64 => walk.run::<Aarch64>(Registers::select(registers, needed)),
            };
            if self.needed.load(Ordering::Relaxed) == needed {
                break end;
            }
            frames.truncate(before);
        };
        work::take(STEPS_PER_FRAME * (frames.len() - before) as u64);
        end
    }

    /// Whether a function of Go's program begins at `address`, to which no call returns.
    fn is_switch(&self, address: u64) -> bool {
        let has_rule = |module: &Module| module.rule(address).is_some();
        self.has_frameless()
            && self.modules.at(address).is_some_and(has_rule)
            && self.call_before(address).is_none()
    }

    /// Whether the instruction before `address` is a system call, by the code of the image, if that is here.
    fn follows_syscall(&self, address: u64) -> bool {
        let before = |module: &Module| {
            let image = module.image.as_ref().filter(|image| image.tells_code());
            image.is_none_or(|image| {
                let code = image.bytes_at(module.image_address(address.wrapping_sub(2)), 2);
                code.is_some_and(|code| code == [0x0f, 0x05])
            })
        };
        self.arch == Arch::X86_64 && self.modules.at(address).is_some_and(before)
    }

    /// The action at `address`, from the table (slow).
    fn find_action<C: Cpu>(&self, address: u64, kind: FrameKind, needed: u64) -> Action {
        let at = |address: u64| {
            let number = self.modules.find(address)?;
            let module = self.modules.get(number)?;
            let found = module.rule(address)?;
            Some((number, found))
        };
        let is_trap =
            |(_, found): &(u32, FoundRule<'_>)| found.rule().is_some_and(|rule| rule.is_trap);
        let of_signal = || {
            let number = self.modules.find(address)?;
            let module = self.modules.get(number)?;
            let found = module.rules.find_signal(module.image_address(address))?;
            Some((number, found))
        };
        let found = match kind {
            FrameKind::Exact => at(address).or_else(|| {
                // A signal's return ends with its system call, which comes back behind the function.
                at(address.wrapping_sub(1))
                    .filter(|found| is_trap(found) && self.follows_syscall(address))
            }),
            FrameKind::Return => {
                let before = at(address.wrapping_sub(1));
                // A signal trampoline is "returned" to at its first byte. What is before it, if anything, is another
                // function.
                let trampoline = || at(address).filter(is_trap).or_else(of_signal);
                match &before {
                    Some(found) if is_trap(found) => before,
                    Some(_) if self.call_before(address).is_some() => before,
                    _ => trampoline().or(before),
                }
            }
        };
        let Some((module, found)) = found else {
            return if kind == FrameKind::Return && self.landing(address) == Landing::Outermost {
                Action::Outermost
            } else {
                Action::NoRule
            };
        };
        self.needed
            .fetch_or(found.registers_needed(), Ordering::Relaxed);
        step::plain::<C>(found.set, found.number, needed).unwrap_or(Action::Full {
            module,
            rule: RuleId {
                part: found.part,
                number: found.number,
            },
        })
    }
}

/// One stack being unwound.
struct Walk<'a, M: Memory + ?Sized> {
    unwinder: &'a Unwinder,
    /// The registers that are restored, as a bit set.
    needed: u64,
    cache: &'a mut Cache,
    memory: &'a M,
    options: Options,
    frames: &'a mut Vec<Frame>,
}

impl<M: Memory + ?Sized> Walk<'_, M> {
    fn run<C: Cpu>(&mut self, mut registers: Registers) -> End {
        let mut kind = FrameKind::Exact;
        // Even while the stack pointer is unknown.
        let mut floor = registers.get(C::STACK_POINTER).unwrap_or(0);
        let stop = self.steps::<C>(&mut registers, &mut kind, &mut floor);
        let pc = registers.get(C::PROGRAM_COUNTER);
        let return_slot = pc.filter(|_| stop != Stop::Complete);
        End {
            stop,
            frame_pointer: registers.get(C::FRAME_POINTER),
            return_slot: return_slot.and_then(|pc| self.return_slot::<C>(&registers, pc, kind)),
            floor,
        }
    }

    /// Takes all steps; leaves the last frame's registers, its kind, and a lower bound of its stack pointer.
    fn steps<C: Cpu>(
        &mut self,
        registers: &mut Registers,
        kind: &mut FrameKind,
        floor: &mut u64,
    ) -> Stop {
        let Some(mut pc) = registers.get(C::PROGRAM_COUNTER) else {
            return Stop::BadRule;
        };
        let mut found = Found::FramePointer;
        let before = self.frames.len();
        let depth_max = before.saturating_add(self.options.depth_max);
        let mut stack_changes = 0;
        loop {
            if self.frames.len() >= depth_max {
                return Stop::Depth;
            }
            self.frames.push(Frame {
                address: pc,
                kind: *kind,
                found,
            });
            let step = match self.step::<C>(registers, pc, *kind, *floor) {
                Ok(step) => step,
                Err(end) => return end,
            };
            let next_pc = registers.get(C::PROGRAM_COUNTER).unwrap_or(0);
            if next_pc == 0 {
                // No process's code is entered without a caller's address; where rules say so, they are wrong there.
                let is_innermost = self.frames.len() == before + 1;
                let is_wrong = is_innermost && !self.unwinder.has_interrupts;
                return if is_wrong {
                    Stop::BadRule
                } else {
                    Stop::Complete
                };
            }
            if self.unwinder.is_kernel_above(pc, next_pc) {
                // This step was wrong, and so are its registers.
                registers.forget(C::FRAME_POINTER);
                registers.forget(C::PROGRAM_COUNTER);
                return Stop::BadRule;
            }
            if is_left(pc, next_pc) && !self.unwinder.is_known(next_pc) {
                // The code that entered the kernel has another stack, which isn't in this memory.
                return Stop::Complete;
            }
            if step.floor <= *floor {
                // Only a function that hasn't moved the stack pointer leaves it unchanged.
                if step.floor < *floor || *kind == FrameKind::Return {
                    stack_changes += 1;
                }
                if stack_changes > STACK_CHANGES_MAX || (step.floor == *floor && next_pc == pc) {
                    return Stop::Cycle;
                }
            }
            (pc, *kind, found, *floor) = (next_pc, step.kind, step.found, step.floor);
        }
    }

    /// The place of the return address of the frame at `pc`, by its rule.
    fn return_slot<C: Cpu>(
        &mut self,
        registers: &Registers,
        pc: u64,
        kind: FrameKind,
    ) -> Option<u64> {
        let (unwinder, needed) = (self.unwinder, self.needed);
        match self
            .cache
            .action(pc, kind, || unwinder.find_action::<C>(pc, kind, needed))
        {
            Action::Plain(rule) if rule.return_address != Slot::KEPT => {
                let offset = i64::from(rule.cfa_offset).cast_unsigned();
                let cfa = registers.get(rule.cfa_register)?.wrapping_add(offset);
                Some(rule.return_address.address(cfa))
            }
            Action::Full { module, rule } => {
                let set = unwinder.modules.get(module)?.rules.set(rule.part);
                step::return_slot::<C>(set, rule.number, registers, self.memory)
            }
            _ => None,
        }
    }

    /// Replaces `registers` by the caller's.
    #[inline]
    fn step<C: Cpu>(
        &mut self,
        registers: &mut Registers,
        pc: u64,
        kind: FrameKind,
        floor: u64,
    ) -> Result<Step, Stop> {
        let (unwinder, needed) = (self.unwinder, self.needed);
        match self
            .cache
            .action(pc, kind, || unwinder.find_action::<C>(pc, kind, needed))
        {
            Action::Plain(rule) => self.plain::<C>(registers, rule, pc, floor),
            Action::Root => Err(Stop::Complete),
            Action::Outermost => {
                // Nothing before its first byte belongs to it.
                if let Some(frame) = self.frames.last_mut() {
                    frame.kind = FrameKind::Exact;
                }
                Err(Stop::Complete)
            }
            Action::Full { module, rule } => {
                let set = unwinder
                    .modules
                    .get(module)
                    .map(|it| it.rules.set(rule.part));
                let found = set.and_then(|set| set.rule(rule.number));
                // A signal trampoline is entered at its first byte; a kernel's code for interrupts calls.
                if found.is_some_and(|rule| rule.is_trap)
                    && !unwinder.has_interrupts
                    && unwinder.call_before(pc).is_none()
                    && let Some(frame) = self.frames.last_mut()
                {
                    let module = unwinder.modules.get(module);
                    let is_inside = module.is_some_and(|module| module.rule(pc).is_some());
                    // Behind its last instruction it is named by that.
                    frame.kind = match kind {
                        FrameKind::Exact if !is_inside => FrameKind::Return,
                        _ => FrameKind::Exact,
                    };
                }
                self.full::<C>(registers, module, rule, pc, floor)
            }
            Action::NoRule if kind == FrameKind::Return && unwinder.is_nowhere(pc) => {
                // The previous step was wrong, and so are its registers.
                self.frames.pop();
                registers.forget(C::FRAME_POINTER);
                registers.forget(C::PROGRAM_COUNTER);
                Err(Stop::BadRule)
            }
            // Go's cgocallback puts the first byte of `runtime.systemstack_switch` on a goroutine's stack in place of a
            // return address.
            Action::NoRule if kind == FrameKind::Return && unwinder.is_switch(pc) => {
                if let Some(frame) = self.frames.last_mut() {
                    frame.kind = FrameKind::Exact;
                }
                self.step::<C>(registers, pc, FrameKind::Exact, floor)
            }
            Action::NoRule => {
                let step = self.without_rule::<C>(registers, pc, floor, Stop::BadPointer);
                step.map_err(|end| {
                    if self.is_entered_by_return(pc, kind) {
                        Stop::Complete
                    } else {
                        end
                    }
                })
            }
        }
    }

    /// Whether the last frame, at `pc`, has no caller: its address is certain, by call frame information, and still no
    /// call led away from there. So begins a stack that a library for coroutines made, Boost's for one. (A kernel puts
    /// such addresses on its stack above an interrupt.)
    fn is_entered_by_return(&self, pc: u64, kind: FrameKind) -> bool {
        let is_certain = self
            .frames
            .last()
            .is_some_and(|frame| frame.found == Found::Cfi);
        let landing = || self.unwinder.landing(pc);
        kind == FrameKind::Return
            && is_certain
            && !self.unwinder.has_interrupts
            && matches!(landing(), Landing::Elsewhere | Landing::NoFrame)
    }

    #[inline]
    fn plain<C: Cpu>(
        &self,
        registers: &mut Registers,
        rule: Plain,
        pc: u64,
        floor: u64,
    ) -> Result<Step, Stop> {
        // Separate branches, so that the processor can predict them.
        let base = match rule.cfa_register {
            register if register == C::STACK_POINTER => registers.get(C::STACK_POINTER),
            register if register == C::FRAME_POINTER => registers.get(C::FRAME_POINTER),
            register => registers.get(register),
        };
        let cfa = base.map(|base| base.wrapping_add(i64::from(rule.cfa_offset).cast_unsigned()));
        let caller = match (cfa, rule.return_address) {
            (_, Slot::KEPT) => registers.get(C::RETURN_ADDRESS),
            (cfa, slot) => cfa.and_then(|cfa| self.memory.word(slot.address(cfa))),
        };
        let (Some(cfa), Some(caller)) = (cfa, caller) else {
            return self.without_rule::<C>(registers, pc, floor, unreadable(cfa, floor));
        };
        for (register, slot) in rule.others.into_iter().zip(rule.slots) {
            if slot == Slot::KEPT {
                break;
            }
            let at = slot.address(cfa);
            if step::is_given_back(at, cfa, floor) {
                continue;
            }
            match self.memory.word(at) {
                Some(value) => registers.set(register, value),
                None => registers.forget(register),
            }
        }
        if C::RETURN_ADDRESS != C::PROGRAM_COUNTER {
            registers.set(C::RETURN_ADDRESS, caller);
        }
        registers.set(C::STACK_POINTER, cfa);
        registers.set(C::PROGRAM_COUNTER, C::ARCH.without_signature(caller));
        Ok(Step {
            kind: FrameKind::Return,
            found: Found::Cfi,
            floor: cfa,
        })
    }

    fn full<C: Cpu>(
        &self,
        registers: &mut Registers,
        module: u32,
        rule: RuleId,
        pc: u64,
        floor: u64,
    ) -> Result<Step, Stop> {
        let Some(module) = self.unwinder.modules.get(module) else {
            return Err(Stop::BadRule);
        };
        let set = module.rules.set(rule.part);
        let end = match step::full::<C>(set, rule.number, registers, self.memory, floor) {
            Ok(step) => return Ok(step),
            Err(StepError::Root) => return Err(Stop::Complete),
            Err(StepError::Unreadable { cfa }) => unreadable(Some(cfa), floor),
            Err(StepError::BadRule) => Stop::BadRule,
        };
        self.without_rule::<C>(registers, pc, floor, end)
    }

    /// A step without call frame information. `end` is why, and why the stack ends if nothing else helps either.
    #[cold]
    fn without_rule<C: Cpu>(
        &self,
        registers: &mut Registers,
        pc: u64,
        floor: u64,
        end: Stop,
    ) -> Result<Step, Stop> {
        if end == Stop::Window {
            return Err(end);
        }
        let unwinder = self.unwinder;
        // On a process's stack, what looks like a processor's frame is data.
        if unwinder.arch == Arch::X86_64 && unwinder.has_interrupts && unwinder.is_known(pc) {
            let found = trap_frame(registers, self.memory, |address| unwinder.is_known(address));
            if let Some(interrupted) = found {
                *registers = interrupted;
                let floor = registers.get(C::STACK_POINTER).unwrap_or(floor);
                let kind = FrameKind::Exact;
                return Ok(Step {
                    kind,
                    found: Found::TrapFrame,
                    floor,
                });
            }
        }
        let is_return = |address, is_outermost| {
            !unwinder.is_kernel_above(pc, address) && unwinder.is_return(address, is_outermost)
        };
        // A register that is zero says that a stack ends where it was read from a record, or where a program's image
        // begins; in other code it is data.
        let is_linked = self.frames.last().is_some_and(|frame| {
            let module = unwinder.modules.at(frame.lookup_address());
            let is_of_image = module.is_some_and(|module| module.rules.are_of_image());
            frame.kind == FrameKind::Return && (frame.found == Found::FramePointer || is_of_image)
        });
        let zero = if unwinder.has_interrupts || is_linked {
            Stop::Complete
        } else {
            Stop::BadPointer
        };
        match step::frame_pointer::<C>(registers, self.memory, floor, zero, is_return) {
            Ok(step) => Ok(step),
            Err(_) if self.options.scan => {
                step::scan::<C>(registers, self.memory, floor, &unwinder.modules).ok_or(end)
            }
            // The more specific reason of the two.
            Err(other) if end == Stop::BadPointer => Err(other),
            Err(_) => Err(end),
        }
    }
}

/// Whether `address` has no more bits than processors with four levels of page tables translate (Intel SDM volume 1,
/// 3.3.7.1). More, which five levels allow, no program gets that doesn't ask for them.
fn is_canonical(arch: Arch, address: u64) -> bool {
    arch != Arch::X86_64 || matches!(address.cast_signed() >> 47, 0 | -1)
}

/// Whether a step from `pc` to `caller` leaves a kernel.
fn is_left(pc: u64, caller: u64) -> bool {
    is_kernel_address(pc) && !is_kernel_address(caller)
}

/// The registers that every step needs, as a bit set.
fn special<C: Cpu>() -> u64 {
    1 << C::STACK_POINTER | 1 << C::FRAME_POINTER | 1 << C::RETURN_ADDRESS | 1 << C::PROGRAM_COUNTER
}

/// The reason why a word near `cfa` can't be read: the recorded bytes end below it, or the CFA is invalid.
fn unreadable(cfa: Option<u64>, floor: u64) -> Stop {
    match cfa {
        Some(cfa) if cfa >= floor => Stop::Window,
        _ => Stop::BadRule,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::images::Image;
    use crate::unwind::memory::NoMemory;
    use crate::unwind::table::{NO_RULE, RuleTable};
    use std::sync::Arc;
    use uprof::image::{Cfa, RuleSet};

    #[test]
    fn calls_are_looked_for_in_functions_that_are_not_too_long() {
        let image = Image::open(&std::env::current_exe().unwrap()).unwrap();
        let mut code = image.segments().iter().filter(|segment| segment.has_code);
        let code = code.next().unwrap();
        let (start, end) = (code.address, code.address + code.file_bytes);
        let arch = image.arch();
        let module = Module {
            start,
            end,
            bias: 0,
            rules: Arc::default(),
            image: Some(Arc::new(image)),
        };
        let unwinder = Unwinder::new(arch, vec![module]);
        let calls =
            |at: u64, length_bytes: u64| unwinder.calls_in(at..at + length_bytes, &(start..end));
        let mut pieces = (start..end - CALLER_BYTES_MAX).step_by(CALLER_BYTES_MAX as usize);
        let at = pieces
            .find(|at| calls(*at, CALLER_BYTES_MAX).len() > 1)
            .unwrap();
        let found = calls(at, CALLER_BYTES_MAX);
        assert!(found.is_sorted() && at < found[0]);
        assert!(found.last() <= Some(&(at + CALLER_BYTES_MAX)));
        assert_eq!(calls(at, CALLER_BYTES_MAX + 1), Vec::<u64>::new());
    }

    #[test]
    fn so_many_functions_without_a_frame_are_known() {
        let all = (0..FRAMELESS_MAX as u64 + 1).map(|number| Frameless {
            code: number..number + 1,
            stack: CalledOn::Same,
        });
        let unwinder = Unwinder::new(Arch::X86_64, Vec::new()).with_frameless(all.collect());
        let last = FRAMELESS_MAX as u64 - 1;
        assert_eq!(unwinder.frameless_at(last), Some(CalledOn::Same));
        assert_eq!(unwinder.frameless_at(last + 1), None);
    }

    /// A leaf of aarch64: no frame, the return address in x30, signed.
    #[test]
    fn the_caller_of_a_leaf_is_known_without_memory() {
        let mut set = RuleSet::default();
        let cfa = Cfa::Register {
            register: 31,
            offset_bytes: 0,
        };
        set.push(cfa, false, 30, &[]);
        let rules = RuleTable {
            base: 0x1000,
            starts: vec![0, 0x20],
            row_rules: vec![0, NO_RULE],
            set,
            ..RuleTable::default()
        };
        let module = Module {
            start: 0x1000,
            end: 0x2000,
            bias: 0,
            rules: Arc::new(rules.into()),
            image: None,
        };
        let unwinder = Unwinder::new(Arch::Aarch64, vec![module]);
        let mut registers = uprof::Registers::default();
        for (number, value) in [
            (29, 0x9000),
            (30, 0x0012_0000_0000_1804),
            (31, 0x8000),
            (32, 0x1010),
        ] {
            registers.set(number, value);
        }
        let mut frames = Vec::new();
        let options = Options::default();
        let stop = unwinder.unwind(
            &mut Cache::new(),
            &registers,
            &NoMemory,
            options,
            &mut frames,
        );
        let addresses: Vec<u64> = frames.iter().map(|frame| frame.address).collect();
        assert_eq!((addresses, stop), (vec![0x1010, 0x1804], Stop::Window));
    }

    /// Frames of x86-64 without any image, where stack and frame pointer are where `bytes` of stack begin.
    fn without_images(bytes: &[u8]) -> (Vec<Frame>, Stop) {
        let base = 0x8000;
        let memory = crate::unwind::Stack { base, bytes };
        let unwinder = Unwinder::new(Arch::X86_64, Vec::new());
        let mut registers = uprof::Registers::default();
        for (number, value) in [(6, base), (7, base), (16, 0x1010)] {
            registers.set(number, value);
        }
        let mut frames = Vec::new();
        let options = Options::default();
        let stop = unwinder.unwind(&mut Cache::new(), &registers, &memory, options, &mut frames);
        (frames, stop)
    }

    /// A register that is no frame pointer leads to a text.
    #[test]
    fn a_text_on_the_stack_is_no_frame() {
        let text = u64::from_le_bytes(*b"a47740a0");
        let bytes = [0, text].map(u64::to_le_bytes).concat();
        let (frames, stop) = without_images(&bytes);
        assert_eq!((frames.len(), stop), (1, Stop::BadPointer));
    }

    /// The canary of a stack, for one, has any bits.
    #[test]
    fn no_kernel_calls_code_of_a_process() {
        let unwind = |has_processes, caller: u64| {
            let words = [0x8010, 0x1810, 0, caller].map(u64::to_le_bytes).concat();
            let memory = crate::unwind::Stack {
                base: 0x8000,
                bytes: &words,
            };
            let unwinder = Unwinder::new(Arch::X86_64, Vec::new()).with_processes(has_processes);
            let mut registers = uprof::Registers::default();
            for (number, value) in [(6, 0x8000), (7, 0x8000), (16, 0x1010)] {
                registers.set(number, value);
            }
            let (mut cache, mut frames) = (Cache::new(), Vec::new());
            let options = Options::default();
            let stop = unwinder.unwind(&mut cache, &registers, &memory, options, &mut frames);
            (frames.len(), stop)
        };
        assert_eq!(unwind(true, 0x1820), (3, Stop::Complete));
        for no_caller in [0xffff_ffff_8100_0000, 0xff01_f7f0_f00c_f0ef] {
            assert_eq!(unwind(true, no_caller), (2, Stop::BadPointer));
        }
        // A guest may be in both halves; what no processor translates is nowhere.
        assert_eq!(unwind(false, 0xffff_ffff_8100_0000), (3, Stop::Complete));
        for no_address in [
            0xff01_f7f0_f00c_f0ef,
            0x00ff_0000_0000_1000,
            0xe8ef_8948_ffff_ff42,
        ] {
            assert_eq!(unwind(false, no_address), (2, Stop::BadPointer));
        }
    }

    /// A function whose rule leads to itself: the stack pointer and the return address stay.
    #[test]
    fn a_stack_that_leads_back_to_itself_ends() {
        let bytes: Vec<u8> = (0..512u64)
            .flat_map(|word| if word % 2 == 0 { 0x8000u64 } else { 0x1010 }.to_le_bytes())
            .collect();
        let (frames, stop) = without_images(&bytes);
        assert!(
            stop != Stop::Complete && frames.len() < 20,
            "{} frames, {}",
            frames.len(),
            stop.name()
        );
    }
}
