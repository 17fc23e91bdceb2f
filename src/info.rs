//! `uniprof info`: what was recorded, where, when, and what is missing.

use crate::candidates::recordings;
use crate::outcome::Outcome;
use crate::progress::Progress;
use crate::showing::Showing;
use std::path::PathBuf;
use uniprof_report::images::Library;
use uniprof_report::recording::{Account, Recording, Selected};
use uniprof_report::views::info;

/// Say what was recorded, where, when, and what is missing
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  uniprof info run.uprof
  ssh dom0 uniprof record -d 5s -o - 7 | uniprof info -")]
pub struct Args {
    /// The recording; `-` is standard input
    #[arg(value_name = "FILE", default_value = "run.uprof", add = recordings())]
    file: PathBuf,
    #[command(flatten)]
    showing: Showing,
}

/// Runs the subcommand.
pub fn run(args: &Args) -> anyhow::Result<Outcome> {
    let recording = Recording::open(&args.file)?;
    let progress = Progress::new();
    // The same options as `report` without flags, so that both count alike.
    let library = Library::default();
    let found = info::survey(&recording, &library, &|done, total| {
        progress.tell(done, total)
    });
    let showing = &args.showing;
    showing.write(|out| info::write(&recording, &found, showing.screen(), out))?;
    let damaged = !recording.damages().is_none()
        || recording.recovered_places() > 0
        || found.undecoded > 0
        || !found.damaged_sections.is_empty()
        || found.spans.are_incomplete();
    let mut account = Account {
        read: found.samples,
        ..Account::default()
    };
    account.add_recording(&recording, &Selected::whole(&recording));
    let mut lost = account.lost.iter();
    let lost = lost.any(|(reason, count)| account.is_loss(*reason, *count));
    Ok(Outcome::lossy_if(damaged || lost || recording.was_cut()))
}
