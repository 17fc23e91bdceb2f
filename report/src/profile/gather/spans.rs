//! Calls of a trace on their way into a profile: each adds what it took itself to the place of its stack in the tree,
//! and itself to the table of calls.

use super::{COUNTED_MAX, Each, Gathering, Passed, Sampled, naming};
use crate::images::demangle;
use crate::profile::Profile;
use crate::profile::calls::PlacedCall;
use crate::profile::labels::{Label, LabelId};
use crate::profile::slowest::Slowest;
use crate::profile::tree::NodeId;
use crate::recording::backwards::{Call, Visit, walk};
use crate::recording::processes::task_name;
use crate::recording::unit::Weight;
use std::collections::HashMap;
use uprof::{Span, State, Stop, Task, WordMap};

/// What a call costs of what a run may do: millions of them may be in a few kilobytes.
const STEPS_PER_CALL: u64 = 8;

/// A call that is looked at.
pub(super) struct Kept {
    /// Where it is in the tree, and what was passed on the way there.
    here: (NodeId, Passed),
    label: LabelId,
    task: Task,
    /// Whether the filters let it count.
    inside: bool,
    /// Whether its length is known and counts.
    adds: bool,
    /// Whether it does, and no such call of the same function is around it.
    outermost: bool,
    /// In the tree of a slow call, if it is in one.
    slow: Option<NodeId>,
    number: u64,
    length_ns: Option<u64>,
    since_ns: Option<u64>,
    without_beginning: bool,
    failed: bool,
    /// As it is told to who looks at calls one by one.
    told: Option<Span<LabelId>>,
}

struct Joining<'j, 'g, 'a, 's, 'e> {
    gathering: &'j mut Gathering<'a, 's>,
    profile: &'j mut Profile,
    slowest: &'j mut Slowest,
    each: &'j mut Option<&'e mut Each<'g>>,
    /// Labels of the block's names, by number.
    block: (u64, Vec<Option<LabelId>>),
    /// Roots of tasks' stacks, and whether they count.
    tasks: HashMap<Task, (NodeId, bool)>,
    /// How many calls of a label that add a length a task has open.
    open: WordMap<(Task, LabelId), u32>,
}

impl Gathering<'_, '_> {
    /// Adds all calls of the recording.
    pub(super) fn join_calls(
        &mut self,
        profile: &mut Profile,
        slowest: &mut Slowest,
        each: &mut Option<&mut Each<'_>>,
    ) {
        let recording = self.recording;
        let mut joining = Joining {
            gathering: self,
            profile,
            slowest,
            each,
            block: (u64::MAX, Vec::new()),
            tasks: HashMap::new(),
            open: WordMap::default(),
        };
        let (lost, faults) = walk(recording, &mut joining);
        let undecoded = &mut profile.account.undecoded;
        *undecoded = undecoded.saturating_add(lost);
        profile.warnings.extend(faults);
    }

    /// Where stacks of a task begin, and whether its calls count.
    fn task_of_calls(&mut self, task: Task, profile: &mut Profile) -> (NodeId, bool) {
        let filter = &self.options.filter;
        // The space of a process is its number, in a trace.
        let inside = filter.has_pid(|| Some(task.space))
            && filter.has_task(self.recording, task, u64::MAX, || task.space);
        let mut root = self.base;
        if let Some(processes) = &self.processes {
            let name = processes.label(self.recording, task.space, u64::MAX);
            let label = naming::plain(&mut profile.labels, &name);
            root = profile.tree.child(root, label);
        }
        if self.options.by_task {
            let name = task_name(self.recording, task, u64::MAX);
            let label = naming::plain(&mut profile.labels, &name);
            root = profile.tree.child(root, label);
        }
        (root, inside)
    }
}

impl Joining<'_, '_, '_, '_, '_> {
    fn label(&mut self, call: &Call<'_>) -> LabelId {
        if self.block.0 != call.block_offset {
            self.block = (call.block_offset, vec![None; call.block.names_len()]);
        }
        let index = call.row.name as usize;
        if let Some(Some(label)) = self.block.1.get(index) {
            return *label;
        }
        let name = call.block.name(call.row.name);
        let labels = &mut self.profile.labels;
        let name = if self.gathering.options.demangle {
            labels.text_id(&demangle(name))
        } else {
            labels.text_id(name)
        };
        let label = labels.id(Label {
            name,
            ..Label::default()
        });
        if let Some(known) = self.block.1.get_mut(index) {
            *known = Some(label);
        }
        self.gathering.ask(&self.profile.labels);
        label
    }

    /// Whether `--focus` and `--ignore` let a stack count.
    fn is_focused(&self, passed: Passed) -> bool {
        !passed.ignore && (self.gathering.options.filter.focus.is_none() || passed.focus)
    }

    /// Whether a call may be one of the slowest: it is what `--focus` asks for, not only within it.
    fn is_wanted(&self, label: LabelId, passed: Passed) -> bool {
        let flags = self.gathering.flags.get(label as usize);
        !passed.ignore
            && flags.is_none_or(|flags| {
                !flags.hide && (self.gathering.options.filter.focus.is_none() || flags.focus)
            })
    }
}

