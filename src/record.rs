//! `uniprof record`: samples a guest or process into a file or pipe.

mod destination;
mod warnings;
mod summary;
mod start;
pub mod boot;
mod status_line;
#[cfg(feature = "report")]
mod console;
mod save_when;
mod window;
#[cfg(feature = "report")]
mod pushing;
pub mod call_recording;
pub mod runs;
mod domain_file;
pub mod domains;

use crate::elf::Elf;
#[cfg(feature = "report")]
use crate::memory;
use crate::outcome::Outcome;
use crate::quantity::label::Label;
use crate::quantity::{parse_duration, parse_rate, parse_share, parse_stack_bytes};
use crate::record::boot::BootFlags;
use crate::record::destination::OutputPath;
use crate::record::status_line::StatusLine;
use crate::record::window::Window;
use crate::target::resolvers;
use crate::target::{ExitStatus, Stdout};
use crate::{target, terminal};
use std::path::{Path, PathBuf};
use std::sync::Arc;
#[cfg(feature = "report")]
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use uniprof_record::plan::{LEAF_STACK_BYTES, MOST_EXITS_HZ, USUAL_STOPS_HZ};
use uniprof_record::signal;
use uniprof_record::trigger::Trigger;
use uniprof_record::{Counters, Plan, Summary};

/// The default file of a recording.
pub const DEFAULT_FILE: &str = "run.uprof";

/// Sample a guest or process into a recording.
#[derive(clap::Args, Debug, Clone)]
#[command(after_help = "\
Examples:
  uniprof record -d 30s 7                      Xen domain 7, from dom0
  uniprof record -F 997 web                    the Xen domain of that name, or UUID
  uniprof record pid:1234                      a process and all below it, until ctrl-C
  uniprof record name:nginx                    all processes of that name
  uniprof record cgroup:system.slice/nginx.service
  uniprof record --follow -d 1h web            the domain web, also when it has rebooted
  uniprof record -d 30s -o run 7 8 web         three domains: run/7-NAME.uprof and so on
  uniprof record --all-domains -o run          all domains, also those to come, until ctrl-C
  uniprof record -a -d 10s                     the whole machine
  uniprof record -F 997 -d 5s -o a.uprof pid:1234
  uniprof record --elf app.elf gdb:localhost:1234   a guest behind a gdb stub
  uniprof record --elf app.elf qemu:/run/qmp.sock   a QEMU guest, by its monitor
  uniprof record -- ./server --port 80         a command, until it ends
  uniprof record -d 10s -- ./server            its first 10 seconds: then it is ended, too (--keep-running: not)
  uniprof record --runs 5 -o before -- ./server --test   five runs, for uniprof compare before after
  uniprof record --calls parse,reply -d 5s --elf app.elf qemu:/run/qmp.sock   single calls
  uniprof record --off-cpu -d 10s pid:1234     where its threads wait, too
  uniprof record --keep 60s --save-when 'silent for 2s' web   the last minute, for `uniprof save`, too
  uniprof record --boot --elf app.elf -- qemu-system-x86_64 -kernel app.elf   from the first instruction
  uniprof record --boot web -- xl create web.cfg   a Xen domain, likewise
  uniprof record -o - pid:1234 | ssh desk 'cat >run.uprof'

The recording holds memory of the guest: it is created with mode 0600.")]
pub struct Args {
    /// Where to write (default: run.uprof); `-` is standard output. An existing recording is kept as FILE.old. For
    /// several domains: a folder, with a file for each (default: domains)
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Samples a second of each vCPU or thread (1 to 100000); odd rates don't run in step with
    /// a process's timers, guests are sampled at random times
    #[arg(short = 'F', long, value_name = "HZ", default_value = "99", value_parser = parse_rate)]
    pub frequency: f64,

    /// Keep only the last so much of the recording, in files beside FILE, and save it when asked to: by `uniprof save`,
    /// by SIGUSR1, by --save-when, and at the end. Saves are FILE with a number
    #[arg(long, value_name = "TIME", value_parser = window::parse_length, conflicts_with = "calls")]
    pub keep: Option<Duration>,

