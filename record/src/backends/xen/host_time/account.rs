//! The account of one vCPU: at each moment it is at one place, so that the sums are its wall time.
//!
//! Input: changes of its state, entries and exits, in order of time. Output: time by place, and exits.

use super::records::RunState;
use crate::guest::exits::{ExitTable, Spent, places};
use crate::guest::pauses::Pauses;
use uprof::Task;
use uprof::cold::{ExitCause, ExitKind, Place, VcpuTime};

/// Exits by an interrupt, of Intel and AMD: the one by which the recorder's pause stops a vCPU is one of them.
const VMX_INTERRUPT: u64 = 1;
const SVM_INTERRUPT: u64 = 0x60;

/// What is known of a vCPU's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    /// Records were lost.
    Nothing,
    /// Xen said so when tracing began. The first record is right if it says otherwise.
    Asked(RunState),
    /// A record said so.
    Recorded(RunState),
}

/// An exit that has not ended.
#[derive(Debug)]
struct OpenExit {
    cause: ExitCause,
    spent: Spent,
}

/// One vCPU.
#[derive(Debug)]
pub struct VcpuAccount {
    task: Task,
    /// Whether Xen records entries and exits; a PV guest has none.
    is_hvm: bool,
    state: Known,
    /// Whether it runs the guest's code when it runs; `None` if that is not known.
    is_inside: Option<bool>,
    /// Whether it is offline because it was not started.
    pub is_down: bool,
    /// Where the interval begins that was not handed over.
    first_ns: u64,
    /// Until here the time is in `spent`.
    counted_to_ns: u64,
    spent: Spent,
    exit: Option<OpenExit>,
}

impl VcpuAccount {
    /// The account of `task` from `now_ns` on, when Xen said that it is in `state`.
    pub fn new(task: Task, is_hvm: bool, state: Option<RunState>, now_ns: u64) -> Self {
        VcpuAccount {
            task,
            is_hvm,
            state: state.map_or(Known::Nothing, Known::Asked),
            is_inside: None,
            is_down: false,
            first_ns: now_ns,
            counted_to_ns: now_ns,
            spent: Spent::default(),
            exit: None,
        }
    }

    /// Whether it is paused, or not started.
    pub fn is_offline(&self) -> bool {
        matches!(
            self.state,
            Known::Asked(RunState::Offline) | Known::Recorded(RunState::Offline)
        )
    }

    /// Its state changed.
    pub fn change(&mut self, now_ns: u64, old: RunState, new: RunState, pauses: &Pauses) {
        match self.state {
            Known::Asked(_) => self.state = Known::Recorded(old),
            Known::Recorded(known) if known != old => self.forget(),
            _ => {}
        }
        self.advance(now_ns, pauses);
        self.state = Known::Recorded(new);
        if new == RunState::Running {
            // Xen's scheduler ran, so an entry follows.
            self.is_inside = Some(false);
        }
    }

    /// It keeps its processor.
    pub fn continues(&mut self, now_ns: u64, pauses: &Pauses) {
        if self.state != Known::Recorded(RunState::Running) {
            self.change(now_ns, RunState::Running, RunState::Running, pauses);
        }
    }

    /// It enters the guest's code.
    pub fn enter(&mut self, now_ns: u64, pauses: &Pauses, exits: &mut ExitTable) {
        self.runs(now_ns, false, pauses);
        self.is_inside = Some(true);
        if let Some(OpenExit { mut cause, spent }) = self.exit.take() {
            let by_us = match cause.kind {
                ExitKind::Vmx => cause.reason == VMX_INTERRUPT,
                _ => cause.reason == SVM_INTERRUPT,
            };
            if by_us && spent[index(Place::Paused)] > 0 {
                cause = ExitCause {
                    kind: ExitKind::Recorder,
                    reason: 0,
                    address: None,
                    argument: None,
                };
            }
            exits.add(self.task, cause, &spent);
        }
    }

    /// It leaves the guest's code.
    pub fn exit(&mut self, now_ns: u64, cause: ExitCause, pauses: &Pauses) {
        self.runs(now_ns, true, pauses);
        self.is_inside = Some(false);
        self.exit = Some(OpenExit {
            cause,
            spent: Spent::default(),
        });
    }

