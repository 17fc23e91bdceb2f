//! `/proc/PID/stat` (proc_pid_stat(5)), read without allocating.

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use std::ffi::CStr;
use std::fs::File;
use std::io::{Read, Write};

/// Ticks per second of the times in `/proc` (`USER_HZ`), the same on every system.
const TICKS: u64 = 100;

/// Fields of a process's `stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// The state as a letter: R for running, Z for a zombie, and so on.
    pub state: u8,
    /// The parent's process id.
    pub parent: i32,
    /// Number of its threads, one that has ended and is the first included.
    pub threads: u32,
    /// Processor time of the descendants that ended and were waited for, in nanoseconds.
    pub ended_children_ns: u64,
    /// Start time in nanoseconds since boot, suspend included.
    pub started_ns: u64,
}

/// The fields of process `pid`; `None` if it is gone.
pub fn of(pid: i32) -> Option<Stat> {
    let mut path = [0; 32];
    write!(&mut path[..], "/proc/{pid}/stat\0").ok()?;
    let mut text = [0; 1024];
    let read = open_file(&path)?.read(&mut text).ok()?;
    parse(&text[..read])
}

/// Whether process `pid` runs: it exists, and is no zombie. One whose first thread has ended looks like a zombie while
/// others still run.
pub fn is_running(pid: i32) -> bool {
    of(pid).is_some_and(|stat| !matches!(stat.state, b'Z' | b'X') || stat.threads > 1)
}

/// Opens the file whose path ends with the first zero byte.
pub fn open_file(path: &[u8]) -> Option<File> {
    let path = CStr::from_bytes_until_nul(path).ok()?;
    let opened: Result<_, Errno> = open(path, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty());
    opened.ok().map(File::from)
}

/// The state of a thread or process, given the text of its `stat`.
pub fn state(text: &[u8]) -> Option<u8> {
    behind_name(text)?.first().copied()
}

/// The text from the third field, the state, on.
fn behind_name(text: &[u8]) -> Option<&[u8]> {
    // The name before it may contain any character, even parentheses.
    let name_end = text.iter().rposition(|&byte| byte == b')')?;
    text.get(name_end + 2..)
}

/// The processor that a thread ran on last, given the text of its `stat`; the first 512 bytes are enough.
pub fn processor(text: &[u8]) -> Option<usize> {
    /// Fields between state, the third, and processor, the 39th.
    const BETWEEN: usize = 36;
    let mut fields = behind_name(text)?.split(|&byte| byte == b' ');
    str::from_utf8(fields.nth(BETWEEN)?).ok()?.parse().ok()
}

fn parse(text: &[u8]) -> Option<Stat> {
    let mut fields = behind_name(text)?.split(|&byte| byte == b' ');
    let mut field = |skipped: usize| str::from_utf8(fields.nth(skipped)?).ok()?.parse().ok();
    let tick_ns = 1_000_000_000 / TICKS;
    let parent: i64 = field(1)?;
    let children: [i64; 2] = [field(11)?, field(0)?];
    let threads: i64 = field(2)?;
    let started: i64 = field(1)?;
    let ns = |ticks: i64| u64::try_from(ticks).unwrap_or(0).saturating_mul(tick_ns);
    Some(Stat {
        state: state(text)?,
        parent: i32::try_from(parent).ok()?,
        threads: u32::try_from(threads).ok()?,
        ended_children_ns: ns(children[0]).saturating_add(ns(children[1])),
        started_ns: ns(started),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_anything() {
        let text = b"77 (a) R 1 (b) S 42 77 77 0 -1 4194560 1 2 3 4 10 20 150 50 20 0 1 0 1234 9 9";
        let stat = parse(text).unwrap();
        assert_eq!(
            stat,
            Stat {
                state: b'S',
                parent: 42,
                threads: 1,
                ended_children_ns: 2_000_000_000,
                started_ns: 12_340_000_000,
            }
        );
        for length in 0..text.len() - 8 {
            assert_eq!(parse(&text[..length]), None, "{length}");
        }
    }

    #[test]
    fn a_process_runs_without_its_first_thread() {
        let code = "import ctypes, threading, time\n\
            threading.Thread(target=time.sleep, args=(60,)).start()\n\
            ctypes.CDLL(None).pthread_exit(None)";
        let mut child = std::process::Command::new("python3")
            .args(["-c", code])
            .spawn()
            .unwrap();
        let pid = child.id() as i32;
        let is_without = || of(pid).is_some_and(|stat| stat.state == b'Z');
        let seen = (0..2000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(5));
            is_without()
        });
        let ran = is_running(pid);
        child.kill().unwrap();
        let ended = (0..2000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(5));
            !is_running(pid)
        });
        child.wait().unwrap();
        assert!(seen && ran && ended, "{seen} {ran} {ended}");
    }

    #[test]
    fn the_processor_of_a_thread_is_told() {
        let cut = b"7 (x) R 1 7 7 0 -1 4194560 1 2 3 4 10 20 150 50 20 0 1 0 1234 9 9";
        assert_eq!((state(cut), processor(cut)), (Some(b'R'), None));
        // The child is pinned to one processor, so it must have run there.
        let mut child = std::process::Command::new("taskset")
            .args(["-c", "0", "sleep", "10"])
            .spawn()
            .unwrap();
        let path = format!("/proc/{}/stat", child.id());
        let told = (0..1000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(5));
            let text = std::fs::read(&path).unwrap();
            text.starts_with(format!("{} (sleep) S", child.id()).as_bytes())
                && processor(&text) == Some(0)
        });
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(told);
    }

    #[test]
    fn our_own() {
        let own = of(std::process::id() as i32).unwrap();
        assert_eq!(own.parent, nix::unistd::getppid().as_raw());
        assert!(is_running(std::process::id() as i32) && !is_running(i32::MAX));
    }
}
