//! The callers as the stepping knows them: instructions and stack pointers go in, the chain that an
//! unwinder has to find comes out.

use uprof::Arch;

/// What an instruction does to the chain of callers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    None,
    Call,
    Return,
    /// QEMU's stub steps over it and the instruction behind it in one.
    SystemCall,
}

impl Effect {
    /// Of the instruction at the start of `code`.
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
    /// Its address: behind the call, or where it was interrupted.
    address: u64,
    /// While it is there, the stack pointer is not above this.
    reach: u64,
    /// It was not calling.
    is_interrupted: bool,
}

/// The callers of the instruction at hand.
#[derive(Default)]
pub struct Shadow(Vec<Caller>);

impl Shadow {
    /// With these callers (innermost first) while the stack pointer is `sp`.
    pub fn with(callers: &[u64], sp: u64) -> Shadow {
        let callers = callers.iter().rev().map(|address| Caller {
            address: *address,
            reach: sp,
            is_interrupted: false,
        });
        Shadow(callers.collect())
    }

    /// An instruction at `from` was carried out: now the stack pointer is `sp`, and `at` the
    /// address of the next one.
    pub fn took(&mut self, arch: Arch, effect: Effect, from: u64, sp: u64, at: u64, top: u64) {
        while self.0.last().is_some_and(|caller| caller.reach < sp) {
            self.0.pop();
        }
        let links = arch == Arch::Aarch64;
        match effect {
            // Where calls push the return address, `top` is it.
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

    /// A signal came at `from`, while the stack pointer was `sp`; the handler's is `handler_sp` and
    /// its return address `top`.
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
