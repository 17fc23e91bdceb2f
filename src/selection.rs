//! Flags that all views and exports share: which recordings, samples and frames.

use crate::candidates::recordings;
use crate::images::{Images, place_given, tell_unused};
use crate::output::keep;
use crate::progress::Progress;
use crate::quantity::label::Label;
use crate::quantity::parse_time;
use crate::terminal;
use anyhow::{Context, anyhow, bail};
use clap::ValueEnum;
use clap::builder::PossibleValue;
use regex::Regex;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use uniprof_report::images::Library;
use uniprof_report::profile::{By, Each, Filter, Options, Profile, gather};
use uniprof_report::recording::{Recording, Unit};
use uprof::State;

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ByFlag {
    /// Functions
    Function,
    /// Source lines
    Line,
    /// Images
    Module,
    /// Instructions
    Address,
}

/// vCPU states that can be selected.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum StateFlag {
    /// Executing (the default)
    Running,
    /// Waiting
    Blocked,
    /// Not brought up
    Offline,
    /// Paused by someone else
    Paused,
    /// Able to execute, but without a processor
    Ready,
    /// All of them
    All,
}

/// Whether processes are distinguished.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ProcessesFlag {
    /// Each stack begins with the name and number of its process
    Apart,
    /// The same functions of all processes count together
    Together,
}

/// Which recordings, samples and frames.
#[derive(Debug, clap::Args)]
pub struct Selection {
    /// Recordings; `-` is standard input. Several are added up
    #[arg(value_name = "FILE", default_value = "run.uprof", add = recordings())]
    pub files: Vec<PathBuf>,
    /// Only recordings with this label (record --label); may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = Label::parse, help_heading = "Which samples")]
    pub label: Vec<Label>,
    #[command(flatten)]
    pub selecting: Selecting,
}

/// Which samples and frames, and where their symbols are.
#[derive(Debug, clap::Args)]
pub struct Selecting {
    /// Only samples from this time on, from the start of the recording: 1.5, 1.5s, 200ms
    #[arg(long, value_name = "TIME", value_parser = parse_time, help_heading = "Which samples")]
    pub from: Option<u64>,
    /// Only samples before this time
    #[arg(long, value_name = "TIME", value_parser = parse_time, help_heading = "Which samples")]
    pub to: Option<u64>,
    /// Only this vCPU or thread id; may be repeated
    #[arg(long, value_name = "N", help_heading = "Which samples")]
    pub vcpu: Vec<u32>,
    /// Only this process id; may be repeated
    #[arg(long, value_name = "N", help_heading = "Which samples")]
    pub pid: Vec<u32>,
    /// Only processes whose name matches
    #[arg(long, value_name = "REGEX", value_parser = Regex::new, help_heading = "Which samples")]
    pub process: Option<Regex>,
    /// Only vCPUs or threads whose name matches
    #[arg(long, value_name = "REGEX", value_parser = Regex::new, help_heading = "Which samples")]
    pub thread: Option<Regex>,
    /// Which states count; may be repeated
    #[arg(long, value_name = "STATE", help_heading = "Which samples")]
    pub state: Vec<StateFlag>,
    /// Also samples of idle vCPUs, as ordinary code
    #[arg(long, conflicts_with = "state", help_heading = "Which samples")]
    pub idle: bool,
    /// Only running samples, which is the default
    #[arg(long, conflicts_with_all = ["state", "idle"], help_heading = "Which samples")]
    pub on_cpu: bool,
    /// Where threads waited and for how long, instead of samples: of recordings made with --off-cpu
    #[arg(long, conflicts_with_all = ["on_cpu", "idle"], help_heading = "Which samples")]
    pub off_cpu: bool,
    /// The process that runs the guest, instead of the guest: of recordings made with --host
    #[arg(long, conflicts_with = "vcpu", help_heading = "Which samples")]
    pub monitor: bool,
    /// Only waits of at least this time, such as 1ms
    #[arg(long, value_name = "TIME", value_parser = parse_time, conflicts_with_all = ["on_cpu", "idle"],
          help_heading = "Which samples")]
    pub min_wait: Option<u64>,
    /// Only waits of at most this time: leaves out threads that had nothing to do
    #[arg(long, value_name = "TIME", value_parser = parse_time, conflicts_with_all = ["on_cpu", "idle"],
          help_heading = "Which samples")]
    pub max_wait: Option<u64>,
    /// Only stacks with a matching frame; --focus, --ignore and --hide match what --by makes of it
    #[arg(long, value_name = "REGEX", value_parser = Regex::new, help_heading = "Which samples")]
    pub focus: Option<Regex>,
    /// No stacks with a matching frame
    #[arg(long, value_name = "REGEX", value_parser = Regex::new, help_heading = "Which samples")]
    pub ignore: Option<Regex>,
    /// Leave matching frames out of their stacks
    #[arg(long, value_name = "REGEX", value_parser = Regex::new, help_heading = "Which frames")]
    pub hide: Option<Regex>,
    /// What a frame is
    #[arg(
        long,
        value_name = "WHAT",
        default_value = "function",
        help_heading = "Which frames"
    )]
    pub by: ByFlag,
    /// Leave inlined functions out
    #[arg(long, help_heading = "Which frames")]
    pub no_inlines: bool,
    /// Begin each stack with the name of its vCPU or thread
    #[arg(long, help_heading = "Which frames")]
    pub by_thread: bool,
    /// Whether each stack begins with its process, where there are several (default: apart in a
    /// report, together in a diff and in exports)
    #[arg(long, value_name = "HOW", help_heading = "Which frames")]
    pub processes: Option<ProcessesFlag>,
    /// Names as the linker wrote them
    #[arg(long, help_heading = "Which frames")]
    pub no_demangle: bool,
    /// Guess the caller where unwinding finds none: the next word that looks like one
    #[arg(long, help_heading = "Which frames")]
    pub scan: bool,
    /// Write the command line, the host's name, folders and addresses of recordings into outputs: they may be secrets.
    /// Pages and some exports have paths of images and source files without it, too: `bundle --redact` removes their
    /// folders
    #[arg(long, help_heading = "Form")]
    pub identify: bool,
    #[command(flatten)]
    pub images: Images,
}