    /// It runs, and was inside the guest's code, or not, until now.
    fn runs(&mut self, now_ns: u64, was_inside: bool, pauses: &Pauses) {
        match self.state {
            Known::Asked(_) => {
                self.state = Known::Recorded(RunState::Running);
                self.is_inside = self.is_inside.or(Some(was_inside));
            }
            Known::Recorded(RunState::Running) if self.is_inside == Some(!was_inside) => {
                self.forget();
            }
            Known::Recorded(RunState::Running) => {}
            _ => self.forget(),
        }
        self.advance(now_ns, pauses);
        self.state = Known::Recorded(RunState::Running);
    }

    /// Records are lost from now on.
    pub fn lose(&mut self, now_ns: u64, pauses: &Pauses) {
        self.advance(now_ns, pauses);
        self.forget();
    }

    fn forget(&mut self) {
        self.state = Known::Nothing;
        self.is_inside = None;
        self.exit = None;
    }

    /// Counts the time up to `now_ns`.
    fn advance(&mut self, now_ns: u64, pauses: &Pauses) {
        let from_ns = self.counted_to_ns;
        let mut length_ns = now_ns.saturating_sub(from_ns);
        if length_ns == 0 {
            return;
        }
        self.counted_to_ns = now_ns;
        let place = match self.state {
            Known::Nothing => Place::Unknown,
            Known::Asked(state) | Known::Recorded(state) => match state {
                RunState::Running => match self.is_inside {
                    _ if !self.is_hvm => Place::Guest,
                    Some(true) => Place::Guest,
                    Some(false) => Place::Hypervisor,
                    None => Place::Unknown,
                },
                RunState::Runnable => Place::Ready,
                RunState::Blocked => Place::Halted,
                RunState::Offline => {
                    let paused_ns = pauses.within(from_ns, now_ns);
                    self.add(Place::Paused, paused_ns);
                    length_ns -= paused_ns;
                    if self.is_down {
                        Place::Halted
                    } else {
                        Place::Unknown
                    }
                }
            },
        };
        self.add(place, length_ns);
    }

    fn add(&mut self, place: Place, ns: u64) {
        self.spent[index(place)] += ns;
        if let Some(exit) = &mut self.exit {
            exit.spent[index(place)] += ns;
        }
    }

    /// Hands over the time up to `now_ns`; `None` if none has passed.
    pub fn take(&mut self, now_ns: u64, pauses: &Pauses) -> Option<VcpuTime> {
        self.advance(now_ns, pauses);
        let last_ns = self.counted_to_ns;
        let first_ns = std::mem::replace(&mut self.first_ns, last_ns);
        let spent = std::mem::take(&mut self.spent);
        (last_ns > first_ns).then(|| VcpuTime {
            task: self.task,
            first_ns,
            last_ns,
            spent: places(&spent),
        })
    }
}

fn index(place: Place) -> usize {
    usize::from(place.number())
}

#[cfg(test)]
mod tests {
    use super::super::observer::SLACK_NS;
    use super::*;
    use crate::guest::pauses;
    use uprof::cold::Exits;

    const MS: u64 = 1_000_000;
    const TASK: Task = Task { space: 0, vcpu: 0 };

    fn svm(reason: u64) -> ExitCause {
        ExitCause {
            kind: ExitKind::Svm,
            reason,
            address: Some(0x1000),
            argument: None,
        }
    }

    /// A running vCPU of a PVH guest, inside the guest from 0 on.
    fn inside(exits: &mut ExitTable, pauses: &Pauses) -> VcpuAccount {
        let mut vcpu = VcpuAccount::new(TASK, true, Some(RunState::Running), 0);
        vcpu.enter(0, pauses, exits);
        vcpu
    }

    fn spent(vcpu: &mut VcpuAccount, now_ns: u64, pauses: &Pauses) -> Vec<(Place, u64)> {
        let time = vcpu.take(now_ns, pauses).unwrap();
        let total: u64 = time.spent.iter().map(|(_, ns)| ns).sum();
        assert_eq!(total, time.last_ns - time.first_ns);
        time.spent
    }

    #[test]
    fn an_exit_that_sleeps_has_its_time_at_both_places() {
        let (mut table, pauses) = (ExitTable::default(), pauses::pauses(SLACK_NS).1);
        let mut vcpu = inside(&mut table, &pauses);
        vcpu.exit(10, svm(0x78), &pauses);
        vcpu.change(12, RunState::Running, RunState::Blocked, &pauses);
        vcpu.change(50, RunState::Blocked, RunState::Runnable, &pauses);
        vcpu.change(55, RunState::Runnable, RunState::Running, &pauses);
        vcpu.enter(58, &pauses, &mut table);
        let all = [
            (Place::Guest, 10 + 42),
            (Place::Hypervisor, 5),
            (Place::Ready, 5),
            (Place::Halted, 38),
        ];
        assert_eq!(spent(&mut vcpu, 100, &pauses), all);
        let exits = table.take(0, 100);
        assert_eq!((exits.len(), exits[0].cause), (1, svm(0x78)));
        assert_eq!(exits[0].spent, all[1..]);
        assert_eq!(exits[0].lengths, [(48, 1)]);
    }

