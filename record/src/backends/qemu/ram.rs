//! Guest memory in a file that QEMU shares, or in QEMU's process, read by the guest's own page tables.
//!
//! Input: the monitor's description, and each vCPU's translation registers. Output: bytes. Files are read rather than
//! mapped. If an owner truncates one, reads are short, where a mapping would fault. Only open files are kept between
//! samples.

use super::machine::{Machine, Range};
use crate::backends::gdb::guest_ram::GuestRam;
use crate::guest::page_tables::{FrameAddress, FrameReader, Paging};
use crate::sys::open;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use uprof::Arch;

/// Guest memory that is read past the stub.
pub struct QemuRam {
    arch: Arch,
    files: Vec<File>,
    ranges: Vec<Placed>,
    pagings: Vec<Paging>,
}

/// Why guest memory can't be read from a file, to follow "guest memory is read through the stub: ".
#[derive(Debug, thiserror::Error)]
pub enum RamError {
    /// QEMU shares no memory, and its process is not known, or is another machine's.
    #[error("it is in no shared file, and QEMU's process is not known here")]
    NotShared,
    /// A memfd, or an unlinked file, of a process whose descriptors can't be opened.
    #[error("the file of memory back end {id} has no name that can be opened from here")]
    Nameless {
        /// QEMU's name of the back end.
        id: String,
    },
    /// It can't be opened.
    #[error("cannot open {}: {source}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// It can't be the guest's memory.
    #[error("{} is shorter than the guest's memory", .0.display())]
    Short(PathBuf),
}

/// A range, and its file.
#[derive(Debug, Clone, Copy)]
struct Placed {
    start: u64,
    bytes: u64,
    offset: u64,
    file: usize,
}

impl QemuRam {
    /// Opens the files behind the machine's memory; for what is in no shared file, the memory of `process`, QEMU's.
    ///
    /// # Errors
    /// Says why it can't be read.
    pub fn open(machine: &Machine, arch: Arch, process: Option<i32>) -> Result<Self, RamError> {
        let mut ram = QemuRam {
            arch,
            files: Vec::new(),
            ranges: Vec::new(),
            pagings: vec![Paging::Unsupported; machine.threads.len()],
        };
        let mut why = RamError::NotShared;
        for backend in &machine.backends {
            let of_backend = |range: &&Range| range.backend == backend.id;
            let ranges: Vec<&Range> = machine.ranges.iter().filter(of_backend).collect();
            if ranges.is_empty() {
                continue;
            }
            match open_backend(backend.path.as_deref(), &backend.id, backend.bytes, machine) {
                Ok(file) => {
                    let number = ram.files.len();
                    ram.files.push(file);
                    ram.ranges.extend(ranges.into_iter().map(|range| Placed {
                        start: range.start,
                        bytes: range.bytes,
                        offset: range.offset,
                        file: number,
                    }));
                }
                Err(problem) => why = problem,
            }
        }
        let private: Vec<Placed> = machine
            .ranges
            .iter()
            .filter_map(|range| {
                Some(Placed {
                    start: range.start,
                    bytes: range.bytes,
                    offset: range.host?,
                    file: ram.files.len(),
                })
            })
            .collect();
        // Whoever listens at the socket may only pass on what QEMU says.
        let has_vcpus = |pid: &i32| {
            let thread = machine.threads.first().copied().unwrap_or(0);
            Path::new(&format!("/proc/{pid}/task/{thread}")).exists()
        };
        let process = process.filter(has_vcpus);
        if let Some(pid) = process.filter(|_| !private.is_empty()) {
            let path = PathBuf::from(format!("/proc/{pid}/mem"));
            match File::open(&path) {
                Ok(memory) => {
                    ram.files.push(memory);
                    ram.ranges.extend(private);
                }
                Err(source) => why = RamError::Open { path, source },
            }
        }
        if ram.ranges.is_empty() {
            Err(why)
        } else {
            Ok(ram)
        }
    }
}

fn open_backend(
    path: Option<&Path>,
    id: &str,
    bytes: u64,
    machine: &Machine,
) -> Result<File, RamError> {
    let found = match path {
        // A folder stands for an unnamed file in it.
        Some(path) if path.is_file() => path.to_owned(),
        _ => find_nameless(id, bytes, machine)
            .ok_or_else(|| RamError::Nameless { id: id.to_owned() })?,
    };
    let file = match open::at(&found) {
        Ok(file) => file,
        Err(source) => {
            return Err(RamError::Open {
                path: found,
                source,
            });
        }
    };
    let length = file.metadata().map_or(0, |metadata| metadata.len());
    if length < bytes {
        return Err(RamError::Short(found));
    }
    Ok(file)
}

/// A memfd, or a file that was unlinked, among the descriptors of the QEMU process.
fn find_nameless(id: &str, bytes: u64, machine: &Machine) -> Option<PathBuf> {
    let thread = machine.threads.first()?;
    let folder = std::fs::read_dir(format!("/proc/{thread}/fd")).ok()?;
    let wanted = [
        "memory-backend-memfd".to_string(),
        format!("qemu_back_mem.{id}."),
    ];
    folder.flatten().map(|entry| entry.path()).find(|path| {
        let target = std::fs::read_link(path).unwrap_or_default();
        let target = target.to_string_lossy();
        let length = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
        length == bytes && wanted.iter().any(|name| target.contains(name.as_str()))
    })
}

