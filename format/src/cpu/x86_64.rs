//! x86-64. Sources: System V ABI, AMD64 supplement, figure 3.36 (register numbers); Intel SDM.

use super::{Call, SpecialRegisters};

/// rbx.
pub const RBX: u8 = 3;
/// The frame pointer.
pub const RBP: u8 = 6;
/// The stack pointer.
pub const RSP: u8 = 7;
/// r10, in which code that realigns its stack saves the old stack pointer.
pub const R10: u8 = 10;
/// r12, the first of four that calls preserve.
pub const R12: u8 = 12;
/// r13.
pub const R13: u8 = 13;
/// r14.
pub const R14: u8 = 14;
/// r15.
pub const R15: u8 = 15;
/// The instruction pointer. The ABI calls it the return address, which calls push.
pub const RIP: u8 = 16;
/// The flags.
pub const RFLAGS: u8 = 49;
/// Start of the fs segment.
pub const FS_BASE: u8 = 58;
/// Start of the gs segment.
pub const GS_BASE: u8 = 59;

/// The registers that every sample needs.
pub(super) const SPECIAL_REGISTERS: SpecialRegisters = SpecialRegisters {
    ip: RIP,
    sp: RSP,
    fp: RBP,
};

/// Bytes of the longest call (SDM volume 2A, "CALL"), without prefixes. Prefixes change neither the length nor the
/// target of the rest, so they can be ignored.
pub(super) const CALL_BYTES: usize = 7;

/// First byte of a direct call, CALL rel32.
pub const CALL_OPCODE: u8 = 0xe8;

/// Names by number, for the numbers without gaps.
const NAMES: [&str; 17] = [
    "rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11", "r12", "r13",
    "r14", "r15", "rip",
];

pub(super) fn register_name(number: u8) -> Option<&'static str> {
    match number {
        RFLAGS => Some("rflags"),
        FS_BASE => Some("fs_base"),
        GS_BASE => Some("gs_base"),
        _ => NAMES.get(usize::from(number)).copied(),
    }
}

/// Whether the top bits of `address` repeat the highest of its 57 bits (SDM volume 1, 3.3.7.1, with five levels of
/// page tables).
pub(super) fn is_canonical(address: u64) -> bool {
    matches!(address.cast_signed() >> 56, 0 | -1)
}

/// See [`Arch::call_before`](crate::Arch::call_before).
pub(super) fn call_before(return_address: u64, code: &[u8]) -> Option<Call> {
    if is_indirect(code) {
        return Some(Call::Indirect);
    }
    match code.last_chunk::<5>()? {
        [CALL_OPCODE, relative @ ..] => {
            let by = i64::from(i32::from_le_bytes(*relative));
            Some(Call::Direct(return_address.wrapping_add_signed(by)))
        }
        _ => None,
    }
}

/// Whether `code` ends in CALL r/m64: FF /2, whose length is in its ModR/M and SIB bytes (SDM volume 2A, 2.1.5). A far
/// call (FF /3) doesn't count: no compiler writes one, and its bytes are common in other instructions.
fn is_indirect(code: &[u8]) -> bool {
    (2..=CALL_BYTES).any(|length_bytes| {
        let call = code.len().checked_sub(length_bytes);
        let Some([0xff, modrm, rest @ ..]) = call.and_then(|start| code.get(start..)) else {
            return false;
        };
        let (mode, operation, base) = (modrm >> 6, modrm >> 3 & 7, modrm & 7);
        let needs_sib = mode != 3 && base == 4;
        let sib = rest.first().filter(|_| needs_sib);
        let displacement_bytes = match mode {
            0 if base == 5 => 4,
            0 if sib.is_some_and(|sib| sib & 7 == 5) => 4,
            1 => 1,
            2 => 4,
            _ => 0,
        };
        operation == 2 && rest.len() == usize::from(needs_sib) + displacement_bytes
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_forms_of_x86_64() {
        let at = 0x1000;
        let call = |code: &[u8]| call_before(at, code);
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
}
