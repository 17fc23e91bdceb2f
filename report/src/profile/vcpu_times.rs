//! Wall time of each vCPU by place, from the records of a recording (format-spec.md, section 6.11). Whatever they say,
//! the places of a vCPU add up to its wall time: what no record accounts for is unknown.

use crate::profile::filter::Filter;
use crate::recording::Recording;
use std::collections::BTreeMap;
use uprof::Task;
use uprof::cold::{Place, TargetKind, VcpuTime};

/// Number of places.
pub const PLACES: usize = Place::ALL.len();

/// Nanoseconds at each place, by its number.
pub type Spent = [u64; PLACES];

/// Wall time of a vCPU in the selected part of its recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WallTime {
    /// Number of its recording.
    pub recording: usize,
    /// The vCPU; of the guest's last boot, if there were several.
    pub task: Task,
    /// The wall time (nanoseconds), which is the sum of its places.
    pub wall_ns: u64,
    /// The places.
    pub spent: Spent,
}

/// Wall times of the vCPUs of recordings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VcpuTimes {
    /// A row for each vCPU.
    pub rows: Vec<WallTime>,
    /// Time of vCPUs before their first record and after their last one (nanoseconds), which is unknown.
    pub unrecorded_ns: u64,
    /// Number of records that can't be true: they overlap, run backwards, or are longer than their interval.
    pub contradictory: u64,
    /// Whether records were divided in proportion to time, as the selected time begins or ends within them.
    pub divided: bool,
}

/// What is done by KVM is done by Xen for its guests.
pub(crate) fn hypervisor(kind: TargetKind) -> &'static str {
    if kind == TargetKind::XenDomain {
        "Xen"
    } else {
        "KVM"
    }
}

/// The box of a flame graph for time at a place without a stack.
pub(crate) fn box_name(place: Place, kind: TargetKind) -> &'static str {
    match place {
        Place::Guest => "[guest code without samples]",
        Place::Hypervisor if kind == TargetKind::XenDomain => "[handled in Xen]",
        Place::Hypervisor => "[handled in KVM]",
        Place::Monitor => "[handled in the monitor]",
        Place::Ready => "[waiting for a processor]",
        Place::Halted => "[halted]",
        Place::Paused => "[paused by the recorder]",
        Place::Unknown => "[unknown]",
    }
}

/// The box of the exits for a reason.
pub(crate) fn exit_box(reason: &str) -> String {
    format!("[exit: {reason}]")
}

/// `n` in proportion to `part` of `whole`.
pub(crate) fn in_proportion(n: u64, part: u64, whole: u64) -> u64 {
    if part >= whole {
        return n;
    }
    let scaled = u128::from(n) * u128::from(part) + u128::from(whole / 2);
    u64::try_from(scaled / u128::from(whole)).unwrap_or(n)
}

/// The part of an interval within another one, and its whole length; `None` if nothing is. An interval without length
/// counts whole.
pub(crate) fn part_within(first_ns: u64, last_ns: u64, window: (u64, u64)) -> Option<(u64, u64)> {
    let (from_ns, to_ns) = window;
    let whole = last_ns.saturating_sub(first_ns);
    if whole == 0 {
        return (from_ns <= first_ns && first_ns < to_ns).then_some((1, 1));
    }
    let part = last_ns.min(to_ns).saturating_sub(first_ns.max(from_ns));
    (part > 0).then_some((part, whole))
}

/// The selected time, on the recording's clock.
pub(crate) fn window(recording: &Recording, filter: &Filter) -> (u64, u64) {
    let at = |since_ns: u64| recording.start_ns().saturating_add(since_ns);
    (
        filter.from_ns.map_or(0, at),
        filter.to_ns.map_or(u64::MAX, at),
    )
}

/// Whether a recording has wall times or exits of vCPUs.
pub(crate) fn has_any(recording: &Recording) -> bool {
    !recording.vcpu_times().is_empty() || !recording.exits().is_empty()
}

/// Records of one vCPU, through all boots of its guest.
#[derive(Default)]
struct OfVcpu<'r> {
    last_task: Option<Task>,
    records: Vec<&'r VcpuTime>,
}

impl VcpuTimes {
    /// Adds the vCPUs of a recording.
    pub(crate) fn add(&mut self, number: usize, recording: &Recording, filter: &Filter) {
        let mut vcpus: BTreeMap<u32, OfVcpu<'_>> = BTreeMap::new();
        for record in recording.vcpu_times() {
            let vcpu = vcpus.entry(record.task.vcpu).or_default();
            vcpu.last_task = vcpu.last_task.max(Some(record.task));
            vcpu.records.push(record);
        }
        for exits in recording.exits() {
            let vcpu = vcpus.entry(exits.task.vcpu).or_default();
            vcpu.last_task = vcpu.last_task.max(Some(exits.task));
        }
        for (_, vcpu) in vcpus {
            let Some(task) = vcpu.last_task else {
                continue;
            };
            if filter.has_pid(|| None) && filter.has_task(recording, task, u64::MAX, || task.space)
            {
                self.add_vcpu(number, recording, filter, task, vcpu.records);
            }
        }
    }

