//! Nanos's `function_graph` tracer. Input: text. Output: calls. A line is the start of a call, its end, or a
//! leaf call, which is both:
//!
//! ```text
//!  0)               |  mcache_alloc() {
//!  0)   0.071 us    |    runtime_memcpy();
//!  0) ! 208.173 us  |  } /* mcache_alloc */
//! ```
//!
//! A line has the CPU's number, the duration, two spaces for each level, and the name. CPUs come one after
//! another, and the header may be repeated for each. There are no timestamps and no threads. Durations are
//! cut to 8 characters.

use crate::import::ImportError;
use crate::import::trace::decimal::unsigned;
use crate::import::trace::{Entry, Exit, Line, Lines, OpenCalls, SpanKind, SpanSink, Tasks};
use std::io::BufRead;

/// The mark before the name; it is not always in the same column.
const BAR: u8 = b'|';

/// A line, parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct GraphLine<'l> {
    cpu: u32,
    /// Duration (ns); `None` if the line has none.
    length_ns: Option<u64>,
    depth: u64,
    name: &'l [u8],
    what: What,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Begins,
    Ends,
    Leaf,
}

/// Reads the trace.
///
/// # Errors
/// Reading or writing failed.
pub(crate) fn read(input: &mut dyn BufRead, sink: &mut dyn SpanSink) -> Result<u64, ImportError> {
    let mut lines = Lines::new(input);
    let mut cpus = Tasks::default();
    while let Some(line) = lines.next_line()? {
        if line.bytes.is_empty() || line.bytes.starts_with(b"#") {
            continue;
        }
        let parsed = match parse(line) {
            Ok(parsed) => parsed,
            Err(what) => {
                sink.trouble(line.number, what);
                continue;
            }
        };
        if let Some(calls) = cpus.numbered("CPU", parsed.cpu, line.number, sink) {
            take(&parsed, line.number, calls, sink)?;
        }
    }
    cpus.finish(sink)?;
    Ok(lines.count())
}

fn take(
    parsed: &GraphLine<'_>,
    line: u64,
    calls: &mut OpenCalls,
    sink: &mut dyn SpanSink,
) -> Result<(), ImportError> {
    let name = sink.name(parsed.name);
    let entry = Entry {
        name,
        start_ns: None,
        cpu: None,
        kind: SpanKind::Function,
        line,
    };
    match parsed.what {
        What::Begins => calls.enter_at(parsed.depth, entry, sink),
        What::Leaf => calls.leaf_at(parsed.depth, entry, parsed.length_ns, sink),
        What::Ends => {
            // Tracers omit the name at the end of the innermost open call.
            let name = (!parsed.name.is_empty()).then_some(name);
            let exit = Exit {
                name,
                length_ns: parsed.length_ns,
                line,
                ..Exit::default()
            };
            calls.leave_at(parsed.depth, exit, sink)
        }
    }
}

/// Parses a line. The error says why it isn't a line of this format.
fn parse(line: Line<'_>) -> Result<GraphLine<'_>, &'static str> {
    if line.cut {
        return Err("a line is longer than 64 KiB");
    }
    const NOT_A_CALL: &str = "a line is no call: it begins with no CPU";
    let text = line.bytes.trim_ascii_start();
    let end = text
        .iter()
        .position(|byte| *byte == b')')
        .ok_or(NOT_A_CALL)?;
    let cpu = unsigned(text[..end].trim_ascii()).ok_or(NOT_A_CALL)?;
    let cpu = u32::try_from(cpu).map_err(|_| "a CPU has a number beyond 32 bits")?;
    let rest = &text[end + 1..];
    let bar = memchr::memchr(BAR, rest).ok_or("a line is no call: it has no bar")?;
    let length_ns = duration(&rest[..bar])?;
    let call = &rest[bar + 1..];
    let name = call.trim_ascii_start();
    let indent = (call.len() - name.len()) as u64;
    if name.is_empty() {
        return Err("a line has no function");
    }
    let name = name.trim_ascii_end();
    let (name, what) = if let Some(name) = name.strip_suffix(b"() {") {
        (name, What::Begins)
    } else if let Some(name) = name.strip_suffix(b"();") {
        (name, What::Leaf)
    } else if let Some(name) = name.strip_prefix(b"}") {
        let name = name.trim_ascii();
        let name = name.strip_prefix(b"/*").unwrap_or(name);
        let name = name.strip_suffix(b"*/").unwrap_or(name);
        (name.trim_ascii(), What::Ends)
    } else {
        return Err("a line is cut, or no call: it ends with neither () { nor ();");
    };
    if name.is_empty() && what != What::Ends {
        return Err("a line has no function");
    }
    Ok(GraphLine {
        cpu,
        length_ns,
        // The outermost level has two spaces after the bar.
        depth: (indent / 2).saturating_sub(1),
        name,
        what,
    })
}

