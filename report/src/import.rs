//! Imports: what other tools print goes in, a recording comes out. [`IMPORTS`] is the table of them.
//!
//! Names become made-up addresses of made-up images whose symbols travel with the recording; a bare
//! address stays what it is, so that `--elf` can name it later.

mod folded;
mod names;
mod perf_script;
mod uniprof_text;
mod xenctx;
pub mod trace;

use crate::recording::UNTIMED;
use names::Names;
use std::io::{self, BufRead, Write};
use uprof::cold::{ClockPair, End, EndReason, Metadata, TargetKind, TaskChange, TaskEvent};
use uprof::{Frame, Sample, Stop, Task, Writer};

/// One format.
pub struct Import {
    /// What `--format` calls it.
    pub name: &'static str,
    /// Who writes it.
    pub about: &'static str,
    read: fn(&mut dyn BufRead, &mut Importer<'_>) -> Result<(), ImportError>,
}

/// All formats.
pub const IMPORTS: &[Import] = &[
    Import {
        name: "uniprof-text",
        about: "the output of the original C tool, with or without symbols",
        read: uniprof_text::read,
    },
    Import {
        name: "xenctx",
        about: "what Xen's xenctx -C -S prints",
        read: xenctx::read,
    },
    Import {
        name: "perf-script",
        about: "what perf script prints",
        read: perf_script::read,
    },
    Import {
        name: "folded",
        about: "a line a stack, as for flamegraph.pl",
        read: folded::read,
    },
];

/// Why an import failed.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// Reading or writing failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// Nothing in the input is a stack.
    #[error("no stack was found in {lines} lines: is the input really {format}?")]
    NoStack {
        /// Lines read.
        lines: u64,
        /// The format asked for.
        format: &'static str,
    },
    /// One stack stands for more samples than anyone can have taken.
    #[error("line {line} claims {count} samples; at most 100,000,000 in all are imported")]
    TooMany {
        /// The line, from 1.
        line: u64,
        /// What it claims.
        count: u64,
    },
}

/// What was imported.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Imported {
    /// Samples written.
    pub samples: u64,
    /// Lines read.
    pub lines: u64,
    /// Lines that were understood as nothing.
    pub skipped: u64,
}

/// Samples of all lines together.
const SAMPLES_MAX: u64 = 100_000_000;
/// No line is longer (bytes); the rest of it is skipped.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// Reads `input` in the given format and writes a recording to `out`. `input_name` goes into its
/// metadata.
///
/// # Errors
/// [`ImportError`]: there is no stack in it, or reading or writing failed.
pub fn import(
    format: &Import,
    input_name: &str,
    uuid: [u8; 16],
    input: &mut dyn BufRead,
    out: &mut dyn Write,
) -> Result<Imported, ImportError> {
    let mut metadata = Metadata::default();
    metadata.recorder.program = concat!("uniprof ", env!("CARGO_PKG_VERSION")).to_owned();
    metadata.target.kind = TargetKind::Imported;
    metadata.target.name = input_name.to_owned();
    metadata.sampling.on_cpu_only = true;
    let note = ("imported from".to_owned(), format.name.to_owned());
    metadata.notes.push(note);
    let mut importer = Importer {
        out: Some(out),
        writer: None,
        metadata,
        uuid,
        realtime_ns: None,
        names: Names::default(),
        first_ns: None,
        end_ns: 0,
        untimed: 0,
        imported: Imported::default(),
        chain: Vec::new(),
    };
    (format.read)(input, &mut importer)?;
    importer.finish(format)
}

/// Takes stacks and writes them.
pub(crate) struct Importer<'a> {
    out: Option<&'a mut dyn Write>,
    writer: Option<Writer<&'a mut dyn Write>>,
    metadata: Metadata,
    uuid: [u8; 16],
    /// Start of the recording, in nanoseconds since 1970, where the input says.
    realtime_ns: Option<i64>,
    names: Names,
    /// The first time of the input, with which the recording begins.
    first_ns: Option<u64>,
    /// Where the recording ends: after the latest time, or a nanosecond for each sample that has none.
    end_ns: u64,
    /// Samples that have none.
    untimed: u64,
    imported: Imported,
    chain: Vec<Frame>,
}

/// One frame of the input.
#[derive(Debug, Clone, Copy)]
pub(crate) enum InputFrame<'a> {
    /// A guest address.
    Address(u64),
    /// A function of an image (which may be empty), and the offset in it (bytes).
    Named(&'a str, &'a str, u64),
}

/// Where a stack is from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Origin {
    /// When, by the input's clock; `None` where the input has no times.
    pub time_ns: Option<u64>,
    pub vcpu: u32,
    pub stop: Stop,
}

