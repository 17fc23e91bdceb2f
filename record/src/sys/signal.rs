//! Signals that end a recording, one that saves the window of a flight recorder, and one that only wakes the sampler.

use crate::sys::clock;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, kill, sigaction};
use nix::unistd::Pid;
use std::io;
use std::process::{Child, ExitStatus};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

/// Counts what a sampler must look at before its next deadline.
static NEWS: AtomicU32 = AtomicU32::new(0);

/// How many threads sleep until there is news. While a guest is paused none does, and a handler needs no system call.
static SLEEPERS: AtomicU32 = AtomicU32::new(0);

/// To be passed to [`sleep_unless_news`]. Whoever sleeps asks for it first and then looks: nothing comes between.
pub fn news() -> u32 {
    NEWS.load(Ordering::SeqCst)
}

/// Ends the present sleep of each thread in [`sleep_unless_news`]. Handlers of signals may call it.
pub fn announce() {
    NEWS.fetch_add(1, Ordering::SeqCst);
    // Whoever falls asleep after this line finds other news than it has seen.
    if SLEEPERS.load(Ordering::SeqCst) == 0 {
        return;
    }
    // SAFETY: the kernel only compares the address of a static with those that threads wait for.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            NEWS.as_ptr(),
            libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
            i32::MAX,
        )
    };
}

/// Sleeps until `deadline_ns` of the monotonic clock, or until there is other news than `seen`, or a signal comes.
pub fn sleep_unless_news(seen: u32, deadline_ns: u64) {
    #[cfg(feature = "simulated-time")]
    if clock::simulated::sleep_until(deadline_ns) {
        return;
    }
    let deadline = clock::timespec(deadline_ns);
    let deadline: &libc::timespec = deadline.as_ref();
    SLEEPERS.fetch_add(1, Ordering::SeqCst);
    // SAFETY: the kernel reads a static and the time, and keeps no pointer.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            NEWS.as_ptr(),
            libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG,
            seen,
            &raw const *deadline,
            std::ptr::null::<u32>(),
            libc::FUTEX_BITSET_MATCH_ANY,
        )
    };
    SLEEPERS.fetch_sub(1, Ordering::SeqCst);
}

/// Signals that end a recording. Not SIGHUP, if the program was started with that ignored, as `nohup` does.
fn stops() -> impl Iterator<Item = Signal> {
    static STAYS: OnceLock<bool> = OnceLock::new();
    let stays = *STAYS.get_or_init(|| is_ignored(Signal::SIGHUP));
    let all = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];
    all.into_iter()
        .filter(move |signal| !stays || *signal != Signal::SIGHUP)
}

/// Number of the last signal that requested a stop; 0 for none.
static STOP: AtomicI32 = AtomicI32::new(0);

extern "C" fn stop(signal: libc::c_int) {
    STOP.store(signal, Ordering::Relaxed);
    announce();
}

/// How often SIGUSR1 came.
static SAVES: AtomicU32 = AtomicU32::new(0);

extern "C" fn save(_: libc::c_int) {
    SAVES.fetch_add(1, Ordering::Relaxed);
}

/// Whether a child changed state since the sampler last checked.
static WAKE: AtomicBool = AtomicBool::new(false);

extern "C" fn wake(_: libc::c_int) {
    wake_sampler();
}

/// Makes the next [`take_wake`] return `true`.
pub fn wake_sampler() {
    WAKE.store(true, Ordering::Relaxed);
    announce();
}

/// Whether a child changed state since the last call.
pub fn take_wake() -> bool {
    WAKE.swap(false, Ordering::Relaxed)
}

/// Handles SIGCHLD from now on by only setting the flag that [`take_wake`] returns, and waking the sampler.
pub fn listen_to_children() {
    set(Signal::SIGCHLD, SigHandler::Handler(wake));
}

