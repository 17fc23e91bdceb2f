//! `uniprof import`: makes a recording from another tool's output.

use crate::outcome::Outcome;
use crate::output::{keep, write_private};
use crate::quantity::label::Label;
use crate::selection::{inform, say};
use anyhow::{Context, anyhow, bail};
use clap::ValueEnum;
use clap::builder::{PossibleValue, PossibleValuesParser};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use uniprof_report::import::{
    HEAD_BYTES, IMPORTS, ImportError, ImportSummary, Input, TraceClock, import_as, recognize,
};
use uniprof_report::mapped;
use uniprof_report::recording::{PERF_MAGIC, RecordingError};

/// Make a recording of another tool's output
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  uniprof import --format uniprof-text trace.txt -o old.uprof
  perf script | uniprof import --format perf-script - -o perf.uprof
  zstdcat trace.txt.zst | uniprof import --format nanos-ftrace - -o trace.uprof
  uniprof import -f pprof --label service=web cpu.pb.gz -o cpu.uprof
  trace-cmd report | uniprof import - -o trace.uprof")]
pub struct Args {
    /// What to read; `-` is standard input
    #[arg(value_name = "INPUT")]
    input: PathBuf,
    /// Which format; found by the input's first lines if not given
    #[arg(long, short, value_name = "FORMAT", value_parser = formats())]
    format: Option<String>,
    /// Where to; `-` is standard output
    #[arg(long, short, value_name = "OUT", default_value = "run.uprof")]
    output: PathBuf,
    /// Which clock a trace's times are of, so that it can be put beside samples of the same time (export -f perfetto)
    /// [default: what its format has: uftrace's monotonic, strace's realtime]
    #[arg(long, value_name = "CLOCK")]
    clock: Option<ClockFlag>,
    /// Which values of the samples to import, where the format has several: samples, cpu, delay/nanoseconds (pprof)
    /// [default: samples/count, or a processor's time]
    #[arg(long, value_name = "NAME")]
    sample_type: Option<String>,
    /// A label of the recording, such as service=web; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = Label::parse)]
    label: Vec<Label>,
}

/// Clocks of traces.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum ClockFlag {
    /// CLOCK_MONOTONIC of this machine, as of `trace-cmd record -C mono`
    Monotonic,
    /// The time of day
    Realtime,
}

impl Args {
    fn clock(&self) -> Option<TraceClock> {
        self.clock.map(|clock| match clock {
            ClockFlag::Monotonic => TraceClock::Monotonic,
            ClockFlag::Realtime => TraceClock::Realtime,
        })
    }
}

fn formats() -> PossibleValuesParser {
    let values = IMPORTS
        .iter()
        .map(|format| PossibleValue::new(format.name).help(format.about));
    PossibleValuesParser::new(values)
}

/// Runs the subcommand.
pub fn run(args: &Args) -> anyhow::Result<Outcome> {
    keep(&args.input);
    let imported =
        import_file(args).with_context(|| format!("cannot import {}", args.input.display()))?;
    summarize(&imported, &args.output);
    Ok(Outcome::lossy_if(imported.troubles + imported.skipped > 0))
}

fn import_file(args: &Args) -> anyhow::Result<ImportSummary> {
    if args.input.is_dir() {
        let folder = args.input.display();
        bail!(
            "it is a folder; one of uftrace is printed by `uftrace dump -d {folder} | uniprof import -`"
        );
    }
    let mut input: Box<dyn BufRead> = if args.input == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        Box::new(BufReader::new(File::open(&args.input)?))
    };
    let mut input = CountingReader(&mut *input);
    let mut head = Vec::new();
    let format = match &args.format {
        Some(name) => IMPORTS
            .iter()
            .find(|format| format.name == name)
            .ok_or_else(|| anyhow!("no format is called {name}"))?,
        None => {
            (&mut input).take(HEAD_BYTES).read_to_end(&mut head)?;
            if head.starts_with(&PERF_MAGIC) {
                let name = args.input.display().to_string();
                return Err(RecordingError::OfPerf { name }.into());
            }
            recognize(&head).map_err(|said| anyhow!("it has no known format ({said})"))?
        }
    };
    let mut input = (&head[..]).chain(input);
    let name = args.input.display().to_string();
    if args.sample_type.is_some() && !format.has_sample_types() {
        bail!(
            "--sample-type is for -f pprof; {} has one type of values",
            format.name
        );
    }
    if args.clock.is_some() && !format.is_trace() {
        bail!(
            "--clock is for traces; {} has samples, whose times are counted from the first one",
            format.name
        );
    }
    let known = Input {
        name: &name,
        clock: args.clock().or(format.clock),
        sample_type: args.sample_type.as_deref(),
        labels: &Label::pairs(&args.label),
    };
    write(args, |uuid, out| {
        import_as(format, &known, uuid, &mut input, out)
    })
}

/// Writes the recording to its output path.
fn write(
    args: &Args,
    mut import: impl FnMut([u8; 16], &mut dyn Write) -> Result<ImportSummary, ImportError>,
) -> anyhow::Result<ImportSummary> {
    let uuid = fastrand::u128(..).to_le_bytes();
    let mut refused = None;
    let written = write_private(&args.output, |out| {
        import(uuid, out).map_err(|error| match error {
            ImportError::Io(error) => error,
            error => io::Error::other(refused.insert(error).to_string()),
        })
    });
    // If the input was refused, the output is not at fault.
    match refused {
        Some(error) => Err(error.into()),
        None => written,
    }
}

/// Reports what was imported, and what was wrong with the input.
fn summarize(imported: &ImportSummary, output: &Path) {
    let what = match imported.spans {
        0 => format!("{} samples", imported.samples),
        spans => format!("{spans} calls"),
    };
    let lines = imported.lines;
    inform(&format!(
        "{what} of {lines} {} imported to {}",
        if imported.is_binary {
            "records"
        } else {
            "lines"
        },
        output.display()
    ));
    if imported.without_end > 0 {
        inform(&format!(
            "{} calls have no end in the input: they are counted, their time isn't known",
            imported.without_end
        ));
    }
    if let Some(left_out) = &imported.left_out {
        say(&format!("warning: {left_out}"));
    }
    if imported.skipped > 0 {
        let skipped = imported.skipped;
        say(&format!("warning: {skipped} lines were not understood"));
    }
    for trouble in &imported.first_troubles {
        let place = if imported.is_binary { "byte" } else { "line" };
        say(&format!(
            "warning: {place} {}: {}",
            trouble.line, trouble.what
        ));
    }
    let shown = imported.first_troubles.len() as u64;
    if imported.troubles > shown {
        let more = imported.troubles - shown;
        say(&format!("warning: … and {more} more like these"));
    }
}

/// Counts the bytes read, since the memory budget depends on them.
struct CountingReader<'i>(&'i mut dyn BufRead);

impl Read for CountingReader<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.0.read(into)?;
        mapped::add_read(count as u64);
        Ok(count)
    }
}

impl BufRead for CountingReader<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.0.fill_buf()
    }

    fn consume(&mut self, count: usize) {
        mapped::add_read(count as u64);
        self.0.consume(count);
    }
}
