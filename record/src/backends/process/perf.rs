//! Samples processes through perf events, which the kernel writes into a ring buffer for each processor.

use super::buffer_share::BufferShare;
use super::events::{Events, Reach};
use super::executing::Executing;
use super::members::Members;
use super::names::Names;
use super::observer::ProcessObserver;
use super::records::RecordReader;
use super::refusal::{self, refusal};
use super::scope::Scope;
use super::switches::Switches;
use super::{Process, Refusal, registers, rings, stat, threads, tree};
use crate::guest::command::Child;
use crate::source::plan::Plan;
use crate::source::ring::Sink;
use crate::source::{Facts, Hot, Life, Pushed, Source, SourceError};
use crate::sys::bell::Bell;
use crate::sys::clock::{is_shifted, monotonic_ns};
use crate::sys::perf::{Settings, Trigger};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;
use uprof::Task;
use uprof::cold::{KERNEL_FRAMES, NO_KERNEL_FRAMES, TaskEvent};

/// Most user stack bytes that the kernel copies: a multiple of 8 whose length fits into 16 bits (`perf_copy_attr` in
/// `kernel/events/core.c`).
const MOST_STACK_BYTES: u32 = 65_528;
/// Longest total wait for free slots in a call of `drain`. Meanwhile samples stay in the kernel's buffers, which hold
/// several times as many as there are slots.
const PATIENCE: Duration = Duration::from_millis(50);

/// Why samples don't account for all processor time, where the kernel isn't sampled.
const MISSED_TIME: &str = "time in the kernel is not sampled here: record as root, or with \
                           kernel.perf_event_paranoid at most 1";

/// The end of the note in recordings with fewer stack bytes than by default.
pub const FEWER_STACK_BYTES: &str = ", as the kernel's buffers are too small for more: a lower rate (-F), root, or a \
                                     higher limit on locked memory (kernel.perf_event_mlock_kb) leaves more";

/// The kernel's limit on frames, or the plan's if that is lower.
fn most_frames(plan: &Plan) -> u16 {
    let limit = std::fs::read_to_string("/proc/sys/kernel/perf_event_max_stack");
    let limit: u32 = limit
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(127);
    plan.most_frames.min(limit) as u16
}

/// The plan's stack bytes, up to the kernel's limit.
fn most_stack_bytes(plan: &Plan) -> u32 {
    (plan.kept_bytes() as u32).min(MOST_STACK_BYTES) & !7
}