    /// With --keep, save when this happens; may be repeated. `busy>95% for 3s`: a vCPU or thread runs for more than
    /// this share of the time. `silent for 2s`: none runs, or only on the spot. `crash`: the guest ends or restarts,
    /// or a command crashes. `share(FUNCTION)>20% for 2s`: it is in more than this share of the samples
    #[arg(long, value_name = "CONDITION", requires = "keep", value_parser = save_when::parse)]
    pub save_when: Vec<Trigger>,

    /// Go on for so long before what --save-when asks for is saved
    #[arg(long, value_name = "TIME", requires = "save_when", value_parser = parse_duration)]
    pub after: Option<Duration>,

    /// How long to record, for example 500ms, 10s, 2m (default: until the target ends or ctrl-C). A command that still
    /// runs then is ended (SIGTERM, and SIGKILL after 2 s), unless --keep-running is given
    #[arg(short = 'd', long, short_alias = 'T', value_name = "TIME", value_parser = parse_duration)]
    pub duration: Option<Duration>,

    /// Keep up to this many raw stack bytes of each sample, to unwind code without frame pointers later
    /// (default: 64K of a process, fewer where the kernel's buffers are too small for the rate; of a
    /// guest 128, or 16K if no number is given)
    #[arg(long, value_name = "BYTES", num_args = 0..=1, require_equals = true,
          value_parser = parse_stack_bytes)]
    pub stack: Option<Option<u32>>,

    /// Follow frame pointers alone, as by default in guests; 128 stack bytes of each sample are kept, for
    /// the callers of functions without a frame
    #[arg(long, conflicts_with = "stack")]
    pub frame_pointers: bool,

    /// Take only instruction pointers
    #[arg(long, conflicts_with_all = ["stack", "frame_pointers"])]
    pub ip_only: bool,

    /// Read stacks while the guest runs, and cut them where they changed meanwhile. Xen only
    #[arg(long, conflicts_with_all = ["stack", "ip_only", "max_overhead"])]
    pub no_pause: bool,

    /// Most frames of a chain
    #[arg(long, value_name = "N", default_value = "256",
          value_parser = clap::value_parser!(u32).range(1..=uprof::layout::MAX_FRAMES as i64))]
    pub depth: u32,

    /// Longest pause of a guest for a sample, where sampling pauses it (default: 200us; 50ms behind
    /// a gdb stub, where each question is slow)
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub freeze_budget: Option<Duration>,

    /// Lower the rate when a guest is paused for more than this share of the time
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    pub max_overhead: Option<f64>,

    /// When the domain reboots, is saved or migrates away, wait for one of its name or UUID, and go on with
    /// that. Xen only; with --boot, go on when the guest is reset
    #[arg(long)]
    pub follow: bool,

    /// Record where threads wait, too, and for how long: a stack whenever a thread is switched out.
    /// Processes only, with perf events (report --off-cpu)
    #[arg(long, conflicts_with = "ptrace")]
    pub off_cpu: bool,

    /// Record where the time of the guest's vCPUs goes, too: its code, exits by reason and instruction, the monitor,
    /// waits for a processor. Guests under KVM, as root, and Xen domains (report --time, --exits). With --all: which
    /// function each guest under KVM ran
    #[arg(long)]
    pub host: bool,

    /// Most exits a second of a vCPU that --host records one by one: above it, those of a part of the time stand for
    /// all
    #[arg(long, value_name = "N", default_value_t = MOST_EXITS_HZ, requires = "host", conflicts_with = "all",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub most_exits: u64,

    #[command(flatten)]
    pub boot: BootFlags,

    /// Follow the calls of these functions by breakpoints, instead of samples (names as nm prints them):
    /// when, how long and in which other; for some seconds and functions that are not called all the time.
    /// Guests behind a gdb stub or in QEMU only (report --calls)
    #[arg(
        long,
        value_name = "FUNCTION",
        value_delimiter = ',',
        conflicts_with_all = ["frequency", "stack", "frame_pointers", "ip_only", "no_pause", "depth", "freeze_budget",
                              "max_overhead", "follow", "off_cpu", "host", "per_thread", "ptrace", "all", "command"]
    )]
    pub calls: Vec<String>,

    /// Most stops a second for --calls, two a call; past that the function that is called most is given up
    #[arg(long, value_name = "N", default_value_t = USUAL_STOPS_HZ, requires = "calls",
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub most_stops: u32,

    /// Let the command run on when the recording is over
    #[arg(long, conflicts_with_all = ["targets", "all", "all_domains", "exit_status"])]
    pub keep_running: bool,

    /// Don't put symbols, lines and unwind rules of the images found here into the recording
    #[arg(long)]
    pub no_embed: bool,

    /// Sample all processes of the machine
    #[arg(short, long, conflicts_with = "command")]
    pub all: bool,

    /// Watch processes by events of their threads, also where those of processors are allowed:
    /// other programs are left alone, and threads that live shorter than a period are not seen
    #[arg(long)]
    pub per_thread: bool,

    /// Sample processes with ptrace even where perf events are allowed
    #[arg(long, hide = true)]
    pub ptrace: bool,

    /// End with the command's status if it is not 0, or with 128 plus the number of the signal that ended it
    #[arg(long, conflicts_with_all = ["targets", "all", "all_domains"])]
    pub exit_status: bool,

    /// Run and record the command so many times, into the folder -o, for `uniprof compare DIR-A DIR-B` (default folder:
    /// runs)
    #[arg(long, value_name = "N", requires = "command", value_parser = clap::value_parser!(u32).range(1..=1000),
          conflicts_with_all = ["keep_running", "exit_status", "run", "all", "all_domains", "calls"])]
    pub runs: Option<u32>,

    /// The recording of one of several runs, instead of -o; ends with the command's status alone
    #[arg(long, value_name = "FILE", hide = true, requires = "command")]
    pub run: Option<PathBuf>,

    /// An image of the guest with its symbols: kernel, application; may be repeated (default: the
    /// kernel that libxl's configuration of a Xen domain or QEMU's command line names). Its load
    /// address is found by the guest's code, if none is given
    #[arg(long, value_name = "FILE[@ADDRESS]", value_parser = Elf::parse)]
    pub elf: Vec<Elf>,

    /// Sample all Xen domains except this one, also those that start later, each into a file of its
    /// own in the folder -o
    #[arg(long, conflicts_with_all = ["command", "all", "follow", "elf", "calls", "off_cpu", "per_thread", "ptrace"])]
    pub all_domains: bool,

    /// A label of the recording, such as service=web or version=1.4; may be repeated. `info` shows labels, and
    /// reports and exports choose recordings by them
    #[arg(long, value_name = "KEY=VALUE", value_parser = Label::parse)]
    pub label: Vec<Label>,

    #[cfg(feature = "report")]
    #[command(flatten)]
    pub push: pushing::PushFlags,

    /// What to sample
    #[arg(
        value_name = "TARGET",
        help = target::help(),
        required_unless_present_any = ["command", "all", "all_domains", "pid"],
        conflicts_with_all = ["all", "all_domains"]
    )]
    #[cfg_attr(feature = "report", arg(add = crate::candidates::targets()))]
    pub targets: Vec<String>,

    /// As perf and samply have it, to say how it is here
    #[arg(short = 'p', long = "pid", value_name = "PID", hide = true)]
    pub pid: Option<String>,

    /// A command to start and record
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

