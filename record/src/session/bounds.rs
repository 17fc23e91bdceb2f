//! The start and the end of a recording, the same for samples and for calls.

use crate::source::control::Ending;
use crate::source::plan::Plan;
use crate::source::{Facts, SourceError};
use crate::sys::clock::{realtime_ns, start_late};
use nix::errno::Errno;
use nix::unistd::SysconfVar;
use std::io;
use std::thread::{Builder, Scope, ScopedJoinHandle};
use uprof::cold::{ClockPair, Cost, End, Host, Metadata, Recorder, Sampling, TargetKind};
use uprof::machine;

/// Most bytes of the recorder's command line that a recording keeps: metadata have to fit into a block.
const COMMAND_LINE_BYTES_MAX: usize = 64 << 10;

/// The metadata of a recording.
pub fn metadata(facts: &Facts, plan: &Plan) -> Metadata {
    let mut notes = facts.notes.clone();
    notes.extend(machine::mark().map(|mark| (machine::MADE_ON.to_owned(), mark)));
    let is_by_kernel = facts.target.kind == TargetKind::Process && !facts.freezes;
    let rate_hz = if is_by_kernel {
        plan.kernel_rate_hz() as f64
    } else {
        plan.rate_hz
    };
    Metadata {
        recorder: Recorder {
            program: concat!("uniprof ", env!("CARGO_PKG_VERSION")).into(),
            command_line: first_words(&plan.command_line),
        },
        host: host(),
        target: facts.target.clone(),
        sampling: Sampling {
            rate_millihertz: (rate_hz * 1000.0) as u64,
            trigger: facts.trigger.clone(),
            most_frames: plan.most_frames,
            stack_bytes: facts.stack_bytes.unwrap_or(plan.kept_bytes() as u32),
            on_cpu_only: facts.on_cpu_only,
        },
        notes,
        cost: Some(if facts.freezes {
            Cost::Freeze
        } else {
            Cost::Work
        }),
        labels: plan.labels.clone(),
    }
}

fn host() -> Host {
    let uname = nix::sys::utsname::uname();
    let text = |part: fn(&nix::sys::utsname::UtsName) -> &std::ffi::OsStr| {
        uname.as_ref().map_or(String::new(), |all| {
            part(all).to_string_lossy().into_owned()
        })
    };
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    Host {
        name: text(|all| all.nodename()),
        system: format!(
            "{} {}",
            text(|all| all.sysname()),
            text(|all| all.release())
        ),
        processor: model.map_or(String::new(), |(_, name)| name.trim().to_string()),
        processors: processors().unwrap_or(0),
    }
}

/// Number of processors that this process may run on. What std says reads control groups, too, and is 5 KB larger.
pub fn processors() -> Option<u32> {
    let online = nix::unistd::sysconf(SysconfVar::_NPROCESSORS_ONLN);
    online
        .ok()
        .flatten()
        .and_then(|count| count.try_into().ok())
}

/// Both clocks, `later_ns` after the moment at which the monotonic one shows `monotonic_ns`: now.
pub fn clock_at(monotonic_ns: u64, later_ns: u64) -> ClockPair {
    let later = i64::try_from(later_ns).unwrap_or(i64::MAX);
    ClockPair {
        monotonic_ns: monotonic_ns.saturating_add(later_ns),
        realtime_ns: realtime_ns().saturating_add(later),
        guest: None,
    }
}

/// The error of a recording whose start could not be written.
pub fn not_written(error: io::Error) -> SourceError {
    SourceError(format!("cannot write the recording: {error}"))
}

/// The error of a thread that can't be woken.
pub fn no_bell(errno: Errno) -> SourceError {
    let advice = "raise the limit on open files (ulimit -n)";
    SourceError::system("cannot start a thread", errno, advice)
}

/// Starts the writer's or encoder's thread.
pub fn start_thread<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    what: &str,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>, SourceError> {
    let thread = Builder::new().name(format!("uniprof-{what}"));
    thread
        .spawn_scoped(scope, || {
            // The thread may wake while the guest is paused, and the guest's pause must not wait for it.
            start_late();
            work()
        })
        .map_err(|error| SourceError(format!("cannot start the {what} thread: {error}")))
}

/// Why a recording ended, where a writer that failed may have requested the end.
pub fn ending_of(ending: Ending, writer_stopped: bool) -> Ending {
    match ending {
        Ending::Stopped(_) if writer_stopped => Ending::Stopped("the output failed".into()),
        ending => ending,
    }
}

/// The last record.
pub fn end_record(time_ns: u64, ending: &Ending, totals: Vec<(String, u64)>) -> End {
    End {
        time_ns,
        reason: ending.reason(),
        message: ending.to_string(),
        totals,
    }
}

/// The words of a command line for which there is room; `…` stands for the rest.
fn first_words(words: &[String]) -> Vec<String> {
    let mut bytes = 0;
    let fitting = words.iter().take_while(|word| {
        // An empty word takes a byte, too.
        bytes += word.len() + 1;
        bytes <= COMMAND_LINE_BYTES_MAX
    });
    let mut first: Vec<String> = fitting.cloned().collect();
    if first.len() < words.len() {
        first.push("…".into());
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;
    use uprof::cold::Target;

    #[test]
    fn a_command_line_is_kept_up_to_a_number_of_bytes() {
        let kept = |last: usize| {
            let words = ["uniprof", "", &"x".repeat(last), "end"].map(str::to_owned);
            first_words(&words)
        };
        // Each of the four words takes a byte more than it has.
        let most = COMMAND_LINE_BYTES_MAX - "uniprof".len() - "end".len() - 4;
        assert_eq!(kept(most).len(), 4);
        assert_eq!(kept(most)[3], "end");
        assert_eq!(kept(most + 1)[3], "…");
        assert_eq!(kept(1 << 20), ["uniprof", "", "…"]);
        assert_eq!(first_words(&[]), Vec::<String>::new());
    }

    #[test]
    fn the_rate_of_a_process_is_that_of_the_kernels_event() {
        let rate = |kind, freezes, rate_hz| {
            let target = Target {
                kind,
                ..Target::default()
            };
            let facts = Facts {
                freezes,
                ..Facts::new(target)
            };
            let plan = Plan {
                rate_hz,
                ..Plan::default()
            };
            metadata(&facts, &plan).sampling.rate_millihertz
        };
        assert_eq!(rate(TargetKind::Process, false, 0.1), 1000);
        assert_eq!(rate(TargetKind::Process, false, 2.75), 3000);
        assert_eq!(rate(TargetKind::Process, true, 2.75), 2750);
        assert_eq!(rate(TargetKind::XenDomain, false, 2.75), 2750);
    }
}
