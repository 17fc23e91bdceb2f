//! The output of `perf script`: for each sample a line that describes it, then its frames, innermost first,
//! then an empty line. Without call chains (`perf record` without `-g`) the only frame is in the sample's line.
//! Of several events, samples of the first one are imported: those of different events don't add up.
//!
//! The number before the event is no number of samples. It is what the processor counted since the sample before; of
//! `offcpu-time`, the length of a wait (nanoseconds).

use super::{ImportError, Importer, InputFrame, Origin, split_offset};
use regex::Regex;
use std::collections::BTreeMap;
use std::io::BufRead;
use uprof::Stop;
use uprof::cpu::is_kernel_address;

/// Matches a thread's name, the numbers of its process and itself (-1 after their end), an optional processor and
/// flags, the time, and a record of perf's own (`perf script --show-mmap-events`), or the number, the event and what
/// follows it, or an address where neither is printed.
const HEADING: &str = concat!(
    r"^\s*(?<comm>\S.*?)\s+(?<pid>-?\d+)(?:/(?<tid>-?\d+))?\s+(?:\[\d+\]\s+)?(?:[^\s\d]\S*\s+)?",
    r"(?<seconds>\d+)\.(?<fraction>\d{6,9}):(?:\s+PERF_RECORD_(?<record>.*)",
    r"|\s+(?:(?<number>\d+)\s+)?(?<event>\S+):(?<behind>\s.*)?$|(?<eventless>\s+[0-9a-f]+ \S.*)$)?"
);
/// Matches the last address with a name and an image. perf pads it to 16 digits, which no word of a name is.
const ADDRESS: &str = r"^(?:.*\s)?(?:\s([0-9a-f]+)|([0-9a-f]{16})) \S.* \(";
/// Matches the source line of the frame before it (`-F +srcline`).
const SOURCE_LINE: &str = r"^  \S+(?::\d+|\[[0-9a-f]+\])(?: \(inlined\))?$";

/// The event whose numbers are lengths of waits, as perf and this package call it.
const OFF_CPU: &str = "offcpu-time";
/// This package's names for times that samples don't have.
const TIMES: [&str; 2] = ["call-time", "vcpu-time"];

/// The stack whose frames are being read.
struct OpenSample {
    vcpu: u32,
    time_ns: u64,
    /// Its length, if it is a wait.
    wait_ns: Option<u64>,
    /// Whether its frame was in its heading, so that the next line is another sample.
    is_whole: bool,
    /// Image, name and address of each frame.
    frames: Vec<(String, String, u64)>,
}

/// Which samples are imported, and how many are not.
#[derive(Default)]
struct Events {
    /// The event whose samples are imported: that of the first one.
    first: Option<String>,
    /// Number of samples of other events, and one of these.
    others: u64,
    other: String,
    /// Number of samples that perf lost.
    lost: u64,
}

impl Events {
    /// Whether a sample of `event` is imported.
    fn takes(&mut self, event: &str, importer: &mut Importer<'_>) -> bool {
        let event = kind(event);
        let first = self.first.get_or_insert_with(|| {
            importer.metadata.sampling.trigger = event.to_owned();
            event.to_owned()
        });
        let is_first = first == event;
        if !is_first {
            self.others += 1;
            self.other = event.to_owned();
        }
        is_first
    }

    /// Takes a record of perf's own, as it is printed behind `PERF_RECORD_`.
    fn add_record(&mut self, record: &str) {
        let mut words = record.split_whitespace();
        let is_lost = words.next().is_some_and(|kind| kind.starts_with("LOST"));
        // `LOST_SAMPLES lost 9 (BPF)`.
        let count = words.find(|word| *word == "lost").and(words.next());
        let lost = count
            .filter(|_| is_lost)
            .and_then(|count| count.parse().ok());
        self.lost = self.lost.saturating_add(lost.unwrap_or(0));
    }

    /// Says what is missing.
    fn finish(self, importer: &mut Importer<'_>) -> Result<(), ImportError> {
        if self.others > 0 {
            importer.imported.left_out = Some(format!(
                "only samples of {} are imported, and {} of other events, such as {}, are left out",
                self.first.unwrap_or_default(),
                self.others,
                self.other
            ));
        }
        if self.lost > 0 {
            importer.lose(self.lost)?;
        }
        Ok(())
    }
}

/// An event's name without the kind of processor and what is counted of it: `cycles` of `cpu_core/cycles/P` and of
/// `cycles:u`, since perf counts it on each kind.
fn kind(event: &str) -> &str {
    let is_modifier = |word: &str| word.chars().all(|letter| "ukhGHpPSDW".contains(letter));
    let event = match event.rsplit_once(':') {
        Some((event, modifier)) if is_modifier(modifier) => event,
        _ => event,
    };
    let mut parts = event.split('/');
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(_), Some(name), Some(_), None) => name,
        _ => event,
    }
}

