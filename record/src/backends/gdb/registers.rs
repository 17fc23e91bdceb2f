//! Translates a stub's registers to DWARF registers, and to those that control the guest's address translation.
//!
//! Input: the description, then `g` replies. Output: registers by DWARF number. Names are resolved once; reading a
//! reply is a table walk that allocates nothing.

use super::description::Description;
use super::packet::register_value;
use std::ops::Range;
use uprof::cpu::SpecialRegisters;
use uprof::{Arch, Registers};

/// x86-64 control registers, which QEMU's stub has in its `g` reply.
const CONTROL_X86_64: [&str; 4] = ["cr0", "cr3", "cr4", "efer"];
/// CR0.PE.
const PROTECTED: u64 = 1;
/// AArch64 system registers, which QEMU's stub reports only one by one.
pub const SYSTEM_AARCH64: [&str; 4] = ["SCTLR", "TTBR0_EL1", "TTBR1_EL1", "TCR_EL1"];

/// The positions of registers in a `g` reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Instruction set.
    pub arch: Arch,
    /// DWARF numbers and their digits in the reply.
    places: Vec<(u8, Range<usize>)>,
    /// Digits of the control registers that address translation needs (x86-64).
    control: Option<[Range<usize>; 4]>,
    /// Digits of the code segment's selector (x86-64).
    code: Option<Range<usize>>,
    /// Numbers, for `p`, of the system registers that address translation needs (AArch64).
    pub system: Option<[u32; 4]>,
    /// Fewest digits of a valid reply.
    least_digits: usize,
}

/// The reason why a description can't be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unusable {
    /// Another instruction set.
    Arch(String),
    /// A register that sampling needs is missing.
    Missing(String),
}

impl Layout {
    /// The layout of the stub's description.
    ///
    /// # Errors
    /// Says why it can't be used.
    pub fn of_description(description: &Description) -> Result<Self, Unusable> {
        let Some(arch) = description.arch() else {
            return Err(Unusable::Arch(description.architecture.clone()));
        };
        if description.registers.is_empty() {
            // Only the architecture is named, as in the description of the gdbstub crate's x86-64.
            return Self::usual(arch);
        }
        let mut places = Vec::new();
        for number in 0..64 {
            let Some(name) = arch.register_name(number) else {
                continue;
            };
            let name = match name {
                "rflags" => "eflags",
                "pstate" => "cpsr",
                name => name,
            };
            places.extend(description.place(name).map(|place| (number, place)));
        }
        let control = CONTROL_X86_64.map(|name| description.place(name));
        let system = SYSTEM_AARCH64.map(|name| description.find(name).map(|found| found.number));
        Ok(Layout {
            code: description.place("cs"),
            ..Self::new(arch, places, all(control), all(system))?
        })
    }

    /// The layout of stubs without a description (gdb's i386-64bit and aarch64 core features).
    ///
    /// # Errors
    /// Never fails; the type is that of [`Layout::of_description`].
    pub fn usual(arch: Arch) -> Result<Self, Unusable> {
        let word = |index: usize| index * 16..index * 16 + 16;
        let places = match arch {
            Arch::X86_64 => {
                // rax rbx rcx rdx rsi rdi rbp rsp r8 to r15 rip, by their DWARF numbers.
                let order = [0, 3, 2, 1, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];
                let words = order.iter().enumerate();
                words
                    .map(|(index, &number)| (number, word(index)))
                    .collect()
            }
            Arch::Aarch64 => (0..33)
                .map(|number| (number, word(usize::from(number))))
                .collect(),
        };
        Self::new(arch, places, None, None)
    }

    fn new(
        arch: Arch,
        places: Vec<(u8, Range<usize>)>,
        control: Option<[Range<usize>; 4]>,
        system: Option<[u32; 4]>,
    ) -> Result<Self, Unusable> {
        let SpecialRegisters { ip, sp, fp } = arch.special_registers();
        let mut least_digits = 0;
        for needed in [ip, sp, fp] {
            let Some((_, place)) = places.iter().find(|(number, _)| *number == needed) else {
                let name = arch.register_name(needed).unwrap_or("one");
                return Err(Unusable::Missing(name.to_owned()));
            };
            least_digits = least_digits.max(place.end);
        }
        Ok(Layout {
            arch,
            places,
            control,
            code: None,
            system,
            least_digits,
        })
    }

    /// Reads a `g` reply; `false` if it lacks a register that every sample needs.
    pub fn read(&self, reply: &[u8], out: &mut Registers) -> bool {
        out.clear();
        for (number, place) in &self.places {
            if let Some(value) = reply.get(place.clone()).and_then(register_value) {
                out.set(*number, value);
            }
        }
        reply.len() >= self.least_digits
    }

