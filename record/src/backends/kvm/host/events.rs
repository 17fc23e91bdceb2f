//! From records of KVM's tracepoints to events of a vCPU.
//!
//! Fields are where tracefs says, by name, since their places differ between kernels. Records come from the kernel; a
//! short one is passed over.

use crate::guest::timeline::{Exit, VcpuEvent};
use crate::source::SourceError;
use crate::sys::tracefs::{Field, NoTracepoint, Tracepoint};
use perf_event_open_sys::bindings as abi;
use uprof::cold::{ExitCause, ExitKind};

/// `isa` of `kvm_exit` (`arch/x86/kvm/trace.h`).
const ISA_VMX: u64 = 1;
/// Basic reason and flags of a VMX exit: the lower half is the reason.
const VMX_REASON: u64 = 0xffff;
/// Basic exit reasons of VMX (SDM, volume 3, appendix C).
const VMX_NMI: u64 = 0;
const VMX_INTERRUPT: u64 = 1;
const VMX_HLT: u64 = 12;
const VMX_IO: u64 = 30;
const VMX_MWAIT: u64 = 36;
/// Exit codes of SVM (APM, volume 2, appendix C).
const SVM_INTERRUPT: u64 = 0x60;
const SVM_NMI: u64 = 0x61;
const SVM_HLT: u64 = 0x78;
const SVM_IO: u64 = 0x7b;
const SVM_MWAIT: u64 = 0x8b;
/// `ret` of Arm's `kvm_exit` (`arch/arm64/include/asm/kvm_asm.h`), and the exception class of WFI and WFE.
const ARM_IRQ: u64 = 0;
const ARM_INTERRUPT: u64 = 0x100;
const ARM_WFX: u64 = 1;
const ESR_CLASS_SHIFT: u32 = 26;
/// Bytes before the raw fields of a sample: time, and the length of the fields.
const RAW_AT: usize = 12;

/// The tracepoint that says which port is accessed, where `kvm_exit` doesn't.
const PORT: &str = "kvm_pio";
/// Tracepoints that say what an exit is about, and the field that does. They are optional.
const ARGUMENTS: [(&str, &[&str]); 4] = [
    (PORT, &["port"]),
    ("kvm_mmio", &["gpa"]),
    ("kvm_msr", &["ecx"]),
    ("kvm_hypercall", &["nr"]),
];

/// The exit qualification of VMX, EXITINFO1 of SVM: of an access to a port, both have the port in the same bits (SDM,
/// volume 3, table 29-5; APM, volume 2, figure 15-2).
const QUALIFICATION: &[&str] = &["info1"];

/// The tracepoints of KVM.
pub struct Tracepoints {
    exit: Tracepoint,
    entry: Tracepoint,
    to_monitor: Tracepoint,
    arguments: Vec<(Tracepoint, Field)>,
}

impl Tracepoints {
    /// Finds them.
    ///
    /// # Errors
    /// Says why this kernel has none, or doesn't show them.
    pub fn find() -> Result<Self, SourceError> {
        let find = |name: &str| Tracepoint::find("kvm", name).map_err(|why| refused(name, why));
        let exit = find("kvm_exit")?;
        // Each record costs the vCPU time.
        let tells_port = exit.field(QUALIFICATION).is_some();
        let arguments = ARGUMENTS.iter().filter_map(|(name, fields)| {
            if *name == PORT && tells_port {
                return None;
            }
            let tracepoint = find(name).ok()?;
            let field = tracepoint.field(fields)?;
            Some((tracepoint, field))
        });
        Ok(Tracepoints {
            exit,
            entry: find("kvm_entry")?,
            to_monitor: find("kvm_userspace_exit")?,
            arguments: arguments.collect(),
        })
    }

    /// Their numbers.
    pub fn ids(&self) -> impl Iterator<Item = u64> {
        let needed = [&self.exit, &self.entry, &self.to_monitor];
        let more = self.arguments.iter().map(|(tracepoint, _)| tracepoint);
        needed.into_iter().chain(more).map(|one| u64::from(one.id))
    }
}

