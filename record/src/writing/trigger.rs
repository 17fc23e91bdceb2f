//! Conditions under which a flight recorder saves its window.
//!
//! Input: samples, losses and the end of a recording. Output: the reason to save, once for each time that a condition
//! becomes true. Memory is bounded by the tasks that ran within the condition's time, and by the address spaces that
//! have a function of which a share is formed.

use crate::source::control::Counters;
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use uprof::cold::{Loss, LossReason, space_of_root};
use uprof::{Frame, Sample, State, Task};

/// A condition's time is looked at in this many parts.
const PARTS: u64 = 16;
/// Most address spaces in which functions are found, and most places of them in each.
const FUNCTION_SPACES_MAX: usize = 1 << 16;
const FUNCTION_PLACES_MAX: usize = 64;
/// How long a sample may be on its way. What is newer is not judged yet.
const ON_ITS_WAY_NS: u64 = 300_000_000;
/// Fewest samples of which a share is formed.
const LEAST_SAMPLES: u64 = 10;
/// Most saves of a recording that triggers cause.
pub const MOST_SAVES: u32 = 100;
/// Shortest time between two of them, unless the window is longer.
pub const LEAST_GAP_NS: u64 = 10_000_000_000;
/// Most vCPUs or threads whose last address is remembered.
const MOST_TASKS: usize = 1 << 16;

/// A condition, and for how long it must hold.
#[derive(Debug, Clone, PartialEq)]
pub struct Trigger {
    /// The condition as the user wrote it.
    pub text: String,
    /// The condition.
    pub condition: Condition,
    /// The time over which it is judged.
    pub for_ns: u64,
}

/// What is watched.
#[derive(Debug, Clone, PartialEq)]
pub enum Condition {
    /// A vCPU or thread runs for more than this share of the time.
    Busy(f64),
    /// No vCPU or thread is seen running at another address than before.
    Silent,
    /// The guest ends or restarts, its monitor ends, or the recorded command crashes.
    Crash,
    /// A function is in more than this share of the samples.
    Share(String, f64),
}

/// How samples of the target come.
#[derive(Debug, Clone, Copy)]
pub struct Sampled {
    /// Time between two samples of a vCPU or thread that runs, as it was asked for.
    pub period_ns: u64,
    /// Whether samples are taken only of what runs.
    pub on_cpu_only: bool,
    /// Whether the target is a guest.
    pub is_guest: bool,
}

/// Judges the triggers of a recording.
pub struct Triggers {
    watches: Vec<Watch>,
    sampled: Sampled,
    counters: Arc<Counters>,
    began_ns: u64,
    window_ns: u64,
    gap_ns: u64,
    saves: u32,
    /// The last address of each task.
    addresses: HashMap<Task, Option<u64>>,
    moved_ns: u64,
    seen_ns: u64,
    /// Where the functions are that a share is formed of, by address space.
    functions: HashMap<u32, Vec<(usize, Range<u64>)>>,
}

/// One trigger, and what was seen for it.
struct Watch {
    trigger: Trigger,
    parts: VecDeque<Part>,
    is_armed: bool,
    saved_ns: Option<u64>,
    /// It became true too soon after a save, then, in these words.
    late: Option<(u64, String)>,
}

/// What was seen in a part of the time.
#[derive(Default)]
struct Part {
    number: u64,
    /// For each task, the time for which it ran or was ready to, and all, by the periods of its samples (nanoseconds).
    tasks: HashMap<Task, (u64, u64)>,
    /// Samples of running tasks with the function, and all.
    with_function: (u64, u64),
}

impl Triggers {
    /// Begins at `began_ns`. The same condition saves again once the window is another one, and it was false in
    /// between. If it becomes true earlier, it saves then: the window still has it. `counters` tell the present rate.
    pub fn new(
        triggers: Vec<Trigger>,
        sampled: Sampled,
        counters: Arc<Counters>,
        began_ns: u64,
        window_ns: u64,
    ) -> Self {
        let watch = |trigger| Watch {
            trigger,
            parts: VecDeque::new(),
            is_armed: true,
            saved_ns: None,
            late: None,
        };
        Triggers {
            watches: triggers.into_iter().map(watch).collect(),
            sampled,
            counters,
            began_ns,
            window_ns,
            gap_ns: window_ns.max(LEAST_GAP_NS),
            saves: 0,
            addresses: HashMap::new(),
            moved_ns: began_ns,
            seen_ns: began_ns,
            functions: HashMap::new(),
        }
    }

