//! Exports: recordings in the formats of other programs. [`FORMATS`] is the table of them.

mod call_times;
pub mod csv;
mod timeline;
pub mod firefox;
pub mod folded;
pub mod json;
mod parquet;
mod llvm_profile;
pub mod perf_script;
pub mod perfetto;
pub mod pprof;
pub mod speedscope;
pub mod uniprof_text;

pub use timeline::{Timeline, TimelineError};

use crate::profile::Profile;
use crate::profile::gather::{self, By, Each, OnProgress, Options, Sampled};
use crate::profile::labels::LabelId;
use crate::profile::tree::NodeId;
use crate::recording::{Recording, Unit};
use crate::stacks::Tables;
use call_times::TaskCalls;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;
use uprof::{State, Task};

/// One format.
pub struct Format {
    /// Its name for `--format`.
    pub name: &'static str,
    /// The program that reads it, for the help text.
    pub about: &'static str,
    /// Whether it is binary, and so must not be written to a terminal.
    pub is_binary: bool,
    /// Whether it is a timeline. Several recordings in one timeline need a common clock.
    pub needs_clock: bool,
    /// Whether it can show wall time of vCPUs, which has stacks but no exact moments.
    pub has_sums: bool,
    /// Which of the options about frames it takes.
    pub frames: FrameOptions,
    /// Writes the export, and returns the profile that it was written from.
    pub write: Writes,
}

impl Format {
    /// Whether it is one file, which may be standard output.
    pub fn is_file(&self) -> bool {
        matches!(self.write, Writes::File(_))
    }
}

/// Which options about frames a format takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameOptions {
    /// All.
    All,
    /// What a frame is, but it has processes and threads of its own.
    Frames,
    /// None: it has function, line and address of each frame, too.
    None,
}

/// What a format writes.
#[derive(Clone, Copy)]
pub enum Writes {
    /// One file of all recordings.
    File(fn(&Request<'_, '_>, &mut dyn Write) -> io::Result<Profile>),
    /// Files in a folder, of one recording at a time.
    Folder(fn(&Request<'_, '_>, &mut dyn Folder) -> io::Result<Profile>),
}

/// A folder of an export.
pub trait Folder {
    /// Creates a file at a path in the folder. It appears when all files of the recording are complete, those that were
    /// created first before the others.
    ///
    /// # Errors
    /// Those of the file system.
    fn create(&mut self, path: &Path) -> io::Result<Box<dyn Write + Send>>;
}

/// All formats.
pub const FORMATS: &[Format] = &[
    Format {
        name: "pprof",
        about: "protobuf for go tool pprof",
        is_binary: true,
        needs_clock: false,
        has_sums: false,
        frames: FrameOptions::None,
        write: Writes::File(pprof::write),
    },
    Format {
        name: "firefox",
        about: "JSON for profiler.firefox.com",
        is_binary: false,
        needs_clock: false,
        has_sums: true,
        frames: FrameOptions::Frames,
        write: Writes::File(firefox::write),
    },
    Format {
        name: "perfetto",
        about: "protobuf for ui.perfetto.dev: samples and calls on one time axis",
        is_binary: true,
        needs_clock: true,
        has_sums: false,
        frames: FrameOptions::Frames,
        write: Writes::File(perfetto::write),
    },
    Format {
        name: "speedscope",
        about: "JSON for speedscope.app",
        is_binary: false,
        needs_clock: false,
        has_sums: false,
        frames: FrameOptions::Frames,
        write: Writes::File(speedscope::write),
    },
    Format {
        name: "folded",
        about: "a line a stack, for flamegraph.pl, inferno and speedscope",
        is_binary: false,
        needs_clock: false,
        has_sums: true,
        frames: FrameOptions::All,
        write: Writes::File(folded::write_request),
    },
    Format {
        name: "perf-script",
        about: "what perf script prints, for stackcollapse-perf.pl and inferno-collapse-perf",
        is_binary: false,
        needs_clock: false,
        has_sums: false,
        frames: FrameOptions::None,
        write: Writes::File(perf_script::write),
    },
    Format {
        name: "uniprof-text",
        about: "the output of the original C tool, for stackcollapse.pl",
        is_binary: false,
        needs_clock: false,
        has_sums: false,
        frames: FrameOptions::None,
        write: Writes::File(uniprof_text::write),
    },
    Format {
        name: "json",
        about: "everything, for scripts",
        is_binary: false,
        needs_clock: false,
        has_sums: true,
        frames: FrameOptions::All,
        write: Writes::File(json::write),
    },
    Format {
        name: "csv",
        about: "functions and their samples or times, for spreadsheets",
        is_binary: false,
        needs_clock: false,
        has_sums: true,
        frames: FrameOptions::All,
        write: Writes::File(csv::write),
    },
    Format {
        name: "llvm-profile",
        about: "a sample profile as text, for clang -fprofile-sample-use",
        is_binary: false,
        needs_clock: false,
        has_sums: false,
        frames: FrameOptions::None,
        write: Writes::File(llvm_profile::write),
    },
    Format {
        name: "parquet",
        about: "tables of many recordings, in a folder, for DuckDB, ClickHouse, DataFusion and Spark",
        is_binary: true,
        needs_clock: false,
        has_sums: false,
        frames: FrameOptions::Frames,
        write: Writes::Folder(parquet::write),
    },
];

