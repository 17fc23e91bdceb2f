//! The reason why perf events can't be used, and advice.

use super::scope::Scope;
use super::threads;
use crate::source::SourceError;
use nix::errno::Errno;
use std::collections::BTreeSet;

/// The reason why perf events can't be used.
#[derive(Debug)]
pub enum Refusal {
    /// Not permitted, or not supported on this system: another way may work.
    Forbidden(Errno),
    /// Another error, which affects every way.
    Failed(SourceError),
}

/// Most processes that a message names.
const MOST_NAMED: usize = 8;

/// A warning about processes that can't be watched since they belong to other users, if there are any.
pub fn not_ours(pids: &BTreeSet<i32>) -> Option<String> {
    let named = |pid: &i32| format!("{pid} `{}`", threads::name(*pid, *pid));
    let some: Vec<String> = pids.iter().take(MOST_NAMED).map(named).collect();
    let more = if pids.len() > some.len() { " ..." } else { "" };
    (!some.is_empty()).then(|| {
        format!(
            "{} processes are not yours, and not sampled: {}{more}; run as root to record them, too",
            pids.len(),
            some.join(", ")
        )
    })
}

/// Numbers of capabilities that allow perf events (linux/capability.h): CAP_SYS_ADMIN and CAP_PERFMON.
const ALLOWING: u64 = 1 << 21 | 1 << 38;

/// Advice on allowing perf events that the kernel refuses with `error`. `paranoid` is the greatest value of
/// kernel.perf_event_paranoid that would do.
pub fn advice(error: Errno, paranoid: i32) -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    advice_by(error, paranoid, &status)
}

/// `status` is /proc/self/status (proc_pid_status(5)). The kernel itself refuses with EACCES; filters of containers
/// return EPERM or ENOSYS.
fn advice_by(error: Errno, paranoid: i32, status: &str) -> String {
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_default().trim()
    };
    let is_root = field("Uid:").split_whitespace().nth(1) == Some("0");
    let capabilities = u64::from_str_radix(field("CapEff:"), 16).unwrap_or(0);
    let is_filtered = field("Seccomp:") == "2" && matches!(error, Errno::EPERM | Errno::ENOSYS);
    if error == Errno::ENOMEM {
        "the limit on locked memory is used up: raise it (ulimit -l), or run as root".into()
    } else if is_filtered {
        "a seccomp filter refuses them, as a container has one: start the container with --cap-add PERFMON, or \
         --security-opt seccomp=unconfined, or record its processes from outside"
            .into()
    } else if error == Errno::ENOSYS {
        "use a kernel that has them (CONFIG_PERF_EVENTS)".into()
    } else if is_root && capabilities & ALLOWING == 0 {
        "root lacks CAP_PERFMON here, as in a container: start the container with --cap-add PERFMON, or record its \
         processes from outside"
            .into()
    } else {
        format!("sysctl kernel.perf_event_paranoid={paranoid}, or run as root")
    }
}

/// The meaning of an `error` of opening events on `scope`.
pub fn refusal(error: Errno, scope: &Scope) -> Refusal {
    let scope = scope.described();
    match error {
        Errno::EACCES | Errno::EPERM | Errno::ENOSYS | Errno::ENOENT | Errno::ENOMEM => {
            Refusal::Forbidden(error)
        }
        Errno::ESRCH => Refusal::Failed(SourceError(format!(
            "{scope} ended before it could be recorded"
        ))),
        Errno::EMFILE => Refusal::Failed(SourceError::system(
            format!("cannot watch {scope}"),
            error,
            "raise the limit on open files (ulimit -n)",
        )),
        _ => Refusal::Failed(SourceError::system(
            format!("cannot open perf events on {scope}"),
            error,
            "run `uniprof doctor` for what this machine allows",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_is_for_what_refuses() {
        let status = |user: u32, capabilities: &str, seccomp: u32| {
            format!(
                "Uid:\t{user}\t{user}\t{user}\t{user}\nCapEff:\t{capabilities}\nSeccomp:\t{seccomp}\n"
            )
        };
        let docker = status(0, "00000000a80425fb", 2);
        let all = status(0, "000001ffffffffff", 0);
        for (error, status, part) in [
            (Errno::EPERM, &docker, "seccomp"),
            (Errno::ENOSYS, &docker, "seccomp"),
            (Errno::EACCES, &docker, "root lacks CAP_PERFMON"),
            (Errno::ENOSYS, &all, "CONFIG_PERF_EVENTS"),
            (Errno::EACCES, &status(7, "0", 0), "perf_event_paranoid=1"),
            (Errno::EACCES, &status(7, "0", 2), "perf_event_paranoid=1"),
            (Errno::ENOMEM, &docker, "locked memory"),
        ] {
            let advice = advice_by(error, 1, status);
            assert!(advice.contains(part), "{error}: {advice}");
        }
    }
}