    /// Names of the functions of which shares are formed.
    pub fn functions(&self) -> Vec<String> {
        let names = self
            .watches
            .iter()
            .map(|watch| match &watch.trigger.condition {
                Condition::Share(name, _) => name.clone(),
                _ => String::new(),
            });
        names.collect()
    }

    /// Adds addresses of the function of a number in [`Triggers::functions`].
    pub fn add_function(&mut self, space: u32, number: usize, addresses: Range<u64>) {
        if self.functions.len() >= FUNCTION_SPACES_MAX && !self.functions.contains_key(&space) {
            return;
        }
        let known = self.functions.entry(space).or_default();
        if known.len() < FUNCTION_PLACES_MAX && !known.contains(&(number, addresses.clone())) {
            known.push((number, addresses));
        }
    }

    /// A process runs another program, or has ended.
    pub fn forget_functions(&mut self, space: u32) {
        self.functions.remove(&space);
    }

    /// A process was forked: it has the functions of its parent.
    pub fn copy_functions(&mut self, parent: u32, space: u32) {
        self.functions.remove(&space);
        let copied = self.functions.get(&parent).cloned().unwrap_or_default();
        for (number, addresses) in copied {
            self.add_function(space, number, addresses);
        }
    }

    /// The present time between two samples (nanoseconds): the limit of the overhead makes it longer.
    fn period_ns(&self) -> u64 {
        let slowed_to_ns = self.counters.slowed_to_ns.load(Ordering::Relaxed);
        self.sampled.period_ns.max(slowed_to_ns)
    }

    /// Takes a sample into account.
    pub fn see(&mut self, sample: &Sample<'_>) {
        if self.watches.is_empty() || sample.wait.is_some() {
            return;
        }
        let is_running = sample.state == State::Running;
        // A vCPU that waits for a processor of its host has work to do.
        let is_busy = is_running || self.sampled.is_guest && sample.state == State::Ready;
        self.seen_ns = self.seen_ns.max(sample.time_ns);
        self.see_address(sample, is_running);
        let period_ns = self.period_ns();
        for (number, watch) in self.watches.iter_mut().enumerate() {
            match watch.trigger.condition {
                Condition::Busy(_) => {
                    let part = watch.part(sample.time_ns);
                    let count = part.tasks.entry(sample.task).or_default();
                    count.0 += if is_busy { period_ns } else { 0 };
                    count.1 += period_ns;
                }
                Condition::Share(..) if is_running => {
                    let has = has_function(&self.functions, number, sample);
                    let part = watch.part(sample.time_ns);
                    part.with_function.0 += u64::from(has);
                    part.with_function.1 += 1;
                }
                Condition::Share(..) | Condition::Silent | Condition::Crash => {}
            }
        }
    }

    /// Whoever halts between two samples, and runs at the same address in both, has moved.
    fn see_address(&mut self, sample: &Sample<'_>, is_running: bool) {
        let address = sample.chain.first().map(|frame| frame.address);
        if address.is_none() && !is_running {
            return;
        }
        if self.addresses.len() >= MOST_TASKS {
            self.addresses.clear();
        }
        if self.addresses.insert(sample.task, address) != Some(address) {
            self.moved_ns = self.moved_ns.max(sample.time_ns);
        }
    }

    /// Samples were lost: nobody knows whether the target moved. After a deadline that was missed, the next sample of a
    /// guest shows it.
    pub fn lost(&mut self, loss: &Loss) {
        if loss.reason != LossReason::Deadline || self.sampled.on_cpu_only {
            self.moved_ns = self.moved_ns.max(loss.last_ns);
        }
    }