impl Args {
    /// What to type instead, for users of other profilers.
    pub fn instead(&self) -> Option<String> {
        match &self.pid {
            Some(pid) => Some(format!(
                "a process is a target of its own, without an option: uniprof record pid:{pid}"
            )),
            // Of a boot it may be a domain that is not there yet.
            None if self.boot.boot => self.ambiguous(),
            None => (self.ambiguous()).or_else(|| target::instead_of(&self.targets)),
        }
    }

    /// Why a target and a command, or several targets, don't go together.
    fn ambiguous(&self) -> Option<String> {
        let has_command = !self.command.is_empty();
        let creates = self.boot.boot && self.targets.iter().all(|target| target::is_domain(target));
        if has_command && !self.targets.is_empty() && !creates {
            return Some(format!(
                "`{}` cannot be used with a command: record one of them",
                self.targets.join(" ")
            ));
        }
        let several = self.boot.boot && self.targets.len() > 1;
        several.then(|| "--boot records one guest: name one domain".to_owned())
    }

    /// Replaces the names that other tools give by targets of the recorder.
    ///
    /// # Errors
    /// A tool doesn't know the name.
    pub fn resolved(mut self) -> anyhow::Result<Self> {
        #[cfg(feature = "report")]
        self.push.check(&self)?;
        for target in &mut self.targets {
            let found = resolvers::resolve(target, !self.calls.is_empty())?;
            if found != *target {
                terminal::inform(format_args!("uniprof: {target} is {found}"));
                *target = found;
            }
        }
        Ok(self)
    }