impl FrameReader for QemuRam {
    fn read_frame(&mut self, at: FrameAddress, into: &mut [u8]) -> bool {
        let Some(address) = at.physical() else {
            return false;
        };
        let range = self
            .ranges
            .iter()
            .find(|range| address.wrapping_sub(range.start) < range.bytes);
        let Some(range) = range else { return false };
        let inside = address - range.start;
        if range.bytes - inside < into.len() as u64 {
            return false;
        }
        let file = &self.files[range.file];
        file.read_exact_at(into, range.offset.saturating_add(inside))
            .is_ok()
    }
}

impl GuestRam for QemuRam {
    fn set_translation(&mut self, place: usize, registers: [u64; 4]) {
        let paging = Paging::of_registers(self.arch, registers);
        if let Some(slot) = self.pagings.get_mut(place) {
            *slot = paging;
        }
    }

    fn frame_of(&mut self, place: usize, address: u64) -> Option<FrameAddress> {
        let paging = *self.pagings.get(place)?;
        paging.translate(self, address).ok()
    }

    fn kernel_tables(&mut self, place: usize) -> Option<u64> {
        let paging = *self.pagings.get(place)?;
        paging.own_address(self)
    }

    fn read(&mut self, place: usize, address: u64, into: &mut [u8]) -> usize {
        let Some(paging) = self.pagings.get(place).copied() else {
            return 0;
        };
        paging.read(self, address, into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::qemu::machine::Backend;

    /// A file of 16 pages whose page 1 is a page table root; guest memory begins at 1 MiB.
    fn machine(folder: &Path) -> Machine {
        let path = folder.join("ram");
        let mut bytes = vec![0u8; 16 * 4096];
        let base = 0x10_0000u64;
        let mut entry = |page: usize, index: usize, value: u64| {
            let at = page * 4096 + index * 8;
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        };
        // Virtual 0 and 0x1000 lie in pages 5 and 9; 0x2000 beyond memory.
        entry(1, 0, (base + 0x2000) | 7);
        entry(2, 0, (base + 0x3000) | 7);
        entry(3, 0, (base + 0x4000) | 7);
        entry(4, 0, (base + 0x5000) | 7);
        entry(4, 1, (base + 0x9000) | 7);
        entry(4, 2, (base + 0x10_0000) | 7);
        bytes[5 * 4096..6 * 4096].fill(5);
        bytes[9 * 4096..10 * 4096].fill(9);
        std::fs::write(&path, &bytes).unwrap();
        Machine {
            threads: vec![0],
            backends: vec![Backend {
                id: "mem".into(),
                bytes: bytes.len() as u64,
                path: Some(path),
            }],
            ranges: vec![Range {
                start: base,
                bytes: bytes.len() as u64,
                offset: 0,
                host: None,
                backend: "mem".into(),
            }],
            ..Machine::default()
        }
    }

    #[test]
    fn reads_follow_the_page_tables_up_to_a_hole() {
        let folder = tempfile::tempdir().unwrap();
        let machine = machine(folder.path());
        let mut ram = QemuRam::open(&machine, Arch::X86_64, None).unwrap();
        let mut bytes = vec![0; 3 * 4096];
        assert_eq!(ram.read(0, 16, &mut bytes), 0, "no translation yet");
        let on = [1 << 31 | 1, 0x10_1000, 1 << 5, 1 << 10];
        ram.set_translation(0, on);
        assert_eq!(ram.read(0, 16, &mut bytes), 2 * 4096 - 16);
        assert_eq!((bytes[0], bytes[4096 - 16]), (5, 9));
        assert_eq!(ram.read(0, 0x3000, &mut bytes), 0);
        assert_eq!(ram.read(9, 0, &mut bytes), 0, "no such vCPU");
        // A file that shrinks while it is read is merely missing memory.
        let path = machine.backends[0].path.as_ref().unwrap();
        File::options()
            .write(true)
            .open(path)
            .unwrap()
            .set_len(5 * 4096 + 100)
            .unwrap();
        assert_eq!(ram.read(0, 16, &mut bytes[..64]), 64);
        assert_eq!(ram.read(0, 64, &mut bytes[..64]), 0);
    }

    #[test]
    fn why_memory_is_not_read_directly_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let mut machine = machine(folder.path());
        let why = |machine: &Machine| {
            let error = QemuRam::open(machine, Arch::X86_64, None).err().unwrap();
            error.to_string()
        };
        machine.backends[0].bytes *= 2;
        assert!(why(&machine).contains("shorter"));
        machine.backends[0].path = Some(folder.path().into());
        assert!(why(&machine).contains("no name"));
        machine.backends.clear();
        assert!(why(&machine).contains("no shared file"));
    }
}
