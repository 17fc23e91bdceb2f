//! `uniprof completions`: what a shell needs to complete our flags.

use crate::Outcome;
use anyhow::Context;
use std::io::Write;

/// Print completions for a shell.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  uniprof completions bash >/etc/bash_completion.d/uniprof
  uniprof completions zsh >\"${fpath[1]}/_uniprof\"")]
pub struct Args {
    /// Which shell
    shell: clap_complete::Shell,
}

/// Prints them.
pub fn run(args: Args, mut command: clap::Command) -> anyhow::Result<Outcome> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "uniprof", &mut script);
    std::io::stdout()
        .write_all(&script)
        .context("cannot write to standard output")?;
    Ok(Outcome::Done)
}