    /// Whether several guests are recorded, each into a recording of its own.
    pub fn are_several(&self) -> bool {
        self.all_domains || self.targets.len() > 1
    }

    /// The only target, or the first one. With `--all-domains` the targets are Xen domains, and with `--boot` it is of
    /// the kind that the command's guest will have.
    pub fn target(&self) -> Option<&str> {
        if self.all_domains {
            Some("")
        } else if self.boot.boot && self.targets.is_empty() {
            Some(target::of_monitor(&self.command))
        } else {
            self.targets.first().map(String::as_str)
        }
    }

    /// The output path of a single recording.
    pub fn file(&self) -> &Path {
        let output = self.run.as_deref().or(self.output.as_deref());
        output.unwrap_or(Path::new(DEFAULT_FILE))
    }

    /// The output path, unless it is standard output or the recording is only pushed.
    pub fn named_file(&self) -> Option<&Path> {
        let named = Some(self.file()).filter(|output| *output != Path::new("-"));
        named.filter(|_| !self.is_only_pushed())
    }

    /// Whether the recording is pushed, and kept nowhere.
    fn is_only_pushed(&self) -> bool {
        #[cfg(feature = "report")]
        return self.push.push.is_some() && self.output.is_none();
        #[cfg(not(feature = "report"))]
        false
    }

    /// The output in messages.
    fn name_of_output(&self) -> &Path {
        #[cfg(feature = "report")]
        if self.is_only_pushed() {
            return Path::new(pushing::PUSHED);
        }
        self.file()
    }

    /// The plan that the flags describe.
    pub fn plan(&self) -> Plan {
        Plan {
            rate_hz: self.frequency,
            boot: self.boot.first_rate(&self.command),
            until: self.boot.until.clone(),
            duration: self.duration,
            stack_bytes: match self.stack {
                None if self.frame_pointers => LEAF_STACK_BYTES,
                None => target::default_stack_bytes(self.target()),
                Some(None) => target::usual_stack_bytes(self.target()),
                Some(Some(bytes)) => bytes,
            },
            fits_stack: self.stack.is_none(),
            ip_only: self.ip_only,
            no_pause: self.no_pause,
            follow: self.follow,
            most_frames: self.depth,
            budget: self
                .freeze_budget
                .unwrap_or_else(|| target::usual_budget(self.target())),
            most_overhead: self.max_overhead,
            per_thread: self.per_thread,
            off_cpu: self.off_cpu,
            host: self.host,
            most_exits_hz: self.most_exits,
            calls: self.calls.clone(),
            most_stops_hz: self.most_stops,
            command_line: std::env::args().collect(),
            labels: Label::pairs(&self.label),
        }
    }
}

