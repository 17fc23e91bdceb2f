//! `uniprof doctor`: what prevents a good recording, and which command to use.

use crate::elf::Elf;
use crate::outcome::Outcome;
use crate::target::resolvers;
use crate::terminal::{columns, has_colors, in_columns, printable_lines};
use crate::{target, terminal};
use std::io::Write;
use uniprof_record::doctor::{Finding, Report, Verdict};

/// Say whether and how a target can be recorded
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  uniprof doctor                     this machine, and what can be recorded here
  uniprof doctor pid:1234            a process and all below it
  uniprof doctor 7                   Xen domain 7
  uniprof doctor qemu:/run/qmp.sock  a QEMU guest, and which options would make it cheaper
  uniprof doctor --elf app.elf web   the domain called web, and whether it runs app.elf")]
pub struct Args {
    /// The image that the guest should be running; FILE@ADDRESS says where it is loaded
    #[arg(long, value_name = "FILE[@ADDRESS]", value_parser = Elf::parse, requires = "target")]
    elf: Option<Elf>,

    /// Resume guests that were left paused by a recorder that was killed together with its guardian in the middle of
    /// a sample
    #[arg(long, conflicts_with_all = ["target", "elf"])]
    resume: bool,

    /// As for `uniprof record`; nothing: this machine
    #[arg(value_name = "TARGET")]
    #[cfg_attr(feature = "report", arg(add = crate::candidates::targets()))]
    target: Option<String>,
}

/// Runs the subcommand: 0 if all is well, 1 if something could be better, 2 if recording can't work.
pub fn run(args: &Args) -> anyhow::Result<Outcome> {
    if args.resume {
        return resume();
    }
    let mut report = match &args.target {
        Some(target) => {
            let target = resolvers::resolve(target, false)?;
            if let Some(instead) = target::instead_of(std::slice::from_ref(&target)) {
                anyhow::bail!("{instead}");
            }
            target::examine(&target, args.elf.as_ref())?
        }
        None => target::examine_host(),
    };
    for standing in target::left_paused() {
        let finding = Finding {
            verdict: Verdict::Poor,
            text: standing.to_string(),
        };
        report.findings.insert(0, finding);
    }
    let worst = |verdict| report.findings.iter().any(|found| found.verdict == verdict);
    let (is_bad, is_poor) = (worst(Verdict::Bad), worst(Verdict::Poor));
    if is_bad {
        // Don't recommend a command that can't work.
        report.command = None;
    }
    let _ = write(&report, &mut std::io::stdout().lock()); // a closed pipe is not an error
    if is_bad {
        anyhow::bail!("recording can't work as things are");
    }
    Ok(Outcome::lossy_if(is_poor))
}

/// Resumes guests; status 1 if one doesn't run.
fn resume() -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::Done;
    let standing = target::left_paused();
    if standing.is_empty() {
        terminal::inform(format_args!("uniprof: no guest was left paused"));
    }
    for mut one in standing {
        let (runs, text) = one.resume();
        if !runs {
            outcome = Outcome::Lossy;
        }
        terminal::say(format_args!("uniprof: {text}"));
    }
    Ok(outcome)
}

fn write(report: &Report, out: &mut impl Write) -> std::io::Result<()> {
    let colors = has_colors();
    for finding in &report.findings {
        let (mark, color) = match finding.verdict {
            Verdict::Good => ("ok  ", 32),
            Verdict::Poor => ("poor", 33),
            Verdict::Bad => ("BAD ", 31),
            Verdict::Absent => ("-   ", 39),
        };
        let mark = if colors {
            format!("\x1b[{color}m{mark}\x1b[m")
        } else {
            mark.to_owned()
        };
        // The text may quote a monitor, a stub or a guest.
        let text = in_columns(&printable_lines(&finding.text), 6, columns());
        writeln!(out, "{mark}  {text}")?;
    }
    match &report.command {
        Some(command) => {
            let command = printable_lines(command);
            // A break with a backslash would be wrong inside quotes.
            let room = columns().filter(|_| !command.contains(['\'', '"']));
            let lines = in_columns(&command, 5, room.map(|columns| columns.saturating_sub(2)));
            writeln!(out, "\nTry: {}", lines.replace('\n', " \\\n"))
        }
        None => Ok(()),
    }
}
