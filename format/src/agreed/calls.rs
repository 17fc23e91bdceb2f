//! The call instruction before a return address. Input: the bytes before the address. Output: whether they end in a
//! call, and where that leads. A recorder asks it of a guest's memory, a report of an image.

use crate::Arch;

/// Bytes before a return address that its call may need (Intel SDM volume 2A, "CALL", without prefixes, which change
/// neither length nor target of the rest).
pub const CALL_BYTES: usize = 7;

/// A call instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// To this address.
    Direct(u64),
    /// Through a register or memory.
    Indirect,
}

/// The call that `code`, the bytes before `return_address`, ends in. Where bytes can be the end of a direct call as
/// well as an indirect one, it is the latter, whose target nobody knows.
pub fn call_before(arch: Arch, return_address: u64, code: &[u8]) -> Option<Call> {
    let offset = |code: &[u8; 4]| i32::from_le_bytes(*code);
    match arch {
        Arch::X86_64 if is_indirect(code) => Some(Call::Indirect),
        Arch::X86_64 => match code.last_chunk::<5>()? {
            // CALL rel32.
            [0xe8, relative @ ..] => {
                let by = i64::from(offset(relative));
                Some(Call::Direct(return_address.wrapping_add_signed(by)))
            }
            _ => None,
        },
        Arch::Aarch64 => {
            let instruction = u32::from_le_bytes(*code.last_chunk()?);
            if instruction >> 26 == 0b10_0101 {
                // BL: a signed offset of 26 bits, in words (Arm ARM, C6.2.34).
                let words = i64::from((instruction << 6).cast_signed() >> 6);
                let call = return_address.wrapping_sub(4);
                return Some(Call::Direct(call.wrapping_add_signed(4 * words)));
            }
            // BLR and its authenticated forms.
            (instruction & 0xfeff_f000 == 0xd63f_0000).then_some(Call::Indirect)
        }
    }
}

/// Whether `code` ends in CALL r/m64: FF /2, whose length is in its ModR/M and SIB bytes (Intel SDM volume 2A, 2.1.5).
fn is_indirect(code: &[u8]) -> bool {
    (2..=CALL_BYTES).any(|length_bytes| {
        let call = code.len().checked_sub(length_bytes);
        let Some([0xff, modrm, rest @ ..]) = call.and_then(|start| code.get(start..)) else {
            return false;
        };
        let (mode, operation, base) = (modrm >> 6, modrm >> 3 & 7, modrm & 7);
        let sib = rest.first().filter(|_| mode != 3 && base == 4);
        let displacement = match mode {
            0 if base == 5 => 4,
            0 if sib.is_some_and(|sib| sib & 7 == 5) => 4,
            1 => 1,
            2 => 4,
            _ => 0,
        };
        let needs_sib = mode != 3 && base == 4;
        operation == 2 && rest.len() == usize::from(needs_sib) + displacement
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_forms_of_x86_64() {
        let at = 0x1000;
        let call = |code: &[u8]| call_before(Arch::X86_64, at, code);
        for (code, target) in [
            (&[0xe8, 0x10, 0, 0, 0][..], 0x1010),
            (&[0x66, 0x48, 0xe8, 0xf0, 0xff, 0xff, 0xff], 0xff0),
        ] {
            assert_eq!(call(code), Some(Call::Direct(target)), "{code:x?}");
        }
        for code in [
            &[0xff, 0xd0][..],                  // *%rax
            &[0x41, 0xff, 0xd4],                // *%r12
            &[0xff, 0x10],                      // *(%rax)
            &[0xff, 0x50, 0x18],                // *0x18(%rax)
            &[0xff, 0x93, 0, 1, 0, 0],          // *0x100(%rbx)
            &[0xff, 0x15, 0, 1, 0, 0],          // *0x100(%rip)
            &[0xff, 0x14, 0x24],                // *(%rsp)
            &[0x41, 0xff, 0x14, 0xc4],          // *(%r12,%rax,8)
            &[0xff, 0x54, 0xd0, 8],             // *8(%rax,%rdx,8)
            &[0xff, 0x94, 0xc3, 0, 1, 0, 0],    // *0x100(%rbx,%rax,8)
            &[0xff, 0x14, 0xc5, 0, 0x10, 0, 0], // *0x1000(,%rax,8)
            &[0xff, 0x14, 0x25, 0, 0x10, 0, 0], // *0x1000
            &[0x90, 0xff, 0x14, 0x25, 0, 0x10, 0, 0],
        ] {
            assert_eq!(call(code), Some(Call::Indirect), "{code:x?}");
        }
        for code in [
            &[][..],
            &[0xff],
            &[0xff, 0xe0],       // jmp *%rax
            &[0xff, 0x18],       // lcall *(%rax)
            &[0xff, 0x14],       // its SIB byte is missing
            &[0xff, 0x14, 0xc5], // its displacement is missing
            &[0xff, 0x15, 0, 0, 0],
            &[0xe8, 0, 0, 0],
            &[0x90; 8],
        ] {
            assert_eq!(call(code), None, "{code:x?}");
        }
    }

    #[test]
    fn all_forms_of_aarch64() {
        let call = |word: u32| call_before(Arch::Aarch64, 0x1000, &word.to_le_bytes());
        assert_eq!(call(0x9400_0010), Some(Call::Direct(0x103c)));
        assert_eq!(call(0x97ff_fff0), Some(Call::Direct(0xfbc)));
        // BLR, BLRAAZ, BLRAA and BLRAB.
        for word in [0xd63f_0100u32, 0xd63f_081f, 0xd73f_0909, 0xd73f_0d09] {
            assert_eq!(call(word), Some(Call::Indirect), "{word:x}");
        }
        for word in [0x1400_0010u32, 0xd61f_0100, 0xd65f_03c0, 0xd503_201f] {
            assert_eq!(call(word), None, "{word:x}");
        }
        assert_eq!(call_before(Arch::Aarch64, 0x1000, &[0x94]), None);
    }
}
