//! User, inner process id and start time of a process, from `/proc/PID/status` (proc_pid_status(5)).

use super::stat;
use crate::sys::clock::{boot_ns, realtime_ns};

/// Identifies a process's own files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    /// Its process id in its own namespace.
    pub inner_pid: i32,
    /// Its effective user.
    pub user: u32,
}

/// Reads the status; `None` if the process is gone.
pub fn read(pid: i32) -> Option<Status> {
    parse(&std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
}

fn parse(text: &str) -> Option<Status> {
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
    // The innermost namespace is last; before Linux 4.1 there is no such line.
    let pids = field("NSpid:").or_else(|| field("Pid:"))?;
    Some(Status {
        inner_pid: pids.split_whitespace().next_back()?.parse().ok()?,
        user: field("Uid:")?.split_whitespace().nth(1)?.parse().ok()?,
    })
}

/// When process `pid` began, by the wall clock.
pub fn began_ns(pid: i32) -> Option<i64> {
    let age_ns = boot_ns().saturating_sub(stat::of(pid)?.started_ns);
    Some(realtime_ns().saturating_sub_unsigned(age_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn we_are_who_we_are() {
        let own = std::process::id() as i32;
        let status = read(own).unwrap();
        assert_eq!(status.user, nix::unistd::geteuid().as_raw());
        let age_ns = realtime_ns() - began_ns(own).unwrap();
        assert!(
            (-50_000_000..3_600_000_000_000).contains(&age_ns),
            "{age_ns}"
        );
        assert_eq!(read(i32::MAX), None);
    }

    #[test]
    fn a_process_has_its_own_number_in_a_container() {
        let text = "Name:\tnode\nPid:\t300\nUid:\t5\t6\t7\t8\nNSpid:\t300\t40\t7\n";
        let status = parse(text).unwrap();
        assert_eq!((status.inner_pid, status.user), (7, 6));
        assert_eq!(parse("Pid:\t300\nUid:\t5\t6\n").unwrap().inner_pid, 300);
        assert_eq!(parse("Pid:\t300\n"), None);
    }
}
