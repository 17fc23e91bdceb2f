//! Samples a process through perf events: one ring buffer for each processor, which the events of
//! all threads write into.

use super::command::Child;
use super::records::Reader;
use super::{Process, Refusal, registers, threads};
use crate::ring::Sink;
use crate::session::Plan;
use crate::source::{Facts, Hot, Life, Pushed, Source, SourceError};
use crate::sys::clock::monotonic_ns;
use crate::sys::perf::{Event, RingBuffer, Settings, Trigger, page_bytes};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::os::fd::AsFd;
use std::time::Duration;
use uprof::Task;
use uprof::cold::{TaskChange, TaskEvent};

/// Most user stack bytes that the kernel takes: a multiple of 8, and their length has 16 bits
/// (`perf_copy_attr` in `kernel/events/core.c`).
const MOST_STACK_BYTES: u32 = 65_528;
/// Bytes of a ring buffer: a second of samples with 8 KiB of stack at 997 Hz fits.
const RING_BYTES: usize = 8 << 20;
/// Tries to get hold of all threads of a process that starts new ones meanwhile.
const ROUNDS: usize = 16;

/// How long a turn waits for free slots, all in all. The kernel's buffers hold several times as many
/// samples as there are slots, and what isn't read meanwhile is safe in them.
const PATIENCE: Duration = Duration::from_millis(50);

/// Waits until a slot is free or `patience` is used up; says whether it had to.
fn wait_for_room(sink: &mut Sink, patience: &mut Duration) -> bool {
    const NAP: Duration = Duration::from_micros(500);
    let mut waited = false;
    while !sink.has_room() && !patience.is_zero() {
        std::thread::sleep(NAP);
        *patience = patience.saturating_sub(NAP);
        waited = true;
    }
    waited
}

/// The frames that the kernel gives at the most.
fn most_frames(plan: &Plan) -> u16 {
    let limit = std::fs::read_to_string("/proc/sys/kernel/perf_event_max_stack");
    let limit: u32 = limit
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(127);
    plan.most_frames.min(limit) as u16
}

/// Opens a process by perf events.
///
/// # Errors
/// Whether perf events are forbidden, or what else is wrong.
pub fn open(process: &Process, plan: &Plan) -> Result<Source, Refusal> {
    let (child, pid, name) = match process {
        Process::Running(pid) => (None, *pid, threads::name(*pid, *pid)),
        Process::Started(command) => {
            let child = command.start().map_err(Refusal::Failed)?;
            let pid = child.pid();
            (Some(child), pid, command.program().to_owned())
        }
    };
    let settings = Settings {
        trigger: Trigger::Cycles,
        rate_hz: (plan.rate_hz.round() as u64).max(1),
        kernel: true,
        user_registers: registers::kernel_mask(),
        user_stack_bytes: (plan.kept_bytes() as u32).min(MOST_STACK_BYTES) & !7,
        most_frames: most_frames(plan),
        enable_on_exec: child.is_some(),
        wake_at_bytes: (RING_BYTES / 2) as u32,
    };
    let cpus = online_cpus();
    let (settings, first) = first_event(settings, pid, cpus[0])?;
    let mut events = Events {
        settings,
        rings: Vec::new(),
        events: Vec::new(),
    };
    events
        .attach(pid, &cpus, first)
        .map_err(|error| refusal(error, pid))?;

    let now_ns = monotonic_ns();
    let (tasks, modules) = match &child {
        // A child that has not executed yet has none of the command's code; events will tell.
        Some(child) => (vec![started(child.pid(), &name, now_ns)], Vec::new()),
        None => (
            threads::events(pid, now_ns),
            threads::module_events(pid, now_ns),
        ),
    };
    let facts = Facts {
        target: super::target(pid, name, tasks.len()),
        trigger: trigger_name(&settings).into(),
        on_cpu_only: true,
        freezes: false,
        notes: vec![("kernel frames".into(), kernel_note(&settings).into())],
        warnings: Vec::new(),
        tasks,
        modules,
    };
    let reader = Reader {
        with_stack: settings.user_stack_bytes > 0,
        most_frames: usize::from(settings.most_frames),
        began_ns: 0,
    };
    let source = PerfSource {
        facts,
        events,
        reader,
        pid,
        child,
        hung_up: false,
    };
    Ok(Source {
        hot: Hot::Pushed(Box::new(source)),
        observer: None,
    })
}

fn started(pid: i32, name: &str, now_ns: u64) -> TaskEvent {
    let task = Task {
        space: pid as u32,
        vcpu: pid as u32,
    };
    TaskEvent {
        time_ns: now_ns,
        task,
        what: TaskChange::Named(name.into()),
    }
}

fn trigger_name(settings: &Settings) -> &'static str {
    match settings.trigger {
        Trigger::Cycles => "cycles",
        Trigger::CpuClock => "cpu-clock",
    }
}

fn kernel_note(settings: &Settings) -> &'static str {
    if settings.kernel {
        "recorded"
    } else {
        "not allowed: time in the kernel is not sampled"
    }
}

/// Finds what this machine allows: cycles or a clock, with kernel frames or without.
fn first_event(wanted: Settings, pid: i32, cpu: i32) -> Result<(Settings, Event), Refusal> {
    let mut last = Errno::ENOENT;
    for trigger in [Trigger::Cycles, Trigger::CpuClock] {
        for kernel in [true, false] {
            let settings = Settings {
                trigger,
                kernel,
                ..wanted
            };
            match Event::open(&settings, pid, cpu) {
                Ok(event) => return Ok((settings, event)),
                Err(error) => last = error,
            }
        }
    }
    Err(refusal(last, pid))
}

