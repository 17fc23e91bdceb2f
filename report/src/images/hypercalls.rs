//! Xen's hypercall page: a page of a guest's code that Xen fills when the guest starts, with a stub of 32 bytes for
//! each hypercall. The image has one symbol for it and no instructions. Output: the name of each stub, and the depth
//! of the stack in it.
//!
//! Sources: Xen's public headers `xen.h` (`__HYPERVISOR_*`) and `elfnote.h` (`XEN_ELFNOTE_HYPERCALL_PAGE`); the
//! stubs as Xen writes them (`hypercall_page_initialise` of `arch/x86`); names as Linux has them.

use crate::images::{FILE_LENGTHS_MAX, Image};
use object::read::elf::Sym;
use object::{LittleEndian, Object};
use uprof::Arch;

/// The page's symbol in Mini-OS, Unikraft, Linux and others.
pub(crate) const SYMBOL: &str = "hypercall_page";
/// Size and alignment of the page.
pub(crate) const PAGE_BYTES: u64 = 4096;
/// Size of a stub.
pub(crate) const STUB_BYTES: u64 = 32;

/// Names by number; empty where there is none.
const NAMES: [&str; 50] = [
    "set_trap_table",
    "mmu_update",
    "set_gdt",
    "stack_switch",
    "set_callbacks",
    "fpu_taskswitch",
    "sched_op_compat",
    "platform_op",
    "set_debugreg",
    "get_debugreg",
    "update_descriptor",
    "",
    "memory_op",
    "multicall",
    "update_va_mapping",
    "set_timer_op",
    "event_channel_op_compat",
    "xen_version",
    "console_io",
    "physdev_op_compat",
    "grant_table_op",
    "vm_assist",
    "update_va_mapping_otherdomain",
    "iret",
    "vcpu_op",
    "set_segment_base",
    "mmuext_op",
    "xsm_op",
    "nmi_op",
    "sched_op",
    "callback_op",
    "xenoprof_op",
    "event_channel_op",
    "physdev_op",
    "hvm_op",
    "sysctl",
    "domctl",
    "kexec_op",
    "tmem_op",
    "argo_op",
    "xenpmu_op",
    "dm_op",
    "hypfs_op",
    "",
    "",
    "",
    "",
    "",
    "mca",
    "paging_domctl_cont",
];

/// The depth of the stack including the return address (bytes), and the offset in the stub from which it is so. A
/// stub of a PV guest pushes rcx and r11, then `mov eax`, `syscall` (up to byte 10), and pops them; that of an HVM
/// guest is `mov eax` (up to byte 5), `vmcall` (up to byte 8), `ret`. An offset where only one kind has an
/// instruction belongs to that kind. Both have one at byte 8: a PV guest is sampled there only while Xen continues a
/// long call, an HVM guest whenever it waits.
const DEPTHS: [(u64, i32); 7] = [
    (0, 8),
    (1, 16),
    (3, 24),
    (5, 8),
    (10, 24),
    (12, 16),
    (13, 8),
];

/// The name of a hypercall.
pub(crate) fn name(number: u64) -> Option<&'static str> {
    let name = NAMES.get(usize::try_from(number).ok()?)?;
    Some(*name).filter(|name| !name.is_empty())
}

/// The stubs of a page at `page`: where each begins, and its name, or its number if it has none.
pub(crate) fn stubs(page: u64) -> impl Iterator<Item = (u64, String)> {
    let starts = (0..PAGE_BYTES).step_by(STUB_BYTES as usize);
    starts.enumerate().map(move |(number, start)| {
        let name = name(number as u64).map_or_else(|| number.to_string(), str::to_owned);
        (page.saturating_add(start), format!("xen_hypercall_{name}"))
    })
}

/// The depths of the stack (bytes, the return address included) in the page at `page`, each from an address on.
pub(crate) fn depths(page: u64) -> Vec<(u64, i32)> {
    let starts = (0..PAGE_BYTES).step_by(STUB_BYTES as usize);
    let all = starts.flat_map(|start| DEPTHS.map(|(at, depth)| (page + start + at, depth)));
    all.collect()
}

/// Where the page is in `image`, by its symbol.
pub(crate) fn page(image: &Image) -> Option<u64> {
    let elf = image.elf().filter(|_| image.arch() == Arch::X86_64)?;
    // Kernels aren't dynamically linked, and libraries have too many symbols to search.
    if elf.dynamic_symbols().next().is_some() {
        return None;
    }
    let symbols = elf.elf_symbol_table();
    // Symbols of a damaged table may all have one long name, or names without an end.
    let mut left_bytes = (image.bytes().len() as u64).saturating_mul(FILE_LENGTHS_MAX);
    let mut all = symbols.iter().map_while(|symbol| {
        let name = symbol.name(LittleEndian, symbols.strings()).ok()?;
        left_bytes = left_bytes.checked_sub(name.len() as u64)?;
        Some((symbol, name))
    });
    let (found, _) = all.find(|(_, name)| *name == SYMBOL.as_bytes())?;
    Some(found.st_value.get(LittleEndian)).filter(|address| is_page(*address))
}

/// Whether a hypercall page may begin at `address`.
pub(crate) fn is_page(address: u64) -> bool {
    address.is_multiple_of(PAGE_BYTES) && address.checked_add(PAGE_BYTES).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_hypercalls() {
        let stubs: Vec<_> = stubs(0x1000).collect();
        let at = |number: u64| {
            let mut found = stubs.iter();
            let stub = found.find(|(start, _)| *start == 0x1000 + number * 32);
            stub.map(|(_, name)| name.as_str())
        };
        assert_eq!(at(29), Some("xen_hypercall_sched_op"));
        assert_eq!(at(32), Some("xen_hypercall_event_channel_op"));
        assert_eq!(at(42), Some("xen_hypercall_hypfs_op"));
        assert_eq!(at(48), Some("xen_hypercall_mca"));
        assert_eq!(at(11), Some("xen_hypercall_11"));
        assert_eq!(at(127), Some("xen_hypercall_127"));
    }
}