impl Visit for Joining<'_, '_, '_, '_, '_> {
    type Context = Kept;

    fn enter(&mut self, call: &Call<'_>, caller: Option<&Kept>) -> Kept {
        let row = &call.row;
        let label = self.label(call);
        let known = self.tasks.get(&row.task).copied();
        let (root, inside) = known.unwrap_or_else(|| {
            let found = self.gathering.task_of_calls(row.task, self.profile);
            self.tasks.insert(row.task, found);
            found
        });
        let from = caller.map_or((root, Passed::default()), |caller| caller.here);
        let here = self.gathering.step(from, label, self.profile);
        let start_ns = self.gathering.recording.start_ns();
        let since_ns = row.start_ns.map(|ns| ns.saturating_sub(start_ns));
        self.profile.account.read += 1;
        crate::work::take(STEPS_PER_CALL);
        let inside = inside && self.gathering.options.filter.has_time(since_ns);
        let adds = inside && row.length_ns.is_some() && self.is_focused(here.1);
        let mut outermost = false;
        if adds {
            let open = self.open.entry((row.task, label)).or_insert(0);
            *open += 1;
            outermost = *open == 1;
        }
        let length_ns = row
            .length_ns
            .filter(|_| inside && self.is_wanted(label, here.1));
        let wanted = length_ns.map(|length_ns| PlacedCall {
            length_ns,
            number: call.number,
            since_ns,
            task: (self.gathering.number, row.task),
        });
        let around = caller.and_then(|caller| caller.slow);
        Kept {
            here,
            label,
            task: row.task,
            inside,
            slow: self.slowest.enter(row.task, label, around, wanted),
            adds,
            outermost,
            number: call.number,
            length_ns: row.length_ns,
            since_ns,
            without_beginning: !row.complete && row.length_ns.is_some(),
            failed: row.result.is_some_and(|result| result < 0),
            told: self.each.is_some().then(|| Span {
                start_ns: since_ns,
                ..row.with(label, row.task)
            }),
        }
    }

    fn leave(&mut self, kept: Kept, own_ns: Option<u64>) {
        if kept.adds
            && let Some(open) = self.open.get_mut(&(kept.task, kept.label))
        {
            *open -= 1;
        }
        let own = own_ns.unwrap_or(0);
        self.slowest.leave(kept.task, kept.slow, kept.number, own);
        let (node, passed) = kept.here;
        let number = self.gathering.number;
        let is_focused = self.is_focused(passed);
        let account = &mut self.profile.account;
        if !kept.inside {
            account.outside += 1;
            return;
        }
        if !is_focused {
            account.unfocused += 1;
            return;
        }
        let amount = own_ns.unwrap_or(0).min(COUNTED_MAX - account.counted);
        account.counted += amount;
        account.unended += u64::from(own_ns.is_none());
        let weight = Weight { amount, count: 1 };
        let rows = account.counted_rows.entry(State::Running).or_default();
        rows.add(weight);
        let root = self.tasks.get(&kept.task).map(|(root, _)| *root);
        let node = if root.is_none_or(|root| node == root) {
            let label = naming::plain(&mut self.profile.labels, "[hidden]");
            self.profile.tree.child(node, label)
        } else {
            node
        };
        self.profile.tree.add(node, amount);
        let placed = kept.length_ns.map(|length_ns| PlacedCall {
            length_ns,
            number: kept.number,
            since_ns: kept.since_ns,
            task: (number, kept.task),
        });
        let flags = self.gathering.flags.get(kept.label as usize);
        let is_hidden = flags.is_some_and(|flags| flags.hide);
        let calls = &mut self.profile.calls;
        // The time of what is hidden is its caller's.
        let label = if is_hidden {
            self.profile.tree.label(node)
        } else {
            kept.label
        };
        if is_hidden {
            calls.functions.entry(label).or_default().add_own(amount);
        } else {
            let function = calls.functions.entry(label).or_default();
            function.add(placed, amount, kept.outermost);
            function.without_beginning += u64::from(kept.without_beginning);
            function.errors += u64::from(kept.failed);
        }
        if amount > 0 {
            let of_task = calls.tasks.entry((number, kept.task)).or_default();
            *of_task.entry(label).or_default() += amount;
        }
        if let Some(each) = &mut self.each {
            crate::work::take(super::STEPS_PER_SAMPLE);
            let sampled = Sampled {
                recording: number,
                since_ns: kept.since_ns.unwrap_or(0),
                task: kept.task,
                space: kept.task.space,
                state: State::Running,
                stop: Stop::Complete,
                node,
                address: None,
                weight,
                unit: self.profile.account.unit,
                call: kept.told,
                is_hidden,
            };
            each(&sampled, self.profile);
        }
    }
}
