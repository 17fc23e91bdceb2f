//! Restores the monitor when the recorder is gone. Little is needed, since the kernel resumes the traced threads.

use super::run_page::{self, WANTED};
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
            let at = page + run_page::VALID_AT;
            Ok((at, read(memory, at)?))
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
    /// A word without the request is as the monitor, or another recorder that has ended, wants it. So it becomes the
    /// previous value: the one at the start may have been that recorder's request.
    ///
    /// # Errors
    /// The monitor is gone.
    pub fn ask(&mut self) -> std::io::Result<()> {
        for &at in &self.marks {
            write(&self.memory, at, 0)?;
        }
        for (at, before) in &mut self.words {
            let now = read(&self.memory, *at)?;
            if !is_asked(now) {
                *before = now;
            }
            write(&self.memory, *at, now | WANTED)?;
        }
        Ok(())
    }

    /// Restores the previous values, unless somebody else did. A monitor that is gone needs no restoring.
    pub fn restore(&self) {
        for &(at, before) in &self.words {
            if read(&self.memory, at).is_ok_and(is_asked) {
                let _ = write(&self.memory, at, before);
            }
        }
    }
}

fn read(memory: &File, at: u64) -> std::io::Result<u64> {
    let mut word = [0; 8];
    memory.read_exact_at(&mut word, at)?;
    Ok(u64::from_le_bytes(word))
}

fn write(memory: &File, at: u64, word: u64) -> std::io::Result<()> {
    memory.write_all_at(&word.to_le_bytes(), at)
}

fn is_asked(word: u64) -> bool {
    word & WANTED == WANTED
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Two recorders of a monitor that began one after the other, and the monitor's word with this value.
    fn two_recorders(of_monitor: u64) -> (File, [Words; 2]) {
        let memory = tempfile::tempfile().unwrap();
        memory.set_len(4096).unwrap();
        write(&memory, run_page::VALID_AT, of_monitor).unwrap();
        let recorders = [0, 1].map(|_| {
            let mut words = Words::of(&memory, std::iter::once(0)).unwrap();
            words.ask().unwrap();
            words
        });
        (memory, recorders)
    }

    #[test]
    fn the_last_of_several_recorders_leaves_what_was_there_before_the_first() {
        for of_monitor in [0, 1 << 2, WANTED, WANTED | 1 << 2] {
            let left = |memory: &File| {
                assert_eq!(read(memory, run_page::VALID_AT).unwrap(), of_monitor);
            };
            let (memory, [first, second]) = two_recorders(of_monitor);
            second.restore();
            assert!(is_asked(read(&memory, run_page::VALID_AT).unwrap()));
            first.restore();
            left(&memory);
            // The one that goes on asks again when it finds that it is no longer heard.
            let (memory, [first, mut second]) = two_recorders(of_monitor);
            first.restore();
            left(&memory);
            second.ask().unwrap();
            assert!(is_asked(read(&memory, run_page::VALID_AT).unwrap()));
            second.restore();
            left(&memory);
            // Both end at the same time.
            let (memory, [first, second]) = two_recorders(of_monitor);
            first.restore();
            second.restore();
            left(&memory);
        }
    }
}
