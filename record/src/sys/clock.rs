//! Clocks, and punctual sleep until a deadline.

use nix::sys::time::TimeSpec;
use nix::time::{ClockId, ClockNanosleepFlags, clock_nanosleep};
use nix::unistd::Pid;
use std::mem::MaybeUninit;

/// Time of `CLOCK_MONOTONIC` in nanoseconds.
pub fn monotonic_ns() -> u64 {
    #[cfg(feature = "simulated-time")]
    if let Some(now_ns) = simulated::now_ns() {
        return now_ns;
    }
    read(ClockId::CLOCK_MONOTONIC)
}

/// Whether `CLOCK_MONOTONIC` is another one here than the kernel's own, by which it stamps what it reports, because
/// this process is in a time namespace (time_namespaces(7)).
pub fn is_shifted() -> bool {
    let offsets = std::fs::read_to_string("/proc/self/timens_offsets");
    offsets.is_ok_and(|offsets| shifts(&offsets))
}

/// Lines such as `monotonic  86400  0`: a clock, and by how many seconds and nanoseconds it is ahead.
fn shifts(offsets: &str) -> bool {
    let monotonic = offsets
        .lines()
        .find_map(|line| line.strip_prefix("monotonic"));
    monotonic.is_some_and(|numbers| numbers.split_whitespace().any(|number| number != "0"))
}

/// Time of `CLOCK_REALTIME` in nanoseconds since 1970.
pub fn realtime_ns() -> i64 {
    #[cfg(feature = "simulated-time")]
    if let Some(now_ns) = simulated::now_ns() {
        return now_ns.cast_signed();
    }
    i64::try_from(read(ClockId::CLOCK_REALTIME)).unwrap_or(i64::MAX)
}

/// Time since the machine's boot, including suspend (`CLOCK_BOOTTIME`), in nanoseconds.
pub fn boot_ns() -> u64 {
    read(ClockId::CLOCK_BOOTTIME)
}

/// Processor time of all threads of process `pid`, ended ones included, in nanoseconds; `None` if the process is
/// gone.
pub fn processor_time_ns(pid: i32) -> Option<u64> {
    let clock = ClockId::pid_cpu_clock_id(Pid::from_raw(pid)).ok()?;
    try_read(clock)
}

fn try_read(clock: ClockId) -> Option<u64> {
    let time = clock.now().ok()?;
    Some(time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64)
}

fn read(clock: ClockId) -> u64 {
    let time_ns = try_read(clock);
    debug_assert!(time_ns.is_some(), "these clocks exist on every Linux");
    time_ns.unwrap_or(0)
}

/// Sets the smallest timer slack for this thread's sleeps. With the default, each may last 50 us longer. Has no effect
/// where that is forbidden.
pub fn sleep_exactly() {
    let _ = nix::sys::prctl::set_timerslack(1);
}

/// The shortest slice that the scheduler grants, in nanoseconds.
const SHORTEST_SLICE_NS: u64 = 100_000;

/// Makes the scheduler run this thread soon after it wakes on a busy processor: with the shortest slice, it may preempt
/// other threads within theirs. This needs no privilege and gives no more processor time. Linux before 6.12 ignores it.
/// A policy other than the default is left alone.
///
/// `sched_setattr(2)`; `PREEMPT_SHORT` in `kernel/sched/features.h`.
pub fn start_promptly() {
    let Some(mut attributes) = attributes() else {
        return;
    };
    if attributes.sched_policy != libc::SCHED_OTHER as u32 {
        return;
    }
    attributes.sched_runtime = SHORTEST_SLICE_NS;
    set(&attributes);
}

/// Makes this thread wait for the running thread when it wakes, rather than preempt it. This costs no processor time.
/// `SCHED_BATCH` in sched(7); a policy other than the default is left alone.
pub fn start_late() {
    let Some(mut attributes) = attributes() else {
        return;
    };
    if attributes.sched_policy == libc::SCHED_OTHER as u32 {
        attributes.sched_policy = libc::SCHED_BATCH as u32;
        set(&attributes);
    }
}

fn set(attributes: &libc::sched_attr) {
    // SAFETY: the kernel reads `size` bytes, as it has just written them, and keeps no pointer.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const *attributes, 0) };
}

