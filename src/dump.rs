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
    let input: Box<dyn Read> = if args.file == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        let opened = File::open(&args.file);
        Box::new(opened.with_context(|| format!("cannot open {}", args.file.display()))?)
    };
    let describe = || format!("cannot read {}", args.file.display());
    let mut reader = StreamReader::open(BufReader::new(input)).with_context(describe)?;
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
