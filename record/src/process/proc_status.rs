//! Who a process is, by `/proc/PID/status` and `/proc/PID/stat` (proc_pid_status(5)).

use crate::sys::clock::realtime_ns;
use nix::unistd::{SysconfVar, sysconf};

/// What its own files are told by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    /// Its number in its own namespace.
    pub inner_pid: i32,
    /// Its effective user.
    pub user: u32,
}

/// Reads it; `None` when the process is gone.
pub fn read(pid: i32) -> Option<Status> {
    parse(&std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
}

fn parse(text: &str) -> Option<Status> {
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
    // The innermost namespace stands last; before Linux 4.1 there is no such line.
    let pids = field("NSpid:").or_else(|| field("Pid:"))?;
    Some(Status {
        inner_pid: pids.split_whitespace().next_back()?.parse().ok()?,
        user: field("Uid:")?.split_whitespace().nth(1)?.parse().ok()?,
    })
}

/// When process `pid` began, by the wall clock.
pub fn began_ns(pid: i32) -> Option<i64> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let uptime = std::fs::read_to_string("/proc/uptime").ok()?;
    let uptime: f64 = uptime.split_whitespace().next()?.parse().ok()?;
    let ticks = sysconf(SysconfVar::CLK_TCK).ok()??;
    let began = started_ticks(&String::from_utf8_lossy(&stat))? as f64 / ticks as f64;
    Some(realtime_ns().saturating_sub(((uptime - began) * 1e9) as i64))
}

/// Field 22; the name before it, in parentheses, may hold anything.
fn started_ticks(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(19)?.parse().ok()
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
        let stat = "7 (a) b) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20";
        assert_eq!(started_ticks(stat), Some(4711));
        assert_eq!(started_ticks("7 (a"), None);
    }
}
