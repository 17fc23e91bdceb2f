//! Runs of a program, each sampled while it is slowed down, and summed up: a short program runs several times.

use crate::certify::beside::Peer;
use crate::certify::finding::Tally;
use crate::compare::program_output::{OutputReader, last_messages};
use anyhow::{Context, anyhow, bail};
use std::fs::File;
use std::io::BufWriter;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;
use uniprof_record::plant::{self, Plant, Program, Run};
use uniprof_record::{Counters, Ending, Plan, record};
use uniprof_report::images::Library;
use uniprof_report::profile::{By, Options, Profile, gather};
use uniprof_report::recording::Recording;

/// Runs of a program.
pub struct PlantedRuns<'a> {
    command: Vec<String>,
    plan: Plan,
    peer: Option<Peer>,
    folder: &'a Path,
    /// What the first run did.
    first: Option<Deed>,
    warnings: Vec<String>,
}

/// What a run did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Deed {
    status: i32,
    /// Length and hash of its standard output.
    output: (u64, u64),
}

/// Runs of one kind, summed up.
pub struct RunSum {
    /// How many.
    pub runs: u32,
    /// Their processor time, in nanoseconds.
    pub cpu_ns: u64,
    /// The part of it that was planted.
    pub planted_ns: u64,
    /// In how many parts.
    pub spins: u32,
    /// Their samples, by instruction.
    pub profile: Profile,
    /// What the other profiler saw.
    pub beside: Option<Tally>,
}

/// Runs end when they have this processor time, in nanoseconds,
const CPU_NS_MIN: u64 = 2_000_000_000;
/// or are as many.
const RUNS_MAX: u32 = 10;
/// Fewest samples of runs.
pub const SAMPLES_MIN: u64 = 200;
/// How long a recorder may take to begin.
const PATIENCE: Duration = Duration::from_secs(20);

