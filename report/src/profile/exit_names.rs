//! Names of the reasons for which vCPUs exit, in the words of the manuals. Sources: Intel's SDM, volume 3, appendix C;
//! AMD's APM, volume 2, appendix C; the Arm Architecture Reference Manual, ESR_EL2; Xen's `xen.h`.

use crate::images::hypercalls;
use std::borrow::Cow;
use uprof::cold::{ExitCause, ExitKind};

/// Basic exit reasons of VMX, by number; empty where there is none.
const VMX: [&str; 80] = [
    "exception or NMI",
    "external interrupt",
    "triple fault",
    "INIT",
    "start-up IPI",
    "SMI of I/O",
    "SMI",
    "interrupt window",
    "NMI window",
    "task switch",
    "CPUID",
    "GETSEC",
    "HLT",
    "INVD",
    "INVLPG",
    "RDPMC",
    "RDTSC",
    "RSM",
    "VMCALL",
    "VMCLEAR",
    "VMLAUNCH",
    "VMPTRLD",
    "VMPTRST",
    "VMREAD",
    "VMRESUME",
    "VMWRITE",
    "VMXOFF",
    "VMXON",
    "control register",
    "debug register",
    "port",
    "read MSR",
    "write MSR",
    "failed entry: guest state",
    "failed entry: MSRs",
    "",
    "MWAIT",
    "monitor trap",
    "",
    "MONITOR",
    "PAUSE",
    "failed entry: machine check",
    "",
    "TPR below threshold",
    "APIC access",
    "virtualized EOI",
    "GDTR or IDTR",
    "LDTR or TR",
    "EPT violation",
    "EPT misconfiguration",
    "INVEPT",
    "RDTSCP",
    "preemption timer",
    "INVVPID",
    "WBINVD",
    "XSETBV",
    "APIC write",
    "RDRAND",
    "INVPCID",
    "VMFUNC",
    "ENCLS",
    "RDSEED",
    "page modification log full",
    "XSAVES",
    "XRSTORS",
    "PCONFIG",
    "sub-page permission",
    "UMWAIT",
    "TPAUSE",
    "LOADIWKEY",
    "ENCLV",
    "",
    "ENQCMD",
    "ENQCMDS",
    "bus lock",
    "instruction timeout",
    "SEAMCALL",
    "TDCALL",
    "RDMSRLIST",
    "WRMSRLIST",
];

/// Exit codes of SVM from 0x60 on.
const SVM: [&str; 71] = [
    "external interrupt",
    "NMI",
    "SMI",
    "INIT",
    "interrupt window",
    "CR0 write",
    "IDTR read",
    "GDTR read",
    "LDTR read",
    "TR read",
    "IDTR write",
    "GDTR write",
    "LDTR write",
    "TR write",
    "RDTSC",
    "RDPMC",
    "PUSHF",
    "POPF",
    "CPUID",
    "RSM",
    "IRET",
    "INT",
    "INVD",
    "PAUSE",
    "HLT",
    "INVLPG",
    "INVLPGA",
    "port",
    "MSR",
    "task switch",
    "FERR",
    "shutdown",
    "VMRUN",
    "VMMCALL",
    "VMLOAD",
    "VMSAVE",
    "STGI",
    "CLGI",
    "SKINIT",
    "RDTSCP",
    "ICEBP",
    "WBINVD",
    "MONITOR",
    "MWAIT",
    "MWAIT",
    "XSETBV",
    "RDPRU",
    "EFER write",
    "CR0 write",
    "CR1 write",
    "CR2 write",
    "CR3 write",
    "CR4 write",
    "CR5 write",
    "CR6 write",
    "CR7 write",
    "CR8 write",
    "CR9 write",
    "CR10 write",
    "CR11 write",
    "CR12 write",
    "CR13 write",
    "CR14 write",
    "CR15 write",
    "INVLPGB",
    "illegal INVLPGB",
    "INVPCID",
    "MCOMMIT",
    "TLBSYNC",
    "bus lock",
    "HLT",
];

/// Vectors of exceptions of x86.
const VECTORS: [&str; 22] = [
    "divide error",
    "debug exception",
    "NMI",
    "breakpoint",
    "overflow",
    "BOUND",
    "invalid opcode",
    "device not available",
    "double fault",
    "",
    "invalid TSS",
    "segment not present",
    "stack fault",
    "general protection",
    "page fault",
    "",
    "x87 error",
    "alignment check",
    "machine check",
    "SIMD exception",
    "virtualization exception",
    "control protection",
];

/// Where a PC has its interrupt controllers, which KVM and Xen emulate without the monitor.
const INTERRUPT_CONTROLLERS: std::ops::Range<u64> = 0xfec0_0000..0xff00_0000;

