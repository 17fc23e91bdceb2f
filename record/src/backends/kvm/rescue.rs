//! Restores the monitor when the recorder is gone. Little is needed, since the kernel resumes the traced threads.

use super::monitor::{self, MonitorVcpu};
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
    /// `/proc/PID/maps`.
    maps: File,
    words: Vec<Word>,
}

/// The word of one vCPU.
#[derive(Debug)]
struct Word {
    vcpu: MonitorVcpu,
    /// Its previous value.
    before: u64,
}

impl Words {
    /// The words in the pages of `vcpus` of the monitor, given its `/proc/PID/mem` and `/proc/PID/maps`.
    ///
    /// # Errors
    /// The monitor is gone.
    pub fn of(memory: &File, maps: &File, vcpus: &[MonitorVcpu]) -> std::io::Result<Words> {
        let words = vcpus.iter().map(|&vcpu| {
            let before = read(memory, vcpu.run_page + run_page::VALID_AT)?;
            Ok(Word { vcpu, before })
        });
        Ok(Words {
            words: words.collect::<std::io::Result<_>>()?,
            memory: memory.try_clone()?,
            maps: maps.try_clone()?,
        })
    }

    /// The descriptors of the monitor's memory and of its list of mappings.
    pub fn descriptors(&self) -> [RawFd; 2] {
        [self.memory.as_raw_fd(), self.maps.as_raw_fd()]
    }

    /// Requests the registers of all vCPUs. See [`Words::ask_of`].
    ///
    /// # Errors
    /// The monitor is gone.
    pub fn ask(&mut self) -> std::io::Result<()> {
        self.words
            .iter_mut()
            .try_for_each(|word| word.ask(&self.memory))
    }

    /// Requests the registers of the vCPU with this page, at each of its returns to the monitor. Registers that KVM
    /// wrote before are erased, so that they aren't taken for a state. That is harmless: KVM reads them only if the
    /// monitor asks it to.
    ///
    /// A word without the request is as the monitor, or another recorder that has ended, wants it. So it becomes the
    /// previous value: the one at the start may have been that recorder's request.
    ///
    /// # Errors
    /// The monitor is gone.
    pub fn ask_of(&mut self, run_page: u64) -> std::io::Result<()> {
        let mut words = self.words.iter_mut();
        let word = words.find(|word| word.vcpu.run_page == run_page);
        word.map_or(Ok(()), |word| word.ask(&self.memory))
    }

    /// The vCPUs that the monitor has now; `None` if its list of mappings can't be read. Allocates.
    pub fn vcpus_now(&self) -> Option<Vec<MonitorVcpu>> {
        monitor::vcpus_of(&self.maps)
    }

    /// Restores the previous values, unless somebody else did. A monitor that is gone needs no restoring. Where the
    /// page of an unplugged vCPU was, the monitor may have other data. If that can't be told, the page is taken to be
    /// there, since a word with the request is in it.
    pub fn restore(&self) {
        let there = self.vcpus_now();
        let is_there = |word: &&Word| {
            let there = there.as_ref();
            there.is_none_or(|there| there.contains(&word.vcpu))
        };
        for word in self.words.iter().filter(is_there) {
            let at = word.at();
            if read(&self.memory, at).is_ok_and(is_asked) {
                let _ = write(&self.memory, at, word.before);
            }
        }
    }
}

impl Word {
    /// Its address in the monitor.
    fn at(&self) -> u64 {
        self.vcpu.run_page + run_page::VALID_AT
    }

    fn ask(&mut self, memory: &File) -> std::io::Result<()> {
        write(memory, self.vcpu.run_page + run_page::CR0_AT, 0)?;
        let now = read(memory, self.at())?;
        if !is_asked(now) {
            self.before = now;
        }
        write(memory, self.at(), now | WANTED)
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

    /// It may have been stopped a second time.
    fn resume_again(&mut self) {
        self.resume();
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

    const VCPU: MonitorVcpu = MonitorVcpu {
        number: 0,
        run_page: 0,
    };

    /// Two recorders of a monitor that began one after the other, the monitor's word with this value, and its list of
    /// mappings.
    fn two_recorders(of_monitor: u64) -> (File, File, [Words; 2]) {
        let memory = tempfile::tempfile().unwrap();
        memory.set_len(4096).unwrap();
        write(&memory, run_page::VALID_AT, of_monitor).unwrap();
        let maps = tempfile::tempfile().unwrap();
        let line = b"0000-3000 rw-s 00000000 00:0e 11 anon_inode:kvm-vcpu:0\n";
        maps.write_all_at(line, 0).unwrap();
        let recorders = [0, 1].map(|_| {
            let mut words = Words::of(&memory, &maps, &[VCPU]).unwrap();
            words.ask().unwrap();
            words
        });
        (memory, maps, recorders)
    }

    #[test]
    fn the_last_of_several_recorders_leaves_what_was_there_before_the_first() {
        for of_monitor in [0, 1 << 2, WANTED, WANTED | 1 << 2] {
            let left = |memory: &File| {
                assert_eq!(read(memory, run_page::VALID_AT).unwrap(), of_monitor);
            };
            let (memory, _, [first, second]) = two_recorders(of_monitor);
            second.restore();
            assert!(is_asked(read(&memory, run_page::VALID_AT).unwrap()));
            first.restore();
            left(&memory);
            // The one that goes on asks again when it finds that it is no longer heard.
            let (memory, _, [first, mut second]) = two_recorders(of_monitor);
            first.restore();
            left(&memory);
            second.ask_of(VCPU.run_page).unwrap();
            assert!(is_asked(read(&memory, run_page::VALID_AT).unwrap()));
            second.restore();
            left(&memory);
            // Both end at the same time.
            let (memory, _, [first, second]) = two_recorders(of_monitor);
            first.restore();
            second.restore();
            left(&memory);
        }
    }

    #[test]
    fn nothing_is_written_where_a_vcpus_page_was() {
        let (memory, maps, [first, _]) = two_recorders(0);
        assert_eq!(first.vcpus_now(), Some(vec![VCPU]));
        // Another vCPU's page may be there, or data of the monitor.
        maps.write_all_at(b"1\n", 53).unwrap();
        first.restore();
        maps.set_len(0).unwrap();
        first.restore();
        assert!(is_asked(read(&memory, run_page::VALID_AT).unwrap()));
    }

    #[test]
    fn a_word_is_restored_beside_another_guests_vcpu_and_where_mappings_cannot_be_read() {
        let (memory, maps, [first, _]) = two_recorders(0);
        let line = |range: &str| format!("{range} rw-s 00000000 00:0e 11 anon_inode:kvm-vcpu:0\n");
        let lines = ["8000-b000", "0000-3000"].map(line).concat();
        maps.write_all_at(lines.as_bytes(), 0).unwrap();
        first.restore();
        assert_eq!(read(&memory, run_page::VALID_AT).unwrap(), 0);
        let (memory, _, [first, _]) = two_recorders(0);
        let maps = File::open("/").unwrap();
        Words { maps, ..first }.restore();
        assert_eq!(read(&memory, run_page::VALID_AT).unwrap(), 0);
    }
}
