//! Which exit a vCPU's thread handled when the monitor's recording has a sample of it.
//!
//! Two threads meet here. The encoder of the monitor's recording brings the times of its samples, up to a fifth of a
//! second late. The observer of the vCPUs brings their exits, in order of time. Both are kept until they have met, in
//! bounded memory.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use uprof::Task;
use uprof::cold::{ExitCause, HandledExit, Place};

/// For how long exits are kept.
const KEPT_NS: u64 = 2_000_000_000;
/// Most exits that are kept, of all vCPUs, and most of one.
const ALL_EXITS_MAX: usize = 1 << 18;
const EXITS_MAX: usize = 1 << 16;
/// Most samples that wait for the exits of their time: at 10 kHz, those of six vCPUs in a second.
const SAMPLES_MAX: usize = 1 << 16;

/// An exit and who handled it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExitSpan {
    /// Its cause.
    pub cause: ExitCause,
    /// When the vCPU left the guest.
    pub began_ns: u64,
    /// When KVM returned to the monitor; `None` if it did not.
    pub to_monitor_ns: Option<u64>,
}

/// The exits of one vCPU's thread.
#[derive(Debug)]
pub struct History {
    task: Task,
    /// With their ends, in order of time.
    ended: VecDeque<(ExitSpan, u64)>,
    /// The exit that has not ended.
    open: Option<ExitSpan>,
    /// All before this time is known.
    known_to_ns: u64,
    most: usize,
}

/// Samples and exits that have not met.
#[derive(Debug, Default)]
pub struct Meeting {
    vcpus: HashMap<u32, History>,
    /// Thread and time.
    samples: Vec<(u32, u64)>,
}

/// The place where samples and exits meet.
#[derive(Debug, Clone, Default)]
pub struct HandledExits(Arc<Mutex<Meeting>>);

impl HandledExits {
    /// For the vCPUs with these threads.
    pub fn new(threads: &[(u32, Task)]) -> Self {
        let most = (ALL_EXITS_MAX / threads.len().max(1)).min(EXITS_MAX);
        let vcpus = threads.iter().map(|&(thread, task)| {
            let history = History {
                task,
                ended: VecDeque::new(),
                open: None,
                known_to_ns: 0,
                most,
            };
            (thread, history)
        });
        let vcpus = vcpus.collect();
        HandledExits(Arc::new(Mutex::new(Meeting {
            vcpus,
            samples: Vec::new(),
        })))
    }

    /// For several calls in a row.
    pub fn meet(&self) -> MutexGuard<'_, Meeting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Meeting {
    /// Adds a sample of a thread; those of others than vCPUs are ignored.
    pub fn sampled(&mut self, thread: u32, time_ns: u64) {
        if self.samples.len() < SAMPLES_MAX && self.vcpus.contains_key(&thread) {
            self.samples.push((thread, time_ns));
        }
    }

    /// The exits of a vCPU's thread.
    pub fn history(&mut self, thread: u32) -> Option<&mut History> {
        self.vcpus.get_mut(&thread)
    }

    /// What the samples handled whose time is known. Those that handled nothing are forgotten; with `last`, also those
    /// that came too late.
    pub fn take(&mut self, last: bool) -> Vec<HandledExit> {
        let Meeting { vcpus, samples } = self;
        let mut handled = Vec::new();
        samples.retain(|&(thread, time_ns)| {
            let Some(history) = vcpus.get(&thread) else {
                return false;
            };
            if time_ns >= history.known_to_ns {
                return !last;
            }
            if let Some(span) = history.at(time_ns) {
                let place = match span.to_monitor_ns {
                    Some(since_ns) if since_ns <= time_ns => Place::Monitor,
                    _ => Place::Hypervisor,
                };
                handled.push(HandledExit {
                    time_ns,
                    thread,
                    task: history.task,
                    place,
                    cause: span.cause,
                });
            }
            false
        });
        handled
    }
}

impl History {
    /// Adds an exit that ended at `end_ns`.
    pub fn ended(&mut self, span: ExitSpan, end_ns: u64) {
        if self.ended.len() >= self.most {
            self.ended.pop_front();
        }
        self.ended.push_back((span, end_ns));
    }

    /// Says that all exits before `until_ns` were added, but `open`, which lasts.
    pub fn advance(&mut self, until_ns: u64, open: Option<ExitSpan>) {
        (self.known_to_ns, self.open) = (until_ns, open);
        let oldest_ns = until_ns.saturating_sub(KEPT_NS);
        while (self.ended.front()).is_some_and(|(_, end_ns)| *end_ns < oldest_ns) {
            self.ended.pop_front();
        }
    }

    fn at(&self, time_ns: u64) -> Option<ExitSpan> {
        if let Some(open) = self.open
            && open.began_ns <= time_ns
        {
            return Some(open);
        }
        let next = self.ended.partition_point(|(_, end_ns)| *end_ns <= time_ns);
        let (span, _) = self.ended.get(next)?;
        (span.began_ns <= time_ns).then_some(*span)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uprof::cold::ExitKind;

    const TASK: Task = Task { space: 0, vcpu: 1 };

    fn span(began_ns: u64, to_monitor_ns: Option<u64>) -> ExitSpan {
        ExitSpan {
            cause: ExitCause {
                kind: ExitKind::Svm,
                reason: began_ns,
                address: None,
                argument: None,
            },
            began_ns,
            to_monitor_ns,
        }
    }

    #[test]
    fn a_sample_meets_the_exit_of_its_time_whichever_comes_first() {
        let both = HandledExits::new(&[(70, TASK)]);
        let mut meeting = both.meet();
        for time_ns in [5, 10, 14, 19, 20, 31, 45, 60] {
            meeting.sampled(70, time_ns);
        }
        meeting.sampled(71, 15); // no vCPU's
        assert_eq!(meeting.take(false), []);
        meeting.history(70).unwrap().ended(span(10, Some(14)), 20);
        meeting.history(70).unwrap().ended(span(30, None), 40);
        meeting
            .history(70)
            .unwrap()
            .advance(50, Some(span(44, None)));
        let handled = meeting.take(false);
        let found = handled.iter();
        let found = found.map(|one| (one.time_ns, one.cause.reason, one.place));
        let (kvm, monitor) = (Place::Hypervisor, Place::Monitor);
        let expected = [
            (10, 10, kvm),
            (14, 10, monitor),
            (19, 10, monitor),
            (31, 30, kvm),
            (45, 44, kvm),
        ];
        assert_eq!(found.collect::<Vec<_>>(), expected);
        assert!(
            handled
                .iter()
                .all(|one| (one.thread, one.task) == (70, TASK))
        );
        meeting
            .history(70)
            .unwrap()
            .advance(61, Some(span(44, None)));
        assert_eq!(meeting.take(true).len(), 1);
        meeting.sampled(70, 100);
        assert_eq!((meeting.take(true), meeting.samples.len()), (vec![], 0));
    }

    #[test]
    fn a_guest_that_exits_all_the_time_takes_no_more_memory() {
        let both = HandledExits::new(&[(70, TASK)]);
        let mut meeting = both.meet();
        for time_ns in 0..2 * EXITS_MAX as u64 {
            meeting
                .history(70)
                .unwrap()
                .ended(span(2 * time_ns, None), 2 * time_ns + 1);
            meeting.sampled(70, time_ns);
        }
        assert_eq!(meeting.vcpus[&70].ended.len(), EXITS_MAX);
        assert_eq!(meeting.samples.len(), SAMPLES_MAX);
    }
}
