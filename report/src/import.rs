//! Imports. Input: the output of another tool. Output: a recording. [`IMPORTS`] is the table of the formats.
//!
//! Names become invented addresses in invented images, whose symbols travel with the recording. A bare
//! address is kept as it is, so that `--elf` can name it later. Traces (`trace/`) become spans.

pub mod trace;
mod names;
mod importer;
mod folded;
mod calls;
mod perf_script;
mod pprof;
mod uniprof_text;
mod xenctx;

use calls::{CallImporter, Probe, ReadCalls};
use importer::{Importer, InputFrame, Origin, split_offset};
pub use pprof::PprofError;
use std::io::{self, BufRead, Read, Write};
use uprof::cold::{Metadata, TargetKind};

/// One format.
pub struct Import {
    /// Its name for `--format`.
    pub name: &'static str,
    /// The tool that writes it, for the help text.
    pub about: &'static str,
    /// The clock of its times, if all inputs of this format have the same one.
    pub clock: Option<TraceClock>,
    read: Reads,
}

/// The clock of a trace's times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceClock {
    /// CLOCK_MONOTONIC of the machine that the trace was made on.
    Monotonic,
    /// The time of day, since 1970-01-01 00:00 UTC.
    Realtime,
}

/// What a format contains, and its reader.
#[derive(Clone, Copy)]
enum Reads {
    /// Stacks, which become samples.
    Stacks(ReadStacks),
    /// Calls, which become spans. The reader returns the number of lines that it read.
    Calls(ReadCalls),
    /// Calls in a binary file. The reader returns the number of records that it read.
    Records(ReadCalls),
    /// Stacks in a binary file. Whether an input that begins with these bytes may be one, and its reader.
    Profile(fn(&[u8]) -> bool, ReadStacks),
}

type ReadStacks = fn(&mut dyn BufRead, &mut Importer<'_>) -> Result<(), ImportError>;

impl Import {
    /// Whether it is a trace: calls, whose times are on a clock.
    pub fn is_trace(&self) -> bool {
        matches!(self.read, Reads::Calls(_) | Reads::Records(_))
    }

    /// Whether a sample of it has values of several types, one of which is chosen.
    pub fn has_sample_types(&self) -> bool {
        matches!(self.read, Reads::Profile(..))
    }
}

/// What is known of an input beside its bytes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Input<'a> {
    /// Its name, for the recording.
    pub name: &'a str,
    /// The clock of a trace's times.
    pub clock: Option<TraceClock>,
    /// Which values of its samples are imported, where they have several; `None` for the usual ones.
    pub sample_type: Option<&'a str>,
    /// Labels for the recording: key and value.
    pub labels: &'a [(String, String)],
}

/// All formats.
pub const IMPORTS: &[Import] = &[
    Import {
        name: "uniprof-text",
        about: "the output of the original C tool, with or without symbols",
        clock: None,
        read: Reads::Stacks(uniprof_text::read),
    },
    Import {
        name: "xenctx",
        about: "what Xen's xenctx -C -S prints",
        clock: None,
        read: Reads::Stacks(xenctx::read),
    },
    Import {
        name: "perf-script",
        about: "what perf script prints",
        clock: None,
        read: Reads::Stacks(perf_script::read),
    },
    Import {
        name: "folded",
        about: "a line a stack, as for flamegraph.pl",
        clock: None,
        read: Reads::Stacks(folded::read),
    },
    Import {
        name: "pprof",
        about: "protobuf of Go, gVisor, Parca and Pyroscope, gzipped or not",
        clock: None,
        read: Reads::Profile(pprof::fits, pprof::read),
    },
    Import {
        name: "nanos-ftrace",
        about: "what Nanos's function_graph tracer prints",
        clock: None,
        read: Reads::Calls(trace::function_graph::read),
    },
    Import {
        name: "linux-ftrace",
        about: "Linux's function_graph tracer: trace-cmd report, or tracefs's trace",
        clock: None,
        read: Reads::Calls(trace::linux_graph::read),
    },
    Import {
        name: "function-tracer",
        about: "the function tracer of Nanos or Linux: who called whom, without ends",
        clock: None,
        read: Reads::Calls(trace::function_tracer::read),
    },
    Import {
        name: "uftrace",
        about: "what uftrace dump prints",
        clock: Some(TraceClock::Monotonic),
        read: Reads::Calls(trace::uftrace::read),
    },
    Import {
        name: "syscalls",
        about: "Nanos's log of system calls (ops run -d), or strace's",
        clock: Some(TraceClock::Realtime),
        read: Reads::Calls(trace::syscall_log::read),
    },
    Import {
        name: "chrome",
        about: "JSON traces of Chrome, Perfetto and many others",
        clock: None,
        read: Reads::Calls(trace::chrome::read),
    },
    Import {
        name: "osv",
        about: "OSv's binary trace file",
        clock: None,
        read: Reads::Records(trace::osv::read),
    },
];