/// What to export.
pub struct Request<'a, 'l> {
    /// The recordings, whose samples are added up.
    pub recordings: &'a [&'a Recording],
    /// Images and symbol lists, and what was read of them before.
    pub tables: &'a Tables<'l>,
    /// Which samples and frames to export.
    pub options: &'a Options,
    /// Receives the progress of reading.
    pub progress: &'a OnProgress<'a>,
    /// Whether to mark kernel frames with `_[k]` and inlined ones with `_[i]`, where the format allows it.
    pub marks: bool,
    /// Whether to collapse recursion, in folded stacks.
    pub fold: bool,
    /// Whether to write the command line and the host's name, too.
    pub identify: bool,
}

/// The samples of each vCPU or thread, by number of the recording and task.
pub(crate) type Threads = BTreeMap<(usize, Task), Vec<ThreadSample>>;

/// One sample of a thread.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ThreadSample {
    /// Time since the start of the recording (nanoseconds).
    pub since_ns: u64,
    /// The stack.
    pub node: NodeId,
    /// The state of the vCPU or thread.
    pub state: State,
    /// Weight, in the profile's unit.
    pub weight: u64,
}

/// Samples and calls of a timeline.
pub(crate) struct TimelineData {
    /// The profile of the samples; of the calls if there are no samples.
    pub profile: Profile,
    /// Samples or waits of each thread.
    pub samples: Threads,
    /// Calls of each thread.
    pub calls: BTreeMap<(usize, Task), TaskCalls>,
    /// Names of the calls, by number.
    pub names: Vec<String>,
}

impl Request<'_, '_> {
    /// Gathers the samples that the request selects.
    pub(crate) fn gather(&self, options: &Options, each: Option<&mut Each<'_>>) -> Profile {
        gather::gather_with(self.recordings, self.tables, options, self.progress, each)
    }

    /// Gathers for a format with one thread for each vCPU or thread of each recording. A stream doesn't
    /// guarantee the order of time, so the samples of a thread are sorted.
    pub(crate) fn gather_threads(&self) -> (Profile, Threads) {
        let mut threads = Threads::new();
        let mut take = |sampled: &Sampled, _: &Profile| add_sample(&mut threads, sampled);
        let profile = self.gather(&self.by_thread(), Some(&mut take));
        sort(&mut threads);
        (profile, threads)
    }

    /// Gathers the samples, and the calls beside them. If there are no samples and `weigh` is set, the self
    /// time of calls is used in their place.
    pub(crate) fn gather_timed(&self, weigh: bool) -> TimelineData {
        let mut samples = Threads::new();
        let mut calls = CallCollector::default();
        let mut take = |sampled: &Sampled, profile: &Profile| {
            calls.take(sampled, profile);
            if weigh || sampled.unit != Unit::Calls {
                add_sample(&mut samples, sampled);
            }
        };
        let mut options = self.by_thread();
        let mut profile = self.gather(&options, Some(&mut take));
        sort(&mut samples);
        let has_calls = |one: &&Recording| !one.span_blocks().is_empty();
        if profile.unit() != Unit::Calls && self.recordings.iter().any(has_calls) {
            options.filter.unit = Some(Unit::Calls);
            calls.labels.clear();
            let mut take = |sampled: &Sampled, profile: &Profile| calls.take(sampled, profile);
            let beside = self.gather(&options, Some(&mut take));
            profile.account.add_beside(&beside.account);
            profile.warnings.extend(beside.warnings);
        }
        let CallCollector { tasks, names, .. } = calls;
        TimelineData {
            profile,
            samples,
            calls: tasks,
            names,
        }
    }

    fn by_thread(&self) -> Options {
        Options {
            by_task: false,
            by_process: false,
            by_recording: false,
            ..self.options.clone()
        }
    }

    /// Options for formats with separate fields for function, line and address, and with threads and recordings.
    pub(crate) fn placed(&self) -> Options {
        Options {
            by: By::Place,
            ..self.by_thread()
        }
    }
}

fn add_sample(threads: &mut Threads, sampled: &Sampled) {
    let thread = threads
        .entry((sampled.recording, sampled.task))
        .or_default();
    thread.push(ThreadSample {
        since_ns: sampled.since_ns,
        node: sampled.node,
        state: sampled.state,
        weight: sampled.weight.amount,
    });
}

fn sort(threads: &mut Threads) {
    for samples in threads.values_mut() {
        // The sort is stable: samples with equal times stay in recorded order.
        samples.sort_by_key(|sample| sample.since_ns);
    }
}

/// Collects the calls as they are read.
#[derive(Default)]
struct CallCollector {
    tasks: BTreeMap<(usize, Task), TaskCalls>,
    names: Vec<String>,
    /// Number of each name, by label.
    labels: BTreeMap<LabelId, u32>,
}

impl CallCollector {
    fn take(&mut self, sampled: &Sampled, profile: &Profile) {
        let Some(call) = sampled.shown_call() else {
            return;
        };
        let names = &mut self.names;
        let name = *self.labels.entry(call.name).or_insert_with(|| {
            names.push(profile.labels.name(call.name).to_owned());
            names.len() as u32 - 1
        });
        let task = self
            .tasks
            .entry((sampled.recording, sampled.task))
            .or_default();
        task.push(&call.with(name, ()));
    }
}
