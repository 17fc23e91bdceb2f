//! The perf events of a recording, and their ring buffers, one for each processor.
//!
//! Where that is allowed, an event watches everything on its processor, and the recorder keeps the records of its
//! target. Events of threads are second best: they begin with a whole period. A thread that lives for less is never
//! sampled, and one that lives for a few periods loses half a period on each processor.

use super::ring_size::{fitting_stack_bytes, ring_bytes};
use super::scope::Scope;
use super::threads;
use crate::sys::perf::{Event, Settings, Trigger, Watched, page_bytes};
use crate::sys::ring_buffer::RingBuffer;
use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::collections::{BTreeSet, HashSet};
use std::fs::File;
use std::os::fd::AsFd;
use std::time::Duration;

/// Attempts to attach to all threads of processes that start new ones meanwhile.
const ROUNDS: usize = 16;
/// Context switches per second of a busy processor.
const SWITCHES_HZ: u64 = 5_000;
/// Descriptors kept for other uses than events.
const RESERVE: usize = 64;
/// Delay from a thread's entry in `/proc` to the kernel's record of it.
const TOLD_AFTER: Duration = Duration::from_millis(1);

/// The scope of the events of a recording.
#[derive(Debug)]
pub enum Reach {
    /// Everything that runs on each processor.
    Processors,
    /// The processes of a control group on each processor.
    Cgroup(File),
    /// Threads, and those that they start later.
    Threads,
}

/// All events, and a ring buffer for each processor.
pub struct Events {
    settings: Settings,
    reach: Reach,
    cpus: Vec<i32>,
    /// In the order of the processors.
    pub rings: Vec<RingBuffer>,
    /// The first events own the ring buffers, in the same order.
    events: Vec<Event>,
    /// Threads that could not be watched for lack of file descriptors.
    pub unwatched: BTreeSet<i32>,
    /// Processes with threads that could not be watched for lack of permission.
    pub refused: BTreeSet<i32>,
}

