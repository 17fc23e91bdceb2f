//! `uniprof compare`: runs two commands in turns until it is certain which is faster and where, or compares folders of
//! recordings.

mod commands;
pub mod folders;
pub mod run_folder;
mod run_progress;
pub mod program_output;
mod runs;

use crate::diff::verdicts::Verdicts;
use crate::images::tell_unused;
use crate::outcome::Outcome;
use crate::progress::Progress;
use crate::quantity::{parse_rate, parse_share};
use crate::selection::{Selecting, inform, say};
use crate::terminal;
use anyhow::{Context, bail};
use commands::SideCommand;
use run_folder::RunFolder;
use run_progress::RunProgress;
use runs::{RunOptions, Runs};
use std::fs;
use std::path::{Path, PathBuf};
#[cfg(feature = "record")]
use uniprof_record::signal;
use uniprof_report::diff::{
    Comparable, Diff, DiffOptions, Ending, LookRates, RUNS_MIN, Sequence, Standing, Times,
    comparable, diff,
};
use uniprof_report::images::Library;
use uniprof_report::recording::{Recording, Unit};
use uniprof_report::stacks::Tables;

/// Run two commands in turns until it is certain which is faster, and where
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  uniprof compare -- ./old input --vs ./new input
  uniprof compare --prepare 'sync' -n 50 './old input' './new input'
  uniprof compare --detect 2% --functions parse -- ./old input --vs ./new input
  uniprof compare before after                 folders of `uniprof record --runs 5 -o before -- ./old`

Runs end when every question is settled: a change is certain, or a change of the size --detect is excluded; or after \
the most runs. Questions are the processor time (the wall time, where that is unknown), and functions with 10 to \
90 % of the samples. \
However many runs it takes, of all changes that are called certain, at most --false-discoveries are not.")]
pub struct Args {
    /// The command before, as a shell reads it, or a folder of recordings
    #[arg(value_name = "A", required_unless_present = "commands", requires = "b")]
    a: Option<String>,
    /// The command after, or a folder
    #[arg(value_name = "B")]
    b: Option<String>,
    /// Both commands, with --vs between them
    #[arg(last = true, value_name = "COMMAND", conflicts_with = "a")]
    commands: Vec<String>,
    /// Most runs of each command [default: 30]
    #[arg(short = 'n', long, value_name = "N",
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(2..=1000))]
    most: Option<usize>,
    /// Go on until a change of this size is certain or excluded: of the time of whole runs, and of a function's own
    /// time while all else stays, which changes its share by less [default: 5%]
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    detect: Option<f64>,
    /// Runs of each command beforehand that don't count [default: 1]
    #[arg(long, value_name = "N")]
    warmup: Option<usize>,
    /// A shell command before each run
    #[arg(long, value_name = "COMMAND")]
    prepare: Option<String>,
    /// Compare runs that end with a status other than 0
    #[arg(short, long)]
    ignore_failure: bool,
    /// Samples a second of each thread [default: 2999]
    #[arg(short = 'F', long, value_name = "HZ", value_parser = parse_rate)]
    frequency: Option<f64>,
    /// Keep the recordings in this new folder
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    #[command(flatten)]
    selecting: Selecting,
    #[command(flatten)]
    verdicts: Verdicts,
}

/// Most runs of each command, if nobody chose.
const MOST: usize = 30;
/// The change that is waited for, as a part.
const DETECTED: f64 = 0.05;
/// Runs of each command that don't count.
const WARMUP: usize = 1;
/// Many samples a second: of runs of half a second, chance in the samples is most of what they differ by. The runs
/// take some percent longer, on both sides alike.
const FREQUENCY_HZ: f64 = 2999.0;

impl Args {
    /// Whether only recordings are read, which may be hostile.
    pub fn reads(&self) -> bool {
        self.folders().is_some()
    }

    fn folders(&self) -> Option<[&str; 2]> {
        let (a, b) = self.a.as_deref().zip(self.b.as_deref())?;
        [a, b]
            .iter()
            .all(|side| Path::new(side).is_dir())
            .then_some([a, b])
    }