impl Selection {
    /// Opens the recordings.
    pub fn recordings(&self) -> anyhow::Result<Vec<Recording>> {
        let stdin = self
            .files
            .iter()
            .filter(|file| file.as_os_str() == "-")
            .count();
        if stdin > 1 {
            return Err(anyhow!(
                "standard input (-) can be read only once; name it once"
            ));
        }
        let library = self.selecting.images.library()?;
        let opened = self.files.iter().map(|file| self.open(file, &library));
        let all = opened.collect::<anyhow::Result<Vec<_>>>()?;
        let (chosen, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|one| self.has(one));
        if chosen.is_empty() {
            return Err(self.none_of(others.len()));
        }
        refuse_twice(&chosen)?;
        tell_unused(&chosen, &library);
        Ok(chosen)
    }

    /// Opens one recording, or its monitor's part.
    pub fn open(&self, file: &Path, library: &Library) -> anyhow::Result<Recording> {
        keep(file);
        let recording = Recording::open(file).map_err(|error| {
            if file.as_os_str() == "run.uprof" {
                anyhow!("{error}; give the recording's name, or record one first")
            } else {
                anyhow!(error)
            }
        });
        let mut recording = self.selecting.part_of(recording?)?;
        place_given(&mut recording, library);
        Ok(recording)
    }

    /// Whether a recording has all labels that are asked for.
    pub fn has(&self, recording: &Recording) -> bool {
        Label::are_in(&self.label, &recording.metadata().labels)
    }

    /// The error if none of the recordings has the labels that are asked for.
    pub fn none_of(&self, recordings: usize) -> anyhow::Error {
        Label::none_of(&self.label, recordings)
    }

    /// Gathers a profile, with a progress bar on standard error.
    pub fn gather(
        recordings: &[Recording],
        library: &Library,
        options: &Options,
        each: Option<&mut Each<'_>>,
    ) -> Profile {
        let progress = Progress::new();
        let tell = |done, total| progress.tell(done, total);
        let recordings: Vec<&Recording> = recordings.iter().collect();
        gather(&recordings, library, options, &tell, each)
    }
}

