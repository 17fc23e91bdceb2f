//! AArch64. Sources: DWARF for the Arm 64-bit Architecture, section 4.1 (register numbers); Arm Architecture Reference
//! Manual.

use super::{Call, SpecialRegisters};

/// The frame pointer (x29).
pub const FP: u8 = 29;
/// The link register (x30): the return address of a function that has made no call.
pub const LR: u8 = 30;
/// The stack pointer.
pub const SP: u8 = 31;
/// The program counter.
pub const PC: u8 = 32;
/// The state of the processor, as exceptions save it.
pub const PSTATE: u8 = 33;

/// The registers that every sample needs.
pub(super) const SPECIAL_REGISTERS: SpecialRegisters = SpecialRegisters {
    ip: PC,
    sp: SP,
    fp: FP,
};

/// Length of each instruction, which is aligned to it, in bytes.
pub const INSTRUCTION_BYTES: u64 = 4;

const NAMES: [&str; 34] = [
    "x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14",
    "x15", "x16", "x17", "x18", "x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27",
    "x28", "x29", "x30", "sp", "pc", "pstate",
];

pub(super) fn register_name(number: u8) -> Option<&'static str> {
    NAMES.get(usize::from(number)).copied()
}

/// Whether `address` is in the upper half of the address space. Bit 55 selects it (Arm ARM, D8.9, "Pointer
/// authentication"), as the bits above may be a tag or a signature.
pub const fn is_in_upper_half(address: u64) -> bool {
    address >> 55 & 1 == 1
}

/// See [`Arch::without_signature`](crate::Arch::without_signature).
#[inline]
pub const fn without_signature(address: u64) -> u64 {
    /// The bits above those that select memory.
    const SIGNATURE: u64 = u64::MAX << 48;
    if is_in_upper_half(address) {
        address | SIGNATURE
    } else {
        address & !SIGNATURE
    }
}

/// See [`Arch::call_before`](crate::Arch::call_before).
pub(super) fn call_before(return_address: u64, code: &[u8]) -> Option<Call> {
    let instruction = u32::from_le_bytes(*code.last_chunk()?);
    if instruction >> 26 == 0b10_0101 {
        // BL: a signed offset of 26 bits, in words (Arm ARM, C6.2.34).
        let words = i64::from((instruction << 6).cast_signed() >> 6);
        let call = return_address.wrapping_sub(INSTRUCTION_BYTES);
        return Some(Call::Direct(call.wrapping_add_signed(4 * words)));
    }
    // BLR and its authenticated forms (BLRAA, BLRAAZ, BLRAB, BLRABZ).
    (instruction & 0xfeff_f000 == 0xd63f_0000).then_some(Call::Indirect)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_are_stripped_in_both_halves() {
        for (signed, address) in [
            (0x002a_aaaa_dead_beef, 0x0000_aaaa_dead_beef),
            (0x932a_0000_4008_1d04, 0x0000_4008_1d04),
            (0xff80_8000_1008_1234, 0xffff_8000_1008_1234),
            (0x1280_8000_1008_1234, 0xffff_8000_1008_1234),
            (0xffff_8000_1008_1234, 0xffff_8000_1008_1234),
            (0x40_0000, 0x40_0000),
        ] {
            assert_eq!(without_signature(signed), address, "{signed:x}");
        }
    }

    #[test]
    fn all_forms_of_aarch64() {
        let call = |word: u32| call_before(0x1000, &word.to_le_bytes());
        assert_eq!(call(0x9400_0010), Some(Call::Direct(0x103c)));
        assert_eq!(call(0x97ff_fff0), Some(Call::Direct(0xfbc)));
        // BLR, BLRAAZ, BLRAA and BLRAB.
        for word in [0xd63f_0100u32, 0xd63f_081f, 0xd73f_0909, 0xd73f_0d09] {
            assert_eq!(call(word), Some(Call::Indirect), "{word:x}");
        }
        for word in [0x1400_0010u32, 0xd61f_0100, 0xd65f_03c0, 0xd503_201f] {
            assert_eq!(call(word), None, "{word:x}");
        }
        assert_eq!(call_before(0x1000, &[0x94]), None);
    }
}
