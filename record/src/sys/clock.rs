//! The monotonic clock, and sleeping until a deadline of it.

/// Time of `CLOCK_MONOTONIC` in nanoseconds.
pub fn monotonic_ns() -> u64 {
    #[cfg(feature = "simulated-time")]
    if let Some(now_ns) = simulated::now_ns() {
        return now_ns;
    }
    read(libc::CLOCK_MONOTONIC)
}

/// Time of `CLOCK_REALTIME` in nanoseconds since 1970.
pub fn realtime_ns() -> i64 {
    i64::try_from(read(libc::CLOCK_REALTIME)).unwrap_or(i64::MAX)
}

/// Time since the system started, also while it slept (`CLOCK_BOOTTIME`), in nanoseconds.
pub fn boot_ns() -> u64 {
    read(libc::CLOCK_BOOTTIME)
}

/// Processor time that all threads of process `pid` took together, also those that ended, in
/// nanoseconds; `None` when the process is gone.
pub fn processor_time_ns(pid: i32) -> Option<u64> {
    /// `CPUCLOCK_SCHED` of `linux/posix-timers.h`, of the whole process.
    const SCHEDULED: libc::clockid_t = 2;
    // The same as clock_getcpuclockid(3) gives.
    try_read(!pid << 3 | SCHEDULED)
}

fn try_read(clock: libc::clockid_t) -> Option<u64> {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid timespec that outlives the call, which writes nothing else.
    let result = unsafe { libc::clock_gettime(clock, &mut time) };
    (result == 0).then(|| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

fn read(clock: libc::clockid_t) -> u64 {
    let time_ns = try_read(clock);
    debug_assert!(time_ns.is_some(), "these clocks exist on every Linux");
    time_ns.unwrap_or(0)
}

/// Makes this thread's sleeps end when they should: by default the kernel lets them last up to 50 us longer, to
/// wake for several things at once, a guest among them. Where that is forbidden, they last longer.
pub fn sleep_exactly() {
    let _ = nix::sys::prctl::set_timerslack(1);
}

/// Sleeps until `deadline_ns` of the monotonic clock, or until a signal comes.
pub fn sleep_until(deadline_ns: u64) {
    #[cfg(feature = "simulated-time")]
    if simulated::sleep_until(deadline_ns) {
        return;
    }
    let time = libc::timespec {
        tv_sec: (deadline_ns / 1_000_000_000).cast_signed(),
        tv_nsec: (deadline_ns % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: `time` is valid for the call; with TIMER_ABSTIME the remainder may be null.
    unsafe {
        libc::clock_nanosleep(
            libc::CLOCK_MONOTONIC,
            libc::TIMER_ABSTIME,
            &time,
            std::ptr::null_mut(),
        )
    };
}

/// Time that passes only where someone says so, for recordings of hours in minutes. No build of the
/// program has it.
#[cfg(feature = "simulated-time")]
pub mod simulated {
    use std::sync::atomic::{AtomicU64, Ordering};

    /// 0 while time is real.
    static NOW_NS: AtomicU64 = AtomicU64::new(0);

    /// From here on the monotonic clock of this process shows `now_ns`, and stands.
    pub fn start(now_ns: u64) {
        NOW_NS.store(now_ns, Ordering::Relaxed);
    }

    /// Lets `by_ns` pass.
    pub fn advance(by_ns: u64) {
        NOW_NS.fetch_add(by_ns, Ordering::Relaxed);
    }

    pub(super) fn now_ns() -> Option<u64> {
        Some(NOW_NS.load(Ordering::Relaxed)).filter(|&now_ns| now_ns > 0)
    }

    /// Goes to `deadline_ns` at once; `false` while time is real.
    pub(super) fn sleep_until(deadline_ns: u64) -> bool {
        now_ns().is_some() && NOW_NS.fetch_max(deadline_ns, Ordering::Relaxed) > 0
    }
}
