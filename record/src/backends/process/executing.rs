//! Detects samples of a program that is gone: those inside `execve`, where the kernel still reports the user registers
//! of the old program, though its code and stack are already unmapped.
//!
//! The mappings of the new program and of its loader come between the record of the exec and the program's first
//! instruction. A sample in the kernel whose user instruction pointer is in none of these belongs to the old program.

/// Most processes in `execve` at a time; if there are more, the oldest is forgotten.
const PROCESSES: usize = 16;
/// Most code mappings of a program and its loader.
const MAPPINGS: usize = 8;

/// The processes that have executed a program and were not seen running it yet.
#[derive(Debug, Default)]
pub struct Executing {
    /// The recorder's child until it executes the command. Its samples show the recorder's own code.
    pub child: Option<u32>,
    processes: [Program; PROCESSES],
    oldest: usize,
}

/// A new program; process 0 means none.
#[derive(Debug, Default, Clone, Copy)]
struct Program {
    pid: u32,
    /// Address ranges: the first address and the one past the last.
    mappings: [(u64, u64); MAPPINGS],
    count: usize,
}

impl Executing {
    /// Starts empty, except for this child.
    pub fn after(child: Option<u32>) -> Self {
        Executing {
            child,
            ..Executing::default()
        }
    }

    /// Process `pid` executes a program.
    pub fn began(&mut self, pid: u32) {
        if self.child == Some(pid) {
            self.child = None;
        }
        self.ran(pid);
        self.processes[self.oldest] = Program {
            pid,
            ..Program::default()
        };
        self.oldest = (self.oldest + 1) % PROCESSES;
    }

    /// Code was mapped into process `pid`.
    pub fn mapped(&mut self, pid: u32, start: u64, length: u64) {
        let Some(program) = self.program(pid) else {
            return;
        };
        match program.mappings.get_mut(program.count) {
            Some(mapping) => {
                *mapping = (start, start.saturating_add(length));
                program.count += 1;
            }
            // A process with so many mappings is past its loader.
            None => self.ran(pid),
        }
    }

    /// Whether the user frames of a sample of process `pid` belong to the previous program. `ip` is its user
    /// instruction pointer, `in_kernel` whether the kernel was sampled.
    pub fn is_gone(&mut self, pid: u32, ip: u64, in_kernel: bool) -> bool {
        let Some(program) = self.program(pid) else {
            return false;
        };
        let mut mappings = program.mappings[..program.count].iter();
        let gone = in_kernel && !mappings.any(|&(start, end)| (start..end).contains(&ip));
        if !gone {
            self.ran(pid);
        }
        gone
    }

    fn program(&mut self, pid: u32) -> Option<&mut Program> {
        let mut programs = self.processes.iter_mut();
        programs.find(|program| program.pid == pid && pid != 0)
    }

    fn ran(&mut self, pid: u32) {
        if let Some(program) = self.program(pid) {
            program.pid = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_old_program_s_frames_until_the_new_one_is_seen() {
        let mut executing = Executing::default();
        assert!(!executing.is_gone(7, 0x40, true));
        executing.began(7);
        assert!(executing.is_gone(7, 0x40, true) && !executing.is_gone(8, 0x40, true));
        executing.mapped(7, 0x1000, 0x1000);
        executing.mapped(7, u64::MAX, 2);
        assert!(executing.is_gone(7, 0x40, true) && executing.is_gone(7, 0x2000, true));
        assert!(!executing.is_gone(7, 0x1fff, true));
        // It has run, so its later mappings need not be remembered.
        assert!(!executing.is_gone(7, 0x40, true));
        executing.began(7);
        assert!(!executing.is_gone(7, 0x40, false) && !executing.is_gone(7, 0x40, true));
    }

    #[test]
    fn more_programs_and_mappings_than_there_is_room_for() {
        let mut executing = Executing::default();
        (1..=PROCESSES as u32 + 1).for_each(|pid| executing.began(pid));
        assert!(!executing.is_gone(1, 0x40, true) && executing.is_gone(2, 0x40, true));
        (0..=MAPPINGS as u64).for_each(|at| executing.mapped(2, at << 12, 1));
        assert!(!executing.is_gone(2, 0x40, true));
    }
}