pub(super) fn read(
    input: &mut dyn BufRead,
    importer: &mut Importer<'_>,
) -> Result<(), ImportError> {
    let regex = |text| Regex::new(text).map_err(std::io::Error::other);
    let (heading, address) = (regex(HEADING)?, regex(ADDRESS)?);
    let source_line = regex(SOURCE_LINE)?;
    let mut line = String::new();
    let mut open: Option<OpenSample> = None;
    let mut names: BTreeMap<u32, String> = BTreeMap::new();
    let mut events = Events::default();
    // Whether indented lines belong to a sample or record that is left out.
    let mut is_left_out = false;
    while importer.next_line(input, &mut line)? {
        if line.trim().is_empty() {
            close(open.take(), importer)?;
            is_left_out = false;
            continue;
        }
        if open.is_some() && line.starts_with("  ") && source_line.is_match(&line) {
            continue;
        }
        let unfinished = open.as_mut().filter(|open| !open.is_whole);
        // Headings may be indented, too, and need no empty line before them where samples have no chains.
        let is_frame = line.starts_with('\t') && (unfinished.is_some() || is_left_out);
        let found = (!is_frame).then(|| heading.captures(&line)).flatten();
        if let Some(found) = found {
            close(open.take(), importer)?;
            let text = |group: &str| found.name(group).map(|found| found.as_str());
            let event = text("event").unwrap_or("");
            is_left_out = match text("record") {
                Some(record) => {
                    events.add_record(record);
                    true
                }
                None => !events.takes(event, importer),
            };
            if is_left_out {
                continue;
            }
            let event = kind(event);
            if TIMES.contains(&event) && !importer.is_trial {
                return Err(ImportError::NoSamples(event.to_owned()));
            }
            let is_wait = event == OFF_CPU;
            let number = text("number").and_then(|number| number.parse::<u64>().ok());
            if is_wait && number.is_none() && !importer.is_trial {
                return Err(ImportError::NoLengths);
            }
            let wait_ns = is_wait.then_some(number.unwrap_or(0));
            let thread = text("tid")
                .or(text("pid"))
                .and_then(|text| text.parse::<u32>().ok());
            let (vcpu, name) = (thread.unwrap_or(u32::MAX), text("comm").unwrap_or(""));
            let time_ns = time_ns(
                text("seconds").unwrap_or(""),
                text("fraction").unwrap_or(""),
            );
            if names.get(&vcpu).is_none_or(|known| known != name) {
                names.insert(vcpu, name.to_owned());
                importer.name_task(vcpu, time_ns, name)?;
            }
            let behind = text("behind").or(text("eventless"));
            let only = behind.and_then(|behind| only_frame(behind, &address));
            open = Some(OpenSample {
                vcpu,
                time_ns,
                wait_ns,
                is_whole: only.is_some(),
                frames: only.into_iter().collect(),
            });
        } else if let (true, Some(open)) = (line.starts_with(['\t', ' ']), unfinished) {
            match frame(&line) {
                Some(frame) => open.frames.push(frame),
                None => importer.imported.skipped += 1,
            }
        } else if !is_left_out || !line.starts_with(['\t', ' ']) {
            importer.imported.skipped += u64::from(!line.starts_with('#'));
        }
    }
    close(open, importer)?;
    events.finish(importer)
}

fn time_ns(seconds: &str, fraction: &str) -> u64 {
    let seconds: u64 = seconds.parse().unwrap_or(0);
    let nanoseconds = format!("{fraction:0<9}").parse().unwrap_or(0);
    seconds
        .saturating_mul(1_000_000_000)
        .saturating_add(nanoseconds)
}

/// The frame in a heading, among fields of other kinds: `|OP LOAD|LVL L1 hit|     401000 f (/a)     1234 4K`.
fn only_frame(behind: &str, address: &Regex) -> Option<(String, String, u64)> {
    let found = address.captures(behind)?;
    let start = found.get(1).or(found.get(2))?.start();
    // Tracepoints have words of their own there.
    frame(&behind[start..]).filter(|(image, ..)| !image.is_empty())
}

