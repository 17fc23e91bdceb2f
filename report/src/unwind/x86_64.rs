//! x86-64: what [`uprof::cpu`] does not say of it.

use super::cpu::Cpu;
use super::memory::Memory;
use super::registers::Registers;
use super::signal;
use uprof::Arch;
use uprof::cpu::x86_64;

/// See the module.
pub(super) struct X86_64;

impl Cpu for X86_64 {
    const ARCH: Arch = Arch::X86_64;
    const STACK_POINTER: u8 = x86_64::RSP;
    const FRAME_POINTER: u8 = x86_64::RBP;
    const RETURN_ADDRESS: u8 = x86_64::RIP;
    const PROGRAM_COUNTER: u8 = x86_64::RIP;
    const RECORD_ENDS_FRAME: bool = true;

    fn is_begun_by_return(before: &[u8], behind: &[u8]) -> bool {
        let is_call = behind.first() == Some(&x86_64::CALL_OPCODE);
        signal::returns(Arch::X86_64, behind) || before.last() == Some(&0x90) && is_call
    }

    fn address_taken(address: u64, code: &[u8]) -> Option<u64> {
        // lea disp32(%rip), %reg
        let (lea, _) = code.split_first_chunk::<7>()?;
        let [0x48 | 0x4c, 0x8d, modrm, relative @ ..] = lea else {
            return None;
        };
        let by = i64::from(i32::from_le_bytes(*relative));
        let behind = address.wrapping_add(lea.len() as u64);
        (modrm & 0xc7 == 5).then(|| behind.wrapping_add_signed(by))
    }

    fn ends_context(code: &[u8]) -> bool {
        // mov %rbx (or %r12 to %r15), %rsp, behind endbr64 if there is one.
        let landing_pad = [0xf3, 0x0f, 0x1e, 0xfa];
        matches!(
            code.strip_prefix(&landing_pad).unwrap_or(code),
            [0x48, 0x89, 0xdc, ..] | [0x4c, 0x89, 0xe4 | 0xec | 0xf4 | 0xfc, ..]
        )
    }
}

/// Words above the stack pointer to search for a trap frame: all registers and a few.
const TRAP_FRAME_WORDS: u64 = 64;
/// Bits of RFLAGS that are always zero: 3, 5, 15 and from 22 up (Intel SDM volume 1, 3.4.3).
const FLAGS_ZERO: u64 = !0 << 22 | 1 << 15 | 1 << 5 | 1 << 3;
/// The bit of RFLAGS that is always one.
const FLAGS_ONE: u64 = 1 << 1;

/// The interrupted registers, if the processor's trap frame (RIP, CS, RFLAGS, RSP, SS; Intel SDM volume 3A, 6.14.2)
/// is above the stack pointer of an entry stub without call frame information. It is assumed that the stub has not
/// changed the frame pointer, or has pushed it next to the processor's frame (or to its error code) and set it to
/// point there. A frame further up belongs to an outer trap and is not used.
pub(super) fn trap_frame(
    registers: &Registers,
    memory: &(impl Memory + ?Sized),
    is_code: impl Fn(u64) -> bool,
) -> Option<Registers> {
    let sp = registers.get(X86_64::STACK_POINTER)?;
    let fp = registers.get(X86_64::FRAME_POINTER).filter(|fp| *fp >= sp);
    for index in 0..TRAP_FRAME_WORDS {
        let at = sp.wrapping_add(index * 8);
        let word = |number: u64| memory.word(at.wrapping_add(number * 8));
        let end = at.wrapping_add(40);
        let above_fp = fp.map(|fp| at.wrapping_sub(fp));
        let is_pushed = matches!(above_fp, Some(8 | 16));
        if !is_pushed && fp.is_some_and(|fp| end > fp) {
            // Frames that would overlap what the frame pointer points to are skipped.
            match fp {
                Some(fp) if at > fp => return None,
                _ => continue,
            }
        }
        let (ip, cs, flags, old_sp, ss) = (word(0)?, word(1)?, word(2)?, word(3)?, word(4)?);
        let selectors =
            cs >> 2 != 0 && cs >> 16 == 0 && ss >> 16 == 0 && (ss == 0 || (cs ^ ss) & 3 == 0);
        let flags_fit = flags & FLAGS_ZERO == 0 && flags & FLAGS_ONE != 0;
        // On the same stack the processor aligns to 16 bytes before pushing.
        let stack_fits = old_sp.wrapping_sub(end) < 16 || memory.word(old_sp).is_some();
        if selectors && flags_fit && stack_fits && is_code(ip) {
            let mut interrupted = *registers;
            interrupted.set(X86_64::PROGRAM_COUNTER, ip);
            interrupted.set(X86_64::STACK_POINTER, old_sp);
            if let Some(saved) = fp.filter(|_| is_pushed).and_then(|fp| memory.word(fp)) {
                interrupted.set(X86_64::FRAME_POINTER, saved);
            }
            return Some(interrupted);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unwind::memory::Stack;

    fn stack_words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn a_trap_frame_is_known_by_its_shape() {
        let sp = 0xffff_8000_0000_1000;
        // Two saved registers, an error code, then the processor's frame, aligned to 16.
        let words = [1, 2, 0, 0x10_0042, 0x08, 0x202, sp + 0x40, 0x10, 7, 8];
        let bytes = stack_words(&words);
        let memory = Stack {
            base: sp,
            bytes: &bytes,
        };
        let mut registers = Registers::default();
        registers.set(x86_64::RSP, sp);
        registers.set(x86_64::RBP, sp + 0x48);
        let is_code = |address| (0x10_0000..0x11_0000).contains(&address);
        let interrupted = trap_frame(&registers, &memory, is_code).expect("not found");
        assert_eq!(interrupted.get(x86_64::RIP), Some(0x10_0042));
        assert_eq!(interrupted.get(x86_64::RSP), Some(sp + 0x40));
        // The stub pushed the frame pointer (2) next to the error code.
        registers.set(x86_64::RBP, sp + 0x8);
        let interrupted = trap_frame(&registers, &memory, is_code).expect("not found");
        assert_eq!(
            (interrupted.get(x86_64::RIP), interrupted.get(x86_64::RBP)),
            (Some(0x10_0042), Some(2))
        );
        // The frame pointer says that this frame belongs to an outer trap.
        registers.set(x86_64::RBP, sp);
        assert_eq!(trap_frame(&registers, &memory, is_code), None);
    }

    #[test]
    fn flags_with_impossible_bits_are_no_trap_frame() {
        let bytes = stack_words(&[0x10_0042, 0x08, 0x200, 0x1028, 0x10, 0, 0]);
        let memory = Stack {
            base: 0x1000,
            bytes: &bytes,
        };
        let mut registers = Registers::default();
        registers.set(x86_64::RSP, 0x1000);
        assert_eq!(trap_frame(&registers, &memory, |_| true), None);
    }
}
