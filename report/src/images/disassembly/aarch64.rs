//! aarch64 by fARM64, in the syntax of Arm's manual, which the GNU tools print too. Every
//! instruction is a little-endian word of four bytes.

use super::Instruction;
use fARM64::format::{FmtFormatter, Formatter};
use fARM64::{Decoder, DecoderOptions};

const WORD_BYTES: usize = 4;

/// The length of the first instruction (bytes); the rest of a truncated word counts as one.
pub(super) fn length_bytes(code: &[u8]) -> usize {
    code.len().min(WORD_BYTES)
}

/// `wfi`, by Arm's manual ("WFI").
const WFI: u32 = 0xd503_207f;

pub(super) fn ends_idle(code: &[u8]) -> bool {
    let words = code.len().is_multiple_of(WORD_BYTES);
    words && code.last_chunk() == Some(&WFI.to_le_bytes())
}

pub(super) fn instruction(address: u64, code: &[u8]) -> Instruction {
    let bad = Instruction::bad(length_bytes(code).max(1));
    let Some(bytes) = code.first_chunk::<WORD_BYTES>() else {
        return bad;
    };
    let decoded = Decoder::new(bytes, address, DecoderOptions::default()).decode();
    if decoded.is_invalid() {
        return bad;
    }
    let mut text = String::new();
    FmtFormatter::new().format(&decoded, &mut text);
    // The formatter's columns are one wider than objdump's.
    let text = match text.split_once(' ') {
        Some((mnemonic, operands)) => format!("{mnemonic:<6} {}", operands.trim_start()),
        None => text,
    };
    if text.is_empty() {
        return bad;
    }
    let offset = branch_offset(u32::from_le_bytes(*bytes));
    Instruction {
        text,
        length_bytes: WORD_BYTES,
        target: offset.map(|offset| address.wrapping_add_signed(offset)),
    }
}

/// The distance of a direct branch from its own address (bytes). Encodings: Arm Architecture Reference Manual for
/// A-profile, "Branches, Exception Generating and System instructions".
fn branch_offset(word: u32) -> Option<i64> {
    // The sign is the field's highest bit; it counts words.
    let field = |low: u32, bits: u32| {
        let at_the_top = (word << (32 - low - bits)) as i32;
        i64::from(at_the_top >> (32 - bits)) * WORD_BYTES as i64
    };
    let is = |mask: u32, value: u32| word & mask == value;
    // B, BL.
    if is(0x7c00_0000, 0x1400_0000) {
        return Some(field(0, 26));
    }
    // B.cond and BC.cond; CBZ and CBNZ.
    if is(0xff00_0000, 0x5400_0000) || is(0x7e00_0000, 0x3400_0000) {
        return Some(field(5, 19));
    }
    // TBZ, TBNZ.
    is(0x7e00_0000, 0x3600_0000).then(|| field(5, 14))
}
