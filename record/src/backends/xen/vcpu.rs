//! The state of a vCPU: registers by DWARF number, and address translation.
//!
//! Input: the bytes of `struct vcpu_guest_context`. Output: the same for both architectures.

use crate::guest::page_tables::Paging;
use crate::sys::xen::{context_aarch64, context_x86_64};
use uprof::cpu::{SpecialRegisters, aarch64};
use uprof::{Arch, Registers};
use zerocopy::FromBytes;

/// How to read a context: the interface and the kind of guest.
#[derive(Debug, Clone, Copy)]
pub struct ContextKind {
    /// Instruction set of Xen, which is the guest's too (32-bit guests are refused).
    pub arch: Arch,
    /// domctl interface version: old ones have another layout on AArch64.
    pub interface_version: u32,
    /// Whether page tables hold guest frames (HVM, PVH); otherwise they hold machine frames (PV).
    pub is_hvm: bool,
}

/// The instruction set of this recorder, and so of the Xen under it.
pub const NATIVE: Arch = if cfg!(target_arch = "aarch64") {
    Arch::Aarch64
} else {
    Arch::X86_64
};

/// A context in one of its layouts.
enum Context<'a> {
    X86_64(&'a context_x86_64::VcpuGuestContext),
    Aarch64 {
        x: &'a [u64; 31],
        pc: u64,
        pstate: u64,
        tail: &'a context_aarch64::Tail,
    },
}

impl Context<'_> {
    /// `None` if there are too few bytes.
    #[inline(always)]
    fn of(bytes: &[u8], kind: ContextKind) -> Option<Context<'_>> {
        Some(match kind.arch {
            Arch::X86_64 => {
                let found = context_x86_64::VcpuGuestContext::ref_from_prefix(bytes);
                Context::X86_64(found.ok()?.0)
            }
            Arch::Aarch64 if kind.interface_version >= context_aarch64::WIDE_CPSR_VERSION => {
                let found = context_aarch64::VcpuGuestContext::ref_from_prefix(bytes);
                let (context, _) = found.ok()?;
                Context::Aarch64 {
                    x: &context.x,
                    pc: context.pc,
                    pstate: context.cpsr,
                    tail: &context.tail,
                }
            }
            Arch::Aarch64 => {
                let found = context_aarch64::NarrowVcpuGuestContext::ref_from_prefix(bytes);
                let (context, _) = found.ok()?;
                Context::Aarch64 {
                    x: &context.x,
                    pc: context.pc,
                    pstate: u64::from(context.cpsr),
                    tail: &context.tail,
                }
            }
        })
    }
}

/// Reads the position of the vCPU from a context: sets only instruction, stack and frame pointer, and returns the
/// address translation. `None` if there are too few bytes.
#[inline(always)]
pub fn read_place(
    bytes: &[u8],
    kind: ContextKind,
    long_mode: bool,
    out: &mut Registers,
) -> Option<Paging> {
    let SpecialRegisters { ip, sp, fp } = kind.arch.special_registers();
    let (values, paging) = match Context::of(bytes, kind)? {
        Context::X86_64(context) => {
            let regs = &context.user_regs;
            let paging = paging_x86_64(&context.control, kind.is_hvm, long_mode);
            ([regs.rip, regs.rsp, regs.rbp], paging)
        }
        Context::Aarch64 {
            x,
            pc,
            pstate,
            tail,
        } => (
            [pc, sp_aarch64(pstate, tail), x[usize::from(fp)]],
            paging_aarch64(pstate, tail),
        ),
    };
    for (number, value) in [ip, sp, fp].into_iter().zip(values) {
        out.set(number, value);
    }
    Some(paging)
}

/// Where the code segment of an x86-64 vCPU begins, unless it has translated addresses: at 0 but in real mode.
pub fn code_base(bytes: &[u8], kind: ContextKind) -> u64 {
    const PROTECTED: u64 = 1;
    match Context::of(bytes, kind) {
        Some(Context::X86_64(context)) if context.control[0] & PROTECTED == 0 => {
            (context.user_regs.cs & 0xffff) << 4
        }
        _ => 0,
    }
}

/// Reads all registers of a context, if there are enough bytes.
pub fn read_registers(bytes: &[u8], kind: ContextKind, out: &mut Registers) {
    match Context::of(bytes, kind) {
        Some(Context::X86_64(context)) => read_registers_x86_64(context, out),
        Some(Context::Aarch64 {
            x,
            pc,
            pstate,
            tail,
        }) => {
            out.set_first(x);
            out.set(aarch64::SP, sp_aarch64(pstate, tail));
            out.set(aarch64::PC, pc);
            out.set(aarch64::PSTATE, pstate);
        }
        None => {}
    }
}

fn read_registers_x86_64(context: &context_x86_64::VcpuGuestContext, out: &mut Registers) {
    let regs = &context.user_regs;
    let by_number = [
        regs.rax, regs.rdx, regs.rcx, regs.rbx, regs.rsi, regs.rdi, regs.rbp, regs.rsp, regs.r8,
        regs.r9, regs.r10, regs.r11, regs.r12, regs.r13, regs.r14, regs.r15, regs.rip,
    ];
    out.set_first(&by_number);
    out.set(49, regs.rflags);
    out.set(58, context.fs_base);
    let in_user_mode = regs.cs & 3 != 0 && context.flags & 4 == 0; // VGCF_in_kernel
    out.set(
        59,
        if in_user_mode {
            context.gs_base_user
        } else {
            context.gs_base_kernel
        },
    );
}

