//! A unikernel as a Linux process: threads are its vCPUs, a timer's signal is the timer interrupt, and the main thread
//! does what an I/O thread would. What it works has known shares, as in the test unikernel (tests/guests/README.md).
//!
//!     RUSTFLAGS="-C force-frame-pointers=yes" cargo run --release -p uniprof-agent --example process localhost:4711 2
//!     uniprof record -d 10s agent:localhost:4711

use std::cell::UnsafeCell;
use std::hint::black_box;
use std::io::{Read, Write};
use std::mem::MaybeUninit;
use std::net::TcpListener;
use std::ops::Range;
use std::os::unix::net::UnixListener;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use uniprof_agent::{Agent, Gone, Guest, Io, Registers, Session, Stack, Stacks, Step, Stream};

const MOST_VCPUS: usize = 4;
const STACK_BYTES: usize = 256 << 10;
const TIMER_HZ: u32 = 1000;
static TICKS: AtomicU32 = AtomicU32::new(TIMER_HZ);
/// Iterations of a hundredth of a round.
const UNIT: u64 = 100_000;

/// Memory for the rings: 64 samples of 256 callers and 16 KiB for each vCPU, and many more of the usual ones.
static MEMORY: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];
const WORDS: usize = Agent::<Stacks<'_>>::words(MOST_VCPUS, 56, 256, 16 << 10);
static AGENT: OnceLock<Agent<'static, Stacks<'static>>> = OnceLock::new();
static PROGRESS: [AtomicU64; MOST_VCPUS] = [const { AtomicU64::new(0) }; MOST_VCPUS];

#[repr(C, align(4096))]
struct ThreadStack(UnsafeCell<[MaybeUninit<u8>; STACK_BYTES]>);

// SAFETY: each is one thread's stack, and nobody else writes to it.
unsafe impl Sync for ThreadStack {}

static STACKS: [ThreadStack; MOST_VCPUS] =
    [const { ThreadStack(UnsafeCell::new([MaybeUninit::uninit(); STACK_BYTES])) }; MOST_VCPUS];

#[inline(never)]
fn burn(vcpu: usize, units: u64) {
    for _ in 0..units * UNIT {
        PROGRESS[vcpu].store(
            PROGRESS[vcpu].load(Ordering::Relaxed) + 1,
            Ordering::Relaxed,
        );
    }
    black_box(());
}

#[inline(never)]
fn alpha(vcpu: usize, units: u64) {
    burn(vcpu, units);
    black_box(1);
}

#[inline(never)]
fn beta(vcpu: usize, units: u64) {
    beta_inner(vcpu, units);
    black_box(2);
}

#[inline(never)]
fn beta_inner(vcpu: usize, units: u64) {
    burn(vcpu, units);
    black_box(3);
}

#[inline(never)]
fn gamma(vcpu: usize, units: u64) {
    burn(vcpu, units);
    black_box(4);
}

#[inline(never)]
extern "C" fn work(vcpu: usize) {
    const WEIGHTS: [[u64; 3]; MOST_VCPUS] =
        [[50, 30, 20], [70, 20, 10], [20, 20, 60], [10, 80, 10]];
    let [first, second, third] = WEIGHTS[vcpu];
    loop {
        alpha(vcpu, first);
        beta(vcpu, second);
        gamma(vcpu, third);
    }
}

/// The guest's clock.
fn now_ns() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the call fills what it is given.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The timer interrupt.
extern "C" fn interrupt(_: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel gives both to a handler with SA_SIGINFO; the timer has the vCPU's number.
    let info = unsafe { &*info };
    // SAFETY: as above.
    let vcpu = unsafe { info.si_value() }.sival_ptr as usize as u32;
    // SAFETY: as above.
    let machine = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext };
    #[cfg(target_arch = "x86_64")]
    let registers = {
        let register = |number: libc::c_int| machine.gregs[number as usize] as u64;
        Registers {
            ip: register(libc::REG_RIP),
            sp: register(libc::REG_RSP),
            fp: register(libc::REG_RBP),
            ..Registers::default()
        }
    };
    #[cfg(target_arch = "aarch64")]
    let registers = Registers {
        ip: machine.pc,
        sp: machine.sp,
        fp: machine.regs[29],
        lr: machine.regs[30],
        ..Registers::default()
    };
    if let Some(agent) = AGENT.get() {
        agent.sample(vcpu, &registers);
    }
}