/// The name of a cause: `port 0x3f8`, `MMIO 0xfee00020`, `CPUID`. Memory that the guest touches for the first time and
/// a device's registers are one reason on some processors; only the latter have the monitor at work (`in_monitor`),
/// or an address of an interrupt controller.
pub(crate) fn name(cause: &ExitCause, in_monitor: bool) -> String {
    let known = match cause.kind {
        ExitKind::Vmx => at(&VMX, cause.reason).map(Cow::Borrowed),
        ExitKind::Svm => svm(cause.reason),
        ExitKind::Arm => arm(cause.reason).map(Cow::Borrowed),
        ExitKind::XenHypercall => {
            let name = hypercalls::name(cause.reason);
            name.map(|name| Cow::Owned(format!("hypercall {name}")))
        }
        ExitKind::XenTrap => at(&VECTORS, cause.reason).map(Cow::Borrowed),
        ExitKind::Recorder => Some(Cow::Borrowed("interrupted by the recorder")),
    };
    let Some(known) = known else {
        return format!("{} reason {:#x}", cause.kind.name(), cause.reason);
    };
    let Some(argument) = cause.argument else {
        return known.into_owned();
    };
    match (&*known, cause.kind) {
        ("EPT misconfiguration", _) => format!("MMIO {argument:#x}"),
        ("EPT violation" | "nested page fault" | "data abort", _)
            if in_monitor || INTERRUPT_CONTROLLERS.contains(&argument) =>
        {
            format!("MMIO {argument:#x}")
        }
        ("read MSR", _) => format!("MSR {argument:#x} read"),
        ("write MSR", _) => format!("MSR {argument:#x} write"),
        ("VMCALL" | "VMMCALL" | "HVC", _) => format!("hypercall {argument:#x}"),
        (name @ ("port" | "MSR"), _) => format!("{name} {argument:#x}"),
        (name, _) => name.to_owned(),
    }
}

fn at(names: &'static [&'static str], number: u64) -> Option<&'static str> {
    let name = names.get(usize::try_from(number).ok()?)?;
    Some(*name).filter(|name| !name.is_empty())
}

fn svm(code: u64) -> Option<Cow<'static, str>> {
    let numbered = |what: &str, from: u64| Some(Cow::Owned(format!("{what}{}", code - from)));
    match code {
        0..0x10 => numbered("read of CR", 0),
        0x10..0x20 => numbered("write of CR", 0x10),
        0x20..0x30 => numbered("read of DR", 0x20),
        0x30..0x40 => numbered("write of DR", 0x30),
        0x40..0x60 => at(&VECTORS, code - 0x40).map(Cow::Borrowed),
        0x400 => Some("nested page fault".into()),
        0x401 => Some("AVIC: IPI not delivered".into()),
        0x402 => Some("AVIC: not accelerated".into()),
        0x403 => Some("VMGEXIT".into()),
        _ => at(&SVM, code.checked_sub(0x60)?).map(Cow::Borrowed),
    }
}

fn arm(class: u64) -> Option<&'static str> {
    let name = match class {
        0x00 => "unknown instruction",
        0x01 => "WFI or WFE",
        0x07 => "floating point",
        0x0e => "illegal state",
        0x11 | 0x15 => "SVC",
        0x12 | 0x16 => "HVC",
        0x13 | 0x17 => "SMC",
        0x03..=0x06 | 0x0c | 0x18 => "system register",
        0x19 => "SVE",
        0x1a => "ERET",
        0x1c => "pointer authentication",
        0x20 | 0x21 => "instruction abort",
        0x22 => "PC alignment",
        0x24 | 0x25 => "data abort",
        0x26 => "SP alignment",
        0x2c => "floating-point exception",
        0x2f => "SError",
        0x30 | 0x31 => "breakpoint",
        0x32 | 0x33 => "single step",
        0x34 | 0x35 => "watchpoint",
        0x38 | 0x3c => "BRK",
        0x100 => "interrupt",
        _ => return None,
    };
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_have_the_names_of_the_manuals() {
        let named = |kind, reason, argument, in_monitor| {
            let cause = ExitCause {
                kind,
                reason,
                address: None,
                argument,
            };
            name(&cause, in_monitor)
        };
        let (vmx, svm, arm) = (ExitKind::Vmx, ExitKind::Svm, ExitKind::Arm);
        for (kind, reason, argument, expected) in [
            (vmx, 1, None, "external interrupt"),
            (vmx, 10, Some(1), "CPUID"),
            (vmx, 12, None, "HLT"),
            (vmx, 30, Some(0x3f8), "port 0x3f8"),
            (vmx, 31, Some(0x6e0), "MSR 0x6e0 read"),
            (vmx, 48, Some(0x10_0000), "EPT violation"),
            (vmx, 49, Some(0xfee0_0020), "MMIO 0xfee00020"),
            (vmx, 52, None, "preemption timer"),
            (vmx, 79, None, "WRMSRLIST"),
            (vmx, u64::MAX, None, "vmx reason 0xffffffffffffffff"),
            (svm, 0x4e, None, "page fault"),
            (svm, 0x72, None, "CPUID"),
            (svm, 0x78, None, "HLT"),
            (svm, 0x7b, Some(0x3f8), "port 0x3f8"),
            (svm, 0x81, Some(5), "hypercall 0x5"),
            (svm, 0xa6, None, "HLT"),
            (svm, 0x400, Some(0xfee0_0020), "MMIO 0xfee00020"),
            (svm, 0x400, Some(0x1000), "nested page fault"),
            (arm, 0x01, None, "WFI or WFE"),
            (arm, 0x100, None, "interrupt"),
            (ExitKind::XenHypercall, 29, None, "hypercall sched_op"),
            (ExitKind::XenHypercall, 11, None, "xen-hypercall reason 0xb"),
            (ExitKind::XenTrap, 14, None, "page fault"),
        ] {
            assert_eq!(named(kind, reason, argument, false), expected);
        }
        assert_eq!(named(svm, 0x400, Some(0x1000), true), "MMIO 0x1000");
        assert_eq!(named(arm, 0x24, Some(0x9000), true), "MMIO 0x9000");
    }
}