impl<'a> Importer<'a> {
    /// Adds `count` samples of a stack, innermost frame first.
    fn stack(
        &mut self,
        frames: &[InputFrame<'_>],
        origin: Origin,
        count: u64,
    ) -> Result<(), ImportError> {
        let all = self.imported.samples.saturating_add(count);
        if all > SAMPLES_MAX {
            let line = self.imported.lines;
            return Err(ImportError::TooMany { line, count });
        }
        self.imported.samples = all;
        let mut chain = std::mem::take(&mut self.chain);
        chain.clear();
        for frame in frames {
            chain.push(match *frame {
                // A made-up address is inside its function, whoever calls.
                InputFrame::Named(module, name, offset) => {
                    Frame::exact(self.names.address(module, name, offset))
                }
                InputFrame::Address(address) if chain.is_empty() => Frame::exact(address),
                InputFrame::Address(address) => Frame::return_address(address),
            });
        }
        for _ in 0..count {
            let time_ns = match origin.time_ns {
                Some(time_ns) => self.since_first(time_ns),
                None => {
                    self.untimed += 1;
                    self.end_ns
                }
            };
            self.end_ns = self.end_ns.max(time_ns.saturating_add(1));
            let task = Task {
                space: 0,
                vcpu: origin.vcpu,
            };
            let sample = Sample {
                stop: origin.stop,
                ..Sample::bare(time_ns, task, &chain)
            };
            self.writer()?.sample(&sample)?;
        }
        self.chain = chain;
        Ok(())
    }

    /// A time of the input as nanoseconds from its first one.
    fn since_first(&mut self, time_ns: u64) -> u64 {
        time_ns.saturating_sub(*self.first_ns.get_or_insert(time_ns))
    }

    /// Names a vCPU or thread.
    fn name_task(&mut self, vcpu: u32, time_ns: u64, name: &str) -> Result<(), ImportError> {
        let event = TaskEvent {
            time_ns: self.since_first(time_ns),
            task: Task { space: 0, vcpu },
            what: TaskChange::Named(name.to_owned()),
        };
        Ok(self.writer()?.tasks(&[event])?)
    }

    /// The writer, begun with the first stack: until then the metadata may still grow.
    fn writer(&mut self) -> io::Result<&mut Writer<&'a mut dyn Write>> {
        if let Some(out) = self.out.take() {
            let mut writer = Writer::create(out, self.uuid, &self.metadata, 0)?;
            if let Some(realtime_ns) = self.realtime_ns {
                writer.clocks(&[ClockPair {
                    monotonic_ns: 0,
                    realtime_ns,
                    guest: None,
                }])?;
            }
            self.writer = Some(writer);
        }
        self.writer
            .as_mut()
            .ok_or_else(|| io::Error::other("an import can't be begun twice"))
    }

    fn finish(mut self, format: &Import) -> Result<Imported, ImportError> {
        if self.imported.samples == 0 {
            return Err(ImportError::NoStack {
                lines: self.imported.lines,
                format: format.name,
            });
        }
        let names = std::mem::take(&mut self.names);
        let (end_ns, untimed) = (self.end_ns, self.untimed);
        let imported = self.imported;
        let writer = self.writer()?;
        names.write(writer)?;
        let mut totals = vec![("lines_skipped".to_owned(), imported.skipped)];
        if untimed > 0 {
            totals.push((UNTIMED.to_owned(), untimed));
        }
        let end = End {
            time_ns: end_ns,
            reason: EndReason::InputEnded,
            message: "the end of the input was reached".to_owned(),
            totals,
        };
        if let Some(writer) = self.writer.take() {
            writer.finish(&end)?;
        }
        Ok(imported)
    }

    /// The next line without its end, into `line`; `false` at the end of the input. Bytes that are
    /// no UTF-8 are replaced.
    fn next_line(&mut self, input: &mut dyn BufRead, line: &mut String) -> io::Result<bool> {
        let mut bytes = Vec::new();
        let read = io::Read::take(&mut *input, LINE_BYTES_MAX).read_until(b'\n', &mut bytes)?;
        if read == 0 {
            return Ok(false);
        }
        if read as u64 == LINE_BYTES_MAX && bytes.last() != Some(&b'\n') {
            input.skip_until(b'\n')?;
        }
        while matches!(bytes.last(), Some(b'\n' | b'\r')) {
            bytes.pop();
        }
        line.clear();
        line.push_str(&String::from_utf8_lossy(&bytes));
        self.imported.lines += 1;
        Ok(true)
    }
}

/// `name+0x12` as a name and an offset; a name without an offset has 0.
fn split_offset(text: &str) -> (&str, u64) {
    let split = text.rsplit_once("+0x");
    let split = split.and_then(|(name, digits)| {
        let digits = digits.split('/').next().unwrap_or(digits);
        Some((name, u64::from_str_radix(digits, 16).ok()?))
    });
    split
        .filter(|(name, _)| !name.is_empty())
        .unwrap_or((text, 0))
}
