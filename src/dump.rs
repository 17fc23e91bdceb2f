//! `uniprof dump`: every record of a recording, one line each.

use crate::candidates::recordings;
use crate::outcome::Outcome;
use crate::output::write_to_stdout;
use anyhow::Context;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use uniprof_report::mapped;
use uniprof_report::views::dump::{self, DumpOptions};
use uprof::StreamReader;

/// Print every record, one line each (format-spec.md states the form)
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  uniprof dump run.uprof | less
  uniprof dump run.uprof | grep ^damage")]
pub struct Args {
    /// The recording; `-` is standard input
    #[arg(value_name = "FILE", default_value = "run.uprof", add = recordings())]
    file: PathBuf,
    /// Lines of samples only
    #[arg(long)]
    samples: bool,
}

/// Runs the subcommand.
pub fn run(args: &Args) -> anyhow::Result<Outcome> {
    let options = DumpOptions {
        samples_only: args.samples,
    };
    let mut reader = open(&args.file, "cannot read")?;
    let mut sound = true;
    write_to_stdout(|out| {
        if !options.samples_only {
            dump::write_preamble(reader.uuid(), reader.version(), out)?;
        }
        while let Some(item) = reader.next_item()? {
            mapped::add_read(item.file_bytes());
            sound &= dump::write_item(&item, options, out)?;
            if !options.samples_only {
                // The reader may be following a growing recording through a pipe.
                out.flush()?;
            }
        }
        Ok(())
    })?;
    Ok(Outcome::lossy_if(!sound))
}

/// Opens the recording at `path`, or on standard input for `-`. If it is none, the message begins with `cannot`.
pub fn open(path: &Path, cannot: &str) -> anyhow::Result<StreamReader<BufReader<Box<dyn Read>>>> {
    let (input, is_file): (Box<dyn Read>, bool) = if path == Path::new("-") {
        (Box::new(io::stdin().lock()), false)
    } else {
        let opened = File::open(path);
        let opened = opened.with_context(|| format!("cannot open {}", path.display()))?;
        let is_file = opened.metadata().is_ok_and(|found| found.is_file());
        (Box::new(opened), is_file)
    };
    let input = BufReader::new(input);
    let reader = if is_file {
        StreamReader::open_to_end(input)
    } else {
        StreamReader::open(input)
    };
    reader.with_context(|| format!("{cannot} {}", path.display()))
}
