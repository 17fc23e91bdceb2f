//! The callers that stepping shows. Input: instructions and stack pointers. Output: the chain that an
//! unwinder has to find.

use uprof::Arch;

/// The effect of an instruction on the chain of callers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    None,
    Call,
    Return,
    /// QEMU's stub steps over a system call and the instruction after it at once.
    SystemCall,
}

impl Effect {
    /// The effect of the instruction at the start of `code`.
    pub fn of(arch: Arch, code: &[u8]) -> Effect {
        match arch {
            Arch::X86_64 => x86_64(code),
            Arch::Aarch64 => aarch64(code),
        }
    }
}

fn x86_64(code: &[u8]) -> Effect {
    use iced_x86::{Decoder, DecoderOptions, Mnemonic};
    let mut decoder = Decoder::new(64, code, DecoderOptions::NONE);
    match decoder.decode().mnemonic() {
        Mnemonic::Call => Effect::Call,
        Mnemonic::Ret => Effect::Return,
        _ => Effect::None,
    }
}

/// `SVC`, and `BL`, `BLR` and `RET` with their signed forms (Arm ARM, C4.1 "Branches, exception generating").
fn aarch64(code: &[u8]) -> Effect {
    let word = u32::from_le_bytes(*code.first_chunk().unwrap());
    if word >> 26 == 0b10_0101 || word & 0xfeff_f000 == 0xd63f_0000 {
        return Effect::Call;
    }
    if word & 0xffe0_001f == 0xd400_0001 {
        return Effect::SystemCall;
    }
    match word & 0xffff_fc1f == 0xd65f_0000 || word & 0xffff_fbff == 0xd65f_0bff {
        true => Effect::Return,
        false => Effect::None,
    }
}

struct Caller {
    /// Its return address, or the address where it was interrupted.
    address: u64,
    /// The highest stack pointer while this frame exists.
    reach: u64,
    /// Whether it was interrupted rather than calling.
    is_interrupted: bool,
}

/// The callers of the current instruction.
#[derive(Default)]
pub struct Shadow(Vec<Caller>);

impl Shadow {
    /// Starts with these callers (innermost first), at stack pointer `sp`.
    pub fn with(callers: &[u64], sp: u64) -> Shadow {
        let callers = callers.iter().rev().map(|address| Caller {
            address: *address,
            reach: sp,
            is_interrupted: false,
        });
        Shadow(callers.collect())
    }

    /// Notes that the instruction at `from` was executed. The stack pointer is now `sp`, and the next
    /// instruction is at `at`.
    pub fn took(&mut self, arch: Arch, effect: Effect, from: u64, sp: u64, at: u64, top: u64) {
        while self.0.last().is_some_and(|caller| caller.reach < sp) {
            self.0.pop();
        }
        let links = arch == Arch::Aarch64;
        match effect {
            // If calls push the return address, it is `top`.
            Effect::Call => self.0.push(Caller {
                address: if links { from + 4 } else { top },
                reach: sp,
                is_interrupted: false,
            }),
            Effect::Return if links && self.0.last().is_some_and(|top| top.address == at) => {
                self.0.pop();
            }
            _ => {}
        }
    }

    /// Notes that a signal arrived at `from` with stack pointer `sp`. The handler begins with `handler_sp`,
    /// and its return address is `top`.
    pub fn interrupted(&mut self, from: u64, sp: u64, handler_sp: u64, top: u64) {
        self.0.push(Caller {
            address: from,
            reach: sp - 1,
            is_interrupted: true,
        });
        self.0.push(Caller {
            address: top,
            reach: handler_sp,
            is_interrupted: false,
        });
    }

    pub fn is_in_signal(&self) -> bool {
        self.0.iter().any(|caller| caller.is_interrupted)
    }

    /// The callers' addresses, innermost first.
    pub fn callers(&self) -> impl Iterator<Item = u64> {
        self.0.iter().rev().map(|caller| caller.address)
    }
}
