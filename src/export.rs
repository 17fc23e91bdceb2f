//! `uniprof export`: writes a recording in the format of another program.

mod tables;

use crate::form::RecursionFlag;
use crate::outcome::Outcome;
use crate::output::write_to;
use crate::progress::Progress;
use crate::report::nothing_of;
use crate::selection::{
    ByFlag, ProcessesFlag, Selection, inform, say, say_account, say_damages, say_warnings,
};
use crate::views::OF_SAMPLES;
use anyhow::{anyhow, bail};
use clap::builder::{PossibleValue, PossibleValuesParser};
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use uniprof_report::export::{FORMATS, Format, FrameOptions, Request, Timeline, Writes};
use uniprof_report::profile::Profile;
use uniprof_report::recording::Unit;
use uniprof_report::stacks::Tables as ImageTables;

/// Write a recording in the format of another program
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  uniprof export -f pprof -o run.pb.gz && go tool pprof -http : run.pb.gz
  uniprof export -f firefox -o run.json run.uprof
  uniprof export -f perfetto -o run.perfetto-trace samples.uprof calls.uprof
  uniprof export -f parquet -o tables *.uprof
  uniprof export -f folded run.uprof | flamegraph.pl >run.svg")]
pub struct Args {
    #[command(flatten)]
    selection: Selection,
    /// Which format
    #[arg(long, short, value_name = "FORMAT", value_parser = formats())]
    format: String,
    /// Where to; `-` is standard output. For parquet: a folder, which may have the tables of other recordings
    #[arg(long, short, value_name = "OUT", default_value = "-")]
    output: PathBuf,
    /// Wall time of vCPUs instead of samples: of recordings made with --host (folded, json, csv,
    /// firefox)
    #[arg(long, conflicts_with_all = OF_SAMPLES, help_heading = "Which samples")]
    time: bool,
    /// Mark kernel frames with `_[k]` and inlined ones with `_[i]` (folded)
    #[arg(long)]
    marks: bool,
    /// Show a repeated chain of calls once, or every frame (folded)
    #[arg(long, value_name = "HOW", default_value = "whole")]
    recursion: RecursionFlag,
}

fn formats() -> PossibleValuesParser {
    let values = FORMATS
        .iter()
        .map(|format| PossibleValue::new(format.name).help(format.about));
    PossibleValuesParser::new(values)
}

/// Runs the subcommand.
pub fn run(args: Args) -> anyhow::Result<Outcome> {
    let format = FORMATS.iter().find(|format| format.name == args.format);
    let format = format.ok_or_else(|| anyhow!("no format is called {}", args.format))?;
    if format.is_binary && args.output == Path::new("-") && io::stdout().is_terminal() {
        let name = format.name;
        return Err(anyhow!(
            "{name} is binary: not for a terminal; add -o FILE or pipe it on"
        ));
    }
    if args.recursion == RecursionFlag::Folded && format.name != "folded" {
        return Err(anyhow!("--recursion folded is for -f folded alone"));
    }
    if args.marks && format.name != "folded" {
        return Err(anyhow!("--marks is for -f folded alone"));
    }
    if args.time && !format.has_sums {
        return Err(anyhow!("--time is for -f {}", able(|one| one.has_sums)));
    }
    args.refuse_frames(format)?;
    match format.write {
        Writes::File(write) => write_file(&args, format, write),
        Writes::Folder(write) => tables::write(&args, write),
    }
}

impl Args {
    /// Refuses options about frames that would change nothing in a format.
    fn refuse_frames(&self, format: &Format) -> anyhow::Result<()> {
        let selecting = &self.selection.selecting;
        let name = format.name;
        if selecting.by != ByFlag::Function && format.frames == FrameOptions::None {
            let able = able(|one| one.frames != FrameOptions::None);
            bail!(
                "{name} has function, line and address of each frame anyway: --by is for -f {able}"
            );
        }
        if selecting.no_inlines && name == "llvm-profile" {
            bail!("{name} is of inlined functions, too, whatever --no-inlines says");
        }
        let is_apart = selecting.processes == Some(ProcessesFlag::Apart);
        if (selecting.by_thread || is_apart) && format.frames != FrameOptions::All {
            let able = able(|one| one.frames == FrameOptions::All);
            bail!(
                "{name} has no roots for threads and processes: --by-thread and --processes apart are for -f {able}"
            );
        }
        Ok(())
    }
}

/// The names of the formats that an option is for.
fn able(has: impl Fn(&Format) -> bool) -> String {
    let able = FORMATS.iter().filter(|format| has(format));
    let able: Vec<&str> = able.map(|format| format.name).collect();
    able.join(", ")
}

type WriteFile = fn(&Request<'_, '_>, &mut dyn Write) -> io::Result<Profile>;

fn write_file(args: &Args, format: &Format, write: WriteFile) -> anyhow::Result<Outcome> {
    let all = args.selection.recordings()?;
    let recordings: Vec<_> = all.iter().collect();
    if format.needs_clock {
        Timeline::of(&recordings)
            .map_err(|why| anyhow!("cannot put these on one time axis: {why}"))?;
    }
    let mut options = args.selection.selecting.options(recordings.len());
    if args.time {
        options.filter.unit = Some(Unit::VcpuTime);
    }
    let progress = Progress::new();
    let library = args.selection.selecting.images.library()?;
    let request = Request {
        recordings: &recordings,
        tables: &ImageTables::of_builds(&library),
        options: &options,
        progress: &|done, total| progress.tell(done, total),
        marks: args.marks,
        fold: args.recursion == RecursionFlag::Folded,
        identify: args.selection.selecting.identify,
    };
    let mut is_empty = true;
    let profile = write_to(&args.output, |out| {
        let mut noticed = NoticedWriter {
            out,
            is_empty: &mut is_empty,
        };
        write(&request, &mut noticed)
    })?;
    say_warnings(&profile);
    say_damages(&all);
    say_account(&profile);
    if profile.unit() == Unit::Calls {
        let ignored = args.selection.selecting.refuse_states_of_calls();
        ignored.unwrap_or_else(|error| say(&format!("warning: {error}")));
    }
    let account = &profile.account;
    let has_lengths = profile.unit() != Unit::Calls || account.counted > 0;
    if let Some(advice) = nothing_of(&profile, &all) {
        say(&advice);
    } else if !has_lengths && !matches!(format.name, "folded" | "firefox" | "perfetto") {
        say("all values are 0, as no call's length is known: -f folded has numbers of calls");
    } else if format.name == "folded" && profile.unit().is_time() {
        inform(if has_lengths {
            "the numbers are microseconds"
        } else {
            "the numbers are calls: their lengths are not known"
        });
    }
    Ok(Outcome::lossy_if(
        is_empty || profile.account.is_incomplete(),
    ))
}

/// Notices whether anything is written.
struct NoticedWriter<'a> {
    out: &'a mut dyn Write,
    is_empty: &'a mut bool,
}

impl Write for NoticedWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        *self.is_empty &= bytes.is_empty();
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
