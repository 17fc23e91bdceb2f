//! Logs of system calls: Nanos's (`ops run -d`, its klib strace), and strace's with any of -f, -ttt and -T.
//! Output: spans with results, and with times and durations if the log has them. Nanos's log has none.
//!
//! ```text
//! [2] openat(-100, "/etc/hosts", 0x0, 0x0) = ENOENT
//! 4170 1700000000.123456 read(3, "x", 4096) = 1 <0.000017>
//! ```

use super::decimal::{seconds_ns, signed, unsigned};
use super::open_calls::{Entry, Exit};
use super::tasks::TASKS_MAX;
use super::{Lines, SpanKind, SpanSink, TaskLabel, Tasks};
use crate::import::ImportError;
use crate::text::errno;
use std::collections::{HashMap, HashSet};
use std::io::BufRead;

/// Address space of threads that the log identifies only by name.
const SPACE_OF_NAMES: u32 = 1;
/// What strace prints before the number of a thread that it begins to follow.
const ATTACHED: &[u8] = b"Process ";
const NOT_UNDERSTOOD: &str = "a line that is not understood";

/// Reads the log.
///
/// # Errors
/// Reading or writing failed.
pub fn read(input: &mut dyn BufRead, sink: &mut dyn SpanSink) -> Result<u64, ImportError> {
    let mut lines = Lines::new(input);
    let mut tasks = Tasks::default();
    let mut named: HashMap<Vec<u8>, u32> = HashMap::new();
    let mut tracees = Tracees::default();
    let mut start = CallStart::default();
    while let Some(line) = lines.next_line()? {
        if let Some((before, number)) = split_attached(line.bytes) {
            tracees.attach(number);
            if !before.is_empty() {
                start.give_up(sink);
                start = CallStart {
                    number: line.number,
                    text: before.to_vec(),
                };
            }
            continue;
        }
        let mended = start.mend(line.bytes, sink);
        // Arguments aren't needed, but a line that was cut has lost its result.
        let logged = LogLine::of(mended.as_deref().unwrap_or(line.bytes));
        let Some(logged) = logged.filter(|_| !line.cut) else {
            if line.cut {
                sink.trouble(line.number, "a line longer than 64 KiB was left out");
            } else if !is_aside(line.bytes) {
                sink.trouble(line.number, NOT_UNDERSTOOD);
            }
            tracees.end(line.bytes);
            continue;
        };
        let calls = match tracees.resolve(logged.task) {
            Thread::Name(name) => {
                let next = named.len() as u32;
                let known = named.get(name).copied();
                let number = known.unwrap_or(next);
                if known.is_none() && named.len() < TASKS_MAX {
                    named.insert(name.to_vec(), number);
                }
                let label = TaskLabel {
                    space: SPACE_OF_NAMES,
                    number,
                    name,
                };
                tasks.of(label, line.number, sink)
            }
            Thread::Number(number) | Thread::Tracee(number) => {
                tasks.numbered("thread", number, line.number, sink)
            }
            Thread::Only => tasks.numbered("thread", 0, line.number, sink),
        };
        let Some(calls) = calls else { continue };
        let syscall = sink.name(logged.syscall);
        if logged.begins {
            let entry = Entry {
                name: syscall,
                start_ns: logged.time_ns,
                cpu: None,
                kind: SpanKind::Syscall,
                line: line.number,
            };
            calls.enter_at(0, entry, sink)?;
        }
        if let Some(SyscallReturn { result, length_ns }) = logged.returned {
            let exit = Exit {
                name: Some(syscall),
                end_ns: logged.time_ns.filter(|_| !logged.begins),
                length_ns,
                result,
                kind: Some(SpanKind::Syscall),
                line: line.number,
            };
            calls.leave_at(0, exit, sink)?;
        }
    }
    start.give_up(sink);
    let count = lines.count();
    tasks.finish(sink)?;
    Ok(count)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Thread<'a> {
    Number(u32),
    /// `[pid 4170]`, which strace prints on a terminal while it follows several threads.
    Tracee(u32),
    /// The line names none: it is of the only one.
    Only,
    Name(&'a [u8]),
}

/// The threads that strace follows, as far as it numbers them.
#[derive(Debug, Default)]
struct Tracees {
    /// Those that have not ended.
    living: HashSet<u32>,
    /// Whether lines of a thread came before its number.
    is_begun: bool,
    /// The number of that thread, when it is known.
    first: Option<u32>,
}

impl Tracees {
    /// Takes the number of a thread that strace begins to follow.
    fn attach(&mut self, number: u32) {
        if self.living.len() < TASKS_MAX {
            self.living.insert(number);
        }
    }

    /// The thread of a line, by one name for all its lines: a thread whose lines first had no number keeps none.
    fn resolve<'a>(&mut self, task: Thread<'a>) -> Thread<'a> {
        let number = match task {
            Thread::Tracee(number) => number,
            // Only one has not ended, and it isn't the first, whose number is not known yet.
            Thread::Only if self.living.len() == 1 && self.is_begun == self.first.is_some() => {
                self.living.iter().next().copied().unwrap_or(0)
            }
            Thread::Only => {
                self.is_begun = true;
                return task;
            }
            _ => return task,
        };
        // strace tells of all but those that it began with.
        if self.is_begun && self.first.is_none() && !self.living.contains(&number) {
            self.first = Some(number);
        }
        self.attach(number);
        if self.first == Some(number) {
            Thread::Only
        } else {
            Thread::Tracee(number)
        }
    }

    /// Takes a line that is no call: `[pid  4171] +++ exited with 0 +++` ends a thread.
    fn end(&mut self, line: &[u8]) {
        let (task, rest) = split_task(line);
        if let (Thread::Tracee(number), true) = (task, split_time(rest).1.starts_with(b"+++ ")) {
            self.resolve(task);
            self.living.remove(&number);
        }
    }
}

