//! Machine code as text: bytes of a function go in, instructions come out, in the syntax that
//! objdump and perf show by default. Bytes that are no instruction become `(bad)`; any bytes at
//! all give some text, and each step moves on. Nothing here reads an image or knows a name.

mod x86_64;
mod aarch64;

use uprof::Arch;

/// What bytes that are no instruction are called.
const BAD: &str = "(bad)";

/// One instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instruction {
    /// Its mnemonic and operands; addresses are those of the image.
    pub text: String,
    /// How long it is (bytes); at least 1.
    pub length_bytes: usize,
    /// Where it jumps to or calls, if it says so itself.
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

/// The syntax that instructions of `arch` are shown in, where there are several.
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

/// The first instruction of `code`, which lies at `address`. Of no bytes it is `(bad)`.
pub fn instruction(arch: Arch, address: u64, code: &[u8]) -> Instruction {
    match arch {
        Arch::X86_64 => x86_64::instruction(address, code),
        Arch::Aarch64 => aarch64::instruction(address, code),
    }
}
