//! `uniprof man`: manual pages, made from the same text as `--help`.

use crate::Outcome;
use anyhow::Context;
use std::path::PathBuf;

/// Write manual pages, one for each subcommand.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  uniprof man /usr/local/share/man/man1")]
pub struct Args {
    /// The folder for them, which must be there
    folder: PathBuf,
}

/// Writes them.
pub fn run(args: Args, command: clap::Command) -> anyhow::Result<Outcome> {
    let folder = args.folder.display().to_string();
    anyhow::ensure!(
        args.folder.is_dir(),
        "cannot write manual pages: there is no folder {folder}; create it first"
    );
    clap_mangen::generate_to(command, &args.folder)
        .with_context(|| format!("cannot write manual pages to {folder}"))?;
    Ok(Outcome::Done)
}