/// Handles SIGUSR1 from now on by only counting it for [`saves_asked`]. Before this call, it ends the program.
pub fn listen_to_saves() {
    set(Signal::SIGUSR1, SigHandler::Handler(save));
}

/// How often SIGUSR1 came.
pub fn saves_asked() -> u32 {
    SAVES.load(Ordering::Relaxed)
}

/// Handles SIGINT, SIGTERM and SIGHUP from now on by only setting the value that [`stop_signal`] returns, and waking
/// the sampler. The caller has to end the program soon after one came. Before this call, they end the program at once.
/// Under `nohup`, SIGHUP stays ignored.
pub fn hold_stops() {
    forget_stop();
    stops().for_each(|signal| set(signal, SigHandler::Handler(stop)));
}

/// Makes a write beyond the limit of files (`ulimit -f`) an error from now on. Before this call, its signal ends the
/// program. Programs that are started have it as it was.
pub fn outlive_file_limit() {
    if !is_ignored(Signal::SIGXFSZ) {
        set(Signal::SIGXFSZ, SigHandler::Handler(pass));
    }
}

extern "C" fn pass(_: libc::c_int) {}

/// Lets SIGINT, SIGTERM and SIGHUP end the program again.
pub fn release_stops() {
    stops().for_each(|signal| set(signal, SigHandler::SigDfl));
}

/// Clears a stop signal that was handled.
pub fn forget_stop() {
    STOP.store(0, Ordering::Relaxed);
}

/// Installs a handler. System calls are not restarted, so that a sleeping sampler notices the signal.
fn set(signal: Signal, handler: SigHandler) {
    let action = SigAction::new(handler, SaFlags::empty(), SigSet::empty());
    // SAFETY: our handlers are async-signal-safe: they change atomics and wake threads. The other one is the default.
    let done = unsafe { sigaction(signal, &action) };
    // It fails only for signals that can't be handled (sigaction(2)).
    debug_assert!(done.is_ok());
}

fn is_ignored(signal: Signal) -> bool {
    // SAFETY: zeros are a valid value of this plain struct.
    let mut now: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: without a new action, the call only writes the present one to `now`.
    let asked = unsafe { libc::sigaction(signal as libc::c_int, std::ptr::null(), &raw mut now) };
    asked == 0 && now.sa_sigaction == libc::SIG_IGN
}

/// How often a child is looked at that is waited for.
const LOOK: Duration = Duration::from_millis(20);

/// Waits until a child ends. A signal that requests a stop, now or before, is passed on to it as SIGTERM: unless a
/// terminal sent it, only this process has it.
///
/// # Errors
/// The system's, for example that the child was waited for already.
pub fn wait_for(child: &mut Child) -> io::Result<ExitStatus> {
    let mut is_told = false;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if !is_told && stop_signal().is_some() {
            let _ = kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM);
            is_told = true;
        }
        thread::sleep(LOOK);
    }
}

/// Name of the signal that requested a stop, if one came.
pub fn stop_signal() -> Option<&'static str> {
    let number = STOP.load(Ordering::Relaxed);
    Signal::try_from(number).ok().map(Signal::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::clock::monotonic_ns;

    #[test]
    fn news_ends_a_sleep_whether_it_has_begun_or_not() {
        let far_ns = monotonic_ns() + 100_000_000_000;
        let seen = news();
        announce();
        sleep_unless_news(seen, far_ns);
        let announcer = thread::spawn(|| {
            thread::sleep(Duration::from_millis(20));
            announce();
        });
        sleep_unless_news(news(), far_ns);
        announcer.join().unwrap();
        assert!(monotonic_ns() < far_ns);
    }

    #[test]
    fn a_sleep_without_news_ends_at_its_deadline() {
        // Another test's news may end it before.
        let is_punctual = (0..100).any(|_| {
            let deadline_ns = monotonic_ns() + 2_000_000;
            sleep_unless_news(news(), deadline_ns);
            monotonic_ns() >= deadline_ns
        });
        assert!(is_punctual);
    }
}