/// Records, and prints a summary.
pub fn run(args: Args) -> anyhow::Result<Outcome> {
    start::refuse_other_tools(&args)?;
    start::warn_of_paused();
    let status = ExitStatus::default();
    let recorded = record(&args, &status)?;
    let summary = recorded.summary;
    let first = args.boot.first_rate(&args.command);
    let (output, is_window) = (args.name_of_output(), args.keep.is_some());
    summary::say(&summary, output, args.frequency, first, is_window);
    if let Some(left) = status.left() {
        terminal::inform(format_args!("{left}"));
    }
    #[cfg(feature = "report")]
    let is_embedded = args
        .named_file()
        .is_none_or(|file| embed(&args, file, &summary, recorded.is_in_place));
    #[cfg(feature = "report")]
    let is_pushed = recorded
        .pusher
        .is_none_or(|pusher| pusher.wait() == Outcome::Done);
    #[cfg(feature = "report")]
    signal::release_stops();
    #[cfg(feature = "report")]
    if !summary.is_empty()
        && summary.bytes > 0
        && recorded.is_in_place
        && let Some(file) = args.named_file().filter(|file| is_regular(file))
    {
        let file = terminal::shell_word(&file.display().to_string());
        terminal::inform(format_args!(
            "Next: uniprof report {file}, or a page with uniprof report --html {file}"
        ));
    }
    let outcome = summary::outcome(&summary, args.frequency, "")?;
    #[cfg(feature = "report")]
    let outcome = match outcome {
        Outcome::Done if !is_embedded || !is_pushed => Outcome::Lossy,
        outcome => outcome,
    };
    Ok(match status.get() {
        // For one of several runs alone, losses may be hidden by a command that did its work.
        Some(code) if args.exit_status && code > 0 || args.run.is_some() && !args.exit_status => {
            Outcome::Command(code)
        }
        _ => outcome,
    })
}

/// Whether the recording is a file of its own, which can be read again: a link is to where standard output goes.
#[cfg(feature = "report")]
fn is_regular(path: &Path) -> bool {
    path != Path::new("-") && std::fs::symlink_metadata(path).is_ok_and(|found| found.is_file())
}

/// Embeds what a report on another machine needs of the images, unless the user declined. Returns whether it did not
/// fail. The recording is complete without it. `is_in_place`: its file was still at `path` when it ended.
#[cfg(feature = "report")]
pub fn embed(args: &Args, path: &Path, summary: &Summary, is_in_place: bool) -> bool {
    // If the output failed, its disk is most likely full. If there are no bytes, the file is an earlier recording.
    let is_whole = !summary.is_empty() && summary.bytes > 0 && summary.output_error.is_none();
    if args.no_embed || !is_whole || !is_regular(path) {
        return true;
    }
    if !is_in_place {
        let path = path.display();
        terminal::say(format_args!(
            "uniprof: nothing was embedded: by now another file is at {path}; this recording was moved or removed \
             meanwhile"
        ));
        return false;
    }
    let Ok(_lock) = destination::lock(path) else {
        let path = path.display();
        terminal::say(format_args!(
            "uniprof: nothing was embedded: another recorder writes to {path} by now; this recording is {path}.old"
        ));
        return false;
    };
    let mut elf = args.elf.clone();
    // A kernel that was not given with --elf may also run at another address than it was linked at.
    for path in summary.unplaced.iter().filter(|_| args.elf.is_empty()) {
        let (path, address) = (path.clone(), None);
        elf.push(Elf { path, address });
    }
    let done = Arc::new(AtomicBool::new(false));
    // The signal that ended the recording was handled; another one must end this work, too.
    signal::forget_stop();
    let watched = Arc::clone(&done);
    let watcher = std::thread::Builder::new().name("uniprof-signals".into());
    // If the thread can't be started, a signal takes effect only at the end.
    let _ = watcher.spawn(move || give_up_when_stopped(&watched));
    memory::limit_embedding();
    let bundled = crate::bundle::embed(path, &elf, &summary.images);
    memory::unlimit();
    done.store(true, Ordering::Relaxed);
    match bundled {
        Ok(bundled) => {
            let size_bytes: usize = bundled.images.iter().map(|image| image.size_bytes).sum();
            let of = if args.are_several() {
                format!("{}: ", path.display())
            } else {
                String::new()
            };
            terminal::inform(format_args!(
                "{of}Embedded {} KiB of symbols, lines and unwind rules of {} images.",
                size_bytes.div_ceil(1024),
                bundled.images.len()
            ));
            // How this program was built is not the business of whoever tries the demo.
            let own = std::env::current_exe().unwrap_or_default();
            let own = own.to_string_lossy();
            let is_own = |warning: &&String| {
                args.command.first().is_some_and(|it| *it == own) && warning.contains(&*own)
            };
            let warnings = bundled.warnings.iter().chain(&bundled.advice);
            for warning in warnings.filter(|warning| !is_own(warning)) {
                terminal::say(format_args!("uniprof: {of}{warning}"));
            }
        }
        Err(error) => {
            let path = path.display();
            terminal::say(format_args!(
                "uniprof: nothing was embedded: {}; the samples are safe in {path}, and `uniprof bundle {path}` tries \
                 again",
                crate::outcome::describe(&error),
            ));
            return false;
        }
    }
    true
}

