//! The breakpoint with the spin behind it, in the memory of a process.

use super::{SITE_BYTES, Site};
use crate::source::SourceError;
use nix::errno::Errno;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;

/// `int3`, and `jmp` to itself.
const TRAP: [u8; SITE_BYTES] = [0xcc, 0xeb, 0xfe];

/// A breakpoint.
#[derive(Debug)]
pub struct Trap {
    pub pid: i32,
    pub address: u64,
    replaced: [u8; SITE_BYTES],
    /// The process's memory, opened before it could execute another program.
    memory: File,
}

impl Trap {
    /// Overwrites the instruction at `address`; no thread of the process may run. `None` if the process has just ended.
    ///
    /// # Errors
    /// Memory can't be written, or other code is there.
    pub fn set(pid: i32, address: u64, site: &Site) -> Result<Option<Trap>, SourceError> {
        let mut replaced = [0; SITE_BYTES];
        let opened = open(pid).and_then(|memory| {
            memory.read_exact_at(&mut replaced, address)?;
            Ok(memory)
        });
        let Some(memory) = unless_gone(opened).map_err(|error| cannot(site, &error))? else {
            return Ok(None);
        };
        if replaced != site.bytes {
            return Err(SourceError(format!(
                "the code of {} at {:#x} in memory is not that of the file, as if the program changed its own code: \
                 it can't be slowed down there",
                site.path, site.file_offset
            )));
        }
        let trap = Trap {
            pid,
            address,
            replaced,
            memory,
        };
        let written = trap.write(TRAP).map_err(|error| cannot(site, &error))?;
        Ok(written.map(|()| trap))
    }

    /// Puts the instruction back, if the process still has memory.
    ///
    /// # Errors
    /// Memory can't be written.
    pub fn restore(&self) -> io::Result<()> {
        let [_, rest @ ..] = self.replaced;
        // The other way round: a thread that comes by meets the breakpoint until the rest is there.
        let restored = self
            .memory
            .write_all_at(&rest, self.address + 1)
            .and_then(|()| self.memory.write_all_at(&self.replaced[..1], self.address));
        unless_gone(restored).map(drop)
    }

    /// Puts the instruction back in a copy of the process.
    ///
    /// # Errors
    /// Memory can't be written.
    pub fn restore_copy(&self, pid: i32) -> io::Result<()> {
        open(pid)?.write_all_at(&self.replaced, self.address)
    }

    fn write(&self, [breakpoint, spin @ ..]: [u8; SITE_BYTES]) -> io::Result<Option<()>> {
        let written = self
            .memory
            .write_all_at(&[breakpoint], self.address)
            .and_then(|()| self.memory.write_all_at(&spin, self.address + 1));
        unless_gone(written)
    }
}

/// `None` instead of the errors of a process that has ended: the kernel reads and writes no byte of its memory then,
/// and doesn't open that of one whose parent has not seen its end (`ESRCH`).
fn unless_gone<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    let is_gone = |error: &io::Error| {
        use io::ErrorKind::{NotFound, UnexpectedEof, WriteZero};
        matches!(error.kind(), NotFound | UnexpectedEof | WriteZero)
            || error.raw_os_error() == Some(Errno::ESRCH as i32)
    };
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

fn open(pid: i32) -> io::Result<File> {
    let path = format!("/proc/{pid}/mem");
    OpenOptions::new().read(true).write(true).open(path)
}

fn cannot(site: &Site, error: &io::Error) -> SourceError {
    SourceError(format!(
        "cannot change the code of {} in memory: {error}; a kernel with proc_mem.force_override=never forbids it",
        site.path
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_process_that_has_ended_is_no_error() {
        let mut ended = Command::new("true").spawn().unwrap();
        let pid = ended.id() as i32;
        // It stays as a zombie until its parent waits for it.
        let stat = format!("/proc/{pid}/stat");
        while !std::fs::read_to_string(&stat).unwrap().contains(" Z ") {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let site = Site {
            path: "true".into(),
            file_offset: 0,
            bytes: TRAP,
        };
        assert!(matches!(Trap::set(pid, 0x1000, &site), Ok(None)));
        ended.wait().unwrap();
        assert!(matches!(Trap::set(pid, 0x1000, &site), Ok(None)));
    }
}
