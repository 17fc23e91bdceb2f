//! What is left to do when the recorder is gone: little, since the kernel lets the threads go that it held.

use super::run_page;
use crate::guest::guardian::Rescuer;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::FileExt;

/// The words by which KVM is asked to hand out registers.
#[derive(Debug)]
pub struct Words {
    /// `/proc/PID/mem` of the monitor.
    memory: File,
    /// Their addresses, and what they were before.
    words: Vec<(u64, u64)>,
    /// Where KVM writes CR0.
    marks: Vec<u64>,
}

impl Words {
    /// Those of the pages at `pages` in the monitor.
    ///
    /// # Errors
    /// The monitor is gone.
    pub fn of(memory: &File, pages: impl Iterator<Item = u64> + Clone) -> std::io::Result<Words> {
        let marks = pages.clone().map(|page| page + run_page::CR0_AT).collect();
        let words = pages.map(|page| {
            let (at, mut word) = (page + run_page::VALID_AT, [0; 8]);
            memory.read_exact_at(&mut word, at)?;
            Ok((at, u64::from_le_bytes(word)))
        });
        Ok(Words {
            marks,
            words: words.collect::<std::io::Result<_>>()?,
            memory: memory.try_clone()?,
        })
    }

    /// The descriptor of the monitor's memory.
    pub fn descriptor(&self) -> RawFd {
        self.memory.as_raw_fd()
    }

    /// Asks KVM for the registers of all vCPUs, at each of their returns to the monitor. What it wrote before is no
    /// longer taken for a state: KVM reads nothing there, unless a monitor asks it to.
    ///
    /// # Errors
    /// The monitor is gone.
    pub fn ask(&self) -> std::io::Result<()> {
        for &at in &self.marks {
            self.write(at, 0)?;
        }
        let mut words = self.words.iter();
        words.try_for_each(|&(at, before)| self.write(at, before | run_page::WANTED))
    }

    /// Leaves all as it was. A monitor that is gone needs nothing.
    pub fn restore(&self) {
        for &(at, before) in &self.words {
            let _ = self.write(at, before);
        }
    }

    fn write(&self, at: u64, word: u64) -> std::io::Result<()> {
        self.memory.write_all_at(&word.to_le_bytes(), at)
    }
}

/// Looks after one guest.
pub struct MonitorRescuer {
    /// What to restore.
    pub words: Words,
    /// The recorder.
    pub recorder: i32,
    /// The monitor.
    pub monitor: i32,
}

impl Rescuer for MonitorRescuer {
    /// Only the recorder can let the threads go, so it is woken, if it was stopped.
    fn resume(&mut self) {
        let _ = kill(Pid::from_raw(self.recorder), Signal::SIGCONT);
    }

    fn release(&mut self, _: bool) {
        self.words.restore();
    }

    fn guest(&self) -> String {
        format!("kvm {}", self.monitor)
    }
}
