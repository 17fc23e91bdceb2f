//! `uniprof export`: a recording in the format of another program.

use crate::Outcome;
use crate::output::write_to;
use crate::selection::{Selection, say_account};
use clap::ValueEnum;
use std::path::PathBuf;
use uniprof_report::export::folded;

/// Formats of other programs.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    /// One line a stack, for flamegraph.pl and inferno
    Folded,
}

/// Write a recording in the format of another program
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    selection: Selection,
    /// Which format
    #[arg(long, short, value_name = "FORMAT")]
    format: Format,
    /// Where to; `-` is standard output
    #[arg(long, short, value_name = "OUT", default_value = "-")]
    output: PathBuf,
    /// Mark kernel frames with _[k] and inlined ones with _[i] (folded)
    #[arg(long)]
    marks: bool,
}

/// Runs the subcommand.
pub fn run(args: Args) -> anyhow::Result<Outcome> {
    let recordings = args.selection.recordings()?;
    let options = args.selection.options(recordings.len());
    let profile = args.selection.gather(&recordings, &options, None)?;
    say_account(&profile);
    let form = folded::FoldedOptions { marks: args.marks };
    match args.format {
        Format::Folded => write_to(&args.output, |out| folded::write(&profile, form, out))?,
    }
    Ok(match profile.account.is_incomplete() {
        true => Outcome::Lossy,
        false => Outcome::Done,
    })
}
