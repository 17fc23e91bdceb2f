//! The threads that run the vCPUs behind a stub, where a monitor tells which they are.
//!
//! Input: their `/proc` files. Output: states of vCPUs. A stub says that a vCPU isn't halted; whether it had a
//! processor, the kernel knows.

use crate::guest::processor_time::VcpuTimes;
use crate::source::Vcpu;
use crate::sys::clock::monotonic_ns;
use crate::sys::thread_times::ThreadTimes;
use uprof::State;

/// The threads of all vCPUs, in the stub's order.
pub struct VcpuThreads {
    threads: Vec<ThreadTimes>,
    times: VcpuTimes,
    /// Whether a thread sleeps while its guest is idle, which an emulator's also does for other reasons.
    sleep_is_idle: bool,
    /// Which slept before the guest was stopped.
    asleep: Vec<bool>,
    /// When the guest was let run, and for how long it could run from then until the last freeze.
    runs_from_ns: Option<u64>,
    since_ns: u64,
}

impl VcpuThreads {
    /// Threads `tids` of process `pid`, under KVM if `kvm`. `None` unless each vCPU has one of its own.
    pub fn open(pid: i32, tids: &[u64], kvm: bool) -> Option<Self> {
        let mut distinct = tids.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        if distinct.len() < tids.len() {
            // An emulator may run all vCPUs in turn.
            return None;
        }
        let threads = tids
            .iter()
            .map(|&tid| ThreadTimes::of(pid, i32::try_from(tid).ok()?));
        let threads = threads.collect::<Option<Vec<_>>>()?;
        Some(VcpuThreads {
            times: VcpuTimes::new(threads.len()),
            sleep_is_idle: kvm,
            asleep: vec![false; threads.len()],
            threads,
            runs_from_ns: None,
            since_ns: 0,
        })
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.threads.len()
    }

    /// Looks which sleep, before the guest is stopped at `now_ns`.
    pub fn look(&mut self, now_ns: u64) {
        self.since_ns = now_ns.saturating_sub(self.runs_from_ns.unwrap_or(now_ns));
        for (thread, asleep) in self.threads.iter().zip(&mut self.asleep) {
            *asleep = thread.seen().is_some_and(|(state, _)| state == b'S');
        }
    }

    /// The guest runs from now on.
    pub fn let_run(&mut self) {
        self.runs_from_ns = Some(monotonic_ns());
    }

    /// Says whether a vCPU of the last freeze ran.
    pub fn complete(&mut self, vcpu: &mut Vcpu) {
        let place = vcpu.handle as usize;
        let Some(counted_ns) = self
            .threads
            .get(place)
            .and_then(ThreadTimes::processor_time_ns)
        else {
            return;
        };
        let seen = match vcpu.state {
            State::Running if self.sleep_is_idle && self.asleep[place] => State::Blocked,
            // It may have waited for a processor.
            State::Running => State::Ready,
            other => other,
        };
        vcpu.state = self.times.state(place, seen, counted_ns, self.since_ns);
    }

    /// For the end of the recording: name and nanoseconds; nothing where the kernel doesn't count.
    pub fn totals(&self) -> impl Iterator<Item = (String, u64)> {
        self.times.totals().into_iter().filter(|(_, ns)| *ns > 0)
    }
}
