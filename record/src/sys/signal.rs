//! Signals that end a recording, one that saves the window of a flight recorder, and one that only wakes the sampler.

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};

/// Signals that end a recording.
const STOPS: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];

/// Number of the last signal that requested a stop; 0 for none.
static STOP: AtomicI32 = AtomicI32::new(0);

extern "C" fn stop(signal: libc::c_int) {
    STOP.store(signal, Ordering::Relaxed);
}

/// How often SIGUSR1 came.
static SAVES: AtomicU32 = AtomicU32::new(0);

extern "C" fn save(_: libc::c_int) {
    SAVES.fetch_add(1, Ordering::Relaxed);
}

/// Whether a child changed state since the sampler last checked.
static WAKE: AtomicBool = AtomicBool::new(false);

extern "C" fn wake(_: libc::c_int) {
    WAKE.store(true, Ordering::Relaxed);
}

/// Makes the next [`take_wake`] return `true`.
pub fn wake_sampler() {
    WAKE.store(true, Ordering::Relaxed);
}

/// Whether a child changed state since the last call.
pub fn take_wake() -> bool {
    WAKE.swap(false, Ordering::Relaxed)
}

/// Handles SIGCHLD from now on by only setting the flag that [`take_wake`] returns.
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

/// Handles SIGINT, SIGTERM and SIGHUP from now on by only setting the value that [`stop_signal`] returns. The caller
/// has to end the program soon after one came. Before this call, they end the program at once.
pub fn hold_stops() {
    forget_stop();
    for signal in STOPS {
        set(signal, SigHandler::Handler(stop));
    }
}

/// Lets SIGINT, SIGTERM and SIGHUP end the program again.
pub fn release_stops() {
    for signal in STOPS {
        set(signal, SigHandler::SigDfl);
    }
}

/// Clears a stop signal that was handled.
pub fn forget_stop() {
    STOP.store(0, Ordering::Relaxed);
}

/// Installs a handler. System calls are not restarted, so that a sleeping sampler notices the signal.
fn set(signal: Signal, handler: SigHandler) {
    let action = SigAction::new(handler, SaFlags::empty(), SigSet::empty());
    // SAFETY: our handlers are async-signal-safe: they change atomics. The other one is the default.
    let done = unsafe { sigaction(signal, &action) };
    // It fails only for signals that can't be handled (sigaction(2)).
    debug_assert!(done.is_ok());
}

/// Name of the signal that requested a stop, if one came.
pub fn stop_signal() -> Option<&'static str> {
    let number = STOP.load(Ordering::Relaxed);
    Signal::try_from(number).ok().map(Signal::as_str)
}
