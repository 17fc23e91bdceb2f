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
const VMX_MWAIT: u64 = 36;
/// Exit codes of SVM (APM, volume 2, appendix C).
const SVM_INTERRUPT: u64 = 0x60;
const SVM_NMI: u64 = 0x61;
const SVM_HLT: u64 = 0x78;
const SVM_MWAIT: u64 = 0x8b;
/// `ret` of Arm's `kvm_exit` (`arch/arm64/include/asm/kvm_asm.h`), and the exception class of WFI and WFE.
const ARM_IRQ: u64 = 0;
const ARM_INTERRUPT: u64 = 0x100;
const ARM_WFX: u64 = 1;
const ESR_CLASS_SHIFT: u32 = 26;
/// Bytes before the raw fields of a sample: address, process and thread, time, processor, and the length of the fields.
const TIME_AT: usize = 16;
const RAW_AT: usize = 36;

/// Tracepoints that say what an exit is about, and the field that does. They are optional.
const ARGUMENTS: [(&str, &[&str]); 5] = [
    ("kvm_pio", &["port"]),
    ("kvm_mmio", &["gpa"]),
    ("kvm_msr", &["ecx"]),
    ("kvm_cpuid", &["function"]),
    ("kvm_hypercall", &["nr"]),
];

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
        let arguments = ARGUMENTS.iter().filter_map(|(name, fields)| {
            let tracepoint = find(name).ok()?;
            let field = tracepoint.field(fields)?;
            Some((tracepoint, field))
        });
        Ok(Tracepoints {
            exit: find("kvm_exit")?,
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

/// An event with its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// When it happened.
    pub time_ns: u64,
    /// What.
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
    errno: Option<Field>,
}

impl Decoder {
    /// A decoder of these tracepoints.
    pub fn new(tracepoints: Tracepoints) -> Self {
        Decoder {
            reason: tracepoints.exit.field(&["exit_reason", "esr_ec"]),
            arm_code: tracepoints.exit.field(&["ret"]),
            isa: tracepoints.exit.field(&["isa"]),
            address: tracepoints.exit.field(&["guest_rip", "vcpu_pc"]),
            errno: tracepoints.to_monitor.field(&["errno"]),
            tracepoints,
        }
    }

    /// The event of a record: its type, its `misc` field and the bytes after the header. `None` for others.
    pub fn decode(&self, kind: u32, misc: u16, body: &[u8]) -> Option<Record> {
        let record = |time_ns, event| Record {
            time_ns,
            event,
            lost: 0,
        };
        let ended = |from_end: usize| number(body, body.len().checked_sub(from_end)?);
        match kind {
            abi::PERF_RECORD_SAMPLE => {
                let event = self.of_tracepoint(body.get(RAW_AT..)?)?;
                Some(record(number(body, TIME_AT)?, event))
            }
            abi::PERF_RECORD_SWITCH => {
                let misc = u32::from(misc);
                let is_out = misc & abi::PERF_RECORD_MISC_SWITCH_OUT != 0;
                let preempted = misc & abi::PERF_RECORD_MISC_SWITCH_OUT_PREEMPT != 0;
                let event = if is_out {
                    VcpuEvent::SwitchedOut { preempted }
                } else {
                    VcpuEvent::SwitchedIn
                };
                Some(record(ended(16)?, event))
            }
            // An id, and how many were lost.
            abi::PERF_RECORD_LOST => Some(Record {
                lost: number(body, 8)?,
                ..record(ended(16)?, VcpuEvent::Lost)
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
        if id == points.to_monitor.id {
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
        Some(Exit {
            cause: ExitCause {
                kind,
                reason,
                address: of(self.address),
                argument: None,
            },
            is_halt: halts.contains(&reason),
            is_interrupt: interrupts.contains(&reason),
        })
    }
}

fn number(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_ne_bytes(*bytes))
}
