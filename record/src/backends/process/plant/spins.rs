//! Runs a program to its end, and makes its threads spin at a site for a part of their processor time.

use super::program::{Program, Run, ThreadState};
use super::registers::{instruction_pointer, set_instruction_pointer};
use super::trap::Trap;
use super::{SPIN_OFFSET_BYTES, Site, check_processor, program};
use crate::backends::process::maps;
use crate::source::SourceError;
use crate::sys::signal;
use nix::sys::ptrace;
use nix::unistd::Pid;
use std::collections::BTreeSet;
use std::ops::Range;

/// What to plant.
#[derive(Debug, Clone, PartialEq)]
pub struct Plant {
    /// Where.
    pub site: Site,
    /// The part of the run's processor time, 0 to 1.
    pub share: f64,
}

/// How long a thread spins at a time, in nanoseconds: short beside a run, long beside the stops around it. Different
/// lengths fall in step with nothing.
const SPIN_NS: Range<u64> = 1_000_000..4_000_000;
/// How long a thread may take to come to the site.
const AWAITED_NS: u64 = 30_000_000;
/// Time before the next try, if none came.
const BETWEEN_TRIES_NS: u64 = 20_000_000;
/// How often the processor time is looked at.
const LOOK_NS: u64 = 500_000;

impl Program {
    /// Runs the program to its end, slowed down as `plant` says. What it started and left running is killed.
    ///
    /// # Errors
    /// A signal requested the end, or the site can't be changed. The program is killed then.
    pub fn run(mut self, plant: Option<&Plant>) -> Result<Run, SourceError> {
        check_processor()?;
        signal::listen_to_children();
        let mut planted_ns = 0;
        let mut spins = 0;
        self.begin();
        loop {
            self.rest(LOOK_NS, |_| false);
            if let Some(name) = signal::stop_signal() {
                return Err(SourceError(format!("stopped by {name}")));
            }
            if self.status().is_some() {
                break;
            }
            let Some(plant) = plant else { continue };
            if planted_ns as f64 >= plant.share * self.cpu_ns() as f64 {
                continue;
            }
            match self.spin(&plant.site)? {
                Some(spun_ns) => {
                    planted_ns += spun_ns;
                    spins += 1;
                }
                None => self.rest(BETWEEN_TRIES_NS, |_| false),
            }
        }
        self.end();
        Ok(Run {
            status: self.status().unwrap_or(0),
            cpu_ns: self.cpu_ns(),
            planted_ns,
            spins,
            addresses: std::mem::take(&mut self.addresses),
        })
    }

    /// Makes the next thread that comes to the site spin there. Returns its processor time meanwhile; `None` if none
    /// came.
    fn spin(&mut self, site: &Site) -> Result<Option<u64>, SourceError> {
        let Some((pid, address)) = self.find(site) else {
            return Ok(None);
        };
        self.addresses.insert(address + SPIN_OFFSET_BYTES);
        self.hold(pid);
        self.trap = Trap::set(pid, address, site)?;
        self.release();
        self.rest(AWAITED_NS, |program| program.trapped().is_some());
        let spun_ns = match self.trapped() {
            Some(tid) => self.spin_thread(tid),
            None => None,
        };
        self.disarm(pid)?;
        Ok(spun_ns)
    }

    fn trapped(&self) -> Option<i32> {
        let mut threads = self.threads.iter();
        threads.find_map(|(tid, thread)| thread.is_trapped.then_some(*tid))
    }

    /// Lets a thread at the breakpoint spin behind it, stops it again, and returns its processor time meanwhile.
    fn spin_thread(&mut self, tid: i32) -> Option<u64> {
        let began_ns = self.threads.get(&tid)?.cpu_ns();
        self.spinning = Some(tid);
        self.spun_until_ns = None;
        let thread = self.threads.get_mut(&tid)?;
        thread.state = ThreadState::Free;
        let _ = crate::sys::ptrace::cont(Pid::from_raw(tid), 0);
        let is_over = |program: &Program| program.state(tid) != Some(ThreadState::Free);
        self.rest(fastrand::u64(SPIN_NS), is_over);
        if self.state(tid) == Some(ThreadState::Free)
            && ptrace::interrupt(Pid::from_raw(tid)).is_ok()
        {
            let is_stopped =
                |program: &Program| !matches!(program.state(tid), Some(ThreadState::Free));
            self.rest(u64::MAX / 2, is_stopped);
        }
        self.spinning = None;
        // Registers are read first: the request waits until the thread has left its processor.
        let _ = instruction_pointer(tid);
        let now_ns = match self.threads.get(&tid) {
            Some(thread) => thread.cpu_ns(),
            None => self.spun_until_ns?,
        };
        Some(now_ns.saturating_sub(began_ns))
    }

    /// Puts the instruction back, and threads that met the breakpoint before it.
    fn disarm(&mut self, pid: i32) -> Result<(), SourceError> {
        self.hold(pid);
        if let Some(trap) = self.trap.take() {
            trap.restore().map_err(|error| {
                SourceError(format!(
                    "cannot put back the code of process {pid}: {error}"
                ))
            })?;
            for (&tid, thread) in &mut self.threads {
                if std::mem::take(&mut thread.is_trapped)
                    && instruction_pointer(tid) == Some(trap.address + SPIN_OFFSET_BYTES)
                {
                    set_instruction_pointer(tid, trap.address);
                }
            }
        }
        self.threads
            .values_mut()
            .for_each(|thread| thread.is_trapped = false);
        self.release();
        Ok(())
    }

    /// A process with the site's image, and where the site is there. With several processes, one of those that run.
    fn find(&self, site: &Site) -> Option<(i32, u64)> {
        let runs = |thread: &program::Thread| {
            let seen = thread.times.as_ref()?.seen()?;
            (seen.0 == b'R').then_some(thread.pid)
        };
        let pids: BTreeSet<i32> = self.threads.values().filter_map(runs).collect();
        let mut found: Vec<(i32, u64)> = pids.into_iter().filter_map(|pid| at(pid, site)).collect();
        match found.len() {
            0 => None,
            several => Some(found.swap_remove(fastrand::usize(..several))),
        }
    }
}

/// Where the site is in the memory of a process.
fn at(pid: i32, site: &Site) -> Option<(i32, u64)> {
    maps::executable(pid).into_iter().find_map(|mapping| {
        let offset = site.file_offset.checked_sub(mapping.file_offset)?;
        (mapping.path == site.path && offset < mapping.length)
            .then_some((pid, mapping.start + offset))
    })
}
