//! The page that KVM shares with a monitor for each vCPU (`struct kvm_run` of linux/kvm.h), as far as it holds
//! registers of x86-64.
//!
//! Input: bytes of the page. Output: registers by DWARF number, and how the vCPU translates addresses. Source: the
//! kernel's "The Definitive KVM API", KVM_CAP_SYNC_REGS (Linux 4.17).

use uprof::Registers;
use uprof::cpu::x86_64;

/// Offset of `kvm_valid_regs`, which KVM reads at each return to the monitor and never changes.
pub const VALID_AT: u64 = 288;
/// `KVM_SYNC_X86_REGS` and `KVM_SYNC_X86_SREGS`: the registers that KVM is asked to write.
pub const WANTED: u64 = 1 << 0 | 1 << 1;
/// Bytes from `kvm_valid_regs` to the end of `struct kvm_sregs`.
pub const BYTES: usize = REGISTERS_AT + 144 + 312;

/// Offset of CR0. Its value is never zero once KVM has written it.
pub const CR0_AT: u64 = VALID_AT + CONTROL_AT as u64;

/// `struct kvm_regs`, after `kvm_valid_regs` and `kvm_dirty_regs`.
const REGISTERS_AT: usize = 16;
/// `struct kvm_sregs`: eight segments of 24 bytes, two tables of 16, control registers.
const SYSTEM_AT: usize = REGISTERS_AT + 144;
const FS_AT: usize = SYSTEM_AT + 3 * 24;
const GS_AT: usize = SYSTEM_AT + 4 * 24;
const CONTROL_AT: usize = SYSTEM_AT + 8 * 24 + 2 * 16;

const LONG_MODE_ACTIVE: u64 = 1 << 10;
/// `l` of the code segment's `struct kvm_segment`: its code is 64-bit code.
const CODE_IS_LONG_AT: usize = SYSTEM_AT + 19;

/// The registers that KVM wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State {
    /// CR0, CR3, CR4 and EFER.
    pub control: [u64; 4],
    /// The instruction pointer alone unless the vCPU is in 64-bit mode.
    pub registers: Registers,
    /// Whether it is in 64-bit mode, by its code segment.
    pub is_long: bool,
}

/// Whether KVM was asked to write the registers.
pub fn is_asked(bytes: &[u8; BYTES]) -> bool {
    word(bytes, 0) & WANTED == WANTED
}

/// The state in the page; `None` if KVM has not written one.
pub fn state(bytes: &[u8; BYTES]) -> Option<State> {
    let control = |index: usize| word(bytes, CONTROL_AT + 8 * index);
    let control = [control(0), control(2), control(3), control(5)];
    if control[0] == 0 {
        return None;
    }
    let mut registers = Registers::default();
    let is_long = control[3] & LONG_MODE_ACTIVE != 0 && bytes[CODE_IS_LONG_AT] != 0;
    // rax, rbx, rcx, rdx, rsi, rdi, rsp, rbp, r8 to r15, rip, rflags.
    let general = |index: usize| word(bytes, REGISTERS_AT + 8 * index);
    if is_long {
        let by_number: [u64; 17] = std::array::from_fn(|number| {
            general([0, 3, 2, 1, 4, 5, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15, 16][number])
        });
        registers.set_first(&by_number);
        registers.set(x86_64::RFLAGS, general(17));
        registers.set(x86_64::FS_BASE, word(bytes, FS_AT));
        registers.set(x86_64::GS_BASE, word(bytes, GS_AT));
    } else {
        // Its base is zero except in real mode.
        let base = word(bytes, SYSTEM_AT);
        registers.set(x86_64::RIP, base.wrapping_add(general(16)));
    }
    Some(State {
        control,
        registers,
        is_long,
    })
}

fn word(bytes: &[u8; BYTES], at: usize) -> u64 {
    let word = bytes.get(at..at + 8).and_then(|word| word.try_into().ok());
    word.map_or(0, u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use uprof::Arch;
    use uprof::cpu::SpecialRegisters;

    #[test]
    fn registers_are_where_the_header_has_them() {
        let mut bytes = [0; BYTES];
        assert_eq!((is_asked(&bytes), state(&bytes)), (false, None));
        let mut put = |at: usize, value: u64| {
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        };
        put(0, WANTED);
        // Offsets in struct kvm_run, by gcc's offsetof, less VALID_AT: rip 432, rsp 352, rbp 360, rcx 320, fs.base 520,
        // gs.base 544, cr0 672, cr3 688, cr4 696, efer 712.
        for (offset, value) in [
            (432, 0x1000),
            (352, 0x2000),
            (360, 0x3000),
            (320, 7),
            (520, 8),
            (544, 9),
            (672, 0x8000_0011),
            (688, 0x5000),
            (696, 0x20),
        ] {
            put(offset - VALID_AT as usize, value);
        }
        let read = state(&bytes).unwrap();
        assert!(is_asked(&bytes));
        assert_eq!(read.control, [0x8000_0011, 0x5000, 0x20, 0]);
        let SpecialRegisters { ip, sp, fp } = Arch::X86_64.special_registers();
        // First neither the mode nor the code segment is 64-bit; then only the mode is, as in 32-bit processes of a
        // 64-bit kernel.
        let efer = 712 - VALID_AT as usize;
        for mode in [0, LONG_MODE_ACTIVE] {
            bytes[efer..efer + 8].copy_from_slice(&mode.to_le_bytes());
            let narrow = state(&bytes).unwrap();
            assert_eq!(narrow.registers.mask(), 1 << ip, "not in 64-bit mode");
            assert!(!narrow.is_long && narrow.registers.get(ip) == Some(0x1000));
        }
        // By gcc's offsetof: sregs.cs.l is at 467.
        bytes[467 - VALID_AT as usize] = 1;
        assert!(state(&bytes).unwrap().is_long);
        let registers = state(&bytes).unwrap().registers;
        let read = [ip, sp, fp, 2, 58, 59].map(|number| registers.get(number).unwrap());
        assert_eq!(read, [0x1000, 0x2000, 0x3000, 7, 8, 9]);
    }
}