/// Where a vCPU's life begins: a chain of frame pointers ends here.
extern "C" fn start(vcpu: *mut libc::c_void) -> *mut libc::c_void {
    start_timer(vcpu);
    let vcpu = vcpu as usize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: calls a function that never returns, with a stack that is aligned as the ABI has it.
    unsafe {
        std::arch::asm!("xor ebp, ebp", "call {work}", work = sym work, in("rdi") vcpu, options(noreturn));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!("mov x29, xzr", "bl {work}", work = sym work, in("x0") vcpu, options(noreturn));
    }
}

/// Sends this thread a signal as often as a timer interrupt would come.
fn start_timer(vcpu: *mut libc::c_void) {
    // SAFETY: all zeros are no event.
    let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
    event.sigev_notify = libc::SIGEV_THREAD_ID;
    event.sigev_signo = libc::SIGRTMIN();
    event.sigev_value.sival_ptr = vcpu;
    // SAFETY: has no conditions.
    event.sigev_notify_thread_id = unsafe { libc::gettid() };
    let mut timer = ptr::null_mut();
    // SAFETY: both are there, and the second is filled.
    let status =
        unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer) };
    assert_eq!(status, 0, "a timer");
    let tick = libc::timespec {
        tv_sec: 0,
        tv_nsec: 1_000_000_000 / i64::from(TICKS.load(Ordering::Relaxed)),
    };
    let period = libc::itimerspec {
        it_interval: tick,
        it_value: tick,
    };
    // SAFETY: the timer was just made.
    let status = unsafe { libc::timer_settime(timer, 0, &raw const period, ptr::null_mut()) };
    assert_eq!(status, 0, "a timer that ticks");
}

fn start_vcpu(vcpu: usize) {
    let mut attributes = MaybeUninit::uninit();
    // SAFETY: fills what it is given.
    unsafe { libc::pthread_attr_init(attributes.as_mut_ptr()) };
    let stack = STACKS[vcpu].0.get().cast();
    // SAFETY: the memory is this thread's alone, for good.
    let status =
        unsafe { libc::pthread_attr_setstack(attributes.as_mut_ptr(), stack, STACK_BYTES) };
    assert_eq!(status, 0, "a stack");
    let mut thread = MaybeUninit::uninit();
    let number = vcpu as *mut libc::c_void;
    // SAFETY: the attributes were made above, and `start` takes a number.
    let status =
        unsafe { libc::pthread_create(thread.as_mut_ptr(), attributes.as_ptr(), start, number) };
    assert_eq!(status, 0, "a thread");
}

unsafe extern "C" {
    /// The ELF header of this program, as it is loaded; from the linker.
    static __ehdr_start: u8;
}

/// A word, a half or a quarter of this program's headers and notes.
fn header<T: Copy>(address: u64) -> T {
    // SAFETY: the linker has the headers and the notes in a part that is loaded.
    unsafe { (address as *const T).read_unaligned() }
}

/// Where the code is, where it is in the file, and the build-id.
fn image() -> (Range<u64>, u64, Vec<u8>) {
    let base = &raw const __ehdr_start as u64;
    let (mut code, mut offset, mut build_id) = (0..0, 0, Vec::new());
    let (table, count): (u64, u16) = (header(base + 32), header(base + 56));
    let headers = (0..u64::from(count)).map(|number| base + table + 56 * number);
    // Where it was linked is in the part that has the headers.
    let is_first = |at: &u64| header::<u32>(*at) == libc::PT_LOAD && header::<u64>(at + 8) == 0;
    let linked = headers
        .clone()
        .find(is_first)
        .map_or(0, |at| header::<u64>(at + 16));
    for at in headers {
        let (kind, flags): (u32, u32) = (header(at), header(at + 4));
        let place = base - linked + header::<u64>(at + 16);
        if kind == libc::PT_LOAD && flags & libc::PF_X != 0 {
            offset = header(at + 8);
            code = place..place + header::<u64>(at + 32);
        }
        if kind == libc::PT_NOTE {
            build_id.extend(id_of_notes(place..place + header::<u64>(at + 32)));
        }
    }
    (code, offset, build_id)
}

/// The build-id among notes: lengths of name and id, a type that is 3, "GNU\0", and the id (elf(5)).
fn id_of_notes(notes: Range<u64>) -> Vec<u8> {
    let mut at = notes.start;
    while at + 16 <= notes.end {
        let [name, length, kind] = [0, 4, 8].map(|into| u64::from(header::<u32>(at + into)));
        let id = at + 12 + name.next_multiple_of(4);
        if kind == 3 {
            return (0..length).map(|byte| header(id + byte)).collect();
        }
        at = id + length.next_multiple_of(4);
    }
    Vec::new()
}

