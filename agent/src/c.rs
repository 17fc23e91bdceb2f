//! The agent for guests in C, one per guest. `include/uniprof_agent.h` documents the arguments of each function. Built
//! as a static library, with the feature `c`, for a target without an operating system.
//!
//! Input: pointers that the guest declares valid. Output: calls of the crate.

use crate::agent::{Agent, Guest, Refused, Registers};
use crate::machine::{Stack, Stacks};
use crate::session::{Gone, Io, Session, Step, Stream};
use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::{align_of, size_of};
use core::slice;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// `struct uniprof_guest`.
#[repr(C)]
pub struct CGuest {
    name: *const c_char,
    build_id: *const u8,
    build_id_bytes: u64,
    code_start: u64,
    code_end: u64,
    code_offset: u64,
    clock: extern "C" fn() -> u64,
    clock_hz: u64,
    cycles_hz: u64,
    timer_hz: u32,
    vcpus: u32,
    stacks: *const Stack,
    stacks_count: u64,
}

/// `struct uniprof_stream`.
#[repr(C)]
pub struct CStream {
    read: extern "C" fn(*mut c_void, *mut u8, u64) -> i64,
    write: extern "C" fn(*mut c_void, *const u8, u64) -> i64,
    context: *mut c_void,
}

/// `struct uniprof_session`.
#[repr(C)]
pub struct CSession([u64; 160]);

/// The sizes in the header; tests/bare_metal/guest.c compares them.
const _: () = assert!(size_of::<CGuest>() == 96 && size_of::<CStream>() == 24);
const _: () = assert!(size_of::<Session>() <= size_of::<CSession>());
const _: () = assert!(align_of::<Session>() <= align_of::<CSession>());

/// The agent, after `uniprof_agent_init`.
struct Global {
    is_there: AtomicBool,
    agent: UnsafeCell<Option<Agent<'static, Stacks<'static>>>>,
    clock: UnsafeCell<Option<extern "C" fn() -> u64>>,
}

// SAFETY: both cells are written before `is_there` is set, and only read afterwards.
unsafe impl Sync for Global {}

static GLOBAL: Global = Global {
    is_there: AtomicBool::new(false),
    agent: UnsafeCell::new(None),
    clock: UnsafeCell::new(None),
};

fn agent() -> Option<&'static Agent<'static, Stacks<'static>>> {
    if !GLOBAL.is_there.load(Ordering::Acquire) {
        return None;
    }
    // SAFETY: it is initialised, and not written to again.
    unsafe { &*GLOBAL.agent.get() }.as_ref()
}

fn clock() -> u64 {
    // SAFETY: called by an initialised agent, or by the one thread that initialises it.
    let clock = unsafe { *GLOBAL.clock.get() };
    clock.map_or(0, |clock| clock())
}

fn io(count: i64) -> Io {
    usize::try_from(count).map_err(|_| Gone)
}

impl Stream for CStream {
    fn read(&mut self, into: &mut [u8]) -> Io {
        io((self.read)(
            self.context,
            into.as_mut_ptr(),
            into.len() as u64,
        ))
        .map(|count| count.min(into.len()))
    }

    fn write(&mut self, bytes: &[u8]) -> Io {
        io((self.write)(
            self.context,
            bytes.as_ptr(),
            bytes.len() as u64,
        ))
    }
}

/// `uniprof_agent_init` of the header.
///
/// # Safety
/// As the header states: called once, before the others; pointers stay valid, and nothing else uses the memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uniprof_agent_init(
    memory: *mut u64,
    words: u64,
    guest: *const CGuest,
) -> c_int {
    if GLOBAL.is_there.load(Ordering::Acquire) {
        return -1;
    }
    // SAFETY: by this function's contract.
    let memory = unsafe { slice::from_raw_parts(memory.cast::<AtomicU64>(), words as usize) };
    // SAFETY: as above.
    let guest = unsafe { &*guest };
    // SAFETY: as above.
    let name = unsafe { CStr::from_ptr(guest.name) };
    let build_id: &[u8] = match guest.build_id_bytes {
        0 => &[],
        // SAFETY: as above.
        count => unsafe { slice::from_raw_parts(guest.build_id, count as usize) },
    };
    let stacks: &[Stack] = match guest.stacks_count {
        0 => &[],
        // SAFETY: as above.
        count => unsafe { slice::from_raw_parts(guest.stacks, count as usize) },
    };
    // SAFETY: as above.
    let stacks = unsafe { Stacks::new(stacks) };
    let told = Guest {
        name: name.to_str().unwrap_or_default(),
        build_id,
        code: guest.code_start..guest.code_end,
        code_offset: guest.code_offset,
        vcpus: guest.vcpus,
        clock,
        clock_hz: guest.clock_hz,
        cycles_hz: guest.cycles_hz,
        timer_hz: guest.timer_hz,
    };
    match Agent::new(memory, told, stacks) {
        Ok(agent) => {
            // SAFETY: not initialised yet, and this is called once.
            unsafe { *GLOBAL.clock.get() = Some(guest.clock) };
            // SAFETY: as above.
            unsafe { *GLOBAL.agent.get() = Some(agent) };
            GLOBAL.is_there.store(true, Ordering::Release);
            0
        }
        Err(Refused::Vcpus) => -2,
        Err(Refused::Memory) => -3,
        Err(Refused::Clock) => -4,
    }
}

/// `uniprof_agent_sample` of the header.
///
/// # Safety
/// `registers` points to valid registers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uniprof_agent_sample(vcpu: u32, registers: *const Registers) {
    if let Some(agent) = agent() {
        // SAFETY: by this function's contract.
        let registers = unsafe { &*registers };
        agent.sample(vcpu, registers);
    }
}

/// `uniprof_session_init` of the header.
///
/// # Safety
/// `session` points to room for a session.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uniprof_session_init(session: *mut CSession) {
    // SAFETY: the caller guarantees the room; sizes and alignment are checked above.
    unsafe { session.cast::<Session>().write(Session::new()) };
}

/// `uniprof_session_serve` of the header.
///
/// # Safety
/// `session` was initialised, is used by one thread at a time, and `stream` has functions that may be called.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uniprof_session_serve(
    session: *mut CSession,
    stream: *mut CStream,
) -> c_int {
    // SAFETY: by this function's contract.
    let session = unsafe { &mut *session.cast::<Session>() };
    // SAFETY: as above.
    let stream = unsafe { &mut *stream };
    let Some(agent) = agent() else {
        return 2;
    };
    match session.serve(agent, stream) {
        Step::Idle => 0,
        Step::Busy => 1,
        Step::Ended => 2,
    }
}

/// `uniprof_session_end` of the header.
///
/// # Safety
/// As for [`uniprof_session_serve`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uniprof_session_end(session: *mut CSession) {
    // SAFETY: by this function's contract.
    let session = unsafe { &mut *session.cast::<Session>() };
    if let Some(agent) = agent() {
        session.end(agent);
    }
}

/// Not reachable by any input; a debugger would find the vCPU here.
#[cfg(target_os = "none")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {
        core::hint::spin_loop();
    }
}
