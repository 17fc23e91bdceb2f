//! What was lost of the part of a recording that a filter selects. Where that is not known exactly, it counts.

use crate::profile::filter::Filter;
use crate::profile::vcpu_times::{in_proportion, part_within, window};
use crate::recording::Recording;
use crate::recording::account::Selected;
use crate::recording::processes::pid_at;
use std::borrow::Cow;
use std::collections::BTreeSet;
use uprof::Task;
use uprof::cold::{Loss, LossReason, TargetKind};

/// What is selected of a recording, and what was lost of that.
pub(crate) fn selected(recording: &Recording, filter: &Filter) -> Selected {
    // The process of a guest is not known of what is lost.
    let of_losses = match recording.metadata().target.kind {
        TargetKind::Process => Cow::Borrowed(filter),
        _ => Cow::Owned(Filter {
            pids: BTreeSet::new(),
            process: None,
            ..filter.clone()
        }),
    };
    let losses = recording.losses().iter();
    Selected {
        seconds: filter.seconds(recording),
        losses: losses
            .filter_map(|loss| loss_within(recording, &of_losses, loss))
            .collect(),
        of_chosen_tasks: filter.chooses_tasks(),
    }
}

/// The part of a loss that may be of the selected time, and of a chosen vCPU, thread or process.
fn loss_within(recording: &Recording, filter: &Filter, loss: &Loss) -> Option<Loss> {
    let is_of_other = |task| !may_have(recording, filter, task, loss.first_ns);
    if loss.task.is_some_and(is_of_other) {
        return None;
    }
    let is_of_part = filter.from_ns.is_some() || filter.to_ns.is_some();
    if !is_of_part || !recording.is_timed() {
        return Some(loss.clone());
    }
    let window = window(recording, filter);
    if matches!(loss.reason, LossReason::EventsLost | LossReason::CallsLost) {
        // Names, or the calls of a function, are missing from then on.
        return (loss.first_ns < window.1).then(|| loss.clone());
    }
    let (part, whole) = part_within(loss.first_ns, loss.last_ns, window)?;
    // It may be of the part, however short that is.
    let count = in_proportion(loss.count, part, whole).max(loss.count.min(1));
    Some(Loss {
        count,
        ..loss.clone()
    })
}

/// Whether what was lost of a task may be selected.
fn may_have(recording: &Recording, filter: &Filter, task: Task, time_ns: u64) -> bool {
    filter.has_pid(|| pid_at(recording, task.space, time_ns))
        && filter.has_task(recording, task, time_ns, || task.space)
}
