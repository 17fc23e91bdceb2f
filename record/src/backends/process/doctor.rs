//! Examines whether processes can be recorded well on this machine.
//!
//! Input: a scope. Output: findings. For a moment it opens the events that a recording would open; no thread is
//! stopped.

use super::perf::FEWER_STACK_BYTES;
use super::scope::Scope;
use super::{Process, Refusal, by_ptrace, perf, threads};
use crate::source::doctor::{Report, Verdict};
use crate::source::plan::Plan;
use nix::errno::Errno;
use nix::unistd::{Pid, Uid};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use uprof::cold::NO_KERNEL_FRAMES;

/// Most processes with unreadable programs that are named.
const PROGRAMS_MAX: usize = 8;

/// Examines which recordings this machine allows.
pub fn examine_host(report: &mut Report) {
    let mut is_perf_forbidden = false;
    match perf::open(&Process::Running(Scope::Machine), &Plan::for_processes()) {
        Ok(_) => report.say(
            Verdict::Good,
            "processes: all of them, by perf events of whole processors: pid:N, name:NAME, cgroup:PATH, \
             `-a`, or a command",
        ),
        Err(Refusal::Failed(error)) => report.say(Verdict::Poor, format!("processes: {error}")),
        Err(Refusal::Forbidden(_)) => {
            let ourselves = Scope::Tree(vec![Pid::this().as_raw()]);
            match perf::open(&Process::Running(ourselves), &Plan::for_processes()) {
                Ok(_) => report.say(
                    Verdict::Poor,
                    format!(
                        "processes: those of user {}, by perf events of their threads, of which short-lived ones \
                         are missed; for all: root, or sysctl kernel.perf_event_paranoid=0",
                        Uid::effective()
                    ),
                ),
                Err(refusal) => {
                    is_perf_forbidden = matches!(refusal, Refusal::Forbidden(_));
                    say_refusal(report, refusal);
                }
            }
        }
    }
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    let (is_open, text) = ptrace(scope.trim(), Uid::effective());
    let verdict = match (is_open, is_perf_forbidden) {
        (true, _) => Verdict::Good,
        (false, true) => Verdict::Poor,
        (false, false) => Verdict::Absent,
    };
    report.say(verdict, text);
    say_kernel_names(report);
}

/// Describes which processes may be traced, by Yama's setting (Documentation/admin-guide/LSM/Yama.rst of Linux; empty
/// without Yama), and returns whether that includes running processes.
fn ptrace(scope: &str, user: Uid) -> (bool, String) {
    let (is_open, whose) = match scope {
        "3" => (false, "none until this machine is started anew (kernel.yama.ptrace_scope=3)".into()),
        _ if user.is_root() => (true, "all of them".into()),
        "1" => (
            false,
            "only commands that uniprof starts; for others: root, or sysctl kernel.yama.ptrace_scope=0".into(),
        ),
        "2" => (false, "none; for those of this user: root, or sysctl kernel.yama.ptrace_scope=0".into()),
        _ => (true, format!("those of user {user}")),
    };
    (
        is_open,
        format!("processes where perf events are forbidden (ptrace): {whose}"),
    )
}

/// Examines the processes to record.
pub fn examine(scope: Scope) -> Report {
    let mut report = Report::default();
    let pids = scope.pids();
    let threads: usize = pids.iter().map(|&pid| threads::of(pid).len()).sum();
    let (described, name) = (scope.described(), scope.name());
    if threads == 0 {
        report.say(
            Verdict::Bad,
            format!("{described}: nothing runs there any more"),
        );
        return report;
    }
    report.say(
        Verdict::Good,
        format!(
            "{described} `{name}`, with all below and all that they start; processes now: {}, threads: {threads}",
            pids.len()
        ),
    );
    let hidden = hidden(&pids);
    say_hidden(&mut report, &hidden, pids.len());
    let target = match &scope {
        Scope::Tree(pids) => {
            let pids: Vec<String> = pids.iter().map(i32::to_string).collect();
            format!("pid:{}", pids.join(","))
        }
        Scope::Named(name, _) => format!("name:{name}"),
        Scope::Cgroup(cgroup) => format!("cgroup:{}", cgroup.path().display()),
        Scope::Machine => "-a".into(),
    };
    report.command = Some(format!("uniprof record -F 99 -d 30s {target}"));
    match perf::open(&Process::Running(scope), &Plan::for_processes()) {
        Ok(source) => {
            let facts = source.hot.facts();
            let mut has_kernel = true;
            for (name, value) in &facts.notes {
                let is_kernels_lack = value == NO_KERNEL_FRAMES;
                has_kernel &= !is_kernels_lack;
                let is_poor = is_kernels_lack
                    || facts.per_thread && name == "perf events"
                    || value.ends_with(FEWER_STACK_BYTES);
                let verdict = if is_poor {
                    Verdict::Poor
                } else {
                    Verdict::Good
                };
                report.say(verdict, format!("{name}: {value}"));
            }
            for warning in &facts.warnings {
                report.say(Verdict::Poor, warning.clone());
            }
            if has_kernel {
                say_kernel_names(&mut report);
            }
        }
        Err(Refusal::Forbidden(errno)) if !hidden.is_empty() => {
            report.command = None;
            let text = format!(
                "neither perf events nor ptrace are allowed ({}): run as their user, or as root",
                errno.desc()
            );
            report.say(Verdict::Bad, text);
        }
        Err(refusal) => say_refusal(&mut report, refusal),
    }
    report
}

