//! The perf events of a recording: whom they watch, and the ring buffers, one for each processor,
//! which all of them write into.
//!
//! Where that is allowed an event watches all that runs on its processor, and the recorder takes what
//! is of its target: the events of a thread begin with a whole period, so that a thread which lives
//! for less is never sampled, and one that lives for a few loses half a period on each processor.

use super::ring_size::ring_bytes;
use super::threads;
use super::whom::Whom;
use crate::sys::descriptors;
use crate::sys::perf::{Event, Settings, Trigger, Watched, page_bytes};
use crate::sys::ring_buffer::RingBuffer;
use nix::errno::Errno;
use std::collections::HashSet;
use std::fs::File;
use std::os::fd::AsFd;
use std::time::Duration;

/// Tries to get hold of all threads of processes that start new ones meanwhile.
const ROUNDS: usize = 16;
/// Switches between threads of a busy processor, a second.
const SWITCHES_HZ: u64 = 5_000;
/// Descriptors that events don't take.
const RESERVE: usize = 64;
/// The kernel tells of a new thread a moment after `/proc` has it.
const TOLD_AFTER: Duration = Duration::from_millis(1);

/// What the events of a recording are tied to.
#[derive(Debug)]
pub enum Reach {
    /// All that runs on each processor.
    Processors,
    /// What runs on each processor and is of a control group.
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
    /// The event that owns each ring buffer stands at the same place in here.
    events: Vec<Event>,
    /// Threads that were there and could not be watched, as too many files are open.
    pub unwatched: usize,
}

impl Events {
    /// Opens events on `whom`: on processors where that is allowed and `per_thread` doesn't speak
    /// against it, else on all threads that are there. Of the settings, what this machine allows is
    /// kept.
    ///
    /// # Errors
    /// What `perf_event_open` or `mmap` return for the first event.
    pub fn open(wanted: Settings, whom: &Whom, per_thread: bool) -> Result<Events, Errno> {
        let cpus = online_cpus()?;
        let mut last = Errno::ENOENT;
        for reach in reaches(whom, per_thread) {
            let tid = whom.id();
            match first_event(wanted, watched(&reach, tid), cpus[0]) {
                Ok((settings, first)) => {
                    let mut events = Events {
                        settings,
                        reach,
                        cpus,
                        rings: Vec::new(),
                        events: Vec::new(),
                        unwatched: 0,
                    };
                    events.open_rings(tid, first)?;
                    if matches!(events.reach, Reach::Threads) {
                        // What can't be raised is told where it is not enough.
                        let _ = descriptors::raise_limit();
                        events.attach_all(whom)?;
                    }
                    return Ok(events);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// What the events ask for.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What the events are tied to.
    pub fn reach(&self) -> &Reach {
        &self.reach
    }

    /// The events that own a ring buffer: whoever waits for samples polls them.
    pub fn owners(&self) -> &[Event] {
        &self.events[..self.rings.len()]
    }

    fn open_rings(&mut self, tid: i32, first: Event) -> Result<(), Errno> {
        let mut first = Some(first);
        let settings = &self.settings;
        let rate_hz = match settings.trigger {
            Trigger::Switches => settings.rate_hz.max(SWITCHES_HZ),
            _ => settings.rate_hz,
        };
        let ring_bytes = ring_bytes(settings.user_stack_bytes, rate_hz, self.cpus.len());
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

    /// Attaches to the threads that are there but not watched, until there are no more.
    fn attach_all(&mut self, whom: &Whom) -> Result<(), Errno> {
        let mut watched = HashSet::from([whom.id()]);
        // Kept free for the recorder's own work, and closed at the end.
        let reserve = || File::open("/dev/null").ok();
        let _reserved: Vec<File> = std::iter::from_fn(reserve).take(RESERVE).collect();
        for _ in 0..ROUNDS {
            let found: Vec<i32> = whom
                .pids()
                .into_iter()
                .flat_map(threads::of)
                .filter(|tid| !watched.contains(tid))
                .collect();
            if found.is_empty() {
                break;
            }
            // What a watched thread has started inherited its events: a second one would count twice.
            std::thread::sleep(TOLD_AFTER);
            for ring in &mut self.rings {
                ring.forked(|tid| {
                    watched.insert(tid);
                });
            }
            for tid in found {
                if !watched.insert(tid) {
                    continue;
                }
                match self.attach_thread(tid) {
                    // It ended meanwhile, or is not ours.
                    Ok(()) | Err(Errno::ESRCH | Errno::EACCES | Errno::EPERM) => {}
                    Err(Errno::EMFILE | Errno::ENFILE) => self.unwatched += 1,
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

/// What may be tried for `whom`, the best first.
fn reaches(whom: &Whom, per_thread: bool) -> Vec<Reach> {
    let mut reaches = Vec::new();
    if let Whom::Cgroup(cgroup) = whom {
        // Where the group's hierarchy is not that of perf events, the kernel refuses.
        reaches.extend(cgroup.open().ok().map(Reach::Cgroup));
    }
    if !per_thread {
        reaches.push(Reach::Processors);
    }
    if whom.id() > 0 {
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

/// Finds what this machine allows: cycles or a clock, with kernel frames or without.
fn first_event(
    wanted: Settings,
    watched: Watched<'_>,
    cpu: i32,
) -> Result<(Settings, Event), Errno> {
    let mut last = Errno::ENOENT;
    let (triggers, kernels) = match wanted.trigger {
        // Without the kernel there would be none.
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

/// Numbers of the processors online, by sysfs, or by /proc where that is not mounted, as in a bare chroot.
fn online_cpus() -> Result<Vec<i32>, Errno> {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let mut cpus = listed_cpus(&read("/sys/devices/system/cpu/online"));
    if cpus.is_empty() {
        cpus = counted_cpus(&read("/proc/stat"));
    }
    // Not the first alone: what ran on the others would be missing.
    if cpus.is_empty() {
        return Err(Errno::ENODEV);
    }
    Ok(cpus)
}

/// The processors of a list as `0-3,8`.
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