    /// Refuses flags of runs, of which folders have none.
    fn refuse_runs(&self) -> anyhow::Result<()> {
        let refused = [
            ("-n", self.most.is_some()),
            ("--detect", self.detect.is_some()),
            ("--warmup", self.warmup.is_some()),
            ("--prepare", self.prepare.is_some()),
            ("-i", self.ignore_failure),
            ("-F", self.frequency.is_some()),
            ("-o", self.output.is_some()),
        ];
        if let Some((flag, _)) = refused.iter().find(|(_, is_given)| *is_given) {
            bail!("{flag} is for runs of commands, and these are folders of recordings");
        }
        Ok(())
    }

    fn commands(&self) -> anyhow::Result<[SideCommand; 2]> {
        match (&self.a, &self.b) {
            (Some(a), Some(b)) => {
                let is_folder = |side: &&String| Path::new(side).is_dir();
                if let Some(folder) = [a, b].into_iter().find(is_folder) {
                    let other = if folder == a { b } else { a };
                    bail!(
                        "{folder} is a folder, and {other} is none: name two folders of recordings, or two commands \
                         after --"
                    );
                }
                let is_recording = |text: &&String| text.ends_with(".uprof");
                if let Some(file) = [a, b].into_iter().find(is_recording) {
                    bail!("{file} is a recording, not a command; uniprof diff compares recordings");
                }
                commands::of_texts([a, b])
            }
            _ => commands::of_words(&self.commands),
        }
    }
}

/// Runs the subcommand.
pub fn run(args: Args) -> anyhow::Result<Outcome> {
    let options = DiffOptions {
        gather: args.selecting.options_to_compare()?,
        identify: args.selecting.identify,
        ..args.verdicts.options()
    };
    let library = args.selecting.images.library()?;
    let found = match args.folders() {
        Some(folders) => compare_folders(&args, folders, &library, &options)?,
        None => compare_commands(&args, &library, &options)?,
    };
    args.verdicts.refuse_missing(&found)?;
    let written = args.verdicts.write(&found);
    args.verdicts.apply_rules(&found, written)
}

fn compare_folders(
    args: &Args,
    folders: [&str; 2],
    library: &Library,
    options: &DiffOptions,
) -> anyhow::Result<Diff> {
    args.refuse_runs()?;
    let [a, b] = folders.map(|folder| folders::open(folder, &args.selecting, library));
    let recordings = [a?, b?];
    tell_unused(recordings.iter().flatten(), library);
    let tables = Tables::of_builds(library);
    let look = Look::new(&recordings, &tables, options);
    let mut found = look.compare(&Sequence::new(1))?;
    args.verdicts.refuse_empty(&found)?;
    if !folders::are_in_turns(found_sides(&recordings).each_ref().map(Vec::as_slice)) {
        found.warnings.push(
            "the runs of A and B were not made in turns, so load that came meanwhile looks like a change; `uniprof \
             compare -- A --vs B` makes them in turns"
                .to_owned(),
        );
    }
    Ok(found)
}

/// References to the recordings of both sides.
fn found_sides(recordings: &[Vec<Recording>; 2]) -> [Vec<&Recording>; 2] {
    recordings.each_ref().map(|side| side.iter().collect())
}