fn say_refusal(report: &mut Report, refusal: Refusal) {
    match refusal {
        Refusal::Forbidden(errno) => report.say(Verdict::Poor, by_ptrace(errno)),
        Refusal::Failed(error) => report.say(Verdict::Bad, error.to_string()),
    }
}

/// Reports whether kernel frames will have names. Without the privilege, all addresses read as 0.
fn say_kernel_names(report: &mut Report) {
    let shows =
        File::open("/proc/kallsyms").is_ok_and(|file| shows_addresses(BufReader::new(file)));
    if shows {
        report.say(Verdict::Good, "kernel functions have names");
        return;
    }
    // With a value of 2 nobody sees addresses.
    let restrict = std::fs::read_to_string("/proc/sys/kernel/kptr_restrict").unwrap_or_default();
    let whom = if Uid::effective().is_root() || restrict.trim() == "2" {
        ""
    } else {
        "root, or "
    };
    report.say(
        Verdict::Poor,
        format!("kernel functions have no names for us: {whom}sysctl kernel.kptr_restrict=0"),
    );
}

/// Whether kallsyms shows addresses. The first ones may be of per-processor variables, which begin at 0.
fn shows_addresses(kallsyms: impl BufRead) -> bool {
    let mut lines = kallsyms.split(b'\n').map_while(Result::ok);
    lines.any(|line| {
        line.iter()
            .take_while(|&&byte| byte != b' ')
            .any(|&digit| digit != b'0')
    })
}

/// Those of `pids` whose program can't be read for lack of permission.
fn hidden(pids: &[i32]) -> Vec<i32> {
    let is_hidden = |pid: &&i32| {
        let program = File::open(Path::new("/proc").join(pid.to_string()).join("exe"));
        program.is_err_and(|error| error.raw_os_error() == Some(Errno::EACCES as i32))
    };
    pids.iter().filter(is_hidden).copied().collect()
}

fn say_hidden(report: &mut Report, hidden: &[i32], of: usize) {
    let named = |pid: &i32| format!("{pid} `{}`", threads::name(*pid, *pid));
    let some: Vec<String> = hidden.iter().take(PROGRAMS_MAX).map(named).collect();
    if !some.is_empty() {
        let more = if hidden.len() > some.len() {
            " ..."
        } else {
            ""
        };
        let (who, advice) = if Uid::effective().is_root() {
            (
                "their programs can't be read even by root: their functions may have no names",
                "",
            )
        } else {
            (
                "not ours, so that their programs can't be read and functions have no names",
                "; record as their user, or as root",
            )
        };
        report.say(
            Verdict::Poor,
            format!(
                "{who}: {} of {of} processes ({}{more}){advice}",
                hidden.len(),
                some.join(", ")
            ),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kallsyms_may_begin_with_variables_of_a_processor() {
        let debian = "0000000000000000 A fixed_percpu_data\n0000000000000000 A __per_cpu_start\n\
                      0000000000001000 A cpu_debug_store\nffffffff81000000 T _text\n";
        let hidden = "0000000000000000 A fixed_percpu_data\n0000000000000000 T _text\n\n";
        assert!(shows_addresses(debian.as_bytes()));
        assert!(!shows_addresses(hidden.as_bytes()));
        assert!(!shows_addresses(&b""[..]));
    }

    #[test]
    fn who_may_trace_whom() {
        let [root, other] = [0, 1000].map(Uid::from_raw);
        let is_open = |scope, user| ptrace(scope, user).0;
        assert_eq!(
            ["", "0", "1", "2", "3"].map(|scope| is_open(scope, root)),
            [true, true, true, true, false]
        );
        assert_eq!(
            ["", "0", "1", "2", "3"].map(|scope| is_open(scope, other)),
            [true, true, false, false, false]
        );
        assert!(
            ptrace("1", other)
                .1
                .contains("sysctl kernel.yama.ptrace_scope=0")
        );
    }
}
