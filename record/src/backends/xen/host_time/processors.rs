//! Takes the events of all processors in order of time to the accounts of a domain's vCPUs.
//!
//! Entries and exits don't say whose they are, so it keeps track of who has which processor.

use super::account::VcpuAccount;
use super::records::{AnyVcpu, Event, RunState};
use crate::guest::exits::ExitTable;
use crate::guest::pauses::Pauses;
use uprof::Task;
use uprof::cold::{Exits, Loss, LossReason, VcpuTime};

/// A domain's vCPUs, and who has which processor.
#[derive(Debug)]
pub struct Processors {
    domain: u16,
    is_hvm: bool,
    vcpus: Vec<VcpuAccount>,
    exits: ExitTable,
    /// By index of the buffer; `None` while it is not known.
    running: Vec<Option<AnyVcpu>>,
    /// Since when each buffer's records are lost.
    lost_since_ns: Vec<Option<u64>>,
    losses: Vec<Loss>,
    /// Time of the last event.
    now_ns: u64,
    /// Where the interval begins that was not handed over.
    first_ns: u64,
}

/// What a vCPU did when tracing began.
#[derive(Debug, Clone, Copy)]
pub struct AskedVcpu {
    /// Its state; `None` if Xen doesn't say it.
    pub state: Option<RunState>,
    /// Whether it was not started.
    pub is_down: bool,
    /// Index of the buffer of the processor that it has, if it has one.
    pub ring: Option<usize>,
}

impl Processors {
    /// Accounts from `now_ns` on of a domain with these vCPUs, on as many processors as there are `rings`.
    pub fn new(domain: u16, is_hvm: bool, asked: &[AskedVcpu], rings: usize, now_ns: u64) -> Self {
        let mut running = vec![None; rings];
        let mut vcpus = Vec::new();
        for (vcpu, asked) in (0..).zip(asked) {
            let mut account = VcpuAccount::new(task(vcpu), is_hvm, asked.state, now_ns);
            account.is_down = asked.is_down;
            vcpus.push(account);
            if let Some(place) = asked.ring.and_then(|ring| running.get_mut(ring)) {
                *place = Some(AnyVcpu { domain, vcpu });
            }
        }
        Processors {
            domain,
            is_hvm,
            vcpus,
            exits: ExitTable::default(),
            running,
            lost_since_ns: vec![None; rings],
            losses: Vec::new(),
            now_ns,
            first_ns: now_ns,
        }
    }

    /// Takes an event of buffer `ring`. Events of different processors may come a little late.
    pub fn take(&mut self, ring: usize, time_ns: u64, event: Event, pauses: &Pauses) {
        self.now_ns = self.now_ns.max(time_ns);
        let now_ns = self.now_ns;
        match event {
            Event::Changed { of, old, new } => {
                if new == RunState::Running {
                    self.running[ring] = Some(of);
                } else if old == RunState::Running {
                    self.running[ring] = None;
                }
                if let Some(vcpu) = self.account_of(Some(of)) {
                    vcpu.change(now_ns, old, new, pauses);
                }
            }
            Event::Continues(of) => {
                self.running[ring] = Some(of);
                if let Some(vcpu) = self.account_of(Some(of)) {
                    vcpu.continues(now_ns, pauses);
                }
            }
            Event::Entry => {
                if let Some(vcpu) = account(&mut self.vcpus, self.domain, self.running[ring]) {
                    vcpu.enter(now_ns, pauses, &mut self.exits);
                }
            }
            Event::Exit(cause) => {
                if let Some(vcpu) = self.account_of(self.running[ring]) {
                    vcpu.exit(now_ns, cause, pauses);
                }
            }
            Event::PvEntry(cause) => {
                if !self.is_hvm
                    && let Some(of) = self.running[ring]
                    && self.account_of(Some(of)).is_some()
                {
                    self.exits.count(task(of.vcpu), cause);
                }
            }
            Event::LossBegins => {
                // Any vCPU may have been woken there.
                for vcpu in &mut self.vcpus {
                    vcpu.lose(now_ns, pauses);
                }
                self.running[ring] = None;
                self.lost_since_ns[ring].get_or_insert(now_ns);
            }
            Event::LossEnds { count, running } => {
                self.running[ring] = running;
                let since_ns = self.lost_since_ns[ring].take();
                self.lose(since_ns.unwrap_or(now_ns), now_ns, count);
            }
        }
    }

    fn lose(&mut self, first_ns: u64, last_ns: u64, count: u64) {
        let lost = Loss::new(LossReason::ExitsLost, count, [first_ns, last_ns]);
        self.losses.push(lost);
    }

    fn account_of(&mut self, of: Option<AnyVcpu>) -> Option<&mut VcpuAccount> {
        account(&mut self.vcpus, self.domain, of)
    }

    /// The vCPUs, by number.
    pub fn vcpus(&mut self) -> &mut [VcpuAccount] {
        &mut self.vcpus
    }

    /// Hands over what was counted up to `now_ns`.
    pub fn hand_over(&mut self, now_ns: u64, pauses: &Pauses) -> HostTime {
        self.now_ns = self.now_ns.max(now_ns);
        let last_ns = self.now_ns;
        let first_ns = std::mem::replace(&mut self.first_ns, last_ns);
        let vcpus = self.vcpus.iter_mut();
        HostTime {
            vcpu_times: vcpus
                .filter_map(|vcpu| vcpu.take(last_ns, pauses))
                .collect(),
            exits: self.exits.take(first_ns, last_ns),
            losses: std::mem::take(&mut self.losses),
        }
    }
}