/// Refuses recordings of which two are the same, whose samples would count twice.
///
/// # Errors
/// There are two with one identity, such as a recording and its redacted copy.
pub fn refuse_twice(recordings: &[Recording]) -> anyhow::Result<()> {
    let mut known: HashMap<[u8; 16], &str> = HashMap::new();
    for recording in recordings {
        let name = recording.name();
        let other = recording.uuid().and_then(|uuid| known.insert(uuid, name));
        if let Some(other) = other {
            bail!(
                "{name} has the identity of {other}, so the same samples would count twice; name one of them"
            );
        }
    }
    Ok(())
}

fn no_monitor(name: &str) -> String {
    format!(
        "{name} has no recording of a guest's monitor: `uniprof record --host kvm:PID` makes one with the guest's"
    )
}

impl Selecting {
    /// Opens a recording, or its monitor's part, for a comparison.
    pub fn open_to_compare(&self, path: &Path, library: &Library) -> anyhow::Result<Recording> {
        keep(path);
        let recording = Recording::open(path).context("cannot compare")?;
        let mut recording = self.part_of(recording)?;
        place_given(&mut recording, library);
        Ok(recording)
    }

    /// A recording, or its monitor's part.
    pub fn part_of(&self, recording: Recording) -> anyhow::Result<Recording> {
        if !self.monitor {
            return Ok(recording);
        }
        let name = recording.name().to_owned();
        recording.into_monitor().with_context(|| no_monitor(&name))
    }

    /// The flags that select samples and frames, as on the command line, where they differ from the default.
    pub fn flags(&self) -> Vec<String> {
        let seconds = |ns: u64| format!("{}s", ns as f64 / 1e9);
        let value =
            |flag: &str, value: Option<String>| value.map(|value| format!("{flag} {value}"));
        let regex = |flag: &str, rule: &Option<Regex>| {
            value(
                flag,
                rule.as_ref()
                    .map(|rule| terminal::shell_word(rule.as_str())),
            )
        };
        let name = |value: &dyn Fn() -> Option<PossibleValue>| {
            value().map(|value| value.get_name().to_owned())
        };
        let states = self.state.iter();
        let vcpus = self.vcpu.iter().map(|vcpu| format!("--vcpu {vcpu}"));
        let pids = self.pid.iter().map(|pid| format!("--pid {pid}"));
        let mut flags: Vec<String> = vcpus.chain(pids).collect();
        let processes = self.processes;
        flags.extend(value(
            "--processes",
            processes.and_then(|how| name(&|| how.to_possible_value())),
        ));
        flags.extend(states.filter_map(|one| value("--state", name(&|| one.to_possible_value()))));
        let by = match self.by {
            ByFlag::Function => None,
            by => name(&|| by.to_possible_value()),
        };
        let values = [
            value("--from", self.from.map(seconds)),
            value("--to", self.to.map(seconds)),
            value("--min-wait", self.min_wait.map(seconds)),
            value("--max-wait", self.max_wait.map(seconds)),
            regex("--process", &self.process),
            regex("--thread", &self.thread),
            regex("--focus", &self.focus),
            regex("--ignore", &self.ignore),
            regex("--hide", &self.hide),
            value("--by", by),
        ];
        flags.extend(values.into_iter().flatten());
        let switches = [
            ("--idle", self.idle),
            ("--off-cpu", self.off_cpu),
            ("--monitor", self.monitor),
            ("--no-inlines", self.no_inlines),
            ("--by-thread", self.by_thread),
            ("--no-demangle", self.no_demangle),
            ("--scan", self.scan),
        ];
        let on = switches.into_iter().filter(|(_, is_on)| *is_on);
        flags.extend(on.map(|(flag, _)| flag.to_owned()));
        flags
    }

    /// Refuses flags that choose states of samples, where calls of traces count, which have none.
    pub fn refuse_states_of_calls(&self) -> anyhow::Result<()> {
        let given = [
            ("--off-cpu", self.off_cpu),
            ("--on-cpu", self.on_cpu),
            ("--idle", self.idle),
            (
                "--state",
                self.state.iter().any(|one| !matches!(one, StateFlag::All)),
            ),
            ("--min-wait", self.min_wait.is_some()),
            ("--max-wait", self.max_wait.is_some()),
        ];
        match given.iter().find(|(_, is_given)| *is_given) {
            Some((flag, _)) => {
                bail!("{flag} is of samples and waits, and these are calls of traces")
            }
            None => Ok(()),
        }
    }

