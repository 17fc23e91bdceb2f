//! One step from a frame to its caller, by each method. Input: registers of the frame. Output: those of the caller,
//! or the reason why there are none.

use super::cache::{Action, OTHERS_MAX, Plain, Slot};
use super::cpu::Cpu;
use super::expression::evaluate;
use super::memory::Memory;
use super::modules::Modules;
use super::registers::Registers;
use super::returns::may_be_scanned;
use crate::work;
use uprof::image::{Cfa, Place, RuleSet, Save};
use uprof::{Found, FrameKind, Stop};

/// Words of the stack that a scan reads.
const SCAN_WORDS: u64 = 512;

/// A step that was taken.
pub(super) struct Step {
    /// The kind of the caller's address.
    pub(super) kind: FrameKind,
    /// How it was found.
    pub(super) found: Found,
    /// A lower bound of the caller's stack pointer.
    pub(super) floor: u64,
}

/// Why a rule gave no caller.
pub(super) enum StepError {
    /// It says that there is no caller.
    Root,
    /// The return address is in memory that wasn't recorded.
    Unreadable { cfa: u64 },
    /// It needs a register that isn't known, or its expression has no value.
    BadRule,
}

/// The rule `number` in a short form, if it has one. Registers that no rule needs (`needed` is
/// a bit set) may be left as they are.
pub(super) fn plain<C: Cpu>(set: &RuleSet, number: u32, needed: u64) -> Option<Action> {
    let rule = set.rule(number)?;
    let lost = Save {
        register: rule.return_register,
        place: Place::Lost,
    };
    if set.saves(rule).contains(&lost) {
        return Some(Action::Root);
    }
    let Cfa::Register {
        register,
        offset_bytes,
    } = rule.cfa
    else {
        return None;
    };
    if rule.is_trap || rule.return_register != C::RETURN_ADDRESS {
        return None;
    }
    let mut short = Plain {
        cfa_offset: offset_bytes,
        cfa_register: register,
        return_address: Slot::KEPT,
        others: [0; OTHERS_MAX],
        slots: [Slot::KEPT; OTHERS_MAX],
    };
    let mut others = short.others.iter_mut().zip(&mut short.slots);
    for save in set.saves(rule) {
        let is_special =
            [C::RETURN_ADDRESS, C::FRAME_POINTER, C::STACK_POINTER].contains(&save.register);
        if !is_special && needed >> save.register & 1 == 0 {
            continue;
        }
        let Place::AtCfa(at) = save.place else {
            return None;
        };
        let slot = Slot::at(at)?;
        match save.register {
            register if register == C::RETURN_ADDRESS => short.return_address = slot,
            register if register == C::STACK_POINTER => return None,
            register => {
                let (other, kept) = others.next()?;
                (*other, *kept) = (register, slot);
            }
        }
    }
    // Where calls push the return address, a rule without its place is wrong.
    if short.return_address == Slot::KEPT && C::RETURN_ADDRESS == C::PROGRAM_COUNTER {
        return None;
    }
    Some(Action::Plain(short))
}

/// Whether the register saved at `at` has been restored: compilers don't state this when they restore registers
/// before a return. Below the stack pointer (`floor`) nothing survives the next interrupt, and what is saved there,
/// in a red zone, is still in its register too. If the CFA is below the stack pointer, it is on another stack, and
/// nothing is known.
#[inline]
pub(super) fn is_given_back(at: u64, cfa: u64, floor: u64) -> bool {
    at < floor && floor <= cfa
}

/// Applies the rule `number` in full. `floor` is a lower bound of the stack pointer.
pub(super) fn full<C: Cpu>(
    set: &RuleSet,
    number: u32,
    registers: &mut Registers,
    memory: &(impl Memory + ?Sized),
    floor: u64,
) -> Result<Step, StepError> {
    let rule = set.rule(number).ok_or(StepError::BadRule)?;
    let cfa = match rule.cfa {
        Cfa::Register {
            register,
            offset_bytes,
        } => registers.get(register).map(|base| add(base, offset_bytes)),
        Cfa::Expression(offset) => evaluate(set.expression(offset), None, registers, memory),
    };
    let cfa = cfa.ok_or(StepError::BadRule)?;
    let mut caller = *registers;
    caller.set(C::STACK_POINTER, cfa);
    let mut return_address_saved = false;
    work::take(set.saves(rule).len() as u64);
    for save in set.saves(rule) {
        let expression = |offset| evaluate(set.expression(offset), Some(cfa), registers, memory);
        let saved_at = match save.place {
            Place::AtCfa(offset) => Some(add(cfa, offset)),
            Place::AtExpression(offset) => expression(offset),
            _ => None,
        };
        let is_return = save.register == rule.return_register;
        if !is_return && saved_at.is_some_and(|at| is_given_back(at, cfa, floor)) {
            continue;
        }
        let value = match save.place {
            Place::Lost if is_return => return Err(StepError::Root),
            Place::Lost => None,
            Place::AtCfa(_) | Place::AtExpression(_) => saved_at.and_then(|at| memory.word(at)),
            Place::IsCfa(offset) => Some(add(cfa, offset)),
            Place::Register(register) => registers.get(register),
            Place::IsExpression(offset) => expression(offset),
        };
        match value {
            Some(value) => caller.set(save.register, value),
            None if is_return => return Err(StepError::Unreadable { cfa }),
            None => caller.forget(save.register),
        }
        return_address_saved |= is_return;
    }
    if !return_address_saved && rule.return_register == C::PROGRAM_COUNTER {
        return Err(StepError::BadRule);
    }
    let pc = caller.get(rule.return_register).ok_or(StepError::BadRule)?;
    caller.set(C::PROGRAM_COUNTER, C::ARCH.without_signature(pc));
    *registers = caller;
    let kind = if rule.is_trap {
        FrameKind::Exact
    } else {
        FrameKind::Return
    };
    let floor = registers.get(C::STACK_POINTER).unwrap_or(cfa);
    Ok(Step {
        kind,
        found: Found::Cfi,
        floor,
    })
}