/// Parses `ffffffff81000c60 asm_exc_page_fault+0x10 ([kernel.kallsyms])`.
fn frame(line: &str) -> Option<(String, String, u64)> {
    let (address, rest) = line.trim().split_once(' ')?;
    let address = u64::from_str_radix(address, 16).ok()?;
    let rest = rest.trim();
    let mut begins = [" (/", " ([", " ("].into_iter();
    let found = begins.find_map(|begin| {
        let at = rest.rfind(begin)?;
        Some((&rest[..at], image(&rest[at + 2..])?))
    });
    let (name, image) = found.unwrap_or((rest, ""));
    // An address in the image may follow it (`-F +dsoff`).
    let (image, _) = split_offset(image);
    Some((image.to_owned(), name.to_owned(), address))
}

/// The image in parentheses, the first of which is not in `text`. It may have some of its own: `(/opt/app (deleted))`,
/// `(/drive_c/Program Files (x86)/game.exe)`.
fn image(text: &str) -> Option<&str> {
    let mut open = 1_u32;
    let closed = text.find(|letter: char| {
        match letter {
            '(' => open += 1,
            ')' => open -= 1,
            _ => {}
        }
        open == 0
    });
    let end = closed.or_else(|| text.rfind(')'))?;
    let behind = &text[end + 1..];
    (behind.is_empty() || behind.starts_with(' ')).then(|| &text[..end])
}

fn close(open: Option<OpenSample>, importer: &mut Importer<'_>) -> Result<(), ImportError> {
    let Some(open) = open else {
        return Ok(());
    };
    let mut frames = Vec::with_capacity(open.frames.len());
    let mut around = "";
    for (image, name, address) in open.frames.iter().rev() {
        // An inlined function is in the image of the one around it; with its source line, perf prints none.
        if !matches!(image.as_str(), "inlined" | "") {
            around = image;
        }
        let (function, offset) = split_offset(name);
        frames.push(match (function, around) {
            ("[unknown]", "[unknown]" | "") => InputFrame::Address(*address),
            _ if is_kernel_address(*address) => InputFrame::Kernel(around, function, offset),
            _ => InputFrame::Named(around, function, offset),
        });
    }
    frames.reverse();
    let origin = Origin {
        time_ns: Some(open.time_ns),
        vcpu: open.vcpu,
        stop: Stop::Unsaid,
    };
    match open.wait_ns {
        Some(wait_ns) => importer.waits(&frames, origin, (wait_ns, 1)),
        None => importer.stack(&frames, origin, 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_samples_and_events_are_read_with_what_stands_behind_them() {
        let mut events = Events::default();
        for (record, lost) in [
            ("LOST lost 7", 7),
            ("LOST_SAMPLES lost 9 (BPF)", 16),
            ("COMM: lost 3", 16),
            ("MMAP2 1/1: [0x1(0x2) @ 0 0:0 0 0]: r-xp /lost", 16),
        ] {
            events.add_record(record);
            assert_eq!(events.lost, lost, "{record}");
        }
        for (event, name) in [
            ("cycles:u", "cycles"),
            ("cpu_core/cycles/P", "cycles"),
            ("cycles:k", "cycles"),
            ("sched:sched_switch", "sched:sched_switch"),
        ] {
            assert_eq!(kind(event), name);
        }
    }

    #[test]
    fn a_frame_has_an_image_whatever_its_path_is() {
        for (line, image, name) in [
            ("\t4011d6 work+0x16 (/opt/app)\n", "/opt/app", "work+0x16"),
            (
                "\t4011d6 work+0x16 (/opt/app (deleted))\n",
                "/opt/app (deleted)",
                "work+0x16",
            ),
            ("\t4011d6 [unknown] ([unknown])\n", "[unknown]", "[unknown]"),
            (
                "\t4011d6 [unknown] (/drive_c/Program Files (x86)/Game/game.exe)\n",
                "/drive_c/Program Files (x86)/Game/game.exe",
                "[unknown]",
            ),
            (
                "\t4011d6 call(int (*)(char))+0x6 (/opt/app (2))\n",
                "/opt/app (2)",
                "call(int (*)(char))+0x6",
            ),
            ("\t4011d6 f (inlined)\n", "inlined", "f"),
            ("\t4011d6 f (/opt/a(b+0x1d6)\n", "/opt/a(b", "f"),
            (
                "\t4011d6 call(int (*)(char))+0x6\n",
                "",
                "call(int (*)(char))+0x6",
            ),
            (
                "\t4011d6 LazyCompile:*f (/srv/x (y)/a.js:1)+0x3 (/tmp/perf-100.map)\n",
                "/tmp/perf-100.map",
                "LazyCompile:*f (/srv/x (y)/a.js:1)+0x3",
            ),
        ] {
            let expected = (image.to_owned(), name.to_owned(), 0x40_11d6);
            assert_eq!(frame(line), Some(expected));
        }
    }
}