/// The duration before the bar: a mark for long calls, a decimal number and its unit. All may be missing.
fn duration(text: &[u8]) -> Result<Option<u64>, &'static str> {
    const BAD: &str = "a line's duration is no number of microseconds";
    let text = text.trim_ascii();
    if text.is_empty() {
        return Ok(None);
    }
    let marks = |byte: &u8| b"+!#*@$".contains(byte);
    let marked = text.iter().take_while(|byte| marks(byte)).count();
    let text = text[marked..].trim_ascii_start();
    let text = text.strip_suffix(b"us").ok_or(BAD)?.trim_ascii_end();
    let point = memchr::memchr(b'.', text).unwrap_or(text.len());
    let whole = match &text[..point] {
        b"" if point < text.len() => 0,
        digits => unsigned(digits.trim_ascii()).ok_or(BAD)?,
    };
    let digits = text.get(point + 1..).unwrap_or(b"");
    // Digits after the point are nanoseconds; some may be cut off.
    let mut rest_ns = 0;
    for place in 0..digits.len().max(3) {
        let digit = match digits.get(place) {
            Some(byte) if byte.is_ascii_digit() => u64::from(byte - b'0'),
            Some(_) => return Err(BAD),
            None => 0,
        };
        if place < 3 {
            rest_ns = rest_ns * 10 + digit;
        }
    }
    let ns = whole
        .checked_mul(1000)
        .and_then(|ns| ns.checked_add(rest_ns));
    ns.map(Some)
        .ok_or("a line's duration is longer than 584 years")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::trace::collected::SpanCollector;

    fn read_text(text: &str) -> SpanCollector {
        let mut sink = SpanCollector::default();
        read(&mut text.as_bytes(), &mut sink).unwrap();
        sink
    }

    #[test]
    fn calls_of_cpus_one_after_the_other() {
        let sink = read_text(
            "# tracer: function_graph\n#\n# CPU  DURATION                  FUNCTION CALLS\n\
             \n 0)               |  mcache_alloc() {\n\
             \x20 0) ! 207.666 us  |    runtime_memcpy();\n\
             \x20 0)   0.07 us     |    <größe::Größe<T> as Öl>::new();\n\
             \x20 0) ! 208.173 us  |  } /* mcache_alloc */\n\
             # tracer: function_graph\n\
             128)   0.071 us    |  main.(*T).run();\r\n\
             128) @ 123456.7 us |  } /* thread entry */",
        );
        let expected = [
            "0/0 runtime_memcpy 1 207666",
            "0/0 <größe::Größe<T> as Öl>::new 1 70",
            "0/0 mcache_alloc 0 208173",
            "0/128 main.(*T).run 0 71",
            "0/128 thread entry 0 123456700 cut",
        ];
        assert_eq!(sink.lines(), expected);
        assert_eq!(sink.troubles, []);
        assert_eq!(sink.tasks[1].2, b"CPU 128");
    }

    #[test]
    fn recursion_and_what_never_ends() {
        let sink = read_text(
            " 0)               |  walk() {\n 0)               |    walk() {\n 0)   1.000 us    |    } /* walk */\n\
             \x20 0)               |    lost() {\n 0)   9.000 us    |  } /* walk */\n 0)               |  open() {\n\
             \x20 0)               |    inner() {\n",
        );
        let expected = [
            "0/0 walk 1 1000",
            "0/0 lost 1 ? cut",
            "0/0 walk 0 9000",
            "0/0 inner 1 ? cut",
            "0/0 open 0 ? cut",
        ];
        assert_eq!(sink.lines(), expected);
        assert_eq!(sink.troubles.len(), 1);
        assert_eq!(sink.troubles[0].0, 4);
    }

    #[test]
    fn lines_that_are_wrong_are_counted_and_nothing_else_is_lost() {
        let deep = format!(" 0)   1.000 us    |{}deep();", " ".repeat(2 * 1025));
        let long = format!(" 0)   1.000 us    |  {}();", "x".repeat(70_000));
        for (line, what) in [
            (" 0) - 1.000 us    |  f();", "no number of microseconds"),
            (" 0)  -1.000 us    |  f();", "no number of microseconds"),
            (" 0)  1.0x0 us     |  f();", "no number of microseconds"),
            (" 0)  1.000 ms     |  f();", "no number of microseconds"),
            (" 0)  99999999999999999.9 us |  f();", "584 years"),
            (
                " 0)  99999999999999999999 us |  f();",
                "no number of microseconds",
            ),
            ("99999999999)  1.000 us |  f();", "beyond 32 bits"),
            (" 0)   1.000 us    |", "no function"),
            (" 0)   1.000 us    |  ();", "no function"),
            (" 0)   1.000 us    |  f", "neither () { nor ();"),
            (" 0)   1.000 us", "no bar"),
            ("hello", "no CPU"),
            (&deep, "1,024"),
            (&long, "64 KiB"),
        ] {
            let text =
                format!(" 0)   1.000 us    |  before();\n{line}\n 0)   1.000 us    |  after();\n");
            let sink = read_text(&text);
            assert_eq!(
                sink.lines(),
                ["0/0 before 0 1000", "0/0 after 0 1000"],
                "{line}"
            );
            assert_eq!(sink.troubles.len(), 1, "{line}");
            assert!(
                sink.troubles[0].0 == 2 && sink.troubles[0].1.contains(what),
                "{line}: {:?}",
                sink.troubles
            );
        }
    }
}