/// Opens processes by perf events.
///
/// # Errors
/// Perf events are forbidden, or another reason.
pub fn open(process: &Process, plan: &Plan) -> Result<Source, Refusal> {
    if is_shifted() {
        let why = "this is a time namespace, in which the kernel's samples have times of another clock: record from \
                   outside of it (nsenter -T -t 1 uniprof record …)";
        return Err(Refusal::Failed(SourceError(why.into())));
    }
    let (child, scope, name) = match process {
        Process::Running(scope) => (None, scope.clone(), scope.name()),
        Process::Started(command) => {
            let child = command.start().map_err(Refusal::Failed)?;
            let scope = Scope::Tree(vec![child.pid()]);
            (Some(child), scope, command.program().to_owned())
        }
    };
    let settings = Settings {
        trigger: Trigger::Cycles,
        rate_hz: plan.kernel_rate_hz(),
        kernel: true,
        user_registers: registers::kernel_mask(),
        user_stack_bytes: most_stack_bytes(plan),
        fits_stack: plan.fits_stack,
        most_frames: most_frames(plan),
        enable_on_exec: child.is_some(),
    };
    let events =
        Events::open(settings, &scope, plan.per_thread).map_err(|error| refusal(error, &scope))?;
    let settings = *events.settings();

    let mut switches = if plan.off_cpu {
        Some(Switches::open(&settings, &scope)?)
    } else {
        None
    };
    // Read after the events were enabled, so that later processes have records.
    let now_ns = monotonic_ns();
    let pids = scope.pids();
    let members = members(&events, &scope, &pids);
    let (tasks, modules) = match &child {
        // A child before exec has none of the command's code; records will report it.
        Some(child) => (vec![started(child.pid(), &name, now_ns)], Vec::new()),
        None => {
            let tasks = pids.iter().flat_map(|&pid| threads::events(pid, now_ns));
            let modules = pids.iter();
            let modules = modules.flat_map(|&pid| threads::module_events(pid, now_ns));
            (tasks.collect(), modules.collect())
        }
    };
    let sees_all = !matches!(events.reach(), Reach::Threads);
    if let (Some(switches), None) = (&mut switches, &child) {
        switches.expect(tasks.iter().map(|event: &TaskEvent| event.task));
    }
    let mut observer = ProcessObserver::new(scope.clone(), members.clone(), sees_all);
    let facts = Facts {
        target: super::target(scope.id(), name, tasks.len()),
        trigger: trigger_name(&settings).into(),
        on_cpu_only: !plan.off_cpu,
        freezes: false,
        per_thread: matches!(events.reach(), Reach::Threads),
        missed_time: (!settings.kernel).then_some(MISSED_TIME),
        stack_bytes: (settings.user_stack_bytes < most_stack_bytes(plan))
            .then_some(settings.user_stack_bytes),
        notes: notes(&events, plan),
        warnings: unwatched(&events, switches.as_ref(), &scope),
        tasks,
        modules,
        images: Default::default(),
    };
    // Events of threads begin at the child's exec; those of processors also see the child before.
    let before_exec = match events.reach() {
        Reach::Threads => None,
        _ => child.as_ref().map(|child| child.pid() as u32),
    };
    let reader = RecordReader {
        members: members.clone(),
        executing: Executing::after(before_exec),
        repeats: Default::default(),
        with_stack: settings.user_stack_bytes > 0,
        most_frames: usize::from(settings.most_frames),
        ip_only: plan.ip_only,
        since_ns: u64::MAX,
        began_ns: 0,
        leaves_out_guests: plan.host,
    };
    let shares = events.rings.iter().map(|_| BufferShare::default());
    let source = PerfSource {
        facts,
        shares: shares.collect(),
        events,
        reader,
        witness: scope.id() as u32,
        scope: scope.clone(),
        child,
        switches,
        hung_up: false,
        bell: None,
    };
    if plan.host {
        observer = observer.without_times();
    }
    Ok(Source {
        observer: Some(Box::new(observer)),
        namer: Some(Box::<Names>::default()),
        ..Source::of(Hot::Pushed(Box::new(source)))
    })
}

/// The processes whose records are taken; all, if the events cover only the target.
fn members(events: &Events, scope: &Scope, pids: &[i32]) -> Members {
    let is_chosen = !matches!(events.reach(), Reach::Processors) || matches!(scope, Scope::Machine);
    let members = match scope {
        Scope::Named(name, _) => Members::named(is_chosen, tree::short(name)),
        _ => Members::new(is_chosen),
    };
    let watched = pids.iter().filter(|pid| !events.refused.contains(pid));
    watched.for_each(|&pid| {
        members.add(pid as u32);
    });
    members
}

/// Warnings about threads that are not watched, or that won't be.
fn unwatched(events: &Events, switches: Option<&Switches>, scope: &Scope) -> Vec<String> {
    let mut warnings = Vec::new();
    let waits = switches.map_or(0, Switches::unwatched);
    for (count, what) in [
        (events.unwatched.len(), "threads are not watched"),
        (waits, "threads' waits are not recorded"),
    ] {
        if count > 0 {
            warnings.push(format!(
                "{count} {what}, as the limit on open files is reached: raise it (ulimit -n)"
            ));
        }
    }
    if matches!(scope, Scope::Machine) && is_in_container() {
        warnings.push(
            "processes outside of this container are sampled as one, without names: record outside of it, or start it \
             with the host's process ids (docker run --pid=host)"
                .to_owned(),
        );
    }
    warnings.extend(refusal::not_ours(&events.refused));
    if matches!(events.reach(), Reach::Threads) && scope.takes_in() {
        warnings.push(format!(
            "what joins {} from now on is not watched: that needs events of whole processors (root, or \
             kernel.perf_event_paranoid 0, and no --per-thread)",
            scope.described()
        ));
    } else if switches.is_some_and(Switches::is_per_thread) && scope.takes_in() {
        warnings.push(format!(
            "of what joins {} from now on, samples are recorded, but not where it waits",
            scope.described()
        ));
    }
    warnings
}

