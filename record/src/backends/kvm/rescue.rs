//! Restores the monitor when the recorder is gone. Little is needed, since the kernel resumes the traced threads.

use super::run_page;
use crate::guest::guardian::Rescuer;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::FileExt;

/// The words that request registers from KVM.
#[derive(Debug)]
pub struct Words {
    /// `/proc/PID/mem` of the monitor.
    memory: File,
    /// Their addresses, and their previous values.
    words: Vec<(u64, u64)>,
    /// Addresses at which KVM writes CR0.
    marks: Vec<u64>,
}

impl Words {
    /// The words in the pages at `pages` in the monitor.
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

    /// Requests the registers of all vCPUs, at each of their returns to the monitor. Registers that KVM wrote before
    /// are erased, so that they aren't taken for a state. That is harmless: KVM reads them only if the monitor asks
    /// it to.
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

    /// Restores the previous values. A monitor that is gone needs no restoring.
    pub fn restore(&self) {
        for &(at, before) in &self.words {
            let _ = self.write(at, before);
        }
    }

    fn write(&self, at: u64, word: u64) -> std::io::Result<()> {
        self.memory.write_all_at(&word.to_le_bytes(), at)
    }
}

/// The rescuer of one guest.
pub struct MonitorRescuer {
    /// The words to restore.
    pub words: Words,
    /// Process id of the recorder.
    pub recorder: i32,
    /// Process id of the monitor.
    pub monitor: i32,
}

impl Rescuer for MonitorRescuer {
    /// Only the recorder, as the tracer, can resume the threads. So it is continued, in case it was stopped.
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