/// The scheduling attributes of this thread; `None` where reading them is forbidden.
fn attributes() -> Option<libc::sched_attr> {
    let bytes = size_of::<libc::sched_attr>();
    let mut attributes = MaybeUninit::<libc::sched_attr>::zeroed();
    let to = attributes.as_mut_ptr();
    // SAFETY: the kernel writes at most `bytes` bytes to `to`, which has as many; thread 0 is this one.
    let result = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, to, bytes, 0) };
    // SAFETY: integers alone, which were zeroed.
    (result == 0).then(|| unsafe { attributes.assume_init() })
}

/// Sleeps until `deadline_ns` of the monotonic clock, or until a signal comes.
pub fn sleep_until(deadline_ns: u64) {
    #[cfg(feature = "simulated-time")]
    if simulated::sleep_until(deadline_ns) {
        return;
    }
    let deadline = timespec(deadline_ns);
    // Whoever was woken by a signal looks at what it is for.
    let _ = clock_nanosleep(
        ClockId::CLOCK_MONOTONIC,
        ClockNanosleepFlags::TIMER_ABSTIME,
        &deadline,
    );
}

/// A time of the monotonic clock as system calls take it.
pub(super) fn timespec(time_ns: u64) -> TimeSpec {
    let seconds = (time_ns / 1_000_000_000).cast_signed();
    TimeSpec::new(seconds, (time_ns % 1_000_000_000).cast_signed())
}

/// A clock that is advanced by hand, for tests of long recordings. No build of the program has it.
#[cfg(feature = "simulated-time")]
pub mod simulated {
    use std::sync::atomic::{AtomicU64, Ordering};

    /// The simulated time; 0 while the real clock is used.
    static NOW_NS: AtomicU64 = AtomicU64::new(0);

    /// Stops the monotonic clock of this process at `now_ns`, and lets the wall clock show the same.
    pub fn start(now_ns: u64) {
        NOW_NS.store(now_ns, Ordering::Relaxed);
    }

    /// Advances both clocks by `by_ns`.
    pub fn advance(by_ns: u64) {
        NOW_NS.fetch_add(by_ns, Ordering::Relaxed);
    }

    pub(super) fn now_ns() -> Option<u64> {
        Some(NOW_NS.load(Ordering::Relaxed)).filter(|&now_ns| now_ns > 0)
    }

    /// Advances the clock to `deadline_ns`; `false` while the real clock is used.
    pub(in crate::sys) fn sleep_until(deadline_ns: u64) -> bool {
        now_ns().is_some() && NOW_NS.fetch_max(deadline_ns, Ordering::Relaxed) > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Policy, nice value and slice of this thread.
    fn scheduled() -> (u32, i32, u64) {
        let all = attributes().unwrap();
        (all.sched_policy, all.sched_nice, all.sched_runtime)
    }

    #[test]
    fn a_shifted_clock_is_told() {
        let of =
            |seconds| format!("monotonic  {seconds}         0\nboottime            7         0\n");
        assert!(!shifts(&of("0")) && !shifts("") && !is_shifted());
        assert!(shifts(&of("-2000")) && shifts(&of("1")));
    }

    #[test]
    fn a_prompt_thread_has_the_shortest_slice_and_no_other_right() {
        let (policy, nice, slice_ns) = scheduled();
        let prompt = std::thread::spawn(|| {
            start_promptly();
            scheduled()
        });
        let prompt = prompt.join().unwrap();
        assert_eq!((prompt.0, prompt.1), (policy, nice));
        let late = std::thread::spawn(|| {
            start_late();
            scheduled()
        });
        let late = late.join().unwrap();
        if policy == libc::SCHED_OTHER as u32 {
            assert_eq!((late.0, late.1), (libc::SCHED_BATCH as u32, nice));
        }
        // Linux before 6.12 doesn't show a slice.
        if slice_ns == 0 {
            println!("skipped: this kernel gives no slices");
        } else if policy == libc::SCHED_OTHER as u32 {
            assert_eq!(prompt.2, SHORTEST_SLICE_NS);
        }
        assert_eq!(scheduled(), (policy, nice, slice_ns));
    }
}