/// Whether the process ids here are those of a container. The first namespace has a number of its own
/// (`PROC_PID_INIT_INO` of `linux/proc_ns.h`).
fn is_in_container() -> bool {
    const FIRST: &str = "pid:[4026531836]";
    std::fs::read_link("/proc/self/ns/pid").is_ok_and(|found| found.as_os_str() != FIRST)
}

fn started(pid: i32, name: &str, now_ns: u64) -> TaskEvent {
    let task = Task {
        space: pid as u32,
        vcpu: pid as u32,
    };
    TaskEvent::named(now_ns, task, name.into())
}

fn trigger_name(settings: &Settings) -> &'static str {
    match settings.trigger {
        Trigger::Cycles => "cycles",
        Trigger::CpuClock => "cpu-clock",
        Trigger::Switches => "context-switches",
    }
}

fn notes(events: &Events, plan: &Plan) -> Vec<(String, String)> {
    let mut notes = vec![
        (KERNEL_FRAMES.into(), kernel_note(events.settings()).into()),
        ("perf events".into(), reach_note(events.reach()).into()),
        ("stacks".into(), stacks_note(events.settings(), plan)),
    ];
    if plan.off_cpu {
        notes.push(("time off CPU".into(), "recorded, with stacks".into()));
    }
    notes
}

fn kernel_note(settings: &Settings) -> &'static str {
    if settings.kernel {
        "recorded"
    } else {
        NO_KERNEL_FRAMES
    }
}

/// How stacks are recorded, for the recording.
fn stacks_note(settings: &Settings, plan: &Plan) -> String {
    let bytes = settings.user_stack_bytes;
    let kib = bytes.div_ceil(1024);
    match bytes {
        0 if plan.ip_only => "instruction pointers alone".into(),
        0 => "by frame pointers".into(),
        _ if bytes < most_stack_bytes(plan) => {
            format!("up to {kib} KiB of each sample{FEWER_STACK_BYTES}")
        }
        1..1024 => format!("by frame pointers, with {bytes} bytes of each sample"),
        _ => format!("up to {kib} KiB of each sample"),
    }
}

/// The scope of the events, for the recording.
fn reach_note(reach: &Reach) -> &'static str {
    match reach {
        Reach::Processors => "of each processor, of which those of the target are kept",
        Reach::Cgroup(_) => "of each processor, for the control group",
        Reach::Threads => {
            "of each thread, which begin with a whole period: threads that live shorter are not seen"
        }
    }
}

struct PerfSource {
    facts: Facts,
    events: Events,
    /// The target's share of each buffer.
    shares: Vec<BufferShare>,
    reader: RecordReader,
    scope: Scope,
    child: Option<Child>,
    /// Records where threads wait, if requested.
    switches: Option<Switches>,
    /// A process that was alive at the last check.
    witness: u32,
    /// Whether all watched threads were gone at the last check.
    hung_up: bool,
    bell: Option<Arc<Bell>>,
}

impl Pushed for PerfSource {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn start(&mut self) -> Result<(), SourceError> {
        // Events of running processes have been enabled since they were opened.
        self.reader.since_ns = monotonic_ns();
        if let Some(switches) = &mut self.switches {
            switches.start(self.reader.since_ns);
        }
        self.child.as_mut().map_or(Ok(()), Child::go)
    }

    fn listen(&mut self, bell: Arc<Bell>) {
        self.bell = Some(bell);
    }