/// How often the processor's counter counts in a second.
fn measure_cycles() -> u64 {
    let (began, first) = (Instant::now(), uniprof_agent::cycles());
    std::thread::sleep(Duration::from_millis(50));
    let passed = u128::from(uniprof_agent::cycles() - first);
    (passed * 1_000_000_000 / began.elapsed().as_nanos()) as u64
}

trait Socket: Read + Write {}
impl<T: Read + Write> Socket for T {}

/// A connection that doesn't block.
struct Connection(Box<dyn Socket>);

fn io(result: std::io::Result<usize>, is_read: bool) -> Io {
    match result {
        Ok(0) if is_read => Err(Gone),
        Ok(count) => Ok(count),
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(0),
        Err(_) => Err(Gone),
    }
}

impl Stream for Connection {
    fn read(&mut self, into: &mut [u8]) -> Io {
        io(self.0.read(into), true)
    }

    fn write(&mut self, bytes: &[u8]) -> Io {
        io(self.0.write(bytes), false)
    }
}

type Accept = Box<dyn Fn() -> Option<Connection>>;

/// Listens on an address or a path.
fn listen(place: &str) -> std::io::Result<Accept> {
    if place.contains('/') {
        let listener = UnixListener::bind(place)?;
        listener.set_nonblocking(true)?;
        return Ok(Box::new(move || {
            let (stream, _) = listener.accept().ok()?;
            stream.set_nonblocking(true).ok()?;
            Some(Connection(Box::new(stream)))
        }));
    }
    let listener = TcpListener::bind(place)?;
    listener.set_nonblocking(true)?;
    println!("port {}", listener.local_addr()?.port());
    Ok(Box::new(move || {
        let (stream, _) = listener.accept().ok()?;
        stream.set_nonblocking(true).ok()?;
        stream.set_nodelay(true).ok()?;
        Some(Connection(Box::new(stream)))
    }))
}

/// The I/O thread: clients come and go, and what was done is told.
fn serve(agent: &Agent<'_, Stacks<'_>>, accept: &Accept, vcpus: usize) -> ! {
    let mut clients: Vec<(Session, Connection)> = Vec::new();
    let mut told = Instant::now();
    loop {
        if clients.len() < 4 {
            clients.extend(accept().map(|connection| (Session::new(), connection)));
        }
        let mut is_busy = false;
        clients.retain_mut(|(session, connection)| {
            let step = session.serve(agent, connection);
            is_busy |= step == Step::Busy;
            step != Step::Ended
        });
        if told.elapsed() > Duration::from_millis(100) {
            told = Instant::now();
            let done: u64 = PROGRESS[..vcpus]
                .iter()
                .map(|done| done.load(Ordering::Relaxed))
                .sum();
            println!("progress {done} {}", agent.is_sampling());
        }
        if !is_busy {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let place = arguments.get(1).map_or("localhost:4711", String::as_str);
    let vcpus = arguments
        .get(2)
        .and_then(|count| count.parse().ok())
        .unwrap_or(1);
    let vcpus = usize::clamp(vcpus, 1, MOST_VCPUS);
    // A third argument: so many interrupts a second, as a guest has that stops its timer, and says nothing of it.
    if let Some(ticks) = arguments.get(3).and_then(|ticks| ticks.parse().ok()) {
        TICKS.store(u32::max(ticks, 2), Ordering::Relaxed);
    }
    let (code, code_offset, build_id) = image();
    let stacks = STACKS.iter().map(|stack| {
        let start = stack.0.get() as u64;
        Stack {
            start,
            end: start + STACK_BYTES as u64,
        }
    });
    // SAFETY: they are mapped for good.
    let stacks = unsafe { Stacks::new(stacks.collect::<Vec<_>>().leak()) };
    let guest = Guest {
        name: "process",
        build_id: build_id.leak(),
        code,
        code_offset,
        vcpus: vcpus as u32,
        clock: now_ns,
        clock_hz: 1_000_000_000,
        cycles_hz: measure_cycles(),
        timer_hz: TIMER_HZ,
    };
    let agent = Agent::new(&MEMORY, guest, stacks).expect("memory for four vCPUs");
    let agent = AGENT.get_or_init(|| agent);
    // SAFETY: all zeros are no action.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = interrupt as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
    // SAFETY: the handler takes what SA_SIGINFO gives, and calls nothing that a signal may not.
    unsafe { libc::sigaction(libc::SIGRTMIN(), &raw const action, ptr::null_mut()) };
    (0..vcpus).for_each(start_vcpu);
    let accept = listen(place)?;
    println!("ready");
    serve(agent, &accept, vcpus)
}
