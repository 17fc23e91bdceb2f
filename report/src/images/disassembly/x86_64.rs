//! x86-64 by iced-x86, formatted as the GNU tools do it.

use super::Instruction;
use crate::work;
use iced_x86::{Decoder, DecoderOptions, Formatter, GasFormatter, Mnemonic, OpKind};

/// How `hlt` and `mwait` end. What has been decoded first is seldom worth it.
const IDLE_ENDS: [&[u8]; 2] = [&[0xf4], &[0x0f, 0x01, 0xc9]];

/// Decodes the first instruction; `None` if there is none.
fn decode(address: u64, code: &[u8]) -> Option<iced_x86::Instruction> {
    let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    let decoded = decoder.decode();
    (!decoded.is_invalid()).then_some(decoded)
}

/// The length of the first instruction (bytes). As in objdump, an invalid instruction has one byte.
pub(super) fn length_bytes(code: &[u8]) -> usize {
    decode(0, code).map_or(1, |decoded| decoded.len())
}

pub(super) fn ends_idle(code: &[u8]) -> bool {
    if !IDLE_ENDS.iter().any(|end| code.ends_with(end)) {
        return false;
    }
    work::take(code.len() as u64);
    let mut last = iced_x86::Instruction::default();
    let mut decoder = Decoder::new(64, code, DecoderOptions::NONE);
    while decoder.can_decode() {
        decoder.decode_out(&mut last);
        if last.is_invalid() {
            // Where code goes on behind bytes that are none, is not known.
            return false;
        }
    }
    matches!(last.mnemonic(), Mnemonic::Hlt | Mnemonic::Mwait)
}

pub(super) fn instruction(address: u64, code: &[u8]) -> Instruction {
    let Some(decoded) = decode(address, code) else {
        return Instruction::bad(1);
    };
    let mut text = String::new();
    formatter().format(&decoded, &mut text);
    if decoded.is_ip_rel_memory_operand() {
        let referred = decoded.ip_rel_memory_address();
        text.push_str(&format!("  # {referred:#x}"));
    }
    let is_branch = matches!(
        decoded.op0_kind(),
        OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64
    );
    Instruction {
        text,
        length_bytes: decoded.len(),
        target: is_branch.then(|| decoded.near_branch_target()),
    }
}

fn formatter() -> GasFormatter {
    let mut formatter = GasFormatter::new();
    let options = formatter.options_mut();
    options.set_uppercase_hex(false);
    options.set_small_hex_numbers_in_decimal(false);
    options.set_branch_leading_zeros(false);
    options.set_rip_relative_addresses(true);
    options.set_first_operand_char_index(7);
    formatter
}