    fn wait(&mut self, timeout_ms: u16) -> Result<(), SourceError> {
        // As many as fit. With more processors, the timeout covers the rest.
        const MOST: usize = 64;
        let owners = self.events.owners();
        let events = &owners[..owners.len().min(MOST - 1)];
        let switches = self.switches.as_ref().map_or(&[][..], Switches::owners);
        let switches = &switches[..switches.len().min(MOST - 1 - events.len())];
        let bell = self.bell.iter().map(|bell| bell.as_fd());
        let all = events.iter().chain(switches).map(|event| event.as_fd());
        let count = events.len() + switches.len() + bell.len();
        let mut all = all.chain(bell);
        let timeout_ms = if owners.len() < MOST {
            timeout_ms
        } else {
            timeout_ms.min(100)
        };
        let mut polled: [PollFd<'_>; MOST] = std::array::from_fn(|_| {
            let descriptor = all.next().unwrap_or(events[0].as_fd());
            PollFd::new(descriptor, PollFlags::POLLIN)
        });
        match poll(&mut polled[..count], PollTimeout::from(timeout_ms)) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(SourceError::system("cannot wait for samples", error, "")),
        }
        // When all threads are gone, the descriptors report only a hang-up; polling on would spin.
        let hung_up = polled[..events.len()].iter().all(|fd| {
            fd.revents()
                .is_some_and(|revents| revents.contains(PollFlags::POLLHUP))
        });
        if hung_up {
            std::thread::sleep(Duration::from_millis(10));
        }
        self.hung_up = hung_up;
        Ok(())
    }

    fn drain(&mut self, sink: &mut Sink) -> Result<Life, SourceError> {
        // Checked before draining, so that the last records are still drained; and again afterwards, as these may
        // report new processes.
        let ending = self.ending();
        let PerfSource {
            reader,
            events,
            shares,
            ..
        } = self;
        let since_ns = reader.since_ns;
        let mut patience = PATIENCE;
        let now_ns = monotonic_ns();
        reader.began_ns = now_ns;
        let members = reader.members.clone();
        rings::drain(
            &mut events.rings,
            now_ns,
            |at, next| {
                let is_wanted = !next.is_sample() || members.wants(next.pid);
                shares[at].pass(next);
                if next.is_sample() && next.time_ns >= since_ns {
                    shares[at].see(is_wanted);
                }
                is_wanted
            },
            |at, kind, misc, body| {
                if sink.wait_for_room(&mut patience) {
                    reader.began_ns = monotonic_ns();
                }
                reader.record(kind, misc, body, &shares[at], sink);
            },
        );
        if let Some(switches) = &mut self.switches {
            switches.drain(sink, &mut patience);
        }
        Ok(match ending {
            Some(_) => self.ending().unwrap_or(Life::Alive),
            None => Life::Alive,
        })
    }

    fn finish(&mut self, sink: &mut Sink) {
        if let Some(switches) = &mut self.switches {
            switches.finish(sink);
        }
    }

    fn totals(&self) -> Vec<(String, u64)> {
        let switches = self.switches.as_ref();
        let mut totals = switches.map_or(Vec::new(), Switches::totals);
        let others: u64 = self.shares.iter().map(BufferShare::others).sum();
        if others > 0 {
            totals.push(("dropped_records_of_others".into(), others));
        }
        totals
    }
}

impl PerfSource {
    /// How the target ended, if it did.
    fn ending(&mut self) -> Option<Life> {
        // A monitor's recording ends with the guest's, which rings.
        if self.bell.is_some() {
            return None;
        }
        if let Some(child) = &mut self.child {
            return Some(child.life()).filter(|life| *life != Life::Alive);
        }
        let ended = match &self.scope {
            Scope::Tree(_) => !self.one_is_alive(),
            // Other processes with that name may come, if the events show them.
            Scope::Named(..) => {
                matches!(self.events.reach(), Reach::Threads) && !self.one_is_alive()
            }
            Scope::Cgroup(cgroup) => cgroup.is_gone(),
            Scope::Machine => false,
        };
        ended.then(|| match &self.scope {
            Scope::Cgroup(_) => Life::Ended(format!("{} was removed", self.scope.described())),
            scope => Life::Ended(format!("{} ended", scope.described())),
        })
    }

    /// Whether a process of the target is alive; marks those that have ended.
    fn one_is_alive(&mut self) -> bool {
        if stat::is_running(self.witness as i32) {
            return true;
        }
        let members = &self.reader.members;
        for pid in members.alive() {
            if stat::is_running(pid as i32) {
                self.witness = pid;
                return true;
            }
            members.ended(pid);
        }
        false
    }
}