/// Why an import failed.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// Reading or writing failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It is no pprof file that can be imported.
    #[error(transparent)]
    Pprof(#[from] PprofError),
    /// No line of the input is a stack.
    #[error("no stack was found in {lines} lines: is the input really {format}?")]
    NoStack {
        /// Number of lines that were read.
        lines: u64,
        /// The format that was asked for.
        format: &'static str,
    },
    /// No line of the input is a call.
    #[error("no call was found in {lines} lines: the input is no {format} ({why}){others}")]
    NoCall {
        /// Number of lines that were read.
        lines: u64,
        /// The format that was asked for.
        format: &'static str,
        /// Why its first lines can't be read.
        why: String,
        /// How the other formats judge the input.
        others: String,
    },
    /// The values of its samples are times that a sample can't have.
    #[error(
        "it has {0}, which samples can't have: export the recording by `uniprof export -f folded`, and import that: a \
         sample for each microsecond, of at most 10 s together; of more, divide the numbers first, such as by \
         awk '{{ $NF = int($NF / 1000) }} $NF'"
    )]
    NoSamples(String),
    /// Its samples are waits whose lengths were not printed.
    #[error("its offcpu-time has no lengths: print them by `perf script -F +period`")]
    NoLengths,
    /// One line claims more samples of a stack than anyone can have taken.
    #[error(
        "line {line} claims {count} samples, and at most 10,000,000 in all are imported: divide the numbers first, \
         such as by awk '{{ $NF = int($NF / 1000) }} $NF'"
    )]
    TooMany {
        /// Number of the line, from 1.
        line: u64,
        /// The number of samples that it claims.
        count: u64,
    },
}

/// No format fits an input. How each one judges it, in words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("; "))]
pub struct UnknownFormat(Vec<String>);

/// What was imported.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImportSummary {
    /// Number of samples that were written.
    pub samples: u64,
    /// Number of calls that were written.
    pub spans: u64,
    /// Number of these calls whose end is missing in the input.
    pub without_end: u64,
    /// Number of errors in a trace: lines that can't be parsed, ends that don't match a start.
    pub troubles: u64,
    /// The first of these errors.
    pub first_troubles: Vec<InputTrouble>,
    /// Number of lines that were read; of records, if the input is binary.
    pub lines: u64,
    /// Whether the input is binary: `lines` counts records, and errors are at byte offsets.
    pub is_binary: bool,
    /// Number of lines that were skipped because they match no pattern of the format.
    pub skipped: u64,
    /// What was understood and is not imported, in words.
    pub left_out: Option<String>,
}

/// One error in a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputTrouble {
    /// The line, from 1; in binary input, the byte offset, from 0.
    pub line: u64,
    /// The error, in words.
    pub what: String,
}

/// Bytes at the start of an input from which [`recognize`] determines the format.
pub const HEAD_BYTES: u64 = 64 << 10;

/// Reads `input` in the given format and writes a recording to `out`. `input_name` is stored in its metadata.
///
/// # Errors
/// [`ImportError`]: the input has no stack, or reading or writing failed.
pub fn import(
    format: &Import,
    input_name: &str,
    uuid: [u8; 16],
    input: &mut dyn BufRead,
    out: &mut dyn Write,
) -> Result<ImportSummary, ImportError> {
    let known = Input {
        name: input_name,
        clock: format.clock,
        ..Input::default()
    };
    import_as(format, &known, uuid, input, out)
}

/// Does the same as [`import`], for an input of which more is known.
///
/// # Errors
/// As for [`import`].
pub fn import_as(
    format: &Import,
    known: &Input<'_>,
    uuid: [u8; 16],
    input: &mut dyn BufRead,
    out: &mut dyn Write,
) -> Result<ImportSummary, ImportError> {
    let mut metadata = metadata(format.name, known.name);
    metadata.labels = known.labels.to_vec();
    match format.read {
        Reads::Stacks(read) | Reads::Profile(_, read) => {
            let mut importer = Importer::new(out, metadata, uuid);
            importer.sample_type = known.sample_type.map(str::to_owned);
            importer.imported.is_binary = format.has_sample_types();
            read(input, &mut importer)?;
            importer.finish(format.name)
        }
        Reads::Calls(read) | Reads::Records(read) => {
            let mut importer = CallImporter::new(out, metadata, uuid, known.clock);
            importer.is_clock_asked = known.clock != format.clock;
            let mut imported = import_calls(format, read, input, importer)?;
            imported.is_binary = matches!(format.read, Reads::Records(_));
            Ok(imported)
        }
    }
}

