//! Where a vCPU's wall time went (format-spec.md, sections 6.11 to 6.13): sums by place, exits by cause, and the exits
//! that samples of the monitor belong to.

use crate::samples::Task;
use crate::tags::tags;
use serde::{Deserialize, Serialize};

tags! {
    /// Where a vCPU's wall time is spent. Each moment of a vCPU has one place.
    #[derive(Serialize, Deserialize)]
    Place: u8 {
        /// It runs the guest's code.
        Guest = 0 "guest",
        /// KVM or Xen handles what the guest did.
        Hypervisor = 1 "hypervisor",
        /// The monitor handles it, in user space.
        Monitor = 2 "monitor",
        /// It could run, and waits for a processor.
        Ready = 3 "ready",
        /// It has nothing to do, and waits for an interrupt.
        Halted = 4 "halted",
        /// The recorder paused it for a sample.
        Paused = 5 "paused",
        /// Nothing is known of it, for example as records were lost.
        Unknown = 6 "unknown",
    }
}

/// Name of the note that says why the recorder doesn't know where wall time went.
pub const UNKNOWN_TIME: &str = "wall time is unknown";

/// A vCPU's wall time in an interval, by place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VcpuTime {
    /// The vCPU.
    pub task: Task,
    /// Start of the interval.
    pub first_ns: u64,
    /// End of the interval.
    pub last_ns: u64,
    /// Nanoseconds at each place, which together are the interval. Places without time may be left out.
    pub spent: Vec<(Place, u64)>,
}

tags! {
    /// Whose numbers the reason of an exit is one of.
    #[derive(Serialize, Deserialize)]
    ExitKind: u8 {
        /// Intel's VMX: the basic exit reason.
        Vmx = 0 "vmx",
        /// AMD's SVM: the exit code.
        Svm = 1 "svm",
        /// Arm: the exception class of ESR_EL2, or none for an interrupt.
        Arm = 2 "arm",
        /// A hypercall of a Xen guest, by its number.
        XenHypercall = 3 "xen-hypercall",
        /// A fault of a Xen PV guest, by its vector.
        XenTrap = 4 "xen-trap",
        /// The recorder interrupted the vCPU for a sample.
        Recorder = 5 "recorder",
    }
}

/// Why a vCPU left the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ExitCause {
    /// Whose number `reason` is.
    pub kind: ExitKind,
    /// The reason.
    pub reason: u64,
    /// The guest's instruction; `None` if it is not known, or if there were too many different ones.
    pub address: Option<u64>,
    /// The port, physical address, register or hypercall that the exit is about.
    pub argument: Option<u64>,
}

/// Exits of a vCPU for one cause in an interval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exits {
    /// The vCPU.
    pub task: Task,
    /// Start of the interval.
    pub first_ns: u64,
    /// End of the interval.
    pub last_ns: u64,
    /// The cause.
    pub cause: ExitCause,
    /// Number of exits. It is an estimate where `seen` is less.
    pub count: u64,
    /// Number of exits of which the times were taken.
    pub seen: u64,
    /// Nanoseconds from exit to entry at each place, of all `count` exits.
    pub spent: Vec<(Place, u64)>,
    /// Lengths of the exits that were seen: nanoseconds from exit to entry without pauses, rounded up by
    /// [`Exits::rounded`], with their number, ascending.
    pub lengths: Vec<(u64, u64)>,
}

/// What the thread of a vCPU handled at the time of one of its samples in the monitor's recording.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandledExit {
    /// Time of the sample.
    pub time_ns: u64,
    /// The thread, as samples have it.
    pub thread: u32,
    /// The vCPU.
    pub task: Task,
    /// Who handled it.
    pub place: Place,
    /// The exit.
    pub cause: ExitCause,
}

impl Exits {
    /// A length rounded up to its four leading bits, at most 12.5 % more.
    pub fn rounded(length_ns: u64) -> u64 {
        let shift = 60u32.saturating_sub(length_ns.leading_zeros());
        let below = (1u64 << shift) - 1;
        length_ns.saturating_add(below) & !below
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_rounded_up_by_an_eighth_at_most() {
        assert_eq!([0, 1, 15, 16].map(Exits::rounded), [0, 1, 15, 16]);
        assert_eq!([17, 18, 1000].map(Exits::rounded), [18, 18, 1024]);
        for length_ns in [1u64 << 40, (1 << 40) + 1, 987_654_321, u64::MAX] {
            let rounded = Exits::rounded(length_ns);
            assert!(
                rounded as f64 <= length_ns as f64 * 1.125 && Exits::rounded(rounded) == rounded
            );
        }
    }
}
