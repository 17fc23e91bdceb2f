//! The text of `uftrace dump`: one line for each entry and exit, one task after another, with times in
//! nanoseconds and depths.
//!
//! ```text
//! 15600.521165008   4170: [entry] main(561badaba2ac) depth: 0
//! ```

use super::decimal::{seconds_ns, unsigned};
use super::open_calls::{Entry, Exit};
use super::{Lines, SpanKind, SpanSink, Tasks};
use crate::import::ImportError;
use std::io::BufRead;

/// Reads the text.
///
/// # Errors
/// Reading or writing failed.
pub fn read(input: &mut dyn BufRead, sink: &mut dyn SpanSink) -> Result<u64, ImportError> {
    let mut lines = Lines::new(input);
    let mut tasks = Tasks::default();
    while let Some(line) = lines.next_line()? {
        let number = line.number;
        if line.cut {
            sink.trouble(number, "a line longer than 64 KiB was left out");
            continue;
        }
        match understand(line.bytes) {
            Understood::Call(call) => {
                let name = sink.name(call.name);
                let Some(calls) = tasks.numbered("thread", call.task, number, sink) else {
                    continue;
                };
                if call.begins {
                    let entry = Entry {
                        name,
                        start_ns: Some(call.time_ns),
                        cpu: None,
                        kind: SpanKind::Function,
                        line: number,
                    };
                    calls.enter_at(call.depth, entry, sink)?;
                } else {
                    let exit = Exit {
                        name: Some(name),
                        end_ns: Some(call.time_ns),
                        line: number,
                        ..Exit::default()
                    };
                    calls.leave_at(call.depth, exit, sink)?;
                }
            }
            Understood::Aside => {}
            Understood::Lost => sink.trouble(number, "records that uftrace lost"),
            Understood::Nothing => sink.trouble(number, "a line that is not understood"),
        }
    }
    let count = lines.count();
    tasks.finish(sink)?;
    Ok(count)
}

struct Call<'a> {
    time_ns: u64,
    task: u32,
    begins: bool,
    name: &'a [u8],
    depth: u64,
}

enum Understood<'a> {
    Call(Call<'a>),
    /// A line that isn't a call: headings, arguments, return values, and events of the kernel.
    Aside,
    Lost,
    Nothing,
}

fn understand(line: &[u8]) -> Understood<'_> {
    let found = || -> Option<Understood<'_>> {
        // Seconds are five columns wide.
        let (time, rest) = split_at(line.trim_ascii_start(), b' ')?;
        let (task, rest) = split_at(rest.trim_ascii_start(), b':')?;
        let task = u32::try_from(unsigned(task)?).ok()?;
        let time_ns = seconds_ns(time)?;
        let rest = rest.strip_prefix(b" [")?;
        let (what, rest) = (rest.get(..5)?, rest.get(5..)?);
        let begins = match what {
            b"entry" => true,
            b"exit " => false,
            b"lost " => return Some(Understood::Lost),
            b"args " | b"event" | b"watch" | b"retva" => return Some(Understood::Aside),
            _ => return None,
        };
        let rest = rest.strip_prefix(b"] ")?;
        let colon = memchr::memrchr(b':', rest)?;
        let depth = unsigned(rest[colon + 1..].trim_ascii())?;
        // Names may contain brackets; the address is in the last pair.
        let name = &rest[..memchr::memrchr(b'(', &rest[..colon])?];
        Some(Understood::Call(Call {
            time_ns,
            task,
            begins,
            name,
            depth,
        }))
    };
    found().unwrap_or(if is_aside(line) {
        Understood::Aside
    } else {
        Understood::Nothing
    })
}

fn is_aside(line: &[u8]) -> bool {
    let prefixes: [&[u8]; 5] = [
        b"uftrace file header:",
        b"reading ",
        b"  args[",
        b"  retval ",
        b"  ",
    ];
    line.is_empty() || prefixes.iter().any(|prefix| line.starts_with(prefix))
}

fn split_at(bytes: &[u8], byte: u8) -> Option<(&[u8], &[u8])> {
    let at = memchr::memchr(byte, bytes)?;
    Some((&bytes[..at], &bytes[at + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::trace::collected::SpanCollector;

    #[test]
    fn entries_and_exits_become_calls() {
        let text = "\
uftrace file header: magic         = 4674726163652100

reading 4170.dat
15600.521167480   4170: [entry] main(561badaba2ac) depth: 0
15600.521206348   4170: [entry] ns::fib(int)::{lambda(long)#1}::operator()(561badaba236) depth: 1
15600.521206348   4170: [args ] length = 8
  args[0] d64: 0x0000000000000009
15600.521206418   4170: [exit ] ns::fib(int)::{lambda(long)#1}::operator()(561badaba236) depth: 1
15600.521206418   4170: [retval] length = 8
  retval d64: 0x0000000000000004
15600.521206500   4170: [exit ] main(561badaba2ac) depth: 0
15600.521206501   4170: [entry] main depth: 0
   42.000000001   4170: [entry] soon(561badaba2ac) depth: 0
   42.000000003   4170: [exit ] soon(561badaba2ac) depth: 0
reading 4173.dat
15600.528192641   4173: [exit ] fork(561badaba0a0) depth: 1
15600.528197769   4173: [entry] fib(561badaba236) depth: 5
reading perf-cpu0.dat
15600.524081078   4172: [event] linux:sched-in(200001)
";
        let mut sink = SpanCollector::default();
        let lines = read(&mut text.as_bytes(), &mut sink).unwrap();
        assert_eq!(lines, 19);
        let expected = [
            "0/4170 ns::fib(int)::{lambda(long)#1}::operator() 1 70",
            "0/4170 main 0 39020",
            "0/4170 soon 0 2",
            "0/4173 fork 1 ? cut",
            "0/4173 fib 5 ? cut",
        ];
        assert_eq!(sink.lines(), expected);
        assert_eq!(sink.spans[1].start_ns, Some(15_600_521_167_480));
        assert_eq!(
            sink.troubles,
            [(12, "a line that is not understood".to_owned())]
        );
    }
}
