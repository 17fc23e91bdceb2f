//! Which processes are recorded: a set that the sampler asks for each record, and that grows as
//! records tell of new processes.
//!
//! Made once with room for every process id that Linux gives; neither asking nor adding allocates,
//! locks or waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Process ids lie below this, whatever `/proc/sys/kernel/pid_max` says (`PID_MAX_LIMIT` of
/// `linux/threads.h`).
const PIDS: usize = 1 << 22;

/// The processes of a recording. Clones share one set.
#[derive(Debug, Clone)]
pub struct Members(Arc<Sets>);

#[derive(Debug)]
struct Sets {
    /// Records of all processes are taken, as the kernel or the person chose already.
    everyone: bool,
    wanted: Set,
    /// Those that had not ended when somebody last looked.
    alive: Set,
    /// Records were lost, so that processes may have come of which nobody told.
    unsure: AtomicBool,
}

#[derive(Debug)]
struct Set(Box<[AtomicU64]>);

impl Set {
    fn new() -> Self {
        Set((0..PIDS / 64).map(|_| AtomicU64::new(0)).collect())
    }

    fn word(&self, pid: u32) -> Option<(&AtomicU64, u64)> {
        Some((self.0.get(pid as usize / 64)?, 1 << (pid % 64)))
    }

    fn has(&self, pid: u32) -> bool {
        self.word(pid)
            .is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
    }

    fn add(&self, pid: u32) {
        if let Some((word, bit)) = self.word(pid) {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    fn remove(&self, pid: u32) {
        if let Some((word, bit)) = self.word(pid) {
            word.fetch_and(!bit, Ordering::Relaxed);
        }
    }

    fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        let words = self.0.iter().map(|word| word.load(Ordering::Relaxed));
        let words = words.enumerate().filter(|(_, word)| *word != 0);
        words.flat_map(|(at, word)| {
            let bits = (0..64).filter(move |bit| word >> bit & 1 != 0);
            bits.map(move |bit| at as u32 * 64 + bit)
        })
    }
}

impl Members {
    /// No process yet; with `everyone`, records of others are taken nevertheless.
    pub fn new(everyone: bool) -> Self {
        Members(Arc::new(Sets {
            everyone,
            wanted: Set::new(),
            alive: Set::new(),
            unsure: AtomicBool::new(false),
        }))
    }

    /// Whether records of this process are taken.
    pub fn wants(&self, pid: u32) -> bool {
        self.0.everyone || self.0.wanted.has(pid)
    }

    /// Adds a process; says whether it was not there.
    pub fn add(&self, pid: u32) -> bool {
        let new = !self.0.wanted.has(pid);
        self.0.wanted.add(pid);
        self.0.alive.add(pid);
        new
    }

    /// This process id is somebody else's from now on.
    pub fn remove(&self, pid: u32) {
        self.0.wanted.remove(pid);
        self.0.alive.remove(pid);
    }

    /// The process ended. Its records may still come.
    pub fn ended(&self, pid: u32) {
        self.0.alive.remove(pid);
    }

    /// Those that had not ended when somebody last looked.
    pub fn alive(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.alive.iter()
    }

    /// Processes may have come of which nobody told.
    pub fn be_unsure(&self) {
        self.0.unsure.store(true, Ordering::Relaxed);
    }

    /// Whether that was said since the last call.
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