/// The metadata of a recording that was imported from such an input.
fn metadata(format: &str, input_name: &str) -> Metadata {
    let mut metadata = Metadata::default();
    metadata.recorder.program = concat!("uniprof ", env!("CARGO_PKG_VERSION")).to_owned();
    metadata.target.kind = TargetKind::Imported;
    metadata.target.name = input_name.to_owned();
    metadata.sampling.on_cpu_only = true;
    let note = ("imported from".to_owned(), format.to_owned());
    metadata.notes.push(note);
    metadata
}

fn import_calls(
    format: &Import,
    read: ReadCalls,
    input: &mut dyn BufRead,
    mut importer: CallImporter<'_>,
) -> Result<ImportSummary, ImportError> {
    let mut head = Vec::new();
    (&mut *input).take(HEAD_BYTES).read_to_end(&mut head)?;
    let lines = read(&mut (&head[..]).chain(input), &mut importer)?;
    let imported = importer.finish(lines)?;
    if imported.spans > 0 {
        return Ok(imported);
    }
    let why = imported.first_troubles.first();
    Err(ImportError::NoCall {
        lines,
        format: format.name,
        why: why.map_or("it is empty".to_owned(), |trouble| {
            format!("line {}: {}", trouble.line, trouble.what)
        }),
        others: others(format, &head),
    })
}

/// Determines the format of an input that begins with these bytes. Of the trace formats, it is the one that
/// can read the most of the input; otherwise it is the first stack format that can read all of it.
///
/// # Errors
/// No format fits.
pub fn recognize(head: &[u8]) -> Result<&'static Import, UnknownFormat> {
    let mut best: Option<(u64, &Import)> = None;
    let mut said = Vec::new();
    for format in IMPORTS {
        match format.read {
            Reads::Calls(read) | Reads::Records(read) => {
                let probe = Probe::of(head, read);
                if probe.fits() {
                    let score = probe.spans - probe.troubles;
                    if best.is_none_or(|(most, _)| score > most) {
                        best = Some((score, format));
                    }
                } else {
                    said.push(format!("{}: {}", format.name, probe.reason()));
                }
            }
            // Its first bytes say more than lines that may be stacks.
            Reads::Profile(fits, _) if fits(head) => best = Some((0, format)),
            Reads::Profile(..) => said.push(format!("{}: its first bytes are others", format.name)),
            Reads::Stacks(read) => {
                let whole = head.split_inclusive(|byte| *byte == b'\n');
                let whole: Vec<u8> = whole
                    .filter(|line| line.ends_with(b"\n"))
                    .flatten()
                    .copied()
                    .collect();
                match trial(format, read, &whole) {
                    Ok(found) if found.skipped == 0 => best = best.or(Some((0, format))),
                    Ok(found) => said.push(format!(
                        "{}: {} lines are no stack",
                        format.name, found.skipped
                    )),
                    Err(_) => said.push(format!("{}: nothing is a stack", format.name)),
                }
            }
        }
    }
    best.map(|(_, format)| format).ok_or(UnknownFormat(said))
}

/// Reads stacks without writing them: each counts as one sample, however many it stands for.
fn trial(format: &Import, read: ReadStacks, bytes: &[u8]) -> Result<ImportSummary, ImportError> {
    let mut sink = io::sink();
    let mut importer = Importer::new(&mut sink, Metadata::default(), [0; 16]);
    importer.is_trial = true;
    read(&mut &bytes[..], &mut importer)?;
    importer.finish(format.name)
}

/// Reads a profile in a binary file as [`import`] does, but each of its stacks counts once. `None` for other formats.
///
/// # Errors
/// As for [`import`].
pub fn examine(format: &Import, bytes: &[u8]) -> Option<Result<ImportSummary, ImportError>> {
    match format.read {
        Reads::Profile(_, read) => Some(trial(format, read, bytes)),
        _ => None,
    }
}

/// How the other trace formats judge an input that begins with these bytes.
fn others(format: &Import, head: &[u8]) -> String {
    let mut said = String::new();
    for other in IMPORTS.iter().filter(|other| other.name != format.name) {
        let (Reads::Calls(read) | Reads::Records(read)) = other.read else {
            continue;
        };
        let probe = Probe::of(head, read);
        let name = other.name;
        if probe.fits() {
            return format!("; it looks like {name}: try --format {name}");
        }
        let why = probe.reason();
        said.push_str(&format!("; nor {name} ({why})"));
    }
    said
}