fn paging_x86_64(control: &[u64; 8], is_hvm: bool, long_mode: bool) -> Paging {
    if !is_hvm {
        // xen_cr3_to_pfn of arch-x86/xen-x86_64.h; a 64-bit PV guest has four levels.
        return Paging::X86_64 {
            root: control[3] >> 12,
            levels: 4,
        };
    }
    Paging::of_x86_64(control[0], control[3], control[4], long_mode)
}

const PSTATE_AARCH32: u64 = 1 << 4;
const PSTATE_SP_ELX: u64 = 1;

/// Whether an AArch64 vCPU is in AArch32: it belongs to a 32-bit guest, or runs a 32-bit process.
pub fn is_aarch32(bytes: &[u8], kind: ContextKind) -> bool {
    matches!(Context::of(bytes, kind), Some(Context::Aarch64 { pstate, .. }) if pstate & PSTATE_AARCH32 != 0)
}

fn sp_aarch64(pstate: u64, tail: &context_aarch64::Tail) -> u64 {
    if pstate & PSTATE_SP_ELX != 0 {
        tail.sp_el1
    } else {
        tail.sp_el0
    }
}

fn paging_aarch64(pstate: u64, tail: &context_aarch64::Tail) -> Paging {
    if pstate & PSTATE_AARCH32 != 0 {
        Paging::Unsupported
    } else {
        Paging::of_aarch64(tail.sctlr, tail.ttbr0, tail.ttbr1, tail.ttbcr)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::xen::fetch::CONTEXT_BYTES;

    fn kind(arch: Arch, interface_version: u32, is_hvm: bool) -> ContextKind {
        ContextKind {
            arch,
            interface_version,
            is_hvm,
        }
    }

    fn put(bytes: &mut [u8], offset: usize, value: u64) {
        bytes[offset..offset + 8].copy_from_slice(&value.to_le_bytes());
    }

    /// A context whose every word is its own offset.
    fn numbered() -> zerocopy_buffer::Buffer {
        let mut buffer = zerocopy_buffer::Buffer::default();
        for offset in (0..CONTEXT_BYTES).step_by(8) {
            put(buffer.bytes(), offset, offset as u64);
        }
        buffer
    }

    /// Bytes aligned as a hypercall buffer is.
    mod zerocopy_buffer {
        #[repr(align(64))]
        pub struct Buffer([u8; crate::sys::xen::fetch::CONTEXT_BYTES]);

        impl Default for Buffer {
            fn default() -> Self {
                Buffer([0; crate::sys::xen::fetch::CONTEXT_BYTES])
            }
        }

        impl Buffer {
            pub fn bytes(&mut self) -> &mut [u8] {
                &mut self.0
            }
        }
    }

    #[test]
    fn x86_64_registers_are_where_the_header_has_them() {
        let mut buffer = numbered();
        let mut registers = Registers::default();
        let context = buffer.bytes();
        put(context, 4984 + 24, 0x1234_5000); // CR3
        let kind = kind(Arch::X86_64, 0x15, false);
        let paging = read_place(context, kind, true, &mut registers);
        let SpecialRegisters { ip, sp, fp } = Arch::X86_64.special_registers();
        let place = [ip, sp, fp].map(|number| registers.get(number));
        assert_eq!(place, [648, 672, 552].map(Some));
        assert_eq!(registers.mask().count_ones(), 3);
        read_registers(context, kind, &mut registers);
        assert_eq!(
            paging,
            Some(Paging::X86_64 {
                root: 0x12345,
                levels: 4
            })
        );
        let expected = [
            (6, 552),
            (16, 648),
            (49, 664),
            (7, 672),
            (58, 5144),
            (0, 600),
            (5, 632),
        ];
        for (number, offset) in expected {
            assert_eq!(registers.get(number), Some(offset), "register {number}");
        }
    }

    #[test]
    fn aarch64_layout_depends_on_the_interface_version() {
        for (version, tail) in [(0x15, 296), (0x13, 288)] {
            let mut buffer = numbered();
            let context = buffer.bytes();
            put(context, 264, 5); // PSTATE: EL1 with its own stack pointer
            put(context, tail + 24, 1); // SCTLR_EL1: translation on
            let mut registers = Registers::default();
            let kind = kind(Arch::Aarch64, version, true);
            let paging = read_place(context, kind, true, &mut registers);
            let SpecialRegisters { ip, sp, fp } = Arch::Aarch64.special_registers();
            let place = [ip, sp, fp].map(|number| registers.get(number));
            assert_eq!(place, [256, tail as u64 + 8, 8 + 29 * 8].map(Some));
            assert_eq!(registers.mask().count_ones(), 3);
            read_registers(context, kind, &mut registers);
            let tail = tail as u64;
            assert_eq!(
                paging,
                Some(Paging::Aarch64 {
                    ttbr0: tail + 40,
                    ttbr1: tail + 48,
                    tcr: tail + 32
                })
            );
            assert_eq!(registers.get(aarch64::SP), Some(tail + 8), "sp_el1");
            assert_eq!(registers.get(aarch64::PC), Some(256), "pc");
            assert_eq!(
                registers.get(aarch64::FP),
                Some(8 + 29 * 8),
                "frame pointer"
            );
        }
    }

    #[test]
    fn too_few_bytes_are_no_context() {
        let mut registers = Registers::default();
        let pv = kind(Arch::X86_64, 0x15, false);
        assert_eq!(read_place(&[0; 100], pv, true, &mut registers), None);
        read_registers(&[0; 100], pv, &mut registers);
        assert_eq!(registers.mask(), 0);
    }
}
