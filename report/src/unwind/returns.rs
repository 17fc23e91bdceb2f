//! Whether a word can be a return address, judged by the code around the address. A frame pointer with other data
//! leads to words that aren't.

use super::aarch64::Aarch64;
use super::cpu::Cpu;
use super::modules::{Module, Modules};
use super::rules::UnwindRules;
use super::x86_64::X86_64;
use crate::images::{Image, ImageAddress};
use uprof::Arch;
use uprof::cpu::{CALL_BYTES, Call};
use uprof::image::{Place, Save};

/// Bytes behind a return address that may be something else than code that was called: a signal's return on x86-64.
const BEHIND_BYTES: u64 = 9;

/// What a supposed return address points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Landing {
    /// A call precedes it, or it is entered by a return: a signal's trampoline, a goroutine's or context's end.
    Return,
    /// A function begins there that only a return enters, as the end of a context (makecontext(3)) does: the frame has
    /// no caller.
    Outermost,
    /// Neither, by the image's bytes: no return address, but maybe interrupted code.
    Elsewhere,
    /// No frame can be there: by the recording's list of return addresses, or because a function begins there, to which
    /// data points.
    NoFrame,
    /// Mapped code whose bytes are not available, or not those that ran.
    Unread,
    /// No mapping is known there.
    Unmapped,
    /// No code can be there: it is no address.
    NoCode,
}

/// What `address` points to in `modules`.
pub(super) fn landing<C: Cpu>(modules: &Modules, address: u64) -> Landing {
    // A trampoline is returned to at its first byte.
    let module = [address.wrapping_sub(1), address]
        .into_iter()
        .find_map(|at| modules.at(at));
    let Some(module) = module else {
        return Landing::Unmapped;
    };
    let stated = module.image_address(address);
    let found = match (&module.image, module.rules.returns()) {
        (Some(image), _) if image.tells_code() => landing_in::<C>(image, &module.rules, stated),
        (None, Some(returns)) => match returns.binary_search(&stated.0) {
            Ok(_) => Landing::Return,
            Err(_) => Landing::NoFrame,
        },
        _ => Landing::Unread,
    };
    match found {
        Landing::Return if begins_alone(&module.rules, stated) => Landing::Outermost,
        found => found,
    }
}

/// Whether call frame information begins at `at`, and is of ordinary code: what has any before it did not call.
fn begins_alone(rules: &UnwindRules, at: ImageAddress) -> bool {
    let rule = |at| Some(rules.find(at)?.rule()?.is_trap);
    rule(at) == Some(false) && rule(ImageAddress(at.0.wrapping_sub(1))).is_none()
}

fn landing_in<C: Cpu>(image: &Image, rules: &UnwindRules, at: ImageAddress) -> Landing {
    let before = ImageAddress(at.0.wrapping_sub(1));
    let is_code = image.segments().is_code(before) || image.segments().is_code(at);
    let starts = || {
        is_first::<C>(rules, at)
            || is_begun::<C>(image, at)
            || begins_alone(rules, at) && C::ends_context(code_at(image, at))
    };
    if is_code && (follows_call::<C>(image, at) || starts()) {
        Landing::Return
    } else {
        Landing::Elsewhere
    }
}

/// Which of `addresses` are return addresses or, by `may_be_interrupted`, interrupted code, if `image` has the code.
pub(crate) fn returns(
    image: &Image,
    rules: &UnwindRules,
    addresses: impl Iterator<Item = ImageAddress>,
    may_be_interrupted: impl Fn(ImageAddress) -> bool,
) -> Option<Vec<u64>> {
    let is_return = |at: &ImageAddress| {
        let landing = match image.arch() {
            Arch::X86_64 => landing_in::<X86_64>(image, rules, *at),
            Arch::Aarch64 => landing_in::<Aarch64>(image, rules, *at),
        };
        match landing {
            Landing::Return => true,
            Landing::Elsewhere => may_be_interrupted(*at),
            Landing::Outermost
            | Landing::NoFrame
            | Landing::Unread
            | Landing::Unmapped
            | Landing::NoCode => false,
        }
    };
    let found = || addresses.filter(is_return).map(|at| at.0).collect();
    image.tells_code().then(found)
}

/// Whether the bytes before `at` are a call.
pub(super) fn follows_call<C: Cpu>(image: &Image, at: ImageAddress) -> bool {
    call_at::<C>(image, at).is_some()
}

/// The call before `at`, with its target as the image states addresses.
pub(super) fn call_at<C: Cpu>(image: &Image, at: ImageAddress) -> Option<Call> {
    // A call may be the first instruction of all.
    let code = (2..=CALL_BYTES as u64).rev().find_map(|length_bytes| {
        image.bytes_at(ImageAddress(at.0.wrapping_sub(length_bytes)), length_bytes)
    });
    C::ARCH.call_before(at.0, code?)
}

/// The only place in the code of `image` at `from` that takes the address `wanted`, or that of a word that holds it
/// (bytes from there).
pub(super) fn address_taken<C: Cpu>(
    image: &Image,
    from: ImageAddress,
    length_bytes: u64,
    wanted: ImageAddress,
) -> Option<u64> {
    let code = image.bytes_at(from, length_bytes)?;
    let is_wanted = |taken: u64| {
        let word = || {
            let bytes = image.bytes_at(ImageAddress(taken), 8)?;
            Some(u64::from_le_bytes(bytes.try_into().ok()?))
        };
        taken == wanted.0 || word() == Some(wanted.0)
    };
    let mut places = (0..code.len()).filter(|at| {
        let address = from.0.wrapping_add(*at as u64);
        C::address_taken(address, &code[*at..]).is_some_and(is_wanted)
    });
    let only = places.next()?;
    places.next().is_none().then_some(only as u64)
}