    /// The reasons to save at `now_ns`.
    pub fn reasons(&mut self, now_ns: u64) -> Vec<String> {
        let judged_ns = now_ns.saturating_sub(ON_ITS_WAY_NS);
        let mut reasons = Vec::new();
        for number in 0..self.watches.len() {
            let found = self.judge(number, judged_ns);
            let watch = &mut self.watches[number];
            match found {
                Some(why) if std::mem::replace(&mut watch.is_armed, false) => {
                    watch.late.get_or_insert((now_ns, why));
                }
                Some(_) => {}
                None => watch.is_armed = true,
            }
            let may = |saved_ns| now_ns.saturating_sub(saved_ns) >= self.gap_ns;
            let window_ns = self.window_ns;
            (watch.late).take_if(|late| now_ns.saturating_sub(late.0) > window_ns);
            if watch.saved_ns.is_none_or(may)
                && self.saves < MOST_SAVES
                && let Some((since_ns, why)) = watch.late.take()
            {
                watch.saved_ns = Some(now_ns);
                self.saves += 1;
                let ago = match now_ns.saturating_sub(since_ns) {
                    0 => String::new(),
                    ns => format!(", {:.1} s ago", ns as f64 / 1e9),
                };
                reasons.push(format!("{}: {why}{ago}", watch.trigger.text));
            }
        }
        reasons
    }

    /// Whether no trigger saves any more.
    pub fn is_spent(&self) -> bool {
        self.saves >= MOST_SAVES
    }

    /// The reason to save when the target is gone.
    pub fn crashed(&mut self, now_ns: u64, how: &str) -> Option<String> {
        let mut watches = self.watches.iter_mut();
        let watch = watches.find(|watch| watch.trigger.condition == Condition::Crash)?;
        // A guest that restarts all the time must not fill the disk.
        let may = |saved_ns| now_ns.saturating_sub(saved_ns) >= self.gap_ns;
        if !watch.saved_ns.is_none_or(may) || self.saves >= MOST_SAVES {
            return None;
        }
        (watch.saved_ns, self.saves) = (Some(now_ns), self.saves + 1);
        Some(format!("{}: {how}", watch.trigger.text))
    }

    /// Whether the condition of a watch holds, and in which words.
    fn judge(&mut self, number: usize, judged_ns: u64) -> Option<String> {
        let sampled = Sampled {
            period_ns: self.period_ns(),
            ..self.sampled
        };
        let watch = &mut self.watches[number];
        let for_ns = watch.trigger.for_ns;
        watch.forget(judged_ns);
        if judged_ns < self.began_ns.saturating_add(for_ns) {
            return None;
        }
        match &watch.trigger.condition {
            Condition::Busy(least) => watch.busiest(judged_ns, sampled, *least),
            Condition::Silent => {
                // Without samples of a guest nothing is known about it.
                let patience_ns = (4 * sampled.period_ns).max(1_000_000_000);
                let is_seen =
                    sampled.on_cpu_only || self.seen_ns.saturating_add(patience_ns) >= judged_ns;
                let still_ns = judged_ns.saturating_sub(self.moved_ns);
                let seconds = still_ns as f64 / 1e9;
                (is_seen && still_ns >= for_ns).then(|| format!("nothing moved for {seconds:.1} s"))
            }
            Condition::Crash => None,
            Condition::Share(_, least) => {
                let (with, all) = watch.with_function(judged_ns);
                let share = with as f64 / all.max(1) as f64;
                let percent = share * 100.0;
                (all >= LEAST_SAMPLES && share > *least)
                    .then(|| format!("it is in {percent:.0} % of {all} samples"))
            }
        }
    }
}

/// Whether the function of this number is in a sample's frames.
fn has_function(
    functions: &HashMap<u32, Vec<(usize, Range<u64>)>>,
    number: usize,
    sample: &Sample<'_>,
) -> bool {
    let is_at = |space: u32, frame: &Frame| {
        let known = functions.get(&space).into_iter().flatten();
        let mut own = known.filter(|(of, _)| *of == number);
        own.any(|(_, addresses)| addresses.contains(&frame.lookup_address()))
    };
    let shared = sample.task.space;
    let of_root = sample.details.root.map(|root| space_of_root(shared, root));
    // Space 0 is the kernel's, or all of a guest.
    let spaces = [Some(0), Some(shared), of_root];
    let mut frames = sample.chain.iter();
    frames.any(|frame| {
        spaces
            .into_iter()
            .flatten()
            .any(|space| is_at(space, frame))
    })
}

impl Watch {
    fn part_ns(&self) -> u64 {
        (self.trigger.for_ns / PARTS).max(1)
    }

    /// The part that a time belongs to.
    fn part(&mut self, time_ns: u64) -> &mut Part {
        let number = time_ns / self.part_ns();
        let at = self.parts.partition_point(|part| part.number < number);
        if self.parts.get(at).is_none_or(|part| part.number != number) {
            let part = Part {
                number,
                ..Part::default()
            };
            self.parts.insert(at, part);
        }
        &mut self.parts[at]
    }