fn refused(name: &str, why: NoTracepoint) -> SourceError {
    SourceError(match why {
        NoTracepoint::NoTracefs => {
            "--host needs the kernel's tracepoints, and tracefs is not mounted: \
             `mount -t tracefs tracefs /sys/kernel/tracing`, or record without --host"
                .into()
        }
        NoTracepoint::Forbidden(path) => format!(
            "--host needs the kernel's tracepoints, and {} may not be read: run as root",
            path.display()
        ),
        NoTracepoint::Unknown => format!(
            "--host needs the tracepoint kvm:{name}, which this kernel doesn't have: load KVM's module (kvm_intel, \
             kvm_amd), or record without --host"
        ),
        NoTracepoint::Malformed => format!(
            "--host doesn't understand how this kernel describes the tracepoint kvm:{name}: record without --host"
        ),
    })
}

/// What the kernel tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// What happened.
    pub event: VcpuEvent,
    /// Number of records that were lost before it.
    pub lost: u64,
}

/// Decodes records.
pub struct Decoder {
    tracepoints: Tracepoints,
    reason: Option<Field>,
    arm_code: Option<Field>,
    isa: Option<Field>,
    address: Option<Field>,
    qualification: Option<Field>,
    errno: Option<Field>,
    has_exits: bool,
}

impl Decoder {
    /// A decoder of these tracepoints.
    pub fn new(tracepoints: Tracepoints) -> Self {
        Decoder {
            reason: tracepoints.exit.field(&["exit_reason", "esr_ec"]),
            arm_code: tracepoints.exit.field(&["ret"]),
            isa: tracepoints.exit.field(&["isa"]),
            address: tracepoints.exit.field(&["guest_rip", "vcpu_pc"]),
            qualification: tracepoints.exit.field(QUALIFICATION),
            errno: tracepoints.to_monitor.field(&["errno"]),
            tracepoints,
            has_exits: true,
        }
    }

    /// Passes over returns to the monitor: without entries, nobody would know when they are over.
    pub fn expect_no_exits(&mut self) {
        self.has_exits = false;
    }

    /// What a record says, by its type, its `misc` field and the bytes after the header. `None` for others.
    pub fn decode(&self, kind: u32, misc: u16, body: &[u8]) -> Option<Record> {
        let record = |event| Record { event, lost: 0 };
        match kind {
            abi::PERF_RECORD_SAMPLE => self.of_tracepoint(body.get(RAW_AT..)?).map(record),
            abi::PERF_RECORD_SWITCH => {
                let misc = u32::from(misc);
                let is_out = misc & abi::PERF_RECORD_MISC_SWITCH_OUT != 0;
                let preempted = misc & abi::PERF_RECORD_MISC_SWITCH_OUT_PREEMPT != 0;
                let event = if is_out {
                    VcpuEvent::SwitchedOut { preempted }
                } else {
                    VcpuEvent::SwitchedIn
                };
                Some(record(event))
            }
            // An id, and how many were lost.
            abi::PERF_RECORD_LOST => Some(Record {
                lost: u64::from_ne_bytes(*body.get(8..)?.first_chunk()?),
                event: VcpuEvent::Lost,
            }),
            _ => None,
        }
    }

    fn of_tracepoint(&self, raw: &[u8]) -> Option<VcpuEvent> {
        let id = u16::from_ne_bytes(*raw.first_chunk()?);
        let points = &self.tracepoints;
        if id == points.exit.id {
            return Some(VcpuEvent::Exit(self.exit(raw)?));
        }
        if id == points.entry.id {
            return Some(VcpuEvent::Entry);
        }
        if id == points.to_monitor.id && self.has_exits {
            let errno = self.errno.and_then(|field| field.of(raw)).unwrap_or(0) as i64;
            // The field has the negative error, in some kernels the positive one.
            let interrupted = errno.unsigned_abs() == libc::EINTR as u64;
            return Some(VcpuEvent::ToMonitor { interrupted });
        }
        let (_, field) = points.arguments.iter().find(|(point, _)| point.id == id)?;
        field.of(raw).map(VcpuEvent::Argument)
    }

