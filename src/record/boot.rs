//! Flags of a guest that is recorded from its first instruction.

use crate::quantity::{parse_duration, parse_rate};
use std::time::Duration;
use uniprof_record::plan::{FIRST_RATE, FirstRate};

/// Which boot to record, and how.
#[derive(clap::Args, Debug, Clone)]
pub struct BootFlags {
    /// Start the command as a guest's monitor (QEMU, or anything that uses KVM), and record its guest from the first
    /// instruction on, until it powers off, resets or -d is over
    #[arg(
        long,
        requires = "command",
        conflicts_with_all = ["targets", "all", "all_domains", "calls", "off_cpu", "host", "no_pause", "per_thread",
                              "ptrace"]
    )]
    pub boot: bool,

    /// Samples a second at the start of a boot; what freezes the guest for more than half of the time is lowered
    #[arg(long, value_name = "HZ", requires = "boot", default_value_t = FIRST_RATE.rate_hz, value_parser = parse_rate)]
    pub boot_frequency: f64,

    /// How long that lasts; then --frequency holds
    #[arg(long, value_name = "TIME", requires = "boot", default_value = "1s", value_parser = parse_duration)]
    pub boot_start: Duration,
}

impl BootFlags {
    /// The rate at first, if a boot is recorded.
    pub fn first_rate(&self) -> Option<FirstRate> {
        self.boot.then_some(FirstRate {
            rate_hz: self.boot_frequency,
            lasts: self.boot_start,
        })
    }
}