fn task(vcpu: u16) -> Task {
    Task {
        space: 0,
        vcpu: u32::from(vcpu),
    }
}

/// The account of a vCPU, if it is one of the domain's.
fn account(
    vcpus: &mut [VcpuAccount],
    domain: u16,
    of: Option<AnyVcpu>,
) -> Option<&mut VcpuAccount> {
    let of = of.filter(|of| of.domain == domain)?;
    vcpus.get_mut(usize::from(of.vcpu))
}

/// What was counted between two looks.
#[derive(Debug, Default)]
pub struct HostTime {
    /// Time by place.
    pub vcpu_times: Vec<VcpuTime>,
    /// Exits by cause.
    pub exits: Vec<Exits>,
    /// Lost records.
    pub losses: Vec<Loss>,
}

#[cfg(test)]
mod tests {
    use super::super::observer::SLACK_NS;
    use super::*;
    use crate::guest::pauses;
    use uprof::cold::{ExitCause, ExitKind, Place};

    const OURS: AnyVcpu = AnyVcpu { domain: 7, vcpu: 0 };
    const OTHER: AnyVcpu = AnyVcpu { domain: 3, vcpu: 0 };

    fn changed(of: AnyVcpu, old: RunState, new: RunState) -> Event {
        Event::Changed { of, old, new }
    }

    fn exit(kind: ExitKind) -> ExitCause {
        ExitCause {
            kind,
            reason: 1,
            address: None,
            argument: None,
        }
    }

    /// One vCPU, not running, and two processors.
    fn processors(is_hvm: bool) -> Processors {
        let asked = AskedVcpu {
            state: Some(RunState::Runnable),
            is_down: false,
            ring: None,
        };
        Processors::new(7, is_hvm, &[asked], 2, 0)
    }

    #[test]
    fn exits_belong_to_whoever_has_the_processor() {
        let pauses = pauses::pauses(SLACK_NS).1;
        let mut processors = processors(true);
        let svm = Event::Exit(exit(ExitKind::Svm));
        let (running, runnable) = (RunState::Running, RunState::Runnable);
        let events = [
            (0, 5, svm),
            (0, 10, changed(OURS, runnable, running)),
            (1, 10, changed(OTHER, runnable, running)),
            (0, 20, Event::Entry),
            (1, 21, Event::Entry),
            (1, 22, svm),
            (0, 30, svm),
            (0, 40, changed(OURS, running, runnable)),
            (0, 40, changed(OTHER, runnable, running)),
            (0, 41, Event::Entry),
            // It goes on where the other was.
            (1, 45, changed(OTHER, running, runnable)),
            (1, 50, changed(OURS, runnable, running)),
            (1, 60, Event::Entry),
        ];
        for (ring, time_ns, event) in events {
            processors.take(ring, time_ns, event, &pauses);
        }
        let seen = processors.hand_over(70, &pauses);
        let places = [
            (Place::Guest, 20),
            (Place::Hypervisor, 30),
            (Place::Ready, 20),
        ];
        assert_eq!(seen.vcpu_times[0].spent, places);
        let spent = [(Place::Hypervisor, 20), (Place::Ready, 10)];
        assert_eq!(
            (seen.exits.len(), &seen.exits[0].spent[..]),
            (1, &spent[..])
        );
        assert!(seen.losses.is_empty());
        let next = processors.hand_over(80, &pauses);
        assert_eq!(next.vcpu_times[0].spent, [(Place::Guest, 10)]);
    }

    #[test]
    fn a_loss_on_one_processor_makes_all_unknown() {
        let pauses = pauses::pauses(SLACK_NS).1;
        let mut processors = processors(false);
        let ends = Event::LossEnds {
            count: 9,
            running: Some(OURS),
        };
        let call = Event::PvEntry(exit(ExitKind::XenHypercall));
        let events = [
            (0, 10, changed(OURS, RunState::Runnable, RunState::Running)),
            (0, 12, call),
            (0, 20, Event::LossBegins),
            (0, 50, ends),
            (0, 55, call),
            (0, 60, changed(OURS, RunState::Running, RunState::Blocked)),
            (1, 59, call),
        ];
        for (ring, time_ns, event) in events {
            processors.take(ring, time_ns, event, &pauses);
        }
        let seen = processors.hand_over(100, &pauses);
        let places = [
            (Place::Guest, 10),
            (Place::Ready, 10),
            (Place::Halted, 40),
            (Place::Unknown, 40),
        ];
        assert_eq!(seen.vcpu_times[0].spent, places);
        assert_eq!((seen.exits[0].count, seen.exits[0].seen), (2, 0));
        let loss = &seen.losses[0];
        assert_eq!((loss.first_ns, loss.last_ns, loss.count), (20, 50, 9));
    }

    #[test]
    fn vcpus_that_there_are_not_are_ignored() {
        let pauses = pauses::pauses(SLACK_NS).1;
        let mut processors = processors(true);
        let beyond = AnyVcpu {
            domain: 7,
            vcpu: 900,
        };
        let event = changed(beyond, RunState::Runnable, RunState::Running);
        processors.take(0, 10, event, &pauses);
        processors.take(0, 11, Event::Entry, &pauses);
        let seen = processors.hand_over(20, &pauses);
        assert_eq!(seen.vcpu_times[0].spent, [(Place::Ready, 20)]);
    }
}
