//! Stacks of a guest's monitor and of its hypervisor, by the exit that they handled. Input: the monitor's recording
//! inside a guest's, and what its samples handled. Output: the stacks of each cause, with their samples.

use super::{OnProgress, Options, Sampled, gather_unit};
use crate::profile::labels::{LabelId, Labels};
use crate::profile::tree::{NodeId, ROOT, StackTree};
use crate::profile::{Filter, Profile, vcpu_times};
use crate::recording::Recording;
use crate::stacks::Tables;
use crate::work;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use uprof::cold::{ExitCause, HandledExit, Place};

/// Samples by place and stack.
pub(super) type HandlerStacks = BTreeMap<(Place, NodeId), u64>;

/// Number of the recording, vCPU and cause.
type CauseKey = (usize, u32, ExitCause);

/// The stacks that handled exits.
#[derive(Default)]
pub(super) struct MonitorStacks {
    tree: StackTree,
    labels: Labels,
    by_cause: HashMap<CauseKey, HandlerStacks>,
}

impl MonitorStacks {
    /// Gathers the samples of the time that the filter selects, whatever it says of vCPUs and frames.
    pub(super) fn gather(
        recordings: &[&Recording],
        tables: &Tables<'_>,
        options: &Options,
        progress: &OnProgress<'_>,
    ) -> Self {
        let monitored = recordings.iter().enumerate();
        let monitored = monitored.filter_map(|(number, one)| Some((number, one.monitor()?)));
        let (numbers, monitors): (Vec<usize>, Vec<&Recording>) = monitored.unzip();
        let mut stacks = MonitorStacks::default();
        if monitors.is_empty() {
            return stacks;
        }
        let mut handled: HashMap<(usize, u32, u64), &HandledExit> = HashMap::new();
        for &number in &numbers {
            let recording = recordings[number];
            let (first_ns, last_ns) = vcpu_times::window(recording, &options.filter);
            let all = recording.handled().iter();
            let all = all.filter(|one| (first_ns..last_ns).contains(&one.time_ns));
            handled.extend(all.map(|one| ((number, one.thread, one.time_ns), one)));
        }
        let unit = super::unit_of_samples(&monitors, true);
        let options = Options {
            filter: Filter {
                unit: Some(unit),
                ..Filter::default()
            },
            by_task: false,
            by_process: false,
            by_recording: false,
            ..options.clone()
        };
        let by_cause = &mut stacks.by_cause;
        let mut take = |sampled: &Sampled, _: &Profile| {
            let number = numbers[sampled.recording];
            let time_ns = monitors[sampled.recording].start_ns() + sampled.since_ns;
            if let Some(exit) = handled.get(&(number, sampled.task.vcpu, time_ns)) {
                let of_cause = by_cause.entry((number, exit.task.vcpu, exit.cause));
                let at = (exit.place, sampled.node);
                let sum = of_cause.or_default().entry(at).or_default();
                *sum = sum.saturating_add(sampled.weight.amount);
            }
        };
        let how = (&options, unit);
        let gathered = gather_unit(&monitors, tables, how, progress, Some(&mut take));
        (stacks.tree, stacks.labels) = (gathered.tree, gathered.labels);
        stacks
    }

    /// The stacks of all these causes of a vCPU's exits.
    pub(super) fn of(
        &self,
        (number, vcpu): (usize, u32),
        causes: &BTreeSet<ExitCause>,
    ) -> HandlerStacks {
        let mut sum = HandlerStacks::new();
        let found = causes
            .iter()
            .filter_map(|cause| self.by_cause.get(&(number, vcpu, *cause)));
        for (at, count) in found.flatten() {
            let sum = sum.entry(*at).or_default();
            *sum = sum.saturating_add(*count);
        }
        sum
    }

    /// The frames of a stack from its outermost on, as labels of `labels`. Of the hypervisor, only those in the kernel:
    /// the monitor's own are the same in each exit.
    pub(super) fn frames(&self, place: Place, node: NodeId, labels: &mut Labels) -> Vec<LabelId> {
        let mut frames = Vec::new();
        let mut at = node;
        while at != ROOT {
            let label = self.tree.label(at);
            if place != Place::Hypervisor || self.labels.get(label).kernel {
                frames.push(labels.take(&self.labels, label, place));
            }
            at = self.tree.nodes()[at as usize].parent;
        }
        work::take(frames.len() as u64);
        frames.reverse();
        frames
    }
}
