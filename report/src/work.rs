//! The work budget of a run, in steps. It is enough for any intact recording, and grows with each byte of the
//! files that are read. Only hostile input needs more: unwind rules that loop, a stack of a thousand frames
//! in each of a million samples in a few kilobytes, DWARF units that all cover every address, an output of
//! terabytes.
//!
//! Code whose work depends on untrusted input counts its steps here. Without a call of [`limit`] there is no
//! limit.

use crate::mapped;
use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use uprof::layout::MAX_ROWS;
use uprof::{Block, DecodeError, Payload};

/// The steps that any run has. A step takes some nanoseconds, and fifty times as many in a debug build.
const BASE_STEPS: u64 = if cfg!(debug_assertions) {
    1 << 24
} else {
    3 << 26
};
/// The steps for each byte that is read: recorded stacks of 50 frames take less than 50 a byte.
const STEPS_PER_BYTE: u64 = 160;
/// The steps of one sample when its block is decoded, in addition to those of its bytes.
const STEPS_PER_ROW: u64 = 8;
/// Most steps that a thread counts before it adds them to the total.
const PENDING_MAX: u64 = 1 << 12;

/// Steps of all threads so far.
static DONE: AtomicU64 = AtomicU64::new(0);
/// The budget at the last check, from the bytes read by then; unlimited at first.
static MOST: AtomicU64 = AtomicU64::new(u64::MAX);
/// Called when the budget is used up.
static USED_UP: OnceLock<fn()> = OnceLock::new();

thread_local! {
    static PENDING: Cell<u64> = const { Cell::new(0) };
}

/// Sets the limit from now on. Beyond it, `used_up` is called, which ends the run.
pub fn limit(used_up: fn()) {
    let _ = USED_UP.set(used_up);
    DONE.store(0, Ordering::Relaxed);
    MOST.store(most(), Ordering::Relaxed);
}

/// Removes the limit.
pub fn unlimit() {
    MOST.store(u64::MAX, Ordering::Relaxed);
}

fn most() -> u64 {
    BASE_STEPS.saturating_add(mapped::read_bytes().saturating_mul(STEPS_PER_BYTE))
}

/// Counts `steps` of this thread.
#[inline]
pub fn take(steps: u64) {
    PENDING.with(|pending| {
        let sum = pending.get().saturating_add(steps);
        let is_full = sum >= PENDING_MAX;
        pending.set(if is_full { 0 } else { sum });
        if is_full {
            add(sum);
        }
    });
}

/// Counts the work of decoding a block: its bytes before compression, and its samples. Samples beyond the
/// format's limit don't count, because such a block is not decoded.
pub fn take_block(block: &Block<'_>) {
    let rows = u64::from(block.samples).min(MAX_ROWS as u64);
    take(u64::from(block.raw_bytes) + STEPS_PER_ROW * rows);
}

/// The payload of a block. Its decoding is counted.
pub(crate) fn payload(block: &Block<'_>) -> Result<Payload, DecodeError> {
    take_block(block);
    block.payload()
}

#[cold]
fn add(steps: u64) {
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
