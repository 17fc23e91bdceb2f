//! The processes of a Linux guest and their page tables. Input: its kernel's memory and types (BTF). Output: numbers
//! and names of processes by page-table root (format-spec.md, section 6.7).
//!
//! The list of tasks changes while it is read and is not trusted: it is followed up to a limit, and implausible
//! entries are left out.

use super::marks;
use std::collections::HashSet;
use uniprof_linux::{Btf, KernelMemory, Marks};
use uprof::cpu::is_kernel_address;

/// Most processes that are read.
const MOST_PROCESSES: usize = 16_384;
/// Largest process id of any Linux (PID_MAX_LIMIT).
const MOST_PID: u32 = 1 << 22;
/// Alignment of page tables. With pages of 64 KiB, an AArch64 kernel's root table is smaller than a page.
const TABLES_ALIGN: u64 = 64;
/// `TASK_COMM_LEN`.
const NAME_BYTES: usize = 16;

/// Offsets of the members that describe a process.
#[derive(Debug, Clone, Copy)]
pub struct Places {
    first: u64,
    tasks: u64,
    tgid: u64,
    name: u64,
    mm: u64,
    active_mm: u64,
    pgd: u64,
}

/// A process of the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its process id in the guest.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// Kernel address of its page tables.
    pub tables: u64,
}

impl Places {
    /// Finds the offsets by the kernel's types; `None` if it has no types.
    #[cold]
    pub fn find(memory: &mut dyn KernelMemory, marks: &Marks) -> Option<Places> {
        let btf = Btf::read(memory, marks.types.clone()?)?;
        let members = ["tasks", "tgid", "comm", "mm", "active_mm"];
        let [tasks, tgid, name, mm, active_mm] = btf.members("task_struct", members)?;
        let [pgd] = btf.members("mm_struct", ["pgd"])?;
        let first = marks.first_task;
        Some(Places {
            first: first.or_else(|| marks::first_task(memory, marks, name, tasks))?,
            tasks,
            tgid,
            name,
            mm,
            active_mm,
            pgd,
        })
    }

    /// The current processes.
    #[cold]
    pub fn processes(&self, memory: &mut dyn KernelMemory) -> Vec<Process> {
        let mut found = Vec::new();
        let mut seen = HashSet::new();
        let mut task = self.first;
        while seen.len() < MOST_PROCESSES && is_kernel_address(task) && seen.insert(task) {
            if task != self.first {
                found.extend(self.process(memory, task));
            }
            let Some(next) = word(memory, task.wrapping_add(self.tasks)) else {
                break;
            };
            task = next.wrapping_sub(self.tasks);
        }
        // While its processor idles, the first task has the tables of the process that ran there before.
        let first = self.process(memory, self.first);
        let owns = |first: &Process| found.iter().all(|other| other.tables != first.tables);
        found.extend(first.filter(owns));
        found
    }

    fn process(&self, memory: &mut dyn KernelMemory, task: u64) -> Option<Process> {
        // Kernel threads have no address space; the first task borrows one.
        let mm = if task == self.first {
            self.active_mm
        } else {
            self.mm
        };
        let mm = word(memory, task.wrapping_add(mm)).filter(|mm| is_kernel_address(*mm))?;
        let pid = word(memory, task.wrapping_add(self.tgid))? as u32;
        let tables = word(memory, mm.wrapping_add(self.pgd))?;
        let mut name = [0; NAME_BYTES];
        let read = memory.read(task.wrapping_add(self.name), &mut name);
        let name = name[..read].split(|byte| *byte == 0).next()?;
        let is_sound =
            is_kernel_address(tables) && tables.is_multiple_of(TABLES_ALIGN) && pid <= MOST_PID;
        is_sound.then(|| Process {
            pid,
            name: String::from_utf8_lossy(name).into_owned(),
            tables,
        })
    }
}

fn word(memory: &mut dyn KernelMemory, address: u64) -> Option<u64> {
    let mut word = [0; 8];
    (memory.read(address, &mut word) == 8).then(|| u64::from_le_bytes(word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use uprof::cpu::KERNEL_HALF;

    const FIRST: u64 = KERNEL_HALF | 0x10_0000;
    const PLACES: Places = Places {
        first: FIRST,
        tasks: 8,
        tgid: 24,
        name: 32,
        mm: 48,
        active_mm: 56,
        pgd: 16,
    };

    /// A fake kernel's memory, by words.
    struct Words<F>(F);

    impl<F: Fn(u64) -> u64> KernelMemory for Words<F> {
        fn read(&mut self, address: u64, into: &mut [u8]) -> usize {
            for (at, piece) in (address..).step_by(8).zip(into.chunks_mut(8)) {
                piece.copy_from_slice(&(self.0)(at).to_le_bytes()[..piece.len()]);
            }
            into.len()
        }
    }

    #[test]
    fn processes_have_their_page_tables() {
        // The first task, a process, and a thread of the kernel, 4 KiB apart; the list is a ring.
        let mut memory = Words(|at: u64| {
            let (task, member) = (at & !0xfff, at & 0xfff);
            match (task.wrapping_sub(FIRST), member) {
                (0 | 0x1000, 8) => task + 0x1000 + 8,
                (0x2000, 8) => FIRST + 8,
                (0x1000, 24) => 17,
                (0, 32) => u64::from_le_bytes(*b"swapper\0"),
                (0x1000, 32) => u64::from_le_bytes(*b"web\0rest"),
                (0, 56) => FIRST + 0x5000,
                (0x1000, 48) => FIRST + 0x6000,
                (0x5000 | 0x6000, 16) => task + 0x10_0000,
                _ => 0,
            }
        });
        let process = |pid, name: &str, at| Process {
            pid,
            name: name.into(),
            tables: FIRST + at,
        };
        let web = process(17, "web", 0x10_6000);
        let expected = [web.clone(), process(0, "swapper", 0x10_5000)];
        assert_eq!(PLACES.processes(&mut memory), expected);
        // Its processor idles with the tables of the process before.
        let mut idle = Words(|at: u64| match at.wrapping_sub(FIRST) {
            56 => FIRST + 0x6000,
            _ => (memory.0)(at),
        });
        assert_eq!(PLACES.processes(&mut idle), [web]);
    }

    /// Every address holds another task.
    #[test]
    fn a_list_of_tasks_without_end_is_left() {
        let mut memory = Words(|at| (at + 0x1000) & !7);
        assert!(PLACES.processes(&mut memory).len() <= MOST_PROCESSES);
    }
}
