//! Disassembly. Input: a function's bytes. Output: its instructions, in the default syntax of objdump and perf. Bytes
//! that are no instruction become `(bad)`; any bytes give some text, and each step consumes at least one.

mod x86_64;
mod aarch64;

use uprof::Arch;

/// The text for bytes that are no instruction.
const BAD: &str = "(bad)";

/// One instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instruction {
    /// Its mnemonic and operands; addresses are those of the image.
    pub text: String,
    /// Its length (bytes); at least 1.
    pub length_bytes: usize,
    /// The target of a direct jump or call.
    pub target: Option<u64>,
}

impl Instruction {
    fn bad(length_bytes: usize) -> Instruction {
        Instruction {
            text: BAD.to_owned(),
            length_bytes,
            target: None,
        }
    }
}

/// The name of the syntax for `arch`, where there are several.
pub(crate) fn syntax(arch: Arch) -> Option<&'static str> {
    match arch {
        Arch::X86_64 => Some("AT&T syntax"),
        Arch::Aarch64 => None,
    }
}

/// Where the instructions of `code` start (bytes from its own start), ascending from 0.
pub fn starts(arch: Arch, code: &[u8]) -> Vec<usize> {
    let mut starts = Vec::new();
    let mut at = 0;
    while at < code.len() {
        starts.push(at);
        let length_bytes = match arch {
            Arch::X86_64 => x86_64::length_bytes(&code[at..]),
            Arch::Aarch64 => aarch64::length_bytes(&code[at..]),
        };
        at += length_bytes.max(1);
    }
    starts
}

/// The first instruction of `code`, which is at `address`; `(bad)` if `code` is empty.
pub fn instruction(arch: Arch, address: u64, code: &[u8]) -> Instruction {
    match arch {
        Arch::X86_64 => x86_64::instruction(address, code),
        Arch::Aarch64 => aarch64::instruction(address, code),
    }
}
