//! `uniprof import`: another tool's output becomes a recording.

use crate::output::{keep, write_to};
use crate::selection::{inform, say};
use crate::{Outcome, memory};
use anyhow::{Context, anyhow};
use clap::builder::{PossibleValue, PossibleValuesParser};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use uniprof_report::import::{IMPORTS, Imported, import};

/// Make a recording of another tool's output
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  uniprof import --format uniprof-text trace.txt -o old.uprof
  perf script | uniprof import --format perf-script - -o perf.uprof
  zstdcat trace.txt.zst | uniprof import --format nanos-ftrace - -o trace.uprof")]
pub struct Args {
    /// What to read; `-` is standard input
    #[arg(value_name = "INPUT")]
    input: PathBuf,
    /// Which format
    #[arg(long, short, value_name = "FORMAT", value_parser = formats())]
    format: String,
    /// Where to; `-` is standard output
    #[arg(long, short, value_name = "OUT", default_value = "run.uprof")]
    output: PathBuf,
}

fn formats() -> PossibleValuesParser {
    let values = IMPORTS
        .iter()
        .map(|format| PossibleValue::new(format.name).help(format.about));
    PossibleValuesParser::new(values)
}

/// Runs the subcommand.
pub fn run(args: &Args) -> anyhow::Result<Outcome> {
    let format = IMPORTS.iter().find(|format| format.name == args.format);
    let format = format.ok_or_else(|| anyhow!("no format is called {}", args.format))?;
    keep(&args.input);
    let describe = || format!("cannot import {}", args.input.display());
    let mut input: Box<dyn BufRead> = match args.input == Path::new("-") {
        true => Box::new(io::stdin().lock()),
        false => Box::new(BufReader::new(
            File::open(&args.input).with_context(describe)?,
        )),
    };
    let mut input = Counted(&mut *input);
    let uuid = fastrand::u128(..).to_le_bytes();
    let mut imported = None;
    write_to(&args.output, |out| {
        let name = args.input.display().to_string();
        let done = import(format, &name, uuid, &mut input, out);
        imported = Some(done.map_err(io::Error::other)?);
        Ok(())
    })
    .with_context(describe)?;
    let imported = imported.unwrap_or_default();
    tell(&imported, &args.output);
    Ok(match imported.troubles {
        0 => Outcome::Done,
        _ => Outcome::Lossy,
    })
}

/// Says what came of it, and what was wrong.
fn tell(imported: &Imported, output: &Path) {
    let what = match imported.spans {
        0 => format!("{} samples", imported.samples),
        spans => format!("{spans} calls"),
    };
    let lines = imported.lines;
    inform(&format!(
        "{what} of {lines} lines imported to {}",
        output.display()
    ));
    if imported.without_end > 0 {
        inform(&format!(
            "{} calls have no end in the input: they are counted, their time isn't known",
            imported.without_end
        ));
    }
    if imported.skipped > 0 {
        let skipped = imported.skipped;
        say(&format!("warning: {skipped} lines were not understood"));
    }
    for trouble in &imported.first_troubles {
        say(&format!("warning: line {}: {}", trouble.line, trouble.what));
    }
    let told = imported.first_troubles.len() as u64;
    if imported.troubles > told {
        let more = imported.troubles - told;
        say(&format!("warning: … and {more} more lines like these"));
    }
}

/// Says how much was read, on which depends what memory may be taken.
struct Counted<'i>(&'i mut dyn BufRead);

impl Read for Counted<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.0.read(into)?;
        memory::add_read(count);
        Ok(count)
    }
}

impl BufRead for Counted<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.0.fill_buf()
    }

    fn consume(&mut self, count: usize) {
        memory::add_read(count);
        self.0.consume(count);
    }
}
