//! The rule of code that returns from a signal, for where call frame information has none, as in musl. The kernel has
//! saved the interrupted registers above the stack pointer. Input: an image's code. Output: a rule. Source: Linux,
//! `struct rt_sigframe` and `struct sigcontext` (arch/x86/include/asm/sigframe.h, arch/arm64/kernel/signal.c).

use crate::images::{Image, ImageAddress};
use uprof::Arch;
use uprof::cpu::{aarch64, x86_64};
use uprof::image::{Cfa, Place, RuleSet, Save};

/// `mov $15, %rax` or `mov $15, %eax`, then `syscall`: rt_sigreturn.
const CODES_X86_64: [&[u8]; 2] = [
    &[0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05],
    &[0xb8, 15, 0, 0, 0, 0x0f, 0x05],
];
/// `mov x8, #139`, then `svc #0`: rt_sigreturn.
const CODES_AARCH64: [&[u8]; 1] = [&[0x68, 0x11, 0x80, 0xd2, 0x01, 0, 0, 0xd4]];

/// Where registers are saved on x86-64, in bytes from the stack pointer, by number.
const SAVED_X86_64: [u16; 17] = [
    144, 136, 152, 128, 112, 104, 120, 160, 40, 48, 56, 64, 72, 80, 88, 96, 168,
];
/// Where x0 is saved on aarch64; the other registers, the stack pointer and the program counter follow.
const SAVED_AARCH64: u16 = 312;

fn codes(arch: Arch) -> &'static [&'static [u8]] {
    match arch {
        Arch::X86_64 => &CODES_X86_64,
        Arch::Aarch64 => &CODES_AARCH64,
    }
}

/// Whether `code` returns from a signal.
pub(super) fn returns(arch: Arch, code: &[u8]) -> bool {
    codes(arch).iter().any(|begin| code.starts_with(begin))
}

/// Whether the code of `image` at `address` returns from a signal.
pub(super) fn returns_at(image: &Image, address: ImageAddress) -> bool {
    let is_there = |code: &&[u8]| image.bytes_at(address, code.len() as u64) == Some(*code);
    codes(image.arch()).iter().any(is_there)
}

/// Adds the rule to `set` and returns its number; `None` if there is no room.
pub(super) fn push(set: &mut RuleSet, arch: Arch) -> Option<u32> {
    let (stack_pointer, program_counter) = match arch {
        Arch::X86_64 => (x86_64::RSP, x86_64::RIP),
        Arch::Aarch64 => (aarch64::SP, aarch64::PC),
    };
    // The offset is a SLEB128 of two bytes.
    let address = |register: u8| {
        let at = match arch {
            Arch::X86_64 => SAVED_X86_64[usize::from(register)],
            Arch::Aarch64 => SAVED_AARCH64 + 8 * u16::from(register),
        };
        let base = gimli::DW_OP_breg0.0 + stack_pointer;
        [base, at as u8 | 0x80, (at >> 7) as u8]
    };
    let cfa = [&address(stack_pointer)[..], &[gimli::DW_OP_deref.0]].concat();
    let cfa = Cfa::Expression(set.push_expression(&cfa)?);
    let mut saves = Vec::new();
    for register in (0..=program_counter).filter(|register| *register != stack_pointer) {
        let place = Place::AtExpression(set.push_expression(&address(register))?);
        saves.push(Save { register, place });
    }
    set.push(cfa, true, program_counter, &saves)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unwind::aarch64::Aarch64;
    use crate::unwind::cpu::Cpu;
    use crate::unwind::memory::Stack;
    use crate::unwind::registers::Registers;
    use crate::unwind::step;
    use crate::unwind::x86_64::X86_64;
    use uprof::FrameKind;

    /// The interrupted registers, where each word above the stack pointer is its own distance from it.
    fn interrupted<C: Cpu>() -> Registers {
        let mut set = RuleSet::default();
        let number = push(&mut set, C::ARCH).unwrap();
        let bytes: Vec<u8> = (0..100u64)
            .flat_map(|word| (8 * word).to_le_bytes())
            .collect();
        let memory = Stack {
            base: 0x8000,
            bytes: &bytes,
        };
        let mut registers = Registers::default();
        registers.set(C::STACK_POINTER, 0x8000);
        let step = step::full::<C>(&set, number, &mut registers, &memory, 0x8000);
        let kind = step.ok().map(|step| step.kind);
        assert_eq!(kind, Some(FrameKind::Exact));
        registers
    }

    /// As the headers of the kernel have it: `offsetof(struct ucontext, uc_mcontext)`, and so on.
    #[test]
    fn the_interrupted_registers_are_where_the_kernel_saved_them() {
        let registers = interrupted::<X86_64>();
        for (register, at) in [(8, 40), (15, 96), (5, 104), (6, 120), (7, 160), (16, 168)] {
            assert_eq!(registers.get(register), Some(at), "{register}");
        }
        let registers = interrupted::<Aarch64>();
        for (register, at) in [(0, 312), (29, 544), (30, 552), (31, 560), (32, 568)] {
            assert_eq!(registers.get(register), Some(at), "{register}");
        }
    }
}
