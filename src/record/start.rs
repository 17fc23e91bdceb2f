//! The start of a recording; it is the same for samples, for calls and for several domains.
//!
//! The order matters: the output is checked before the guest is touched, the guest is opened while a signal still ends
//! the program at once, and privileges are dropped before any thread is started.

use crate::record::Args;
use crate::target::{self, Stdout, TargetRequest};
use crate::terminal;
use anyhow::bail;
use std::path::Path;
use uniprof_record::{Facts, Source, lockdown, signal};

/// Refuses a command line that fits another profiler, and says what to type instead.
pub fn refuse_other_tools(args: &Args) -> anyhow::Result<()> {
    match args.instead() {
        Some(instead) => bail!("{instead}"),
        None => Ok(()),
    }
}

/// Warns of guests that a killed recorder has left paused.
pub fn warn_of_paused() {
    for guest in target::left_paused() {
        terminal::say(format_args!("uniprof: warning: {guest}"));
    }
}

/// What to sample, according to the flags; a command's standard output goes to `console`, if that is given.
pub fn wanted(args: &Args, console: Option<Stdout>) -> TargetRequest<'_> {
    let usual = if args.file() == Path::new("-") {
        Stdout::Stderr
    } else {
        Stdout::Same
    };
    TargetRequest {
        target: args.target().unwrap_or_default(),
        command: &args.command,
        keep_running: args.keep_running,
        stdout: console.unwrap_or(usual),
        all: args.all,
        ptrace: args.ptrace,
        elf: &args.elf,
    }
}

/// Creates the output, and drops the privileges that `named` does not need, once the guest is open.
pub fn begin<T>(
    create: impl FnOnce() -> anyhow::Result<T>,
    named: Option<&Path>,
) -> anyhow::Result<T> {
    // Up to here a signal ends the program at once, and leaves nothing behind.
    signal::hold_stops();
    signal::outlive_file_limit();
    let output = create()?;
    lockdown::lock_down(named)?;
    Ok(output)
}

/// Prints the warnings of an open target.
pub fn warn_of(source: &Source) {
    warn(source.hot.facts());
    say_all(&source.warnings);
}

/// Prints the warnings of an open guest.
pub fn warn(facts: &Facts) {
    say_all(&facts.warnings);
}

fn say_all(warnings: &[String]) {
    for warning in warnings {
        terminal::say(format_args!("uniprof: {warning}"));
    }
}
