//! `uniprof record` of several Xen domains at a time: a thread and a file for each.

use crate::outcome::{Outcome, Reported};
use crate::quantity;
use crate::record::Args;
use crate::record::destination::{Destination, OutputPath};
use crate::record::domain_file;
#[cfg(feature = "report")]
use crate::record::embed;
use crate::record::window::{self, Window};
use crate::record::{start, summary};
use crate::target::{self, Company};
use crate::terminal;
use anyhow::{Context, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::DirBuilderExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use uniprof_record::output::Output;
use uniprof_record::{Counters, Plan, Source, SourceError, Summary, signal};

/// The default folder of recordings.
const DEFAULT_FOLDER: &str = "domains";
/// How often Xen is asked for its list of domains.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How long a domain may take to be built and to boot before a message says that it is not recorded.
const PATIENCE: Duration = Duration::from_secs(3);

/// A recording's number, and its result.
type Ended = (u64, Result<Summary, SourceError>);

/// Recordings that are made at the same time.
struct Recordings<'a> {
    args: &'a Args,
    plan: Plan,
    company: Company,
    folder: PathBuf,
    began: Instant,
    running: BTreeMap<u64, Running>,
    /// With --all-domains: domains that can't be recorded yet.
    waiting: BTreeMap<u64, Waiting>,
    /// Domains whose recording is over although they still exist.
    over: BTreeSet<u64>,
    /// Recordings that are over, and whether the file of each was still at its path.
    done: Vec<(PathBuf, Summary, bool)>,
    /// Whether a domain could not be recorded, and whether a recording has lost samples or was cut.
    has_failed: bool,
    is_lossy: bool,
    report: Sender<Ended>,
    ended: Receiver<Ended>,
}

/// A recording under way.
struct Running {
    path: PathBuf,
    /// `None` with `--keep`, where the last window becomes the file.
    output: Option<Destination>,
    counters: Arc<Counters>,
    thread: JoinHandle<()>,
}

/// What a recording writes.
enum Made {
    File(Output),
    Window(Window),
}

/// A domain that can't be recorded yet.
struct Waiting {
    since: Instant,
    why: String,
    is_told: bool,
}

/// Records according to the flags, and prints a line for each domain.
pub fn run(args: &Args) -> anyhow::Result<Outcome> {
    refuse(args)?;
    window::refuse(args)?;
    start::refuse_other_tools(args)?;
    start::warn_of_paused();
    let folder = args.output.as_deref().unwrap_or(Path::new(DEFAULT_FOLDER));
    let (report, ended) = channel();
    let plan = args.plan();
    let mut all = Recordings {
        args,
        company: Company::start(&plan)?,
        plan,
        folder: folder.to_path_buf(),
        began: Instant::now(),
        running: BTreeMap::new(),
        waiting: BTreeMap::new(),
        over: BTreeSet::new(),
        done: Vec::new(),
        has_failed: false,
        is_lossy: false,
        report,
        ended,
    };
    let sources = all.open_named();
    if sources.is_empty() && !args.all_domains {
        bail!("none of these domains can be recorded");
    }
    start::begin(|| create(folder), Some(&folder.join("a file")))?;
    for source in sources {
        all.begin(source, all.plan.clone());
    }
    all.attend();
    all.finish()
}

/// Refuses flags that are unavailable for several domains.
fn refuse(args: &Args) -> anyhow::Result<()> {
    for target in &args.targets {
        if !target::is_domain(target) {
            bail!(
                "several targets at a time can be Xen domains alone, which `{target}` is none of: processes go \
                 together as pid:N,M, name: or cgroup:, and each other guest takes a recorder of its own"
            );
        }
    }
    if args.output.as_deref() == Some(Path::new("-")) {
        bail!("several recordings can't go to standard output: give a folder with -o");
    }
    if !args.elf.is_empty() {
        bail!(
            "--elf is for a single domain: of several, each has the kernel that libxl's configuration names, and \
             `uniprof report --elf` takes others"
        );
    }
    if args.off_cpu || args.per_thread || args.ptrace {
        bail!("--off-cpu and --per-thread are for processes, not for Xen domains");
    }
    Ok(())
}