/// Whether call frame information says that this is a signal's frame, or has no caller.
fn is_first<C: Cpu>(rules: &UnwindRules, at: ImageAddress) -> bool {
    let found = rules.find(at);
    found.is_some_and(|found| {
        found.rule().is_some_and(|rule| {
            let lost =
                |save: &Save| save.register == rule.return_register && save.place == Place::Lost;
            rule.is_trap || found.set.saves(rule).iter().any(lost)
        })
    })
}

fn is_begun<C: Cpu>(image: &Image, at: ImageAddress) -> bool {
    let before = image.bytes_at(ImageAddress(at.0.wrapping_sub(4)), 4);
    C::is_begun_by_return(before.unwrap_or_default(), code_at(image, at))
}

/// The first bytes of the code at `at`.
fn code_at(image: &Image, at: ImageAddress) -> &[u8] {
    let code = |length_bytes| image.bytes_at(at, length_bytes);
    let mut lengths = (4..=BEHIND_BYTES).rev();
    lengths.find_map(code).unwrap_or_default()
}

/// Whether `module` has code at `before` that may be a caller's, for a scan.
pub(super) fn may_be_scanned<C: Cpu>(module: &Module, before: u64) -> bool {
    let stated = module.image_address(before);
    let Some(image) = &module.image else {
        return module.rules.covers(stated);
    };
    let after = ImageAddress(stated.0.wrapping_add(1));
    image.segments().is_code(stated) && follows_call::<C>(image, after)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unwind::RuleTable;
    use crate::unwind::{Cache, Options, Stack, Unwinder};
    use std::sync::Arc;
    use uprof::cpu::x86_64;
    use uprof::{Frame, Registers, Stop};

    /// Code without rules and without bytes, of which one return address is known.
    fn unwinder(has_all_code: bool) -> Unwinder {
        let module = Module {
            start: 0x1000,
            end: 0x2000,
            bias: 0,
            rules: Arc::new(RuleTable::default().with_returns(Some(vec![0x1810])).into()),
            image: None,
        };
        Unwinder::new(Arch::X86_64, vec![module]).with_all_code(has_all_code)
    }

    /// The frames of a stack whose frame pointers lie beside these words.
    fn unwound(unwinder: &Unwinder, words: &[u64]) -> (Vec<u64>, Stop) {
        let last = words.len() - 1;
        let record = |(index, word): (usize, &u64)| {
            let next = if index == last {
                0
            } else {
                0x8010 + 16 * index as u64
            };
            [next, *word]
        };
        let bytes: Vec<u8> = words
            .iter()
            .enumerate()
            .flat_map(record)
            .flat_map(u64::to_le_bytes)
            .collect();
        let memory = Stack {
            base: 0x8000,
            bytes: &bytes,
        };
        let mut registers = Registers::default();
        for (number, value) in [
            (x86_64::RBP, 0x8000),
            (x86_64::RSP, 0x8000),
            (x86_64::RIP, 0x1100),
        ] {
            registers.set(number, value);
        }
        let (mut cache, mut frames) = (Cache::new(), Vec::new());
        let options = Options::default();
        let stop = unwinder.unwind(&mut cache, &registers, &memory, options, &mut frames);
        (
            frames.iter().map(|frame: &Frame| frame.address).collect(),
            stop,
        )
    }

    #[test]
    fn a_frame_pointer_that_was_data_ends_the_stack() {
        let unwinder = unwinder(true);
        let good = unwound(&unwinder, &[0x1810, 0x1810, 0x1400]);
        // The outermost function was not called.
        assert_eq!(good, (vec![0x1100, 0x1810, 0x1810, 0x1400], Stop::Complete));
        for data in [0x1400, 0x20, u64::MAX] {
            let cut = unwound(&unwinder, &[0x1810, data, 0x1810]);
            assert_eq!(cut, (vec![0x1100, 0x1810], Stop::BadPointer), "{data:#x}");
        }
    }

    #[test]
    fn code_that_nobody_told_of_counts_where_not_all_is_told() {
        let (frames, stop) = unwound(&unwinder(false), &[0x1810, 0x9000, 0x1810]);
        assert_eq!((frames.len(), stop), (4, Stop::Complete));
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn behind_each_call_of_a_real_image_is_a_return_address() {
        use iced_x86::{Decoder, DecoderOptions, Mnemonic};
        let image = Image::open(&std::env::current_exe().unwrap()).unwrap();
        let rules = UnwindRules::default();
        let (start, length_bytes) = image.section_range(".text").unwrap();
        let code = image.bytes_at(start, length_bytes.min(1 << 20)).unwrap();
        let (mut calls, mut others, mut mistaken) = (0, 0, 0);
        for instruction in Decoder::with_ip(64, code, start.0, DecoderOptions::NONE) {
            let at = ImageAddress(instruction.next_ip());
            let found = landing_in::<X86_64>(&image, &rules, at);
            if instruction.mnemonic() == Mnemonic::Call {
                calls += 1;
                assert_eq!(found, Landing::Return, "{instruction} {:#x}", at.0);
            } else {
                others += 1;
                mistaken += usize::from(found == Landing::Return);
            }
        }
        println!("{calls} calls; {mistaken} of {others} other instructions are taken for calls");
        assert!(calls > 1000 && mistaken * 50 < others);
    }
}