fn compare_commands(args: &Args, library: &Library, options: &DiffOptions) -> anyhow::Result<Diff> {
    let commands = args.commands()?;
    if args.output.as_deref() == Some(Path::new("-")) {
        bail!("runs are recordings of their own: name a new folder with -o");
    }
    let (most, size) = (args.most.unwrap_or(MOST), args.detect.unwrap_or(DETECTED));
    let folder = RunFolder::new(args.output.as_deref(), "compare", &["a", "b"])?;
    let texts = commands.each_ref().map(|command| command.text.clone());
    let how = RunOptions {
        frequency: args.frequency.unwrap_or(FREQUENCY_HZ),
        prepare: args.prepare.as_deref(),
        ignore_failure: args.ignore_failure,
        embeds: args.output.is_some(),
        off_cpu: options.gather.filter.unit == Some(Unit::OffCpu),
    };
    let mut runs = Runs::new(commands, how, folder.path());
    #[cfg(feature = "record")]
    signal::hold_stops();
    for _ in 0..args.warmup.unwrap_or(WARMUP) {
        for side in 0..2 {
            if let Some(path) = runs.run(side, 0)? {
                fs::remove_file(path)?;
            }
        }
    }
    let sequence = Sequence::new(most);
    // Every look is at all runs again, and most of their time is that of images.
    let tables = Tables::of_builds(library);
    let mut recordings = [Vec::new(), Vec::new()];
    let mut progress = RunProgress::new(most);
    let mut found: Option<Diff> = None;
    'runs: for pair in 0..most {
        // A B B A: what changes steadily meanwhile is the same for both.
        for side in if pair % 2 == 0 { [0, 1] } else { [1, 0] } {
            progress.tell(side);
            let Some(path) = runs.run(side, pair + 1)? else {
                break 'runs;
            };
            let recording = args.selecting.open_to_compare(&path, library)?;
            refuse_short(&recording, &texts[side])?;
            recordings[side].push(recording);
        }
        if sequence.is_look(pair + 1) {
            let mut look = Look::new(&recordings, &tables, options).compare(&sequence)?;
            args.verdicts.refuse_empty(&look)?;
            let standing = Standing::new(&look, &look.times.unwrap_or_default(), size);
            progress.stands(&standing);
            let is_settled = standing.open.is_empty();
            look.ending = Some(Ending {
                runs: pair + 1,
                standing,
                size,
            });
            found = Some(look);
            if is_settled {
                break;
            }
        }
    }
    terminal::clear_line();
    let mut found = found.with_context(|| {
        format!(
            "stopped before {} runs of each command, the fewest that are compared",
            RUNS_MIN.min(most)
        )
    })?;
    if let Some(difference) = runs.difference() {
        say(&format!("warning: {difference}"));
        found.warnings.push(difference);
    }
    for (letter, text) in ["A", "B"].iter().zip(texts) {
        inform(&format!("{letter} is {text}"));
    }
    Ok(found)
}

/// Fewest samples of a run.
const SAMPLES_MIN: u64 = 20;

fn refuse_short(recording: &Recording, command: &str) -> anyhow::Result<()> {
    let samples: u64 = recording
        .blocks()
        .iter()
        .map(|block| u64::from(block.samples))
        .sum();
    if samples < SAMPLES_MIN {
        bail!(
            "a run of `{command}` takes {:.3} s and has {samples} samples, too few to compare; let it do its work many \
             times over, or give a higher rate (-F)",
            recording.seconds()
        );
    }
    Ok(())
}

/// A look at all runs.
struct Look<'r, 'l> {
    sides: [Vec<&'r Recording>; 2],
    tables: &'r Tables<'l>,
    /// What all looks have together.
    options: &'r DiffOptions,
}

impl<'r, 'l> Look<'r, 'l> {
    fn new(
        recordings: &'r [Vec<Recording>; 2],
        tables: &'r Tables<'l>,
        options: &'r DiffOptions,
    ) -> Look<'r, 'l> {
        Look {
            sides: found_sides(recordings),
            tables,
            options,
        }
    }

    /// Compares all runs, at one of the looks of `sequence`.
    fn compare(self, sequence: &Sequence) -> anyhow::Result<Diff> {
        let rate = self.options.false_discoveries;
        let rates = LookRates::new(sequence, rate);
        let options = DiffOptions {
            false_discoveries: rates.functions,
            confidence: 1.0 - sequence.spent(rate),
            ..self.options.clone()
        };
        let [a, b] = self.sides.each_ref().map(Vec::as_slice);
        if comparable(a.iter().chain(b).copied()) != Comparable::Samples {
            bail!("these are recordings of calls; uniprof diff compares them");
        }
        let progress = Progress::new();
        let tell = |done, total| progress.tell(done, total);
        let mut found = diff(a, b, self.tables, &options, &tell, None);
        // What all looks have together, as it was asked for.
        found.options.false_discoveries = rate;
        let in_turns = folders::are_in_turns([a, b]);
        found.times = Some(Times::of([a, b], in_turns, 1.0 - rates.time));
        Ok(found)
    }
}