/// The place of the return address by the rule `number`.
pub(super) fn return_slot<C: Cpu>(
    set: &RuleSet,
    number: u32,
    registers: &Registers,
    memory: &(impl Memory + ?Sized),
) -> Option<u64> {
    let rule = set.rule(number)?;
    let cfa = match rule.cfa {
        Cfa::Register {
            register,
            offset_bytes,
        } => add(registers.get(register)?, offset_bytes),
        Cfa::Expression(offset) => evaluate(set.expression(offset), None, registers, memory)?,
    };
    let saves = set.saves(rule);
    let save = saves
        .iter()
        .find(|save| save.register == rule.return_register)?;
    match save.place {
        Place::AtCfa(offset) => Some(add(cfa, offset)),
        _ => None,
    }
}

/// Follows the frame pointer: it points to the caller's, and the return address follows. It has to point up the
/// stack, from `floor`, and the address has to satisfy `is_return`, unless the frame is the outermost: a thread's
/// first function is entered by a return. `zero` is what a frame pointer of zero means.
pub(super) fn frame_pointer<C: Cpu>(
    registers: &mut Registers,
    memory: &(impl Memory + ?Sized),
    floor: u64,
    zero: Stop,
    is_return: impl Fn(u64, bool) -> bool,
) -> Result<Step, Stop> {
    let Some(record) = registers.get(C::FRAME_POINTER) else {
        return Err(Stop::BadPointer);
    };
    if record == 0 {
        return Err(zero);
    }
    if record < floor || record % 8 != 0 {
        return Err(Stop::BadPointer);
    }
    let above = record.wrapping_add(8);
    let (Some(frame_pointer), Some(caller)) = (memory.word(record), memory.word(above)) else {
        // A distant value is a number that happens to be in the register, a near one is a frame.
        let is_near = record - floor < 1 << 20;
        return Err(if is_near {
            Stop::Window
        } else {
            Stop::BadPointer
        });
    };
    if caller != 0 && !is_return(C::ARCH.without_signature(caller), frame_pointer == 0) {
        return Err(Stop::BadPointer);
    }
    registers.set(C::FRAME_POINTER, frame_pointer);
    registers.set(C::RETURN_ADDRESS, caller);
    registers.set(C::PROGRAM_COUNTER, C::ARCH.without_signature(caller));
    let floor = record.wrapping_add(16);
    if C::RECORD_ENDS_FRAME {
        registers.set(C::STACK_POINTER, floor);
    } else {
        registers.forget(C::STACK_POINTER);
    }
    Ok(Step {
        kind: FrameKind::Return,
        found: Found::FramePointer,
        floor,
    })
}

/// Takes the first word from `floor` up that could be a return address: it points after a call instruction, or,
/// without the image's bytes, to code with a rule.
pub(super) fn scan<C: Cpu>(
    registers: &mut Registers,
    memory: &(impl Memory + ?Sized),
    floor: u64,
    modules: &Modules,
) -> Option<Step> {
    for index in 0..SCAN_WORDS {
        let at = floor.checked_add(index * 8)?;
        let word = C::ARCH.without_signature(memory.word(at)?);
        let before = word.wrapping_sub(1);
        let module = modules.at(before);
        if !module.is_some_and(|module| may_be_scanned::<C>(module, before)) {
            continue;
        }
        let above = at.wrapping_add(8);
        registers.set(C::STACK_POINTER, above);
        registers.set(C::RETURN_ADDRESS, word);
        registers.set(C::PROGRAM_COUNTER, word);
        return Some(Step {
            kind: FrameKind::Return,
            found: Found::Scan,
            floor: above,
        });
    }
    None
}

fn add(base: u64, offset_bytes: i32) -> u64 {
    base.wrapping_add(i64::from(offset_bytes).cast_unsigned())
}