/// Makes the folder, if it isn't there.
fn create(folder: &Path) -> anyhow::Result<()> {
    let cannot = || format!("cannot create the folder {}", folder.display());
    match std::fs::metadata(folder) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => bail!(
            "{}: it is a file; of several domains, -o names a folder",
            cannot()
        ),
        Err(_) => {
            let mut builder = std::fs::DirBuilder::new();
            builder.mode(0o700).create(folder).with_context(cannot)
        }
    }
}

impl Recordings<'_> {
    /// Opens the domains that were named, and reports those that can't be recorded.
    fn open_named(&mut self) -> Vec<Source> {
        let mut sources: Vec<Source> = Vec::new();
        for target in &self.args.targets {
            match self.company.open(target, &self.plan) {
                Ok(source) => {
                    let id = source.hot.facts().target.id;
                    let is_same = |other: &Source| other.hot.facts().target.id == id;
                    if !sources.iter().any(is_same) {
                        sources.push(source);
                    }
                }
                Err(error) => {
                    terminal::say(format_args!("uniprof: {error}"));
                    self.has_failed = true;
                }
            }
        }
        sources
    }

    /// Begins a recording, or reports why it can't.
    fn begin(&mut self, source: Source, plan: Plan) {
        let id = source.hot.facts().target.id;
        if let Err(error) = self.try_to_begin(source, plan) {
            terminal::say(format_args!("uniprof: {error:#}"));
            self.has_failed = true;
            self.over.insert(id);
        }
    }

    fn try_to_begin(&mut self, source: Source, plan: Plan) -> anyhow::Result<()> {
        let facts = source.hot.facts();
        let id = facts.target.id;
        let path = self
            .folder
            .join(domain_file::name_of(id, &facts.target.name));
        let (output, made) = if self.args.keep.is_some() {
            let window = Window::start(self.args, &path, window::create(&path)?)?;
            (None, Made::Window(window))
        } else {
            let output = OutputPath::of_file(&path)?.create()?;
            let writer = output.writer()?;
            (Some(output), Made::File(writer))
        };
        start::warn(facts);
        if self.args.all_domains {
            terminal::inform(format_args!("Recording domain {id} to {}.", path.display()));
        }
        let counters = Arc::<Counters>::default();
        let counted = Arc::clone(&counters);
        let report = self.report.clone();
        let thread = std::thread::Builder::new().name(format!("uniprof-{id}"));
        let thread = thread.spawn(move || {
            let record = || match made {
                Made::File(writer) => uniprof_record::record(source, writer, &plan, counted),
                Made::Window(window) => window.record(source, &plan, counted),
            };
            let summary = catch_unwind(AssertUnwindSafe(record));
            let failed = || SourceError("its thread failed; please report this".into());
            let _ = report.send((id, summary.unwrap_or_else(|_| Err(failed()))));
        });
        let thread = thread.with_context(|| format!("cannot start a thread for domain {id}"))?;
        let running = Running {
            path,
            output,
            counters,
            thread,
        };
        self.running.insert(id, running);
        Ok(())
    }

    /// Handles domains that appear and recordings that end, until there are no more.
    fn attend(&mut self) {
        let mut takes_up = self.args.all_domains;
        loop {
            let is_over = signal::stop_signal().is_some() || self.left() == Some(Duration::ZERO);
            takes_up &= !is_over;
            if takes_up && let Err(error) = self.look() {
                terminal::say(format_args!(
                    "uniprof: no more domains are taken up: {error}"
                ));
                self.has_failed = true;
                takes_up = false;
            }
            if self.running.is_empty() && !takes_up {
                break;
            }
            if let Ok((id, summary)) = self.ended.recv_timeout(LOOK_EVERY) {
                terminal::clear_line();
                self.end(id, summary);
            } else {
                self.show_progress();
            }
        }
        terminal::clear_line();
    }

    /// How much is left of the requested duration.
    fn left(&self) -> Option<Duration> {
        let duration = self.plan.duration?;
        Some(duration.saturating_sub(self.began.elapsed()))
    }

    /// Starts recordings of the domains that have appeared.
    fn look(&mut self) -> Result<(), SourceError> {
        let mut listed = self.company.list()?;
        // One that was reset in place is shut down for a while. Another recording would replace the file of the first.
        self.over
            .retain(|&id| listed.iter().any(|domain| u64::from(domain.id) == id));
        listed.retain(|domain| domain.is_alive);
        self.waiting
            .retain(|&id, _| listed.iter().any(|domain| u64::from(domain.id) == id));
        for domain in listed {
            let id = u64::from(domain.id);
            if self.running.contains_key(&id) || self.over.contains(&id) {
                continue;
            }
            let plan = Plan {
                duration: self.left(),
                ..self.plan.clone()
            };
            let source = if domain.is_paused {
                Err(format!("domain {id} is paused by someone else"))
            } else {
                self.company
                    .open(&id.to_string(), &plan)
                    .map_err(|error| error.0)
            };
            match source {
                Ok(source) => {
                    self.waiting.remove(&id);
                    self.begin(source, plan);
                }
                Err(why) => self.wait_for(id, why),
            }
        }
        Ok(())
    }

    /// Remembers why a domain can't be recorded yet, and reports it once that has taken long.
    fn wait_for(&mut self, id: u64, why: String) {
        let waiting = self.waiting.entry(id).or_insert_with(|| Waiting {
            since: Instant::now(),
            why: String::new(),
            is_told: false,
        });
        waiting.why = why;
        if !waiting.is_told && waiting.since.elapsed() >= PATIENCE {
            waiting.is_told = true;
            terminal::say(format_args!(
                "uniprof: {}; it is taken up once it can be",
                waiting.why
            ));
        }
    }

    /// Closes a recording that is over.
    fn end(&mut self, id: u64, summary: Result<Summary, SourceError>) {
        let Some(running) = self.running.remove(&id) else {
            return;
        };
        let _ = running.thread.join();
        self.over.insert(id);
        let path = running.path;
        let is_in_place = running.output.as_ref().is_none_or(Destination::is_in_place);
        let summary = match running.output {
            Some(output) => summary::kept_in(output, summary),
            None => summary,
        };
        let summary = match summary {
            Ok(summary) => summary,
            Err(error) => {
                terminal::say(format_args!("uniprof: {}: {error}", path.display()));
                self.has_failed = true;
                return;
            }
        };
        summary::say_one_of_several(&summary, &path, self.plan.rate_hz);
        let of = format!("{}: ", path.display());
        match summary::outcome(&summary, self.plan.rate_hz, &of) {
            Ok(outcome) => self.is_lossy |= outcome != Outcome::Done,
            // The line above has reported the reason.
            Err(_) => self.has_failed = true,
        }
        self.done.push((path, summary, is_in_place));
    }

    /// Reports the results of all recordings together, and completes the files.
    fn finish(self) -> anyhow::Result<Outcome> {
        for waiting in self.waiting.values().filter(|waiting| !waiting.is_told) {
            terminal::say(format_args!("uniprof: {}; it was left out", waiting.why));
        }
        if self.done.is_empty() {
            bail!("nothing was recorded: there was no domain that could be; see `xl list`");
        }
        let samples = |(_, summary, _): &(PathBuf, Summary, bool)| summary.samples;
        terminal::inform(format_args!(
            "Recorded {} domains to {}: {} samples in {:.1} s.",
            self.done.len(),
            self.folder.display(),
            self.done.iter().map(samples).sum::<u64>(),
            self.began.elapsed().as_secs_f64(),
        ));
        let is_embedded = self.embed_all();
        if self.has_failed {
            bail!(Reported);
        }
        Ok(Outcome::lossy_if(self.is_lossy || !is_embedded))
    }

    /// Embeds images into all files; returns whether that worked for each.
    #[cfg(feature = "report")]
    fn embed_all(&self) -> bool {
        let failed = |(path, summary, is_in_place): &&(PathBuf, Summary, bool)| {
            !embed(self.args, path, summary, *is_in_place)
        };
        let failures = self.done.iter().filter(failed).count();
        signal::release_stops();
        failures == 0
    }

    #[cfg(not(feature = "report"))]
    fn embed_all(&self) -> bool {
        true
    }

    /// Shows samples and losses of all recordings on the terminal.
    fn show_progress(&self) {
        let counted = |count: fn(&Counters) -> &AtomicU64| -> u64 {
            let all = self.running.values();
            all.map(|running| count(&running.counters).load(Ordering::Relaxed))
                .sum()
        };
        let line = format!(
            "{:6.1} s  {} domains  {} samples  {} dropped  {}",
            self.began.elapsed().as_secs_f64(),
            self.running.len(),
            counted(|counters| &counters.samples),
            counted(|counters| &counters.dropped),
            quantity::bytes(counted(|counters| &counters.bytes)),
        );
        terminal::show_line(&line);
    }
}