/// The start of a call into whose line strace printed that it follows a new thread. The rest is in the next line:
/// `, child_tidptr=0x7f12) = 4171`, ` <unfinished ...>`.
#[derive(Debug, Default)]
struct CallStart {
    /// The line's.
    number: u64,
    /// At most a line; empty if there is none.
    text: Vec<u8>,
}

impl CallStart {
    /// The whole call, if `rest` is the rest of it.
    fn mend(&mut self, rest: &[u8], sink: &mut dyn SpanSink) -> Option<Vec<u8>> {
        if self.text.is_empty() {
            return None;
        }
        let whole = [&self.text[..], rest].concat();
        if !is_aside(rest) || LogLine::of(&whole).is_none() {
            self.give_up(sink);
            return None;
        }
        self.text.clear();
        Some(whole)
    }

    /// The rest of the call is missing.
    fn give_up(&mut self, sink: &mut dyn SpanSink) {
        if !is_aside(&self.text) {
            sink.trouble(self.number, NOT_UNDERSTOOD);
        }
        self.text.clear();
    }
}

/// A line of a log.
#[derive(Debug, PartialEq, Eq)]
struct LogLine<'a> {
    task: Thread<'a>,
    time_ns: Option<u64>,
    syscall: &'a [u8],
    /// Whether the call begins in this line; it may also end there.
    begins: bool,
    /// `None` if the call continues in another line, or never returns.
    returned: Option<SyscallReturn>,
}

#[derive(Debug, PartialEq, Eq)]
struct SyscallReturn {
    /// `None` if the log doesn't show it as a number.
    result: Option<i64>,
    length_ns: Option<u64>,
}

