//! Finds processes by name, and their descendants, from `/proc`.

use super::{stat, threads};
use crate::sys::pids;
use std::collections::HashSet;

/// Bytes of a process's name (`TASK_COMM_LEN` without the zero byte).
const NAME_BYTES: usize = 15;
/// Most processes in a tree.
pub const MOST_PROCESSES: usize = 16_384;

/// `pids` and all their running descendants, each once.
pub fn below(pids: &[i32]) -> Vec<i32> {
    below_by(pids, threads::children)
}

fn below_by(pids: &[i32], children_of: impl Fn(i32) -> Vec<i32>) -> Vec<i32> {
    let mut seen = HashSet::new();
    let mut all: Vec<i32> = pids
        .iter()
        .copied()
        .filter(|&pid| seen.insert(pid))
        .collect();
    let mut next = 0;
    while let Some(&pid) = all.get(next) {
        let room = MOST_PROCESSES.saturating_sub(all.len());
        all.extend(
            children_of(pid)
                .into_iter()
                .filter(|&child| seen.insert(child))
                .take(room),
        );
        next += 1;
    }
    all
}

/// The part of a name that the kernel keeps (`comm`): 15 bytes.
pub fn short(name: &str) -> &str {
    match name
        .char_indices()
        .find(|(at, letter)| at + letter.len_utf8() > NAME_BYTES)
    {
        Some((end, _)) => &name[..end],
        None => name,
    }
}

/// Processes with this name, or whose executable has it, except this one.
pub fn named(name: &str) -> Vec<i32> {
    let own = std::process::id() as i32;
    let short = short(name);
    let is_called = |pid: i32| {
        let program = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        let program = program.file_name().unwrap_or_default().to_string_lossy();
        let program = program.strip_suffix(" (deleted)").unwrap_or(&program);
        threads::name(pid, pid) == short || program == name
    };
    let found = pids::all().into_iter();
    let found = found.filter(|&pid| pid != own && is_called(pid) && stat::is_running(pid));
    found
        .filter(|&pid| threads::check_exists(pid).is_ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn processes_without_end_are_found_up_to_a_number() {
        let found = below_by(&[1], |pid| vec![2 * pid, 2 * pid + 1]);
        assert_eq!(found, (1..=MOST_PROCESSES as i32).collect::<Vec<_>>());
    }

    #[test]
    fn children_of_children_are_found() {
        let script = "sleep 60 & bash -c 'sleep 60 & echo; wait' & wait";
        let mut shell = Command::new("bash")
            .args(["-c", script])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut output = std::io::BufReader::new(shell.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut output, &mut line).unwrap();
        let pid = shell.id() as i32;
        let found = below(&[pid, pid]);
        for &pid in &found {
            let _ =
                nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::SIGKILL);
        }
        shell.wait().unwrap();
        assert_eq!(
            found.len(),
            4,
            "two shells and two that they started: {found:?}"
        );
        assert_eq!(found[0], pid);
    }
}
