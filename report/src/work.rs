//! What a run may do for what it reads: an amount of steps that does for any sound recording, and more for
//! each byte of the files that are read. What asks for more was made to: rules of unwinding that loop, a
//! stack of a thousand frames in each of a million samples of a few kilobytes, units of DWARF that all
//! have every address, an output of terabytes.
//!
//! Whoever repeats work that a stranger chose counts it here. Where nobody has set a limit there is none.

use crate::mapped;
use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// What any run may do; a step takes some nanoseconds, and fifty times as many in a build for tests.
const BASE_STEPS: u64 = if cfg!(debug_assertions) {
    1 << 24
} else {
    3 << 26
};
/// What a byte that is read may cost: stacks of 50 frames that were recorded take less than 50.
const STEPS_PER_BYTE: u64 = 512;
/// Steps of a thread that are not told to the others yet.
const UNTOLD_MAX: u64 = 1 << 12;

/// What was done.
static DONE: AtomicU64 = AtomicU64::new(0);
/// What may be done as far as files were read when somebody last looked; without bound at first.
static MOST: AtomicU64 = AtomicU64::new(u64::MAX);
/// Who is told when it is used up.
static USED_UP: OnceLock<fn()> = OnceLock::new();

thread_local! {
    static UNTOLD: Cell<u64> = const { Cell::new(0) };
}

/// From now on a run has a limit, on top of what it has done; past it `used_up` is called, which ends the run.
pub fn limit(used_up: fn()) {
    let _ = USED_UP.set(used_up);
    DONE.store(0, Ordering::Relaxed);
    MOST.store(most(), Ordering::Relaxed);
}

/// From now on there is no limit.
pub fn unlimit() {
    MOST.store(u64::MAX, Ordering::Relaxed);
}

fn most() -> u64 {
    BASE_STEPS.saturating_add(mapped::opened_bytes().saturating_mul(STEPS_PER_BYTE))
}

/// Counts `steps`.
#[inline]
pub fn take(steps: u64) {
    UNTOLD.with(|untold| {
        let sum = untold.get().saturating_add(steps);
        let tells = sum >= UNTOLD_MAX;
        untold.set(if tells { 0 } else { sum });
        if tells {
            tell(sum);
        }
    });
}

#[cold]
fn tell(steps: u64) {
    let done = DONE.fetch_add(steps, Ordering::Relaxed);
    let done = done.saturating_add(steps);
    if done <= MOST.load(Ordering::Relaxed) {
        return;
    }
    let most = most();
    match USED_UP.get() {
        Some(used_up) if done > most => used_up(),
        _ => MOST.store(most, Ordering::Relaxed),
    }
}
