//! The output of `perf script`: for each sample a line that describes it, then its frames, innermost first,
//! then an empty line.

use super::{ImportError, Importer, InputFrame, Origin, split_offset};
use regex::Regex;
use std::collections::BTreeMap;
use std::io::BufRead;
use uprof::Stop;

/// Matches a thread's name, the numbers of its process and itself, an optional processor, and the time.
const HEADING: &str =
    r"^\s*(\S.*?)\s+(\d+)(?:/(\d+))?\s+(?:\[\d+\]\s+)?(?:\S+\s+)?(\d+)\.(\d{6,9}):";

/// The stack whose frames are being read.
struct OpenSample {
    vcpu: u32,
    time_ns: u64,
    /// Image, name and address of each frame.
    frames: Vec<(String, String, u64)>,
}

pub(super) fn read(
    input: &mut dyn BufRead,
    importer: &mut Importer<'_>,
) -> Result<(), ImportError> {
    let heading = Regex::new(HEADING).map_err(std::io::Error::other)?;
    let mut line = String::new();
    let mut open: Option<OpenSample> = None;
    let mut names: BTreeMap<u32, String> = BTreeMap::new();
    while importer.next_line(input, &mut line)? {
        if line.trim().is_empty() {
            close(open.take(), importer)?;
        } else if let (true, Some(open)) = (line.starts_with(['\t', ' ']), &mut open) {
            match frame(&line) {
                Some(frame) => open.frames.push(frame),
                None => importer.imported.skipped += 1,
            }
        } else if let Some(found) = heading.captures(&line) {
            close(open.take(), importer)?;
            let text = |group: usize| found.get(group).map(|found| found.as_str());
            let thread = text(3)
                .or(text(2))
                .and_then(|text| text.parse::<u32>().ok());
            let (vcpu, name) = (thread.unwrap_or(0), text(1).unwrap_or(""));
            let time_ns = time_ns(text(4).unwrap_or(""), text(5).unwrap_or(""));
            if names.get(&vcpu).is_none_or(|known| known != name) {
                names.insert(vcpu, name.to_owned());
                importer.name_task(vcpu, time_ns, name)?;
            }
            open = Some(OpenSample {
                vcpu,
                time_ns,
                frames: Vec::new(),
            });
        } else {
            importer.imported.skipped += u64::from(!line.starts_with('#'));
        }
    }
    close(open, importer)
}

fn time_ns(seconds: &str, fraction: &str) -> u64 {
    let seconds: u64 = seconds.parse().unwrap_or(0);
    let nanoseconds = format!("{fraction:0<9}").parse().unwrap_or(0);
    seconds
        .saturating_mul(1_000_000_000)
        .saturating_add(nanoseconds)
}

/// Parses `ffffffff81000c60 asm_exc_page_fault+0x10 ([kernel.kallsyms])`.
fn frame(line: &str) -> Option<(String, String, u64)> {
    let (address, rest) = line.trim().split_once(' ')?;
    let address = u64::from_str_radix(address, 16).ok()?;
    let (name, image) = rest.trim().rsplit_once(" (").unwrap_or((rest.trim(), ""));
    Some((
        image.trim_end_matches(')').to_owned(),
        name.to_owned(),
        address,
    ))
}

fn close(open: Option<OpenSample>, importer: &mut Importer<'_>) -> Result<(), ImportError> {
    let Some(open) = open else {
        return Ok(());
    };
    let frames = open
        .frames
        .iter()
        .map(|(image, name, address)| match name.as_str() {
            "[unknown]" => InputFrame::Address(*address),
            name => {
                let (name, offset) = split_offset(name);
                InputFrame::Named(image, name, offset)
            }
        });
    let frames: Vec<InputFrame<'_>> = frames.collect();
    let origin = Origin {
        time_ns: Some(open.time_ns),
        vcpu: open.vcpu,
        stop: Stop::Unsaid,
    };
    importer.stack(&frames, origin, 1)
}
