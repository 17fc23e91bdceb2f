//! `uniprof record --runs`: several runs of a command, each recorded by a recorder of its own, since a recorder gives
//! its privileges up.

use crate::new_file;
use crate::outcome::Outcome;
use crate::record::Args;
use crate::terminal;
use anyhow::{Context, bail};
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use uniprof_record::signal;

/// The default folder of recordings.
const DEFAULT_FOLDER: &str = "runs";

/// Records `count` runs into a new folder.
pub fn run(args: &Args, count: u32) -> anyhow::Result<Outcome> {
    let folder = args.output.as_deref().unwrap_or(Path::new(DEFAULT_FOLDER));
    if folder == Path::new("-") {
        bail!("several recordings can't go to standard output: name a folder with -o");
    }
    new_file::run_folder(folder)?;
    // The flags are those of this run, with the path of one recording.
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let flags = words
        .iter()
        .position(|word| word == "--")
        .unwrap_or(words.len());
    let mut others = 0;
    // The recorder, which gets a terminal's signals as well, ends first.
    signal::hold_stops();
    for number in 1..=count {
        refuse_stopped(number, count, folder)?;
        let path = folder.join(format!("{number:03}.uprof"));
        // The path may begin with a hyphen.
        let mut run = OsString::from("--run=");
        run.push(&path);
        let mut recorder = Command::new(std::env::current_exe()?);
        recorder
            .args(without_runs(&words[..flags]))
            // The command's status, or that samples were lost.
            .arg("--exit-status")
            .arg(run)
            .args(&words[flags..]);
        let mut recorder = recorder.spawn().context("cannot start a recorder")?;
        let status = signal::wait_for(&mut recorder)?;
        if signal::stop_signal().is_some() {
            // It is a part of a run.
            let _ = std::fs::remove_file(&path);
        }
        refuse_stopped(number, count, folder)?;
        if !path.exists() {
            bail!("run {number} of {count} could not be recorded");
        }
        let Some(code) = status.code() else {
            bail!("the recorder of run {number} was killed: {status}");
        };
        if code != 0 {
            others += 1;
            let path = path.display();
            terminal::say(format_args!(
                "uniprof: run {number}: its command ended with status {code}, or samples were lost, or none was taken; \
                 remove {path} if it did not do its work"
            ));
        }
    }
    Ok(Outcome::lossy_if(others > 0))
}

/// Ends the work if a signal requested that.
fn refuse_stopped(number: u32, count: u32, folder: &Path) -> anyhow::Result<()> {
    match signal::stop_signal() {
        Some(signal) => bail!(
            "{signal} in run {number} of {count}: {} has the runs before it",
            folder.display()
        ),
        None => Ok(()),
    }
}

/// The flags without `--runs N`.
fn without_runs(flags: &[OsString]) -> Vec<&OsString> {
    let mut kept = Vec::new();
    let mut is_number = false;
    for flag in flags {
        let text = flag.to_string_lossy();
        if !is_number && text != "--runs" && !text.starts_with("--runs=") {
            kept.push(flag);
        }
        is_number = !is_number && text == "--runs";
    }
    kept
}