    /// CR0, CR3, CR4 and EFER from a `g` reply, if it has them.
    pub fn read_control(&self, reply: &[u8]) -> Option<[u64; 4]> {
        let places = self.control.as_ref()?;
        let mut values = [0; 4];
        for (place, value) in places.iter().zip(&mut values) {
            *value = register_value(reply.get(place.clone())?)?;
        }
        Some(values)
    }

    /// The linear address to which the instruction pointer in a `g` reply is relative, given the control registers: in
    /// real mode that of the code segment. Stubs report no base of another segment, and most systems have 0.
    pub fn code_base(&self, reply: &[u8], control: Option<[u64; 4]>) -> u64 {
        let is_real = control.is_some_and(|[cr0, ..]| cr0 & PROTECTED == 0);
        let place = self.code.clone().filter(|_| is_real);
        let selector = place.and_then(|place| register_value(reply.get(place)?));
        (selector.unwrap_or(0) & 0xffff) << 4
    }
}

/// All four or none.
fn all<T>(parts: [Option<T>; 4]) -> Option<[T; 4]> {
    let [Some(a), Some(b), Some(c), Some(d)] = parts else {
        return None;
    };
    Some([a, b, c, d])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn description(architecture: &str, registers: &[(&str, u32)]) -> Description {
        let described = registers.iter().enumerate();
        Description {
            architecture: architecture.into(),
            registers: described
                .map(
                    |(index, &(name, bits))| super::super::description::RegisterDescription {
                        name: name.into(),
                        number: index as u32,
                        bits,
                    },
                )
                .collect(),
        }
    }

    #[test]
    fn registers_land_under_their_dwarf_numbers() {
        let layout = Layout::usual(Arch::X86_64).unwrap();
        let reply: String = (0..17u64)
            .map(|n| format!("{:016x}", (n + 1).swap_bytes()))
            .collect();
        let mut registers = Registers::default();
        assert!(layout.read(reply.as_bytes(), &mut registers));
        // rbx is second in the reply and number 3, rbp seventh and 6, rip seventeenth and 16.
        assert_eq!(registers.get(3), Some(2));
        assert_eq!(registers.get(6), Some(7));
        assert_eq!(registers.get(16), Some(17));
        assert!(
            !layout.read(&reply.as_bytes()[..200], &mut registers),
            "too short"
        );
        assert_eq!(registers.get(16), None);
    }

    #[test]
    fn a_description_without_registers_stands_for_the_usual_ones() {
        let bare = Layout::of_description(&description("i386:x86-64", &[]));
        assert_eq!(bare, Layout::usual(Arch::X86_64));
    }

    #[test]
    fn descriptions_that_are_of_no_use() {
        let riscv = description("riscv:rv64", &[("pc", 64)]);
        let wrong = Err(Unusable::Arch("riscv:rv64".into()));
        assert_eq!(Layout::of_description(&riscv), wrong);
        let no_sp = description("aarch64", &[("x29", 64), ("pc", 64)]);
        let missing = Err(Unusable::Missing("sp".into()));
        assert_eq!(Layout::of_description(&no_sp), missing);
    }

    #[test]
    fn control_registers_are_read_where_they_are_told() {
        let names = ["rbp", "rsp", "rip", "cr0", "cr3", "cr4", "efer"];
        let layout =
            Layout::of_description(&description("i386:x86-64", &names.map(|name| (name, 64))));
        let reply: String = (0..7u64)
            .map(|n| format!("{:016x}", n.swap_bytes()))
            .collect();
        assert_eq!(
            layout.unwrap().read_control(reply.as_bytes()),
            Some([3, 4, 5, 6])
        );
    }

    #[test]
    fn code_in_real_mode_begins_at_its_segment() {
        let names = ["rbp", "rsp", "rip", "cs"];
        let described = description("i386:x86-64", &names.map(|name| (name, 64)));
        let layout = Layout::of_description(&described).unwrap();
        let reply: Vec<u8> = [1u64, 2, 3, 0xf000]
            .iter()
            .flat_map(|word| format!("{:016x}", word.swap_bytes()).into_bytes())
            .collect();
        let base = |cr0| layout.code_base(&reply, Some([cr0, 0, 0, 0]));
        assert_eq!(base(0x10), 0xf_0000);
        assert_eq!(base(0x11), 0);
        assert_eq!(layout.code_base(&reply, None), 0);
        assert_eq!(layout.code_base(&reply[..50], Some([0; 4])), 0);
    }
}