impl Events {
    /// Opens events on `scope`: on processors where that is allowed, unless `per_thread`, otherwise on all current
    /// threads. The settings are reduced to those that this machine allows, and to stacks that its buffers have room
    /// for.
    ///
    /// # Errors
    /// The error of `perf_event_open` or `mmap` for the first event.
    pub fn open(wanted: Settings, scope: &Scope, per_thread: bool) -> Result<Events, Errno> {
        let cpus = online_cpus()?;
        let mut last = Errno::ENOENT;
        for reach in reaches(scope, per_thread) {
            match first_event_of(wanted, &reach, scope, cpus[0]) {
                Ok((tid, (settings, first))) => {
                    let mut events = Events {
                        settings,
                        reach,
                        cpus,
                        rings: Vec::new(),
                        events: Vec::new(),
                        unwatched: BTreeSet::new(),
                        refused: BTreeSet::new(),
                    };
                    events.open_rings(tid, first)?;
                    if events.fit_stacks() {
                        let first = Event::open(
                            &events.settings,
                            watched(&events.reach, tid),
                            events.cpus[0],
                        )?;
                        events.open_rings(tid, first)?;
                    }
                    if matches!(events.reach, Reach::Threads) {
                        // A failure here is reported when the limit is reached.
                        let files = Resource::RLIMIT_NOFILE;
                        let _ = getrlimit(files).and_then(|(_, most)| setrlimit(files, most, most));
                        events.attach_all(scope, tid)?;
                    }
                    return Ok(events);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// The settings of the events.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The scope of the events.
    pub fn reach(&self) -> &Reach {
        &self.reach
    }

    /// The events that own a ring buffer, which can be polled for samples.
    pub fn owners(&self) -> &[Event] {
        &self.events[..self.rings.len()]
    }

    /// Lowers the number of stack bytes to fit the buffers, if that is allowed. Then it closes the events, since the
    /// number of an open one can't be changed, and returns true.
    fn fit_stacks(&mut self) -> bool {
        let wanted = self.settings.user_stack_bytes;
        let least = self.rings.iter().map(RingBuffer::data_bytes).min();
        let (Some(least), true) = (least, self.settings.fits_stack) else {
            return false;
        };
        self.settings.user_stack_bytes =
            fitting_stack_bytes(wanted, rate_of(&self.settings), least);
        let is_less = self.settings.user_stack_bytes < wanted;
        if is_less {
            self.rings.clear();
            self.events.clear();
        }
        is_less
    }

    fn open_rings(&mut self, tid: i32, first: Event) -> Result<(), Errno> {
        let mut first = Some(first);
        let settings = &self.settings;
        let ring_bytes = ring_bytes(
            settings.user_stack_bytes,
            rate_of(settings),
            self.cpus.len(),
        );
        let pages = (ring_bytes / page_bytes()).next_power_of_two();
        for &cpu in &self.cpus {
            let event = match first.take() {
                Some(event) => event,
                None => Event::open(&self.settings, watched(&self.reach, tid), cpu)?,
            };
            self.rings.push(map_ring(&event, pages)?);
            self.events.push(event);
        }
        Ok(())
    }

    /// Attaches to all threads that are not watched yet, until there are no more.
    fn attach_all(&mut self, scope: &Scope, first: i32) -> Result<(), Errno> {
        let mut watched = HashSet::from([first]);
        // Reserves descriptors for the recorder's own work; they are closed at the end.
        let reserve = || File::open("/dev/null").ok();
        let _reserved: Vec<File> = std::iter::from_fn(reserve).take(RESERVE).collect();
        for _ in 0..ROUNDS {
            let of = |pid| threads::of(pid).into_iter().map(move |tid| (pid, tid));
            let found = scope.pids().into_iter().flat_map(of);
            let found = found.filter(|(_, tid)| !watched.contains(tid));
            let found: Vec<(i32, i32)> = found.collect();
            if found.is_empty() {
                break;
            }
            // A thread started by a watched one inherits its events, so a second event would count it twice.
            std::thread::sleep(TOLD_AFTER);
            for ring in &mut self.rings {
                ring.forked(|tid| {
                    watched.insert(tid);
                });
            }
            for (pid, tid) in found {
                if !watched.insert(tid) {
                    continue;
                }
                match self.attach_thread(tid) {
                    Ok(()) | Err(Errno::ESRCH) => {}
                    Err(Errno::EACCES | Errno::EPERM) => {
                        self.refused.insert(pid);
                    }
                    Err(Errno::EMFILE | Errno::ENFILE) => {
                        self.unwatched.insert(tid);
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    fn attach_thread(&mut self, tid: i32) -> Result<(), Errno> {
        for (index, &cpu) in self.cpus.iter().enumerate() {
            let event = Event::open(&self.settings, Watched::Thread(tid), cpu)?;
            event.write_into(&self.events[index])?;
            self.events.push(event);
        }
        Ok(())
    }
}

/// Estimates the records a second of a busy processor.
fn rate_of(settings: &Settings) -> u64 {
    match settings.trigger {
        Trigger::Switches => settings.rate_hz.max(SWITCHES_HZ),
        _ => settings.rate_hz,
    }
}

/// The reaches that can be tried for `scope`, in order of preference.
fn reaches(scope: &Scope, per_thread: bool) -> Vec<Reach> {
    let mut reaches = Vec::new();
    if let Scope::Cgroup(cgroup) = scope {
        // The kernel refuses if the group's hierarchy is not that of perf events.
        reaches.extend(cgroup.open().ok().map(Reach::Cgroup));
    }
    if !per_thread {
        reaches.push(Reach::Processors);
    }
    if !matches!(scope, Scope::Machine) {
        reaches.push(Reach::Threads);
    }
    reaches
}

fn watched(reach: &Reach, tid: i32) -> Watched<'_> {
    match reach {
        Reach::Processors => Watched::Everyone,
        Reach::Cgroup(folder) => Watched::Cgroup(folder.as_fd()),
        Reach::Threads => Watched::Thread(tid),
    }
}

/// Opens the first event on one of the requested processes, the first that isn't refused; returns which.
fn first_event_of(
    wanted: Settings,
    reach: &Reach,
    scope: &Scope,
    cpu: i32,
) -> Result<(i32, (Settings, Event)), Errno> {
    let asked = match reach {
        Reach::Threads => scope.asked(),
        _ => vec![scope.id()],
    };
    let mut refused = Errno::ESRCH;
    for tid in asked {
        match first_event(wanted, watched(reach, tid), cpu) {
            Ok(first) => return Ok((tid, first)),
            Err(error @ (Errno::EACCES | Errno::EPERM)) => refused = error,
            Err(Errno::ESRCH) => {}
            Err(error) => return Err(error),
        }
    }
    Err(refused)
}

/// Opens the first event with the best settings that this machine allows: cycles or a clock, with or without kernel
/// frames.
fn first_event(
    wanted: Settings,
    watched: Watched<'_>,
    cpu: i32,
) -> Result<(Settings, Event), Errno> {
    let mut last = Errno::ENOENT;
    let (triggers, kernels) = match wanted.trigger {
        // Without the kernel there would be no samples of switches.
        Trigger::Switches => (&[Trigger::Switches][..], &[true][..]),
        _ => (
            &[Trigger::Cycles, Trigger::CpuClock][..],
            &[true, false][..],
        ),
    };
    for &trigger in triggers {
        for &kernel in kernels {
            let settings = Settings {
                trigger,
                kernel,
                ..wanted
            };
            match Event::open(&settings, watched, cpu) {
                Ok(event) => return Ok((settings, event)),
                Err(error) => last = error,
            }
        }
    }
    Err(last)
}

/// Maps a ring buffer, or a smaller one if the limit on locked memory requires it. `ENOMEM`: not even that is allowed.
fn map_ring(event: &Event, pages: usize) -> Result<RingBuffer, Errno> {
    let mut pages = pages;
    loop {
        match RingBuffer::map(event, pages) {
            Err(Errno::EPERM | Errno::ENOMEM) if pages > 16 => pages /= 2,
            // Of a mapping, unlike of an event, it says just that (`perf_mmap` in `kernel/events/core.c`).
            Err(Errno::EPERM) => return Err(Errno::ENOMEM),
            result => return result,
        }
    }
}

/// Numbers of the online processors from sysfs, or from /proc if that is not mounted, as in a bare chroot.
fn online_cpus() -> Result<Vec<i32>, Errno> {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let mut cpus = listed_cpus(&read("/sys/devices/system/cpu/online"));
    if cpus.is_empty() {
        cpus = counted_cpus(&read("/proc/stat"));
    }
    // Guessing processor 0 alone would lose the samples of the others.
    if cpus.is_empty() {
        return Err(Errno::ENODEV);
    }
    Ok(cpus)
}

/// The processors of a list such as `0-3,8`.
fn listed_cpus(text: &str) -> Vec<i32> {
    let ranges = text.trim().split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse().ok()?..=last.parse::<i32>().ok()?.min(8191))
    });
    ranges.flatten().collect()
}

/// The processors that have a line in /proc/stat.
fn counted_cpus(text: &str) -> Vec<i32> {
    let numbers = text.lines().filter_map(|line| {
        let (number, _) = line.strip_prefix("cpu")?.split_once(' ')?;
        number.parse().ok()
    });
    numbers.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_online_by_either_list() {
        assert_eq!(listed_cpus("0-1,3\n"), [0, 1, 3]);
        assert!(listed_cpus("").is_empty());
        let stat = "cpu  9 0 9\ncpu0 5 0 5\ncpu3 4 0 4\nintr 7 0\nctxt 5\n";
        assert_eq!(counted_cpus(stat), [0, 3]);
        let here = std::fs::read_to_string("/proc/stat").unwrap();
        assert_eq!(counted_cpus(&here), online_cpus().unwrap());
    }
}