    /// Numbers of the parts that are judged at a time.
    fn judged(&self, now_ns: u64) -> Range<u64> {
        let end = now_ns / self.part_ns();
        end.saturating_sub(PARTS)..end
    }

    fn forget(&mut self, now_ns: u64) {
        let first = self.judged(now_ns).start;
        while self.parts.front().is_some_and(|part| part.number < first) {
            self.parts.pop_front();
        }
    }

    /// The task that ran most, if it did so for more than the share `least` of the time.
    fn busiest(&self, now_ns: u64, sampled: Sampled, least: f64) -> Option<String> {
        let judged = self.judged(now_ns);
        let mut sums: HashMap<Task, (u64, u64)> = HashMap::new();
        for part in self.parts.iter().filter(|it| judged.contains(&it.number)) {
            for (task, (ran_ns, all_ns)) in &part.tasks {
                let sum = sums.entry(*task).or_default();
                sum.0 += ran_ns;
                sum.1 += all_ns;
            }
        }
        let due_ns = PARTS * self.part_ns();
        let share = |(ran_ns, all_ns): (u64, u64)| {
            if sampled.on_cpu_only {
                ran_ns as f64 / due_ns.max(sampled.period_ns) as f64
            } else if all_ns < (due_ns / 2).max(2 * sampled.period_ns) {
                // Half of the samples must be there to judge a guest by them.
                0.0
            } else {
                ran_ns as f64 / all_ns as f64
            }
        };
        let shares = sums.into_iter().map(|(task, sum)| (share(sum), task));
        let (share, task) = shares.max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)))?;
        let what = if sampled.is_guest { "vCPU" } else { "thread" };
        let percent = (share * 100.0).min(100.0);
        (share > least).then(|| format!("{what} {} ran for {percent:.0} % of the time", task.vcpu))
    }

    fn with_function(&self, now_ns: u64) -> (u64, u64) {
        let judged = self.judged(now_ns);
        let parts = self.parts.iter().filter(|it| judged.contains(&it.number));
        parts.fold((0, 0), |sum, part| {
            let (with, all) = part.with_function;
            (sum.0 + with, sum.1 + all)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    /// Whether a vCPU or thread counts as busy from `from_ns` on that runs in `running` of 10 samples, at 100 Hz for
    /// 5 s, then at 20 Hz.
    fn is_busy(on_cpu_only: bool, running: u64, from_ns: u64) -> bool {
        let trigger = Trigger {
            text: "busy".to_owned(),
            condition: Condition::Busy(0.9),
            for_ns: 4 * SECOND_NS,
        };
        let sampled = Sampled {
            period_ns: SECOND_NS / 100,
            on_cpu_only,
            is_guest: true,
        };
        let counters = Arc::new(Counters::default());
        let mut triggers = Triggers::new(vec![trigger], sampled, counters.clone(), 0, SECOND_NS);
        let (mut time_ns, mut number, mut reasons) = (0, 0, 0);
        while time_ns < 20 * SECOND_NS {
            let is_slowed = time_ns >= 5 * SECOND_NS;
            let period_ns = SECOND_NS / if is_slowed { 20 } else { 100 };
            if is_slowed {
                counters.slowed_to_ns.store(period_ns, Ordering::Relaxed);
            }
            let is_running = number % 10 < running;
            let task = Task { space: 0, vcpu: 1 };
            let sample = Sample {
                state: if is_running {
                    State::Running
                } else {
                    State::Blocked
                },
                ..Sample::bare(time_ns, task, &[])
            };
            if is_running || !on_cpu_only {
                triggers.see(&sample);
            }
            if time_ns >= from_ns {
                reasons += triggers.reasons(time_ns).len();
            }
            time_ns += period_ns;
            number += 1;
        }
        reasons > 0
    }

    #[test]
    fn a_rate_that_the_overhead_limit_lowers_makes_nothing_less_or_more_busy() {
        for on_cpu_only in [false, true] {
            // All samples that are judged are of the lower rate, or some are of each.
            assert!(is_busy(on_cpu_only, 10, 10 * SECOND_NS), "{on_cpu_only}");
            assert!(!is_busy(on_cpu_only, 3, 5 * SECOND_NS), "{on_cpu_only}");
        }
    }
}
