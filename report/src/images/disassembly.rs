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

/// Whether the last instruction of `code`, whose first byte begins an instruction too, is one with which a processor
/// idles: `hlt`, `mwait`, `wfi`. Those that also wait for a time (`mwaitx`, `tpause`, `wfit`) are delays of code that
/// runs.
pub(crate) fn ends_idle(arch: Arch, code: &[u8]) -> bool {
    match arch {
        Arch::X86_64 => x86_64::ends_idle(code),
        Arch::Aarch64 => aarch64::ends_idle(code),
    }
}

/// The first instruction of `code`, which is at `address`; `(bad)` if `code` is empty.
pub fn instruction(arch: Arch, address: u64, code: &[u8]) -> Instruction {
    match arch {
        Arch::X86_64 => x86_64::instruction(address, code),
        Arch::Aarch64 => aarch64::instruction(address, code),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_instruction_is_the_last_and_whole() {
        let ends = |code: &[u8]| ends_idle(Arch::X86_64, code);
        let idle: [&[u8]; 4] = [
            &[0xf4],
            &[0xfb, 0xf4],
            &[0x0f, 0x01, 0xc9],
            &[0x90, 0x0f, 0x01, 0xc9],
        ];
        assert!(idle.iter().all(|code| ends(code)));
        let others: [&[u8]; 9] = [
            &[],
            &[0x8b, 0x45, 0xf4],                            // mov -0xc(%rbp),%eax
            &[0xeb, 0xf4],                                  // jmp
            &[0xb8, 0xf4, 0xf4, 0xf4, 0xf4],                // mov $0xf4f4f4f4,%eax
            &[0x48, 0xb8, 0, 0, 0, 0, 0, 0x0f, 0x01, 0xc9], // movabs
            &[0xf4, 0x90],                                  // hlt; nop
            &[0x48, 0xb8, 0xf4],                            // the beginning of one
            &[0x06, 0xf4],                                  // behind what is none
            &[0x0f, 0x01, 0xfb],                            // mwaitx, which is a delay
        ];
        for code in others {
            assert!(!ends(code), "{code:x?}");
        }
        let ends = |code: &[u8]| ends_idle(Arch::Aarch64, code);
        let wfi = 0xd503_207f_u32.to_le_bytes();
        assert!(ends(&wfi) && ends(&[[0; 4], wfi].concat()));
        let others: [&[u8]; 4] = [&[], &wfi[1..], &[&[0][..], &wfi].concat(), &[0xf4; 4]];
        assert!(!others.iter().any(|code| ends(code)));
        assert!(!ends_idle(Arch::X86_64, &wfi) && !ends_idle(Arch::Aarch64, &[0xf4]));
    }
}
