//! Event lines of ftrace, trace-cmd and Nanos. Input: the bytes of a line. Output: thread, CPU, time, and the
//! rest of the line.
//!
//! ```text
//!               ls-95    [001] d..1.     7.675210: funcgraph_entry:      ! 406.829 us |  mutex_unlock();
//! ```

use super::TaskLabel;
use super::decimal::{seconds_ns, unsigned};

/// An event line, parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EventLine<'a> {
    pub comm: &'a [u8],
    pub pid: u32,
    pub cpu: u32,
    /// Time (ns); `None` if the clock counts cycles, which are written without a decimal point.
    pub time_ns: Option<u64>,
    /// The text of the event.
    pub event: &'a [u8],
}

/// Address space of idle threads. They have number 0 on every CPU, so they are numbered by CPU here.
const SPACE_OF_CPUS: u32 = 1;

impl<'a> EventLine<'a> {
    /// Parses a line; `None` if it isn't an event line.
    #[inline]
    pub(crate) fn of(line: &'a [u8]) -> Option<EventLine<'a>> {
        let ((comm, pid), cpu, rest) = split_head(line)?;
        let mut rest = rest.trim_ascii_start();
        // Optional flags come before the time.
        for _ in 0..3 {
            let end = memchr::memchr2(b' ', b':', rest)?;
            let (word, behind) = (&rest[..end], &rest[end + 1..]);
            if rest[end] == b':' {
                let time_ns = if word.contains(&b'.') {
                    Some(seconds_ns(word)?)
                } else {
                    unsigned(word).map(|_| None)?
                };
                return Some(EventLine {
                    comm,
                    pid,
                    cpu,
                    time_ns,
                    event: behind.trim_ascii_start(),
                });
            }
            rest = behind.trim_ascii_start();
        }
        None
    }

    /// The task that the line belongs to.
    #[inline]
    pub(crate) fn label(&self) -> TaskLabel<'a> {
        thread(self.comm, self.pid, self.cpu)
    }
}

/// The task of a thread. The idle thread's task is that of its CPU.
#[inline]
pub(crate) fn thread(comm: &[u8], pid: u32, cpu: u32) -> TaskLabel<'_> {
    match pid {
        0 => TaskLabel {
            space: SPACE_OF_CPUS,
            number: cpu,
            name: comm,
        },
        _ => TaskLabel {
            space: 0,
            number: pid,
            name: comm,
        },
    }
}

/// A thread's name and number.
pub(crate) type Thread<'t> = (&'t [u8], u32);

/// Parses `ls-95`; the name may contain `-`.
pub(crate) fn task(text: &[u8]) -> Option<Thread<'_>> {
    let text = text.trim_ascii();
    // With the option record-tgid, the process id follows in brackets.
    let text = if text.ends_with(b")") {
        text[..memchr::memrchr(b'(', text)?].trim_ascii_end()
    } else {
        text
    };
    let dash = memchr::memrchr(b'-', text)?;
    let pid = u32::try_from(unsigned(&text[dash + 1..])?).ok()?;
    Some((&text[..dash], pid))
}

/// Whether a line is what `trace-cmd report` and tracefs print around events: `cpus=2`, `version = 6`,
/// `CPU 1 is empty`.
pub(crate) fn is_heading(line: &[u8]) -> bool {
    let is_empty_cpu = line.starts_with(b"CPU ") && line.trim_ascii_end().ends_with(b" is empty");
    let starts = [&b"#"[..], b"cpus=", b"version = "];
    line.is_empty() || is_empty_cpu || starts.iter().any(|start| line.starts_with(start))
}

/// The thread and the CPU, `ls-95 [001]`, and what comes behind. Names of threads may contain brackets.
fn split_head(line: &[u8]) -> Option<(Thread<'_>, u32, &[u8])> {
    memchr::memchr_iter(b'[', line).find_map(|open| {
        let end = open + 1 + memchr::memchr(b']', line.get(open + 1..)?)?;
        let cpu = u32::try_from(unsigned(&line[open + 1..end])?).ok()?;
        Some((task(&line[..open])?, cpu, &line[end + 1..]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_all_writers_are_understood() {
        let of = |line: &'static str| EventLine::of(line.as_bytes());
        let found =
            of("    [my]-th-95   ( 12) [001] d..1.     7.675210: sys_exit: NR 3 = 0").unwrap();
        assert_eq!((found.comm, found.pid, found.cpu), (&b"[my]-th"[..], 95, 1));
        assert_eq!(found.time_ns, Some(7_675_210_000));
        assert_eq!(found.event, b"sys_exit: NR 3 = 0");
        // A line of Nanos, whose clock counts cycles.
        let found =
            of("             tid-2     [000]  123456789: kern_lock <-mcache_alloc").unwrap();
        assert_eq!(
            (found.comm, found.pid, found.time_ns),
            (&b"tid"[..], 2, None)
        );
        assert_eq!(found.event, b"kern_lock <-mcache_alloc");
        let found = of("  worker[3]-101 [001]  5.5: sched_yield: x").unwrap();
        assert_eq!(
            (found.comm, found.pid, found.cpu),
            (&b"worker[3]"[..], 101, 1)
        );
        for line in ["", "# tracer: x", "cpus=2", "version = 6", "CPU 1 is empty"] {
            assert!(is_heading(line.as_bytes()), "{line}");
        }
        for line in [
            "",
            "CPU:1 [18047 EVENTS DROPPED]",
            "cpus=2",
            "ls-95 [001]",
            "ls-95 [001] 7.x: a",
            "[0] a b c d",
        ] {
            assert_eq!(of(line), None, "{line}");
        }
    }
}