fn refusal(error: Errno, pid: i32) -> Refusal {
    match error {
        Errno::EACCES | Errno::EPERM | Errno::ENOSYS | Errno::ENOENT => Refusal::Forbidden(error),
        Errno::ESRCH => Refusal::Failed(SourceError(format!(
            "process {pid} ended before it could be recorded"
        ))),
        Errno::EMFILE => Refusal::Failed(SourceError::system(
            format!("cannot watch all threads of process {pid}"),
            error,
            "raise the limit on open files (ulimit -n)",
        )),
        _ => Refusal::Failed(SourceError::system(
            format!("cannot open perf events on process {pid}"),
            error,
            "run `uniprof doctor` for what this machine allows",
        )),
    }
}

/// Numbers of the processors online, by `/sys/devices/system/cpu/online`.
fn online_cpus() -> Vec<i32> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let mut cpus: Vec<i32> = text
        .trim()
        .split(',')
        .filter_map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            Some(first.parse().ok()?..=last.parse::<i32>().ok()?.min(8191))
        })
        .flatten()
        .collect();
    if cpus.is_empty() {
        cpus.push(0);
    }
    cpus
}

/// All events of a process, and a ring buffer for each processor.
struct Events {
    settings: Settings,
    /// The event that owns each ring buffer stands at the same place in `events`.
    rings: Vec<RingBuffer>,
    events: Vec<Event>,
}

impl Events {
    /// Opens an event for each thread on each processor. Threads that start later inherit them.
    fn attach(&mut self, pid: i32, cpus: &[i32], first: Event) -> Result<(), Errno> {
        let mut first = Some(first);
        let pages = (RING_BYTES / page_bytes()).next_power_of_two();
        for &cpu in cpus {
            let event = match first.take() {
                Some(event) => event,
                None => Event::open(&self.settings, pid, cpu)?,
            };
            self.rings.push(map_ring(&event, pages)?);
            self.events.push(event);
        }
        let mut seen = vec![pid];
        for _ in 0..ROUNDS {
            let new: Vec<i32> = threads::of(pid)
                .into_iter()
                .filter(|tid| !seen.contains(tid))
                .collect();
            if new.is_empty() {
                break;
            }
            for tid in new {
                self.attach_thread(tid, cpus)?;
                seen.push(tid);
            }
        }
        Ok(())
    }

    fn attach_thread(&mut self, tid: i32, cpus: &[i32]) -> Result<(), Errno> {
        for (index, &cpu) in cpus.iter().enumerate() {
            match Event::open(&self.settings, tid, cpu) {
                Ok(event) => {
                    event.write_into(&self.events[index])?;
                    self.events.push(event);
                }
                // It ended meanwhile.
                Err(Errno::ESRCH) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Maps a ring buffer; without the right to so much locked memory, a smaller one.
fn map_ring(event: &Event, pages: usize) -> Result<RingBuffer, Errno> {
    let mut pages = pages;
    loop {
        match RingBuffer::map(event, pages) {
            Err(Errno::EPERM | Errno::ENOMEM) if pages > 16 => pages /= 2,
            result => return result,
        }
    }
}

struct PerfSource {
    facts: Facts,
    events: Events,
    reader: Reader,
    pid: i32,
    child: Option<Child>,
    /// Whether all threads that we watch were gone at the last look.
    hung_up: bool,
}

impl Pushed for PerfSource {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn start(&mut self) -> Result<(), SourceError> {
        if let Some(child) = &mut self.child {
            return child.go();
        }
        for event in &self.events.events {
            event.enable().map_err(|error| {
                SourceError::system(format!("cannot sample process {}", self.pid), error, "")
            })?;
        }
        Ok(())
    }

    fn wait(&mut self, timeout_ms: u16) -> Result<(), SourceError> {
        // As many as fit: with more processors the timeout does the rest.
        const MOST: usize = 64;
        let events = &self.events.events[..self.events.rings.len().min(MOST)];
        let mut polled: [PollFd<'_>; MOST] = std::array::from_fn(|at| {
            let event = events.get(at).unwrap_or(&events[0]);
            PollFd::new(event.as_fd(), PollFlags::POLLIN)
        });
        match poll(&mut polled[..events.len()], PollTimeout::from(timeout_ms)) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(SourceError::system("cannot wait for samples", error, "")),
        }
        // When all threads are gone the descriptors only report hang-up: don't spin on that.
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
        // Asked before draining, so that what came last is still drained.
        let life = match &mut self.child {
            Some(child) => child.life(),
            None if self.hung_up && !threads::is_running(self.pid) => {
                Life::Ended(format!("process {} ended", self.pid))
            }
            None => Life::Alive,
        };
        let reader = &mut self.reader;
        let mut patience = PATIENCE;
        for ring in &mut self.events.rings {
            reader.began_ns = monotonic_ns();
            ring.drain(|kind, misc, body| {
                if wait_for_room(sink, &mut patience) {
                    reader.began_ns = monotonic_ns();
                }
                reader.record(kind, misc, body, sink);
            });
        }
        Ok(life)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::ring_of;

    #[test]
    fn a_burst_waits_for_slots_but_not_for_ever() {
        let (mut sink, mut drain) = ring_of(1, 0);
        let mut patience = PATIENCE;
        assert!(!wait_for_room(&mut sink, &mut patience), "there is a slot");
        let slot = sink.take(1).unwrap();
        sink.put(slot);
        let freed = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(5));
            drain.sample(|_| ());
            drain
        });
        assert!(wait_for_room(&mut sink, &mut patience));
        assert!(sink.has_room() && !patience.is_zero());
        let _drain = freed.join();
        let slot = sink.take(2).unwrap();
        sink.put(slot);
        assert!(wait_for_room(&mut sink, &mut patience));
        assert!(!sink.has_room() && patience.is_zero());
    }
}
