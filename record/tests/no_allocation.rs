//! The sampler's loop allocates nothing: a recording that takes many samples allocates as often, on
//! the sampling thread, as one that takes few.

mod fake;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;
use uniprof_record::plan::LEAF_STACK_BYTES;
use uniprof_record::process::{self, Command, Process};
use uniprof_record::ring::Sink;
use uniprof_record::source::{Hot, Vcpu, Vcpus};
use uniprof_record::{Facts, Life, Plan, Progress, Source, SourceError, StopWorld, Summary};
use uprof::cold::Target;

/// The system's allocator, counting each thread's calls.
struct Counting;

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call is passed on unchanged; counting touches a thread-local without a destructor.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.with(|calls| calls.set(calls.get() + 1));
        // SAFETY: the caller's promise is the system allocator's condition.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        CALLS.with(|calls| calls.set(calls.get() + 1));
        // SAFETY: as above.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Two vCPUs whose stacks can be read; named fake, as it is no guest.
struct FakeGuest {
    facts: Facts,
}

impl StopWorld for FakeGuest {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn freeze(&mut self, _: u64, vcpus: &mut Vcpus) -> Result<(), SourceError> {
        fake::push_running(vcpus, 2);
        Ok(())
    }

    fn read(&mut self, _: &Vcpu, address: u64, into: &mut [u8]) -> usize {
        fake::read_frames(address, into)
    }

    fn resume(&mut self) -> Result<(), SourceError> {
        Ok(())
    }

    fn between(&mut self, _: &mut Sink) -> Result<Life, SourceError> {
        Ok(Life::Alive)
    }
}

fn fake() -> Source {
    Source::of(Hot::StopWorld(Box::new(FakeGuest {
        facts: Facts::new(Target::default()),
    })))
}

/// Opening a target reads `/proc`, which may take a piece more or less of it each time.
const OPENING_DIFFERS_BY: u64 = 4;

fn plan(milliseconds: u64, stack_bytes: u32) -> Plan {
    Plan {
        rate_hz: 997.0,
        duration: Some(Duration::from_millis(milliseconds)),
        stack_bytes,
        ..Plan::default()
    }
}

/// A child with one thread that never waits.
fn busy_child() -> Process {
    let script = "while :; do :; done";
    let arguments = ["bash", "-c", script].map(String::from).to_vec();
    Process::Started(Command {
        arguments,
        stdout_to_stderr: false,
        status: process::ExitStatus::default(),
    })
}

/// Records and counts the allocations of this thread, which is the sampling one.
fn record(source: Source, milliseconds: u64, stack_bytes: u32) -> (Summary, u64) {
    let plan = plan(milliseconds, stack_bytes);
    let before = CALLS.with(Cell::get);
    let progress = Arc::new(Progress::default());
    let summary = uniprof_record::record(source, std::io::sink(), &plan, progress).unwrap();
    (summary, CALLS.with(Cell::get) - before)
}

/// Compares a short recording with a long one of the same kind.
fn long_allocates_as_short(kind: &str, mut open: impl FnMut() -> Source, stack_bytes: u32) {
    let (short, few) = record(open(), 300, stack_bytes);
    // On a busy machine it takes longer until a recording is a long one.
    let is_long = |(long, _): &(Summary, u64)| long.samples > short.samples + 20;
    let (long, many) = [1500, 6000, 24_000]
        .into_iter()
        .map(|milliseconds| record(open(), milliseconds, stack_bytes))
        .find(is_long)
        .unwrap_or_else(|| panic!("{kind}: too few samples in 24 s to tell"));
    assert!(
        many.abs_diff(few) <= OPENING_DIFFERS_BY,
        "{kind}: {} samples cost {many} allocations, {} cost {few}",
        long.samples,
        short.samples
    );
}

#[test]
fn a_fake_guest() {
    long_allocates_as_short("frame pointers", fake, 0);
    long_allocates_as_short("leaf bytes", fake, LEAF_STACK_BYTES);
    long_allocates_as_short("raw stacks", fake, 16 << 10);
}

#[test]
fn a_process_by_perf_events() {
    let open = || process::open_perf(&busy_child(), &plan(1500, LEAF_STACK_BYTES));
    if let Err(process::Refusal::Forbidden(error)) = open() {
        eprintln!("skipped: perf events are forbidden here: {error}");
        return;
    }
    long_allocates_as_short("perf events", || open().unwrap(), LEAF_STACK_BYTES);
}

#[test]
fn a_process_by_ptrace() {
    let open = || process::open_ptrace(busy_child(), Vec::new()).unwrap();
    long_allocates_as_short("ptrace", open, 8 << 10);
}