impl<'a> PlantedRuns<'a> {
    /// Runs of `command`, whose recordings are in `folder` for a while.
    pub fn new(
        command: Vec<String>,
        frequency: f64,
        peer: Option<Peer>,
        folder: &'a Path,
    ) -> PlantedRuns<'a> {
        let plan = Plan {
            rate_hz: frequency,
            command_line: std::env::args().collect(),
            ..Plan::for_processes()
        };
        PlantedRuns {
            command,
            plan,
            peer,
            folder,
            first: None,
            warnings: Vec::new(),
        }
    }

    /// The program and its arguments.
    pub fn command(&self) -> &[String] {
        &self.command
    }

    /// The program, as it was given.
    pub fn program(&self) -> &str {
        self.command.first().map_or("", String::as_str)
    }

    /// What else is worth knowing of the runs.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The last messages of the program, as a sentence; empty without any.
    pub fn said(&self) -> String {
        match &*last_messages(&self.folder.join("said")) {
            "" => String::new(),
            said => format!(" It said: {said}"),
        }
    }

    /// Runs the program, slowed down by `plant`, as often as it takes.
    ///
    /// # Errors
    /// It can't be started, sampled or slowed down, or does something else than in its first run.
    pub fn run(&mut self, plant: Option<&Plant>) -> anyhow::Result<RunSum> {
        let mut sum = RunSum {
            runs: 0,
            cpu_ns: 0,
            planted_ns: 0,
            spins: 0,
            profile: Profile::default(),
            beside: None,
        };
        let mut recordings = Vec::new();
        while sum.runs < RUNS_MAX && sum.cpu_ns < CPU_NS_MIN {
            let path = self.folder.join(format!("{:02}.uprof", sum.runs));
            let run = self.record(plant, &path)?;
            // The address of the plant tells nothing without one.
            if let Some((peer, Plant { site, .. })) = self.peer.zip(plant) {
                let file_offset = site.file_offset + plant::SPIN_OFFSET_BYTES;
                let seen = peer.read(self.folder, &site.path, file_offset, &run.addresses)?;
                let all = sum.beside.get_or_insert_default();
                all.samples += seen.samples;
                all.seen += seen.seen;
            }
            sum.runs += 1;
            sum.cpu_ns += run.cpu_ns;
            sum.planted_ns += run.planted_ns;
            sum.spins += run.spins;
            recordings.push(Recording::open(&path)?);
            let due = sum.cpu_ns as f64 / 1e9 * self.plan.rate_hz;
            if due * f64::from(RUNS_MAX) < SAMPLES_MIN as f64 {
                break;
            }
        }
        let options = Options {
            by: By::Place,
            inlines: false,
            ..Options::default()
        };
        let recordings: Vec<&Recording> = recordings.iter().collect();
        sum.profile = gather(&recordings, &Library::default(), &options, &|_, _| (), None);
        let account = &sum.profile.account;
        let mut lost = account.lost.iter();
        if lost.any(|(reason, count)| account.is_loss(*reason, *count)) {
            self.warn("samples were lost, so shares may be off: try a lower rate (-F)".to_owned());
        }
        Ok(sum)
    }

    /// Adds a warning, once.
    fn warn(&mut self, warning: String) {
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    /// Runs and records the program once.
    fn record(&mut self, plant: Option<&Plant>, path: &Path) -> anyhow::Result<Run> {
        let no_input = File::open("/dev/null")?;
        let said = File::create(self.folder.join("said"))?;
        let (reader, writer) = std::io::pipe()?;
        let streams = [&no_input as &dyn AsRawFd, &writer, &said].map(AsRawFd::as_raw_fd);
        let program = Program::start(self.command.clone(), streams)?;
        drop(writer);
        let output = OutputReader::start(reader)?;
        let run = std::thread::scope(|scope| self.sampled(scope, program, plant, path))?;
        self.judge(Deed {
            status: run.status,
            output: output.finish()?,
        })?;
        Ok(run)
    }

    /// Runs a program that waits for its start, beside its recorders.
    fn sampled<'s>(
        &'s self,
        scope: &'s Scope<'s, '_>,
        program: Program,
        plant: Option<&Plant>,
        path: &Path,
    ) -> anyhow::Result<Run> {
        let pid = program.pid();
        let (source, begun) = plant::open(pid, &self.plan)?;
        let output = BufWriter::new(File::create(path)?);
        let recorder =
            scope.spawn(move || record(source, output, &self.plan, Arc::new(Counters::default())));
        let peer = self.peer.filter(|_| plant.is_some()).map(|peer| {
            let (tell, told) = sync_channel(1);
            let thread =
                scope.spawn(move || peer.record(pid, self.plan.rate_hz, self.folder, &tell));
            (thread, told)
        });
        await_start(&begun).context("cannot sample the program")?;
        let peer: Option<ScopedJoinHandle<'_, anyhow::Result<PathBuf>>> = match peer {
            Some((thread, begun)) => {
                await_start(&begun).context("cannot run the other profiler")?;
                Some(thread)
            }
            None => None,
        };
        let run = program.run(plant);
        let summary = recorder
            .join()
            .map_err(|_| anyhow!("the recorder failed"))??;
        if let Some(peer) = peer {
            peer.join()
                .map_err(|_| anyhow!("the other profiler's thread failed"))??;
        }
        if let Ending::Failed(error) = summary.ending {
            return Err(error).context("cannot sample the program");
        }
        if let Some(error) = summary.output_error {
            bail!("cannot write the recording of a run: {error}");
        }
        Ok(run?)
    }

    /// Compares what a run did with the first one.
    fn judge(&mut self, deed: Deed) -> anyhow::Result<()> {
        let first = *self.first.get_or_insert(deed);
        let program = self.program();
        if deed.status != first.status {
            bail!(
                "`{program}` ended with status {}, and with {} in its first run: it doesn't do the same work each \
                 time.{}",
                deed.status,
                first.status,
                self.said()
            );
        }
        if deed.output != first.output {
            self.warn(format!(
                "`{program}` did not print the same in each run: its work may differ as well"
            ));
        }
        Ok(())
    }
}

fn await_start(begun: &Receiver<()>) -> anyhow::Result<()> {
    match begun.recv_timeout(PATIENCE) {
        // One that failed says why when its thread is joined.
        Ok(()) | Err(RecvTimeoutError::Disconnected) => Ok(()),
        Err(RecvTimeoutError::Timeout) => bail!("it did not begin within {} s", PATIENCE.as_secs()),
    }
}
