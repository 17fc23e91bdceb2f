//! Sums exits of vCPUs by cause, in bounded memory, whatever a guest does.

use std::collections::HashMap;
use uprof::Task;
use uprof::cold::{ExitCause, Exits, Place};

/// Most causes of an interval. Exits for further ones are summed without address and argument.
const CAUSES_MAX: usize = 4096;

/// Nanoseconds by [`Place`], in the order of their numbers.
pub type Spent = [u64; Place::ALL.len()];

/// The places where time was spent.
pub fn places(spent: &Spent) -> Vec<(Place, u64)> {
    let all = Place::ALL.iter().copied().zip(*spent);
    all.filter(|(_, ns)| *ns > 0).collect()
}

/// A guest that exits often does so for the same few causes: where their sums are is found without a hash table.
const RECENT: usize = 64;

/// The exits of an interval.
#[derive(Debug)]
pub struct ExitTable {
    sums: Vec<((Task, ExitCause), Sum)>,
    by_cause: HashMap<(Task, ExitCause), usize>,
    /// Where the last sum of each of these groups of causes is.
    recent: [usize; RECENT],
}

#[derive(Debug, Default)]
struct Sum {
    count: u64,
    seen: u64,
    spent: Spent,
    /// Number of exits by rounded length, in order.
    lengths: Vec<(u64, u64)>,
}

impl Default for ExitTable {
    fn default() -> Self {
        ExitTable {
            sums: Vec::new(),
            by_cause: HashMap::new(),
            recent: [0; RECENT],
        }
    }
}

impl ExitTable {
    /// Adds an exit whose end is not seen, such as a call of a PV guest of Xen.
    pub fn count(&mut self, task: Task, cause: ExitCause) {
        self.sum_of(task, cause).count += 1;
    }

    /// Adds an exit, and where its time went.
    pub fn add(&mut self, task: Task, cause: ExitCause, spent: &Spent) {
        let sum = self.sum_of(task, cause);
        (sum.count, sum.seen) = (sum.count + 1, sum.seen + 1);
        for (total, ns) in sum.spent.iter_mut().zip(spent) {
            *total = total.saturating_add(*ns);
        }
        let paused_ns = spent[usize::from(Place::Paused.number())];
        let length_ns = spent.iter().sum::<u64>() - paused_ns;
        let length_ns = Exits::rounded(length_ns);
        match sum.lengths.binary_search_by_key(&length_ns, |of| of.0) {
            Ok(at) => sum.lengths[at].1 += 1,
            Err(at) => sum.lengths.insert(at, (length_ns, 1)),
        }
    }

    /// Says that exits of `task` were added from `watched_ns` of `all_ns` only: they stand for the others, too.
    pub fn scale(&mut self, task: Task, all_ns: u64, watched_ns: u64) {
        let scaled = |n: u64| {
            let scaled = u128::from(n) * u128::from(all_ns) / u128::from(watched_ns.max(1));
            u64::try_from(scaled).unwrap_or(u64::MAX)
        };
        let of_task = (self.sums.iter_mut()).filter(|((one, _), _)| *one == task);
        for (_, sum) in of_task {
            sum.count = scaled(sum.count);
            sum.spent = sum.spent.map(scaled);
        }
    }

    fn sum_of(&mut self, task: Task, cause: ExitCause) -> &mut Sum {
        let bits = cause.address.unwrap_or(0) ^ cause.argument.unwrap_or(0) << 8 ^ cause.reason;
        // Multiplicative hashing (Knuth, volume 3, section 6.4). Causes that meet in a group only cost time.
        let group = bits.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - RECENT.ilog2());
        let mut at = self.recent[group as usize];
        if (self.sums.get(at)).is_none_or(|(key, _)| *key != (task, cause)) {
            at = self.place_of(task, cause);
            self.recent[group as usize] = at;
        }
        &mut self.sums[at].1
    }

    fn place_of(&mut self, task: Task, mut cause: ExitCause) -> usize {
        if self.sums.len() >= CAUSES_MAX && !self.by_cause.contains_key(&(task, cause)) {
            (cause.address, cause.argument) = (None, None);
        }
        *self.by_cause.entry((task, cause)).or_insert_with(|| {
            self.sums.push(((task, cause), Sum::default()));
            self.sums.len() - 1
        })
    }

    /// The exits between the two times, in order of vCPU and cause. The table is empty afterwards.
    pub fn take(&mut self, first_ns: u64, last_ns: u64) -> Vec<Exits> {
        self.by_cause.clear();
        let sums = self.sums.drain(..);
        let all = sums.map(|((task, cause), sum)| Exits {
            task,
            first_ns,
            last_ns,
            cause,
            count: sum.count,
            seen: sum.seen,
            spent: places(&sum.spent),
            lengths: sum.lengths,
        });
        let mut all: Vec<Exits> = all.collect();
        all.sort_unstable_by_key(|exits| (exits.task, exits.cause));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uprof::cold::ExitKind;

    const TASK: Task = Task { space: 0, vcpu: 3 };

    fn cause(address: u64) -> ExitCause {
        ExitCause {
            kind: ExitKind::Svm,
            reason: 0x72,
            address: Some(address),
            argument: Some(address),
        }
    }

    fn spent(ns: u64) -> Spent {
        let mut spent = Spent::default();
        spent[usize::from(Place::Hypervisor.number())] = ns;
        spent[usize::from(Place::Paused.number())] = 1_000_000;
        spent
    }

    #[test]
    fn exits_are_summed_by_cause() {
        let mut table = ExitTable::default();
        table.add(TASK, cause(7), &spent(100));
        table.add(TASK, cause(7), &spent(17));
        table.add(TASK, cause(1), &spent(5));
        table.count(TASK, cause(1));
        let all = table.take(10, 20);
        let [one, seven] = &all[..] else {
            panic!("{all:?}")
        };
        assert_eq!((one.count, one.seen), (2, 1));
        assert_eq!((seven.count, seven.seen), (2, 2));
        assert_eq!(seven.lengths, [(18, 1), (104, 1)]);
        let pauses = (Place::Paused, 2_000_000);
        assert_eq!(seven.spent, [(Place::Hypervisor, 117), pauses]);
        assert!(table.take(20, 30).is_empty());
    }

    #[test]
    fn exits_of_a_part_of_the_time_stand_for_all() {
        let (mut table, other) = (ExitTable::default(), Task { space: 0, vcpu: 4 });
        table.add(TASK, cause(7), &spent(100));
        table.add(TASK, cause(7), &spent(100));
        table.add(other, cause(7), &spent(100));
        table.scale(TASK, 900, 300);
        let all = table.take(10, 20);
        let found = all
            .iter()
            .map(|one| (one.task, one.count, one.seen, one.spent[0].1));
        assert_eq!(
            found.collect::<Vec<_>>(),
            [(TASK, 6, 2, 600), (other, 1, 1, 100)]
        );
        assert_eq!(
            all[0].lengths,
            [(104, 2)],
            "lengths are of those that were seen"
        );
    }

    #[test]
    fn a_guest_that_exits_from_new_addresses_takes_no_more_memory() {
        let mut table = ExitTable::default();
        let exits = 10 * CAUSES_MAX as u64;
        (0..exits).for_each(|address| table.add(TASK, cause(address), &spent(1)));
        let all = table.take(0, 1);
        assert_eq!(all.len(), CAUSES_MAX + 1);
        assert_eq!(all.iter().map(|exits| exits.count).sum::<u64>(), exits);
        let rest = all.iter().find(|exits| exits.cause.address.is_none());
        assert_eq!(rest.unwrap().count, exits - CAUSES_MAX as u64);
    }
}
