//! The memory budget of a run: a base amount that is sufficient for any sound recording, and more for each byte of the
//! files that are read. Only damaged or hostile files exceed it. Work is limited likewise (`uniprof_report::work`).
//!
//! All allocations are counted here. When the budget is exceeded or the system is out of memory, the program exits
//! with a message and status 2; it neither aborts nor swaps. Mapped files and zstd's own memory are not counted; they
//! have limits of their own.

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use uniprof_report::{mapped, work};

/// The budget of any run (bytes).
const BASE_BYTES: usize = 192 << 20;
/// Bytes of memory for each byte read; a program of 67 MB with its DWARF takes less than 3.
const PER_BYTE_READ: usize = 4;

/// Memory in use, in bytes.
static USED: AtomicUsize = AtomicUsize::new(0);
/// Memory in use when the budget was set, in bytes.
static START: AtomicUsize = AtomicUsize::new(0);
/// The limit in bytes, by the files read when it was last updated; at first there is none.
static BUDGET: AtomicUsize = AtomicUsize::new(usize::MAX);
/// Whether symbols are being embedded into a complete recording.
static EMBEDS: AtomicBool = AtomicBool::new(false);
static ENDING: AtomicBool = AtomicBool::new(false);

/// Counts the system's allocations.
pub struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

// SAFETY: each call is forwarded unchanged to the system's allocator; everything else only touches atomics.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        take(held(layout.size()));
        // SAFETY: the caller's duties are the same as here.
        given(unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        take(held(layout.size()));
        // SAFETY: the caller's duties are the same as here.
        given(unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        take(held(size));
        // SAFETY: the caller's duties are the same as here.
        let moved = given(unsafe { System.realloc(at, layout, size) });
        USED.fetch_sub(held(layout.size()), Ordering::Relaxed);
        moved
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        USED.fetch_sub(held(layout.size()), Ordering::Relaxed);
        // SAFETY: the caller's duties are the same as here.
        unsafe { System.dealloc(at, layout) };
    }
}

/// Bytes that the system's allocator uses for `bytes`: a chunk of at least 32 bytes, eight of them its own (glibc's
/// malloc). For many short names, that overhead is most of the memory.
fn held(bytes: usize) -> usize {
    (bytes + 8).next_multiple_of(16).max(32)
}

fn take(bytes: usize) {
    let wanted = USED
        .fetch_add(bytes, Ordering::Relaxed)
        .saturating_add(bytes);
    if wanted > BUDGET.load(Ordering::Relaxed) {
        over_budget(wanted);
    }
}

fn given(memory: *mut u8) -> *mut u8 {
    if memory.is_null() {
        end(Why::System);
    }
    memory
}

/// The budget for the files read so far.
fn budget() -> usize {
    let read = mapped::read_bytes() as usize;
    BASE_BYTES.saturating_add(read.saturating_mul(PER_BYTE_READ))
}

#[cold]
fn over_budget(wanted: usize) {
    let start = START.load(Ordering::Relaxed);
    let budget = start.saturating_add(budget());
    if wanted > budget {
        end(Why::Memory(budget - start))
    } else {
        BUDGET.store(budget, Ordering::Relaxed)
    }
}

fn over_steps() {
    end(Why::Steps);
}

/// Why the program ends.
enum Why {
    /// This budget (bytes) was exceeded.
    Memory(usize),
    /// The system is out of memory.
    System,
    /// The work limit was exceeded.
    Steps,
}

#[cold]
fn end(why: Why) {
    // Allocations are allowed while the program exits, in all threads.
    if ENDING.swap(true, Ordering::SeqCst) {
        return;
    }
    let mut text = [0; 512];
    let mut rest = &mut text[..];
    let mib = |bytes: usize| bytes >> 20;
    let _ = match why {
        Why::Steps => write!(
            rest,
            "uniprof: what is read asks for more work than any sound file of its size does: it is damaged, or \
             made to; choose less of it (--from, --to), and if an image is (--elf, or one that was found), leave \
             it out (--no-search)"
        ),
        Why::Memory(bytes) => write!(
            rest,
            "uniprof: what is read asks for more than {} MiB of memory, which hardly any sound file of its size \
             does: it is damaged or malicious, or long; choose less of it (--from, --to), and if an image is \
             (--elf, or one that was found), leave it out (--no-search)",
            mib(bytes)
        ),
        Why::System => write!(
            rest,
            "uniprof: the system gives no more memory; {} MiB are in use: raise the limit (ulimit -v), or \
             choose less (--from, --to, --no-inlines)",
            mib(USED.load(Ordering::Relaxed))
        ),
    };
    crate::terminal::full_screen::leave();
    let left = rest.len();
    let said = text.len() - left;
    let mut stderr = std::io::stderr();
    let _ = stderr.write_all(&text[..said]);
    let embeds = EMBEDS.load(Ordering::Relaxed);
    let _ = stderr.write_all(if embeds {
        b"\nuniprof: nothing was embedded; the recording itself is whole\n"
    } else {
        b"\n"
    });
    crate::output::abandon();
    std::process::exit(if embeds { 1 } else { 2 });
}

/// Makes the system's allocator return freed memory, so that the process uses little more than what is counted here:
/// one arena for all threads, and large blocks mapped on their own (mallopt(3)). Must be called while there is one
/// thread.
#[cfg(target_env = "gnu")]
#[allow(unsafe_code)]
pub fn be_frugal() {
    let numbers = [(libc::M_ARENA_MAX, 1), (libc::M_MMAP_THRESHOLD, 1 << 20)];
    for (number, value) in numbers {
        // SAFETY: it sets a number, and nothing else allocates meanwhile.
        unsafe { libc::mallopt(number, value) };
    }
}

/// Other allocators have no such settings.
#[cfg(not(target_env = "gnu"))]
pub fn be_frugal() {}

/// Sets a budget for the rest of the run, in addition to the memory now in use.
pub fn limit() {
    let start = USED.load(Ordering::Relaxed);
    START.store(start, Ordering::Relaxed);
    work::limit(over_steps);
    BUDGET.store(start.saturating_add(budget()), Ordering::Relaxed);
}

/// As [`limit`], while symbols are embedded into a complete recording.
#[cfg(feature = "record")]
pub fn limit_embedding() {
    EMBEDS.store(true, Ordering::Relaxed);
    limit();
}

/// Removes the budget.
#[cfg(feature = "record")]
pub fn unlimit() {
    EMBEDS.store(false, Ordering::Relaxed);
    BUDGET.store(usize::MAX, Ordering::Relaxed);
    work::unlimit();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_name_takes_a_whole_chunk() {
        let taken = [0, 1, 24, 25, 40, 41].map(held);
        assert_eq!(taken, [32, 32, 32, 48, 48, 64]);
    }
}
