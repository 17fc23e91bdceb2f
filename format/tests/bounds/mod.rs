//! Bounds of reading: memory and time.

use peak_alloc::PeakAlloc;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

const MOST_MEMORY_BYTES: usize = 64 << 20;
/// Far more than is needed, even without optimisation on a busy machine, but far less than a hang.
const MOST_TIME: Duration = Duration::from_secs(30);

/// The peak of the heap is that of the whole process, so only one test runs at a time.
pub fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `read`, and checks its memory and time.
pub fn bounded<T>(read: impl FnOnce() -> T) -> T {
    HEAP.reset_peak_usage();
    let before = HEAP.current_usage();
    let start = Instant::now();
    let result = read();
    let memory_bytes = HEAP.peak_usage().saturating_sub(before);
    assert!(
        memory_bytes <= MOST_MEMORY_BYTES,
        "{memory_bytes} bytes of memory"
    );
    assert!(start.elapsed() <= MOST_TIME, "{:?}", start.elapsed());
    result
}
