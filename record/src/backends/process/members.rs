//! The set of recorded processes. The sampler queries it for each record, and it grows as records report new processes.
//!
//! Allocated once with room for every process id of Linux; queries and additions don't allocate, lock or wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Limit of process ids, whatever `/proc/sys/kernel/pid_max` is (`PID_MAX_LIMIT` of `linux/threads.h`).
const PIDS: usize = 1 << 22;

/// The processes of a recording. Clones share one set.
#[derive(Debug, Clone)]
pub struct Members(Arc<Sets>);

#[derive(Debug)]
struct Sets {
    /// Whether records of all processes are taken.
    everyone: bool,
    /// The name that makes a process a member; empty for none.
    name: Box<[u8]>,
    wanted: Set,
    /// Members that had not ended at the last check.
    alive: Set,
    /// Whether there may be unknown processes.
    unsure: AtomicBool,
    /// The time since which records of members may be lost; the latest possible one if none are.
    lost_since_ns: AtomicU64,
}

#[derive(Debug)]
struct Set {
    /// A bit for each process id.
    words: Box<[AtomicU64]>,
    /// A bit for each word that ever had one: there are 65,536, and all members are visited several times a second.
    used: Box<[AtomicU64]>,
}

impl Set {
    fn new() -> Self {
        let zeros = |bits: usize| (0..bits / 64).map(|_| AtomicU64::new(0)).collect();
        Set {
            words: zeros(PIDS),
            used: zeros(PIDS / 64),
        }
    }

    fn word(&self, pid: u32) -> Option<(&AtomicU64, u64)> {
        Some((self.words.get(pid as usize / 64)?, 1 << (pid % 64)))
    }

    fn has(&self, pid: u32) -> bool {
        self.word(pid)
            .is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
    }

    fn add(&self, pid: u32) {
        if let Some((word, bit)) = self.word(pid) {
            word.fetch_or(bit, Ordering::Relaxed);
            let at = pid as usize / 64;
            self.used[at / 64].fetch_or(1 << (at % 64), Ordering::Release);
        }
    }

    fn remove(&self, pid: u32) {
        if let Some((word, bit)) = self.word(pid) {
            word.fetch_and(!bit, Ordering::Relaxed);
        }
    }

    fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        let used = self.used.iter().enumerate();
        let used = used.flat_map(|(at, word)| bits_of(at, word.load(Ordering::Acquire)));
        used.flat_map(|at| bits_of(at, self.words[at].load(Ordering::Relaxed)))
            .map(|pid| pid as u32)
    }
}

/// The numbers of the bits that are set in the word at `at`.
fn bits_of(at: usize, mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = word.trailing_zeros() as usize;
        word &= word.checked_sub(1)?;
        Some(at * 64 + bit)
    })
}

impl Members {
    /// Without processes; with `everyone`, records of all processes are taken.
    pub fn new(everyone: bool) -> Self {
        Members::named(everyone, "")
    }

    /// As [`Members::new`], but processes that get this name join.
    pub fn named(everyone: bool, name: &str) -> Self {
        Members(Arc::new(Sets {
            everyone,
            name: name.as_bytes().into(),
            wanted: Set::new(),
            alive: Set::new(),
            unsure: AtomicBool::new(false),
            lost_since_ns: AtomicU64::new(u64::MAX),
        }))
    }

    /// Whether records of this process are taken.
    pub fn wants(&self, pid: u32) -> bool {
        self.0.everyone || self.0.wanted.has(pid)
    }

    /// Whether a process that gets this name joins.
    pub fn are_called(&self, name: &[u8]) -> bool {
        !name.is_empty() && *self.0.name == *name
    }

    /// Adds a process; returns whether it is new.
    pub fn add(&self, pid: u32) -> bool {
        let new = !self.0.wanted.has(pid);
        self.0.wanted.add(pid);
        self.0.alive.add(pid);
        new
    }

    /// Removes a process id that now belongs to another process.
    pub fn remove(&self, pid: u32) {
        self.0.wanted.remove(pid);
        self.0.alive.remove(pid);
    }

    /// Whether a process is a member that had not ended at the last check.
    pub fn is_alive(&self, pid: u32) -> bool {
        self.0.alive.has(pid)
    }

    /// Marks a process as ended. Its records may still come.
    pub fn ended(&self, pid: u32) {
        self.0.alive.remove(pid);
    }

    /// The members that had not ended at the last check.
    pub fn alive(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.alive.iter()
    }

    /// Notes that there may be unknown processes.
    pub fn be_unsure(&self) {
        self.0.unsure.store(true, Ordering::Relaxed);
    }

    /// Notes that records are lost, the first at `since_ns` or later: there may be unknown processes, and known ones
    /// may run other programs and have other mappings than was reported.
    pub fn lost_records(&self, since_ns: u64) {
        self.0.lost_since_ns.fetch_min(since_ns, Ordering::Relaxed);
        self.be_unsure();
    }

    /// The time since which records were lost, if any were since the last call.
    pub fn take_lost_since(&self) -> Option<u64> {
        let since_ns = self.0.lost_since_ns.swap(u64::MAX, Ordering::Relaxed);
        (since_ns < u64::MAX).then_some(since_ns)
    }

    /// Whether there may be unknown processes since the last call.
    pub fn take_unsure(&self) -> bool {
        self.0.unsure.swap(false, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_ids_up_to_the_last_and_past_it() {
        let members = Members::new(false);
        for pid in [1, 63, 64, PIDS as u32 - 1] {
            assert!(!members.wants(pid));
            assert!(members.add(pid) && !members.add(pid));
            assert!(members.wants(pid));
        }
        members.add(PIDS as u32);
        members.add(u32::MAX);
        assert!(!members.wants(PIDS as u32) && !members.wants(u32::MAX));
        members.ended(63);
        members.remove(64);
        assert!(members.wants(63) && !members.wants(64));
        let alive: Vec<u32> = members.alive().collect();
        assert_eq!(alive, [1, PIDS as u32 - 1]);
        assert!(Members::new(true).wants(u32::MAX));
    }
}
