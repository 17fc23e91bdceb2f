//! Flags of a guest that is recorded from its first instruction.

use crate::quantity::{parse_duration, parse_rate};
use crate::target;
use std::time::Duration;
use uniprof_record::plan::{FIRST_RATE, FirstRate};

/// Which boot to record, and how.
#[derive(clap::Args, Debug, Clone)]
pub struct BootFlags {
    /// Start the command as a guest's monitor (QEMU, or anything that uses KVM), and record its guest from the first
    /// instruction on, until it powers off, resets or -d is over. With the name of a Xen domain: start the command that
    /// creates it, or record one that was created paused
    #[arg(
        long,
        conflicts_with_all = ["all", "all_domains", "calls", "off_cpu", "host", "no_pause", "per_thread", "ptrace"]
    )]
    pub boot: bool,

    /// Samples a second at the start of a boot; lower where it would freeze the guest for more than
    /// half of the time (a fifth, if QEMU emulates it; or --max-overhead)
    #[arg(long, value_name = "HZ", requires = "boot", default_value_t = FIRST_RATE.rate_hz, value_parser = parse_rate)]
    pub boot_frequency: f64,

    /// How long that lasts; then --frequency holds
    #[arg(long, value_name = "TIME", requires = "boot", default_value = "1s", value_parser = parse_duration)]
    pub boot_start: Duration,

    /// End the recording once a sample is in this function, or in what it calls (a name as nm prints it, where its
    /// image is linked)
    #[arg(long, value_name = "FUNCTION", requires = "boot")]
    pub until: Option<String>,

    /// End the recording once the monitor has printed this text on its standard output, where many have the guest's
    /// console. The output is passed on
    #[cfg(feature = "report")]
    #[arg(
        long,
        value_name = "TEXT",
        requires = "boot",
        conflicts_with = "keep_running",
        value_parser = clap::builder::NonEmptyStringValueParser::new()
    )]
    pub until_output: Option<String>,
}

impl BootFlags {
    /// The rate at first, if a boot is recorded.
    pub fn first_rate(&self, command: &[String]) -> Option<FirstRate> {
        self.boot.then(|| FirstRate {
            rate_hz: self.boot_frequency,
            lasts: self.boot_start,
            most_overhead: target::most_overhead_at_first(command),
        })
    }
}