/// Ends the program on a signal while images are read, which may take long.
#[cfg(feature = "report")]
fn give_up_when_stopped(done: &AtomicBool) {
    while !done.load(Ordering::Relaxed) {
        if let Some(name) = signal::stop_signal() {
            crate::output::abandon();
            terminal::say(format_args!(
                "uniprof: nothing was embedded: stopped by {name}; the recording itself is whole"
            ));
            std::process::exit(1);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// What was recorded, and who pushes it.
pub struct Recorded {
    summary: Summary,
    /// Whether its file was still at its path when it ended.
    #[cfg(feature = "report")]
    is_in_place: bool,
    #[cfg(feature = "report")]
    pusher: Option<pushing::Pusher>,
}

/// Records according to the flags, and sets `status` to the exit status of the recorded command.
pub fn record(args: &Args, status: &ExitStatus) -> anyhow::Result<Recorded> {
    #[cfg(feature = "report")]
    if let Some(text) = &args.boot.until_output {
        return console::record(args, status, text);
    }
    record_beside(args, status, None, |_| ())
}

/// As [`record`]; a command's standard output goes to `stdout`, if that is given, and what `begun` returns lives as
/// long as the recording.
fn record_beside<T>(
    args: &Args,
    status: &ExitStatus,
    stdout: Option<Stdout>,
    begun: impl FnOnce(Arc<Counters>) -> T,
) -> anyhow::Result<Recorded> {
    signal::listen_to_children();
    window::refuse(args)?;
    #[cfg_attr(not(feature = "report"), allow(unused_mut))]
    let mut plan = args.plan();
    // The output is checked first, before the guest is touched.
    let place = OutputPath::find(if args.is_only_pushed() {
        Path::new("/dev/null")
    } else {
        args.file()
    })?;
    let source = target::open(&start::wanted(args, stdout), &plan, status)?;
    #[cfg(feature = "report")]
    Label::add_published(
        &mut plan.labels,
        target::published(&source.hot.facts().target),
    );
    let counters = Arc::new(Counters::default());
    let is_shown = StatusLine::has_place(args, source.hot.facts());
    if args.keep.is_some() {
        let folder = start::begin(|| window::create(args.file()), args.named_file())?;
        start::warn_of(&source);
        let window = Window::start(args, args.file(), folder)?;
        let beside = begun(Arc::clone(&counters));
        let shown = is_shown.then(|| StatusLine::show(Arc::clone(&counters)));
        let summary = window.record(source, &plan, counters);
        drop((shown, beside));
        return Ok(Recorded {
            summary: summary?,
            #[cfg(feature = "report")]
            is_in_place: true,
            #[cfg(feature = "report")]
            pusher: None,
        });
    }
    let create = || {
        let output = place.create()?;
        #[cfg(feature = "report")]
        let pushing = args.push.start(args, &output)?;
        #[cfg(not(feature = "report"))]
        let pushing = ();
        Ok((output, pushing))
    };
    let (output, pushing) = start::begin(create, args.named_file())?;
    #[cfg(feature = "report")]
    let (pusher, writer) = pushing;
    #[cfg(not(feature = "report"))]
    let (writer, ()) = (output.writer()?, pushing);
    start::warn_of(&source);
    let beside = begun(Arc::clone(&counters));
    let shown = is_shown.then(|| StatusLine::show(Arc::clone(&counters)));
    let summary = uniprof_record::record(source, writer, &plan, counters);
    drop((shown, beside));
    Ok(Recorded {
        #[cfg(feature = "report")]
        is_in_place: output.is_in_place(),
        summary: summary::kept_in(output, summary)?,
        #[cfg(feature = "report")]
        pusher,
    })
}