    fn add_vcpu(
        &mut self,
        number: usize,
        recording: &Recording,
        filter: &Filter,
        task: Task,
        mut records: Vec<&VcpuTime>,
    ) {
        records.sort_by_key(|record| (record.first_ns, record.last_ns));
        let (from_ns, to_ns) = window(recording, filter);
        let (begin_ns, end_ns) = lifetime(recording, task, &records);
        let (from_ns, to_ns) = (from_ns.max(begin_ns), to_ns.min(end_ns));
        let wall_ns = to_ns.saturating_sub(from_ns);
        if wall_ns == 0 {
            return;
        }
        let mut spent = [0_u64; PLACES];
        let first_ns = records.first().map_or(u64::MAX, |record| record.first_ns);
        let mut covered_ns = 0;
        for record in records {
            let (first_ns, last_ns) = (record.first_ns, record.last_ns);
            let length_ns = last_ns.saturating_sub(first_ns);
            let sums = record.spent.iter().map(|(_, ns)| u128::from(*ns));
            let sum_ns: u128 = sums.sum();
            let longest_ns = u128::from(length_ns) + u128::from(length_ns / ROUNDED_PARTS);
            let is_wrong = last_ns < first_ns || first_ns < covered_ns || sum_ns > longest_ns;
            self.contradictory += u64::from(is_wrong);
            let since_ns = first_ns.max(covered_ns);
            covered_ns = covered_ns.max(last_ns);
            let part_ns = last_ns.min(to_ns).saturating_sub(since_ns.max(from_ns));
            if part_ns == 0 {
                continue;
            }
            self.divided |= first_ns < from_ns && filter.from_ns.is_some()
                || last_ns > to_ns && filter.to_ns.is_some();
            let whole = sum_ns.max(u128::from(length_ns));
            for (place, ns) in &record.spent {
                let inside = u128::from(*ns) * u128::from(part_ns) / whole;
                let sum = &mut spent[place.number() as usize];
                *sum = sum.saturating_add(u64::try_from(inside).unwrap_or(u64::MAX));
            }
        }
        let first_ns = first_ns.clamp(from_ns, to_ns);
        let unrecorded_ns = wall_ns - covered_ns.clamp(first_ns, to_ns).saturating_sub(first_ns);
        self.unrecorded_ns = self.unrecorded_ns.saturating_add(unrecorded_ns);
        let unknown = Place::Unknown.number() as usize;
        spent[unknown] = 0;
        let known = spent.iter().fold(0, |sum: u64, ns| sum.saturating_add(*ns));
        spent[unknown] = wall_ns.saturating_sub(known);
        self.rows.push(WallTime {
            recording: number,
            task,
            wall_ns,
            spent,
        });
    }

    /// The sum of all vCPUs.
    pub(crate) fn total(&self) -> (u64, Spent) {
        let mut total = (0_u64, [0; PLACES]);
        for row in &self.rows {
            total.0 = total.0.saturating_add(row.wall_ns);
            add(&mut total.1, &row.spent);
        }
        total
    }
}

/// A record may be longer than its interval by one part in this many: its parts are rounded.
const ROUNDED_PARTS: u64 = 1000;

/// Adds the times of `more` place by place.
pub(crate) fn add(sums: &mut Spent, more: &Spent) {
    for (sum, ns) in sums.iter_mut().zip(more) {
        *sum = sum.saturating_add(*ns);
    }
}

/// The part of the recording for which a vCPU existed, as far as that is known.
fn lifetime(recording: &Recording, task: Task, records: &[&VcpuTime]) -> (u64, u64) {
    let start_ns = recording.start_ns();
    let first = records.first();
    let named_ns = first.and_then(|first| recording.tasks().since_ns(first.task));
    let begin_ns = match (named_ns, first) {
        (Some(named_ns), Some(first)) => named_ns.min(first.first_ns).max(start_ns),
        _ => start_ns,
    };
    let last_ns = records.iter().map(|record| record.last_ns).max();
    let last_ns = last_ns.unwrap_or(start_ns);
    let end_ns = if recording.was_cut() {
        recording.end_ns().max(last_ns)
    } else {
        recording.end_ns()
    };
    let ended_ns = recording.tasks().ended_ns(task);
    (
        begin_ns,
        ended_ns.map_or(end_ns, |ended_ns| ended_ns.max(last_ns).min(end_ns)),
    )
}
