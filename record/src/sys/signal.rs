//! Signals that end a recording, and one that only wakes the sampler.

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

/// Number of the last signal that asked to stop; 0 for none.
static STOP: AtomicI32 = AtomicI32::new(0);

extern "C" fn stop(signal: libc::c_int) {
    STOP.store(signal, Ordering::Relaxed);
}

/// Whether a child reported something since the sampler last looked.
static WAKE: AtomicBool = AtomicBool::new(false);

extern "C" fn wake(_: libc::c_int) {
    WAKE.store(true, Ordering::Relaxed);
}

/// Makes the next [`take_wake`] say yes.
pub fn wake_sampler() {
    WAKE.store(true, Ordering::Relaxed);
}

/// Whether a child reported something since the last call.
pub fn take_wake() -> bool {
    WAKE.swap(false, Ordering::Relaxed)
}

/// From now on SIGINT, SIGTERM and SIGHUP only set what [`stop_signal`] returns, and SIGCHLD only
/// sets what [`take_wake`] returns. Calls are not restarted, so that a sleeping sampler notices.
///
/// # Errors
/// What `sigaction` returns.
pub fn install() -> nix::Result<()> {
    for (signal, handler) in [
        (Signal::SIGINT, stop as extern "C" fn(libc::c_int)),
        (Signal::SIGTERM, stop),
        (Signal::SIGHUP, stop),
        (Signal::SIGCHLD, wake),
    ] {
        let handler = SigHandler::Handler(handler);
        let action = SigAction::new(handler, SaFlags::empty(), SigSet::empty());
        // SAFETY: both handlers are async-signal-safe: they store to atomics.
        unsafe { sigaction(signal, &action) }?;
    }
    Ok(())
}

/// Name of the signal that asked to stop, if one did.
pub fn stop_signal() -> Option<&'static str> {
    let number = STOP.load(Ordering::Relaxed);
    Signal::try_from(number).ok().map(Signal::as_str)
}