    #[test]
    fn our_pause_is_told_from_others() {
        let (mut writer, mut pauses) = pauses::pauses(SLACK_NS);
        let mut table = ExitTable::default();
        let mut vcpu = inside(&mut table, &pauses);
        writer.begin(10 * MS);
        writer.end(20 * MS);
        pauses.take();
        vcpu.exit(11 * MS, svm(SVM_INTERRUPT), &pauses);
        vcpu.change(11 * MS, RunState::Running, RunState::Offline, &pauses);
        vcpu.change(20 * MS, RunState::Offline, RunState::Running, &pauses);
        vcpu.enter(21 * MS, &pauses, &mut table);
        vcpu.change(30 * MS, RunState::Running, RunState::Offline, &pauses);
        vcpu.change(34 * MS, RunState::Offline, RunState::Running, &pauses);
        let all = [
            (Place::Guest, 20 * MS),
            (Place::Hypervisor, 2 * MS),
            (Place::Paused, 9 * MS),
            (Place::Unknown, 4 * MS),
        ];
        assert_eq!(spent(&mut vcpu, 35 * MS, &pauses), all);
        let exits = table.take(0, 1);
        assert_eq!((exits.len(), exits[0].cause.kind), (1, ExitKind::Recorder));
        assert_eq!(exits[0].lengths, [(Exits::rounded(MS), 1)]);
        vcpu.is_down = true;
        vcpu.change(36 * MS, RunState::Running, RunState::Offline, &pauses);
        let halted = [(Place::Hypervisor, MS), (Place::Halted, 4 * MS)];
        assert_eq!(spent(&mut vcpu, 40 * MS, &pauses), halted);
    }

    #[test]
    fn time_with_lost_records_is_unknown() {
        let (mut table, pauses) = (ExitTable::default(), pauses::pauses(SLACK_NS).1);
        let mut vcpu = inside(&mut table, &pauses);
        vcpu.exit(10, svm(0x72), &pauses);
        vcpu.lose(20, &pauses);
        vcpu.enter(50, &pauses, &mut table);
        vcpu.exit(60, svm(0x72), &pauses);
        // An entry was lost, and nobody says so.
        vcpu.exit(70, svm(0x72), &pauses);
        vcpu.change(80, RunState::Runnable, RunState::Running, &pauses);
        let all = [
            (Place::Guest, 10 + 10),
            (Place::Hypervisor, 10 + 20),
            (Place::Unknown, 30 + 10 + 10),
        ];
        assert_eq!(spent(&mut vcpu, 100, &pauses), all);
        assert!(table.take(0, 100).is_empty());
    }

    #[test]
    fn the_first_record_says_what_was_before() {
        let (mut table, pauses) = (ExitTable::default(), pauses::pauses(SLACK_NS).1);
        let mut vcpu = VcpuAccount::new(TASK, true, Some(RunState::Blocked), 0);
        vcpu.change(10, RunState::Runnable, RunState::Running, &pauses);
        vcpu.enter(15, &pauses, &mut table);
        let all = [
            (Place::Guest, 5),
            (Place::Hypervisor, 5),
            (Place::Ready, 10),
        ];
        assert_eq!(spent(&mut vcpu, 20, &pauses), all);
        let mut vcpu = VcpuAccount::new(TASK, true, Some(RunState::Running), 0);
        vcpu.exit(10, svm(0x72), &pauses);
        assert_eq!(spent(&mut vcpu, 10, &pauses), [(Place::Guest, 10)]);
        let mut vcpu = VcpuAccount::new(TASK, false, Some(RunState::Running), 0);
        assert_eq!(spent(&mut vcpu, 10, &pauses), [(Place::Guest, 10)]);
        // A time that runs backwards adds nothing.
        assert_eq!(vcpu.take(5, &pauses), None);
        vcpu.change(3, RunState::Running, RunState::Blocked, &pauses);
        assert_eq!(spent(&mut vcpu, 20, &pauses), [(Place::Halted, 10)]);
    }
}