    /// The unit to count; `None` for whatever the recording holds.
    fn unit(&self) -> Option<Unit> {
        let time = self.off_cpu || self.min_wait.is_some() || self.max_wait.is_some();
        match (time, self.on_cpu || self.idle) {
            (true, _) => Some(Unit::OffCpu),
            (false, true) => Some(Unit::Samples),
            (false, false) => None,
        }
    }

    /// Options for comparisons, which are of functions.
    ///
    /// # Errors
    /// Frames are to be something else.
    pub fn options_to_compare(&self) -> anyhow::Result<Options> {
        if !matches!(self.by, ByFlag::Function) {
            bail!("--by is for reports and exports: comparisons are of functions");
        }
        Ok(self.options(1))
    }

    /// Options for [`gather`].
    pub fn options(&self, recordings: usize) -> Options {
        let states = self.state.iter().flat_map(|state| match state {
            StateFlag::Running => vec![State::Running],
            StateFlag::Blocked => vec![State::Blocked],
            StateFlag::Offline => vec![State::Offline],
            StateFlag::Paused => vec![State::Paused],
            StateFlag::Ready => vec![State::Ready],
            StateFlag::All => State::ALL.to_vec(),
        });
        let with_idle: &[State] = if self.idle {
            &[State::Running, State::Blocked]
        } else {
            &[]
        };
        Options {
            filter: Filter {
                from_ns: self.from,
                to_ns: self.to,
                vcpus: self.vcpu.iter().copied().collect(),
                pids: self.pid.iter().copied().collect(),
                process: self.process.clone(),
                thread: self.thread.clone(),
                unit: self.unit(),
                states: states.chain(with_idle.iter().copied()).collect(),
                min_wait_ns: self.min_wait,
                max_wait_ns: self.max_wait,
                focus: self.focus.clone(),
                ignore: self.ignore.clone(),
                hide: self.hide.clone(),
            },
            by: match self.by {
                ByFlag::Function => By::Function,
                ByFlag::Line => By::Line,
                ByFlag::Module => By::Module,
                ByFlag::Address => By::Address,
            },
            inlines: !self.no_inlines,
            demangle: !self.no_demangle,
            unwind: uniprof_report::unwind::Options {
                scan: self.scan,
                ..Default::default()
            },
            by_task: self.by_thread,
            by_process: self.processes == Some(ProcessesFlag::Apart),
            by_recording: recordings > 1,
            are_apart: false,
            slowest: 0,
            survey: false,
        }
    }
}

/// Most warnings printed.
const WARNINGS_SHOWN: usize = 10;

/// Prints a profile's warnings on standard error.
pub fn say_warnings(profile: &Profile) {
    for warning in profile.warnings.iter().take(WARNINGS_SHOWN) {
        say(&format!("warning: {warning}"));
    }
    if let Some(more @ 1..) = profile.warnings.len().checked_sub(WARNINGS_SHOWN) {
        say(&format!(
            "warning: {more} more like these; see `uniprof info`"
        ));
    }
}

/// Prints the damaged parts of recordings on standard error.
pub fn say_damages(recordings: &[Recording]) {
    for recording in recordings {
        for stretch in &recording.damages().stretches {
            say(&format!("warning: {}: {stretch}", recording.name()));
        }
    }
}

/// Prints a line on standard error.
pub fn say(line: &str) {
    terminal::say(format_args!("uniprof: {line}"));
}

/// Prints a line on standard error, unless `--quiet`.
pub fn inform(line: &str) {
    terminal::inform(format_args!("uniprof: {line}"));
}

/// Prints on standard error what the counts are based on, for outputs that can't contain it.
pub fn say_account(profile: &Profile) {
    let lines = profile.account.lines();
    let Some((counted, missing)) = lines.split_first() else {
        return;
    };
    inform(counted);
    missing.iter().for_each(|line| say(line));
}