    fn exit(&self, raw: &[u8]) -> Option<Exit> {
        let of = |field: Option<Field>| field.and_then(|field| field.of(raw));
        let reason = of(self.reason)?;
        let (kind, reason, halts, interrupts) = match (of(self.isa), of(self.arm_code)) {
            (None, Some(code)) => {
                // Some kernels trace the class, others the whole register.
                let class = if reason > 0x3f {
                    reason >> ESR_CLASS_SHIFT & 0x3f
                } else {
                    reason
                };
                let class = if code == ARM_IRQ {
                    ARM_INTERRUPT
                } else {
                    class
                };
                (ExitKind::Arm, class, [ARM_WFX; 2], [ARM_INTERRUPT; 2])
            }
            (Some(ISA_VMX), _) => {
                let reason = reason & VMX_REASON;
                (
                    ExitKind::Vmx,
                    reason,
                    [VMX_HLT, VMX_MWAIT],
                    [VMX_INTERRUPT, VMX_NMI],
                )
            }
            _ => (
                ExitKind::Svm,
                reason,
                [SVM_HLT, SVM_MWAIT],
                [SVM_INTERRUPT, SVM_NMI],
            ),
        };
        let is_port = matches!(
            (kind, reason),
            (ExitKind::Vmx, VMX_IO) | (ExitKind::Svm, SVM_IO)
        );
        let port = || of(self.qualification).map(|bits| bits >> 16 & 0xffff);
        let argument = is_port.then(port).flatten();
        Some(Exit {
            cause: ExitCause {
                kind,
                reason,
                address: of(self.address),
                argument,
            },
            is_halt: halts.contains(&reason),
            is_interrupt: interrupts.contains(&reason),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tracepoint with these fields, of eight bytes each, from offset 8 on.
    fn tracepoint(id: u16, fields: &[&str]) -> Tracepoint {
        let lines = fields.iter().enumerate().map(|(number, name)| {
            let offset = 8 + 8 * number;
            format!("\tfield:u64 {name};\toffset:{offset};\tsize:8;\tsigned:0;\n")
        });
        let text = format!("ID: {id}\n{}", lines.collect::<String>());
        Tracepoint::parse(&text).unwrap()
    }

    fn decoder(exit: &[&str]) -> Decoder {
        let port = tracepoint(4, &["port"]);
        let field = port.field(&["port"]).unwrap();
        Decoder::new(Tracepoints {
            exit: tracepoint(1, exit),
            entry: tracepoint(2, &[]),
            to_monitor: tracepoint(3, &["reason", "errno"]),
            arguments: vec![(port, field)],
        })
    }

    /// A sample of a tracepoint.
    fn sample(id: u16, fields: &[u64]) -> Vec<u8> {
        let mut body = vec![0; RAW_AT];
        body.extend_from_slice(&u64::from(id).to_ne_bytes());
        fields
            .iter()
            .for_each(|field| body.extend_from_slice(&field.to_ne_bytes()));
        body
    }

    fn event(decoder: &Decoder, body: &[u8]) -> Option<VcpuEvent> {
        let record = decoder.decode(abi::PERF_RECORD_SAMPLE, 0, body);
        record.map(|record| {
            assert_eq!(record.lost, 0);
            record.event
        })
    }

    #[test]
    fn exits_of_all_processors() {
        let x86 = decoder(&["exit_reason", "guest_rip", "isa"]);
        let arm = decoder(&["ret", "esr_ec", "vcpu_pc"]);
        for (decoder, fields, kind, reason, halts, interrupts) in [
            (
                &x86,
                [0x8000_000c, 0x1000, 1],
                ExitKind::Vmx,
                12,
                true,
                false,
            ),
            (&x86, [1, 0x1000, 1], ExitKind::Vmx, 1, false, true),
            (&x86, [0x7b, 0x1000, 2], ExitKind::Svm, 0x7b, false, false),
            (&x86, [0x60, 0x1000, 2], ExitKind::Svm, 0x60, false, true),
            (&arm, [2, 1, 0x1000], ExitKind::Arm, 1, true, false),
            (
                &arm,
                [2, 0x24 << 26, 0x1000],
                ExitKind::Arm,
                0x24,
                false,
                false,
            ),
            (&arm, [0, 0, 0x1000], ExitKind::Arm, 0x100, false, true),
        ] {
            let expected = VcpuEvent::Exit(Exit {
                cause: ExitCause {
                    kind,
                    reason,
                    address: Some(0x1000),
                    argument: None,
                },
                is_halt: halts,
                is_interrupt: interrupts,
            });
            assert_eq!(event(decoder, &sample(1, &fields)), Some(expected));
        }
    }

    #[test]
    fn exits_at_a_port_tell_it() {
        let decoder = decoder(&["exit_reason", "guest_rip", "isa", "info1"]);
        for (reason, isa, argument) in [
            (30, 1, Some(0x3f8)),
            (0x7b, 2, Some(0x3f8)),
            (0x7b, 1, None),
            (30, 2, None),
        ] {
            let exit = sample(1, &[reason, 0x1000, isa, 0x3f8_0241]);
            let Some(VcpuEvent::Exit(exit)) = event(&decoder, &exit) else {
                panic!("no exit");
            };
            assert_eq!(exit.cause.argument, argument, "{reason} of {isa}");
        }
    }

    #[test]
    fn what_follows_an_exit() {
        let mut decoder = decoder(&["exit_reason", "guest_rip", "isa"]);
        let io = sample(3, &[2, 0]);
        let signal = sample(3, &[10, -4_i64 as u64]);
        let asks = VcpuEvent::ToMonitor { interrupted: false };
        let is_stopped = VcpuEvent::ToMonitor { interrupted: true };
        let argument = VcpuEvent::Argument(0x3f8);
        assert_eq!(event(&decoder, &sample(2, &[])), Some(VcpuEvent::Entry));
        assert_eq!(event(&decoder, &io), Some(asks));
        assert_eq!(event(&decoder, &signal), Some(is_stopped));
        assert_eq!(event(&decoder, &sample(4, &[0x3f8])), Some(argument));
        assert_eq!(event(&decoder, &sample(5, &[1])), None, "another's");
        decoder.expect_no_exits();
        assert_eq!(event(&decoder, &io), None);
    }

    #[test]
    fn switches_losses_and_short_records() {
        let decoder = decoder(&["exit_reason", "guest_rip", "isa"]);
        let trailer = [9; 8];
        let switch = |misc| {
            let record = decoder.decode(abi::PERF_RECORD_SWITCH, misc, &trailer);
            record.map(|record| record.event)
        };
        let out = abi::PERF_RECORD_MISC_SWITCH_OUT as u16;
        let taken = abi::PERF_RECORD_MISC_SWITCH_OUT_PREEMPT as u16;
        let went = |preempted| Some(VcpuEvent::SwitchedOut { preempted });
        assert_eq!(switch(0), Some(VcpuEvent::SwitchedIn));
        assert_eq!(
            [switch(out), switch(out | taken)],
            [went(false), went(true)]
        );
        let lost = [[0; 8], 5_u64.to_ne_bytes()].concat();
        let lost = [&lost[..], &trailer].concat();
        let record = decoder.decode(abi::PERF_RECORD_LOST, 0, &lost).unwrap();
        assert_eq!((record.lost, record.event), (5, VcpuEvent::Lost));
        let whole = sample(1, &[0x7b, 0x1000, 2]);
        for length in 0..whole.len() {
            for kind in [
                abi::PERF_RECORD_SAMPLE,
                abi::PERF_RECORD_SWITCH,
                abi::PERF_RECORD_LOST,
            ] {
                let _ = decoder.decode(kind, 0, &whole[..length]);
            }
        }
    }
}