impl<'a> LogLine<'a> {
    fn of(line: &'a [u8]) -> Option<LogLine<'a>> {
        let (task, rest) = split_task(line.trim_ascii_end());
        let (time_ns, rest) = split_time(rest);
        if let Some(rest) = rest.strip_prefix(b"<... ") {
            let end = name_length(rest).filter(|end| rest.get(*end) == Some(&b' '))?;
            let returned = returned(rest);
            return Some(LogLine {
                task,
                time_ns,
                syscall: &rest[..end],
                begins: false,
                returned,
            });
        }
        let end = name_length(rest).filter(|end| rest.get(*end) == Some(&b'('))?;
        let goes_on = rest.ends_with(b"<unfinished ...>");
        // A line of another kind may begin like a call: `worker(void*);spin(int) 7`.
        if !goes_on && split_result(rest).is_none() {
            return None;
        }
        let returned = returned(&rest[end..]);
        Some(LogLine {
            task,
            time_ns,
            syscall: &rest[..end],
            begins: true,
            returned: returned.filter(|_| !goes_on),
        })
    }
}

/// The length of a system call's name at the start; `None` if there is none, as in output of the program that
/// got into the log.
fn name_length(text: &[u8]) -> Option<usize> {
    let is_name = |byte: &&u8| byte.is_ascii_alphanumeric() || **byte == b'_';
    Some(text.iter().take_while(is_name).count()).filter(|length| *length > 0)
}

/// `) = 3`, `) = ENOENT`, `) = -1 ENOENT (No such file or directory) <0.000012>`; `) = ?` is a call that never returns.
fn returned(rest: &[u8]) -> Option<SyscallReturn> {
    let mut words = split_result(rest)?
        .split(|byte| *byte == b' ')
        .filter(|word| !word.is_empty());
    let value = words.next()?;
    let error = words.next().and_then(errno::number);
    let result = match (value, error) {
        (b"-1" | b"?", Some(number)) => Some(-number),
        (b"?", None) => return None,
        _ => number(value).or_else(|| errno::number(value).map(|number| -number)),
    };
    let last = rest.rsplit(|byte| *byte == b' ').next()?;
    let length = last
        .strip_prefix(b"<")
        .and_then(|length| length.strip_suffix(b">"));
    Some(SyscallReturn {
        result,
        length_ns: length.and_then(seconds_ns),
    })
}

/// What follows the last ` = `, if arguments end before it.
fn split_result(rest: &[u8]) -> Option<&[u8]> {
    let at = memchr::memmem::rfind(rest, b" = ")?;
    let before = rest[..at].trim_ascii_end();
    (before.ends_with(b")") || before.ends_with(b">")).then(|| &rest[at + 3..])
}

fn number(value: &[u8]) -> Option<i64> {
    if let Some(digits) = value.strip_prefix(b"0x") {
        let digits = std::str::from_utf8(digits).ok()?;
        return u64::from_str_radix(digits, 16).ok().map(u64::cast_signed);
    }
    // strace -y writes file names behind descriptors.
    let end = memchr::memchr(b'<', value).unwrap_or(value.len());
    signed(&value[..end])
}

/// Splits a line into its thread and the rest: `[2] `, `[main] `, `[pid  4170] `, `4170  `. A log of one
/// thread has none.
fn split_task(line: &[u8]) -> (Thread<'_>, &[u8]) {
    let bracket = line.strip_prefix(b"[");
    if let Some((rest, end)) =
        bracket.and_then(|rest| Some((rest, memchr::memmem::find(rest, b"] ")?)))
    {
        let behind = rest[end + 2..].trim_ascii_start();
        let name = &rest[..end];
        let tracee = name.strip_prefix(b"pid").and_then(small);
        let task = match (tracee, small(name)) {
            (Some(number), _) => Thread::Tracee(number),
            (None, Some(number)) => Thread::Number(number),
            (None, None) => Thread::Name(name),
        };
        return (task, behind);
    }
    let end = line.iter().position(|byte| *byte == b' ').unwrap_or(0);
    match small(&line[..end]) {
        Some(number) => (Thread::Number(number), line[end..].trim_ascii_start()),
        None => (Thread::Only, line),
    }
}

/// Splits `strace: Process 4171 attached` into what is before it and the number. strace also prints it into the line
/// of a call.
fn split_attached(line: &[u8]) -> Option<(&[u8], u32)> {
    let head = line.strip_suffix(b" attached")?;
    let at = memchr::memmem::rfind(head, ATTACHED)?;
    let number = small(&head[at + ATTACHED.len()..])?;
    let before = &head[..at];
    Some((before.strip_suffix(b"strace: ").unwrap_or(before), number))
}

/// A number of a thread.
fn small(digits: &[u8]) -> Option<u32> {
    unsigned(digits.trim_ascii()).and_then(|number| u32::try_from(number).ok())
}

/// Seconds since 1970, as with -ttt. Times of day (-t) and differences (-r) are ignored.
fn split_time(line: &[u8]) -> (Option<u64>, &[u8]) {
    let end = line.iter().position(|byte| *byte == b' ').unwrap_or(0);
    let word = &line[..end];
    if !word.first().is_some_and(u8::is_ascii_digit) {
        return (None, line);
    }
    let behind = line[end..].trim_ascii_start();
    let time_ns = seconds_ns(word).filter(|time_ns| *time_ns >= 100_000_000_000_000_000);
    (time_ns, behind)
}

/// Whether a line is not a system call: a signal, an exit, Nanos's table of counts, or the program's own
/// output on the same console. A line with a name and a bracket at the position of a call is none of these.
fn is_aside(line: &[u8]) -> bool {
    let (_, rest) = split_task(line);
    let (_, rest) = split_time(rest);
    let is_call = name_length(rest).is_some_and(|end| rest.get(end) == Some(&b'('));
    !is_call && !rest.starts_with(b"<... ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::trace::collected::SpanCollector;

    #[test]
    fn nanoss_log_is_read_after_its_source() {
        // This text was written by hand to match klib/strace.c of Nanos.
        let text = "\
en1: assigned 10.0.2.15
[2] openat(-100, \"/etc/hosts\", 0x0, 0x0) = ENOENT
[2] brk(0x0) = 0x4a3000
[worker one] read(3, 0x7f0012, 100 <unfinished ...>
[2] write(1, 0x4a31f0, 6) = 6
hello (there)
[worker one] <... read resumed>) = 100
[worker one] syscall_999() = ENOSYS
[2] ioctl(1, 0x5401) = -600
[2] futex(0x4a3000
[2] <... alice' AND password='x' resumed>) = 1
[2] exit_group(0) = ?
% time      seconds   usecs/call        calls       errors syscall
";
        let mut sink = SpanCollector::default();
        let lines = read(&mut text.as_bytes(), &mut sink).unwrap();
        assert_eq!(lines, 13);
        let found: Vec<_> = sink
            .lines()
            .into_iter()
            .zip(sink.spans.iter().map(|span| span.result))
            .collect();
        let expected = [
            ("0/2 openat 0 ?", Some(-2)),
            ("0/2 brk 0 ?", Some(0x4a_3000)),
            ("0/2 write 0 ?", Some(6)),
            ("1/0 read 0 ?", Some(100)),
            ("1/0 syscall_999 0 ?", Some(-38)),
            ("0/2 ioctl 0 ?", Some(-600)),
            ("0/2 exit_group 0 ? cut", None),
        ];
        let expected: Vec<_> = expected
            .map(|(line, result)| (line.to_owned(), result))
            .into();
        assert_eq!(found, expected);
        assert!(sink.spans.iter().all(|span| span.start_ns.is_none()));
        assert_eq!(
            sink.troubles,
            [10, 11].map(|line| (line, "a line that is not understood".to_owned()))
        );
        assert_eq!(sink.tasks[1].2, b"worker one");
    }

    #[test]
    fn a_thread_that_strace_numbers_at_times_is_one() {
        let text = "\
chdir(\"/bin\") = 0
clone(child_stack=NULL, flags=SIGCHLDstrace: Process 4171 attached
 <unfinished ...>
[pid  4171] read(3,  <unfinished ...>
[pid  4170] <... clone resumed>) = 4171
[pid  4170] wait4(-1,  <unfinished ...>
[pid  4171] <... read resumed>\"\", 1) = 0
[pid  4171] exit_group(0) = ?
[pid  4171] +++ exited with 0 +++
<... wait4 resumed>[{WIFEXITED(s) && WEXITSTATUS(s) == 0}], 0, NULL) = 4171
--- SIGCHLD {si_signo=SIGCHLD} ---
fork() = 4172
strace: Process 4172 attached
[pid  4170] exit_group(0) = ?
[pid  4170] +++ exited with 0 +++
brk(NULL) = 0x1000
";
        let mut sink = SpanCollector::default();
        read(&mut text.as_bytes(), &mut sink).unwrap();
        assert_eq!(sink.troubles, []);
        let expected = [
            "0/0 chdir 0 ?",
            "0/0 clone 0 ?",
            "0/4171 read 0 ?",
            "0/0 wait4 0 ?",
            "0/0 fork 0 ?",
            "0/4172 brk 0 ?",
            "0/0 exit_group 0 ? cut",
            "0/4171 exit_group 0 ? cut",
        ];
        assert_eq!(sink.lines(), expected);
    }

    #[test]
    fn a_call_goes_on_in_the_line_after_a_new_thread() {
        let text = "\
chdir(\"/bin\") = 0 <0.000500>
clone(child_stack=NULL, flags=CLONE_CHILD_SETTID|SIGCHLDstrace: Process 4171 attached
, child_tidptr=0x7f12) = 4171 <0.000153>
[pid  4170] access(\"/x\", R_OKstrace: Process 4172 attached
strace: Process 4173 attached
) = -1 ENOENT (No such file or directory) <0.000011>
[pid  4170] clone(strace: Process 4174 attached
[pid  4171] brk(NULL) = 0x1000 <0.000002>
[pid  4170] clone(strace: Process 4175 attached
";
        let mut sink = SpanCollector::default();
        read(&mut text.as_bytes(), &mut sink).unwrap();
        let results = sink.spans.iter().map(|span| span.result);
        let found: Vec<_> = sink.lines().into_iter().zip(results).collect();
        let expected = [
            ("0/0 chdir 0 500000", 0),
            ("0/0 clone 0 153000", 4171),
            ("0/0 access 0 11000", -2),
            ("0/4171 brk 0 2000", 0x1000),
        ];
        let expected = expected.map(|(line, result)| (line.to_owned(), Some(result)));
        assert_eq!(found, expected);
        assert_eq!(
            sink.troubles,
            [7, 9].map(|line| (line, NOT_UNDERSTOOD.to_owned()))
        );
    }

    #[test]
    fn straces_times_and_errors_are_kept() {
        let text = "\
4170  1700000000.000100 openat(AT_FDCWD, \"/x = 1\", O_RDONLY) = -1 ENOENT (No such file or directory) <0.000012>
4170  1700000000.000200 read(0</dev/pts/0>,  <unfinished ...>
4171  1700000000.000250 futex(0x7f, FUTEX_WAIT, 2, NULL) = ? ERESTARTSYS (To be restarted if SA_RESTART is set)
4170  1700000000.000300 <... read resumed>\"a\", 1) = 1
4170  1700000000.000400 mmap(NULL, 8192) = 0xffffffffffffff00 <0.000007>
4171  1700000000.000500 --- SIGCHLD {si_signo=SIGCHLD} ---
4170  1700000000.000600 dup(3</tmp/a>) = 4</tmp/a> <0.000001>
4170  1700000000.000700 exit_group(0)     = ?
4170  1700000000.000800 +++ exited with 0 +++
";
        let mut sink = SpanCollector::default();
        read(&mut text.as_bytes(), &mut sink).unwrap();
        assert_eq!(sink.troubles, []);
        let found: Vec<_> = sink
            .spans
            .iter()
            .map(|span| {
                (
                    span.start_ns.unwrap() - 1_700_000_000_000_000_000,
                    span.length_ns,
                    span.result,
                )
            })
            .collect();
        let expected = [
            (100_000, Some(12_000), Some(-2)),
            (250_000, None, Some(-512)),
            (200_000, Some(100_000), Some(1)),
            (400_000, Some(7_000), Some(-256)),
            (600_000, Some(1_000), Some(4)),
            (700_000, None, None),
        ];
        assert_eq!(found, expected);
    }
}
