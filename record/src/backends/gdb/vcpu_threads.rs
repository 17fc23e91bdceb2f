//! The threads that run the vCPUs behind a stub, if a monitor shows them.
//!
//! Input: their `/proc` files. Output: states of vCPUs. A stub shows whether a vCPU is halted; only the kernel knows
//! whether it had a processor.

use crate::guest::processor_time::VcpuTimes;
use crate::source::Vcpu;
use crate::sys::clock::monotonic_ns;
use crate::sys::thread_times::ThreadTimes;
use uprof::State;

/// The threads of all vCPUs, in the stub's order.
pub struct VcpuThreads {
    threads: Vec<ThreadTimes>,
    times: VcpuTimes,
    /// Whether a thread sleeps only while its guest is idle. An emulator's thread also sleeps for other reasons.
    sleep_is_idle: bool,
    /// Whether the stub tells which vCPUs are halted.
    stub_tells: bool,
    /// Whether each thread slept before the guest was stopped.
    asleep: Vec<bool>,
    /// When the guest was resumed, and for how long it could run from then until the last freeze.
    runs_from_ns: Option<u64>,
    since_ns: u64,
}

impl VcpuThreads {
    /// Threads `tids` of process `pid`, under KVM if `kvm`. `None` unless each vCPU has a thread of its own.
    pub fn open(pid: i32, tids: &[u64], kvm: bool) -> Option<Self> {
        let mut distinct = tids.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        if distinct.len() < tids.len() {
            // An emulator may run all vCPUs on one thread.
            return None;
        }
        let threads = tids
            .iter()
            .map(|&tid| ThreadTimes::of(pid, i32::try_from(tid).ok()?));
        let threads = threads.collect::<Option<Vec<_>>>()?;
        Some(VcpuThreads {
            times: VcpuTimes::new(threads.len()),
            sleep_is_idle: kvm,
            stub_tells: false,
            asleep: vec![false; threads.len()],
            threads,
            runs_from_ns: None,
            since_ns: 0,
        })
    }

    /// Sets whether the stub tells which vCPUs are halted, as QEMU's does on x86-64 under KVM, too.
    pub fn with_stub(self, stub_tells: bool) -> Self {
        VcpuThreads { stub_tells, ..self }
    }

    /// Number of threads.
    pub fn count(&self) -> usize {
        self.threads.len()
    }

    /// Notes which threads sleep, before the guest is stopped at `now_ns`.
    pub fn look(&mut self, now_ns: u64) {
        self.since_ns = now_ns.saturating_sub(self.runs_from_ns.unwrap_or(now_ns));
        for (thread, asleep) in self.threads.iter().zip(&mut self.asleep) {
            *asleep = thread.seen().is_some_and(|(state, _)| state == b'S');
        }
    }

    /// Must be called when the guest is resumed.
    pub fn let_run(&mut self) {
        self.runs_from_ns = Some(monotonic_ns());
    }

    /// Sets whether a vCPU of the last freeze ran.
    pub fn complete(&mut self, vcpu: &mut Vcpu) {
        let place = vcpu.handle as usize;
        let Some(counted_ns) = self
            .threads
            .get(place)
            .and_then(ThreadTimes::processor_time_ns)
        else {
            return;
        };
        // A thread also sleeps until its monitor has let it run after a freeze. A vCPU without page tables may not have
        // been started, which no stub tells.
        let is_told = self.stub_tells && vcpu.details.root.is_some();
        let seen = match vcpu.state {
            State::Running if self.sleep_is_idle && self.asleep[place] && !is_told => {
                State::Blocked
            }
            // It may have waited for a processor.
            State::Running => State::Ready,
            other => other,
        };
        vcpu.state = self.times.state(place, seen, counted_ns, self.since_ns);
    }

    /// For the end of the recording: name and nanoseconds; nothing if the kernel doesn't count.
    pub fn totals(&self) -> impl Iterator<Item = (String, u64)> {
        self.times.totals().into_iter().filter(|(_, ns)| *ns > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uprof::{Details, Registers, Task};

    /// A thread sleeps for as long as its monitor has not let it run, too.
    #[test]
    fn a_sleeping_thread_is_idle_unless_the_stub_knows_better() {
        let mut child = std::process::Command::new("sleep")
            .arg("1000")
            .spawn()
            .unwrap();
        let pid = child.id();
        let stat = std::path::PathBuf::from(format!("/proc/{pid}/stat"));
        while !std::fs::read_to_string(&stat).unwrap().contains(") S ") {
            std::thread::yield_now();
        }
        let state = |kvm: bool, stub_tells: bool, root: Option<u64>| {
            let threads = VcpuThreads::open(pid as i32, &[u64::from(pid)], kvm).unwrap();
            let mut threads = threads.with_stub(stub_tells);
            threads.look(monotonic_ns());
            let mut vcpu = Vcpu {
                task: Task { space: 0, vcpu: 0 },
                state: State::Running,
                registers: Registers::default(),
                handle: 0,
                details: Details {
                    root,
                    ..Details::default()
                },
            };
            threads.complete(&mut vcpu);
            vcpu.state
        };
        assert_eq!(state(true, false, Some(4096)), State::Blocked);
        assert_ne!(state(true, true, Some(4096)), State::Blocked);
        assert_eq!(state(true, true, None), State::Blocked, "not started");
        assert_ne!(
            state(false, false, Some(4096)),
            State::Blocked,
            "an emulator"
        );
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
