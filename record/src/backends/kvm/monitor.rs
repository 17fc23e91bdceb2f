//! Facts about a monitor's process from the kernel: its vCPUs, the threads that run them, and its large mappings.
//!
//! Input: `/proc/PID`. Output: addresses in its memory, and thread ids. Nothing in it is changed here.

use crate::source::SourceError;
use crate::sys::stat;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::FileExt;

/// Name of the mapping of a vCPU's page; the vCPU's number follows.
const RUN_PAGE: &str = "anon_inode:kvm-vcpu:";
/// Numbers of `ioctl`, and of KVM_RUN of linux/kvm.h, as `/proc/PID/task/TID/syscall` shows them.
const IOCTL: &str = "16";
const KVM_RUN: &str = "0xae80";
/// Smallest mapping that can be a guest's memory.
const LEAST_BYTES: u64 = 1 << 20;
/// Most vCPUs. KVM's own limit is 4096; recordings have room for this many.
pub const VCPUS_MAX: usize = crate::source::Vcpus::MOST;
/// Most bytes read of the list of mappings: a few times as many mappings as the kernel usually allows.
const MOST_LIST_BYTES: u64 = 64 << 20;
/// Most mappings that are considered as the guest's memory.
const AREAS_MAX: usize = 16;

/// A range of the monitor's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Area {
    /// Address in the monitor.
    pub start: u64,
    /// Its length.
    pub bytes: u64,
}

/// A vCPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MonitorVcpu {
    /// KVM's number for it.
    pub number: u32,
    /// Address in the monitor of the page that it shares with KVM.
    pub run_page: u64,
}

/// A monitor's process.
#[derive(Debug)]
pub struct Monitor {
    /// Its process id.
    pub pid: i32,
    /// The name of its program, at most 15 bytes.
    pub name: String,
    /// Its memory, to read and write.
    pub memory: File,
    /// Its vCPUs, by number.
    pub vcpus: Vec<MonitorVcpu>,
    /// Mappings that may be guest memory, the largest first.
    pub areas: Vec<Area>,
}

impl Monitor {
    /// Examines process `pid`.
    ///
    /// # Errors
    /// There is no such process, it is not accessible, it has no vCPU, or it runs several guests.
    pub fn of(pid: i32) -> Result<Self, SourceError> {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).map_err(|_| {
            SourceError(format!(
                "there is no process {pid}: kvm: takes the process id of a virtual machine's monitor"
            ))
        })?;
        let refused = |error: std::io::Error| {
            SourceError(format!(
                "cannot look into process {pid}: {error}; run as root, or as the user that it belongs to"
            ))
        };
        let options = OpenOptions::new().read(true).write(true).clone();
        let memory = options.open(format!("/proc/{pid}/mem")).map_err(refused)?;
        let mut maps = String::new();
        let file = File::open(format!("/proc/{pid}/maps")).map_err(refused)?;
        let read = file.take(MOST_LIST_BYTES).read_to_string(&mut maps);
        read.map_err(refused)?;
        Self::with_mappings(pid, name.trim_end(), memory, &maps)
    }

    /// The process with this name and list of mappings.
    fn with_mappings(pid: i32, name: &str, memory: File, maps: &str) -> Result<Self, SourceError> {
        let (mut vcpus, areas) = parse(maps);
        if vcpus.is_empty() {
            return Err(SourceError(format!(
                "process {pid} ({name}) runs no guest under KVM: it has no vCPU mapped"
            )));
        }
        let is_same = |pair: &[MonitorVcpu]| pair[0].number == pair[1].number;
        if vcpus.windows(2).any(is_same) {
            return Err(SourceError(format!(
                "process {pid} ({name}) runs several guests, whose vCPUs are not told apart: run each guest in a \
                 process of its own"
            )));
        }
        vcpus.truncate(VCPUS_MAX);
        Ok(Monitor {
            pid,
            name: name.to_owned(),
            memory,
            vcpus,
            areas,
        })
    }

    /// Whether it was stopped by a signal.
    pub fn is_stopped(&self) -> bool {
        stat::of(self.pid).is_some_and(|stat| stat.state == b'T')
    }

    /// Its threads' ids.
    pub fn threads(&self) -> Vec<i32> {
        threads(self.pid)
    }

    /// The activity of thread `tid`.
    pub fn doing(&self, tid: i32) -> Doing {
        doing(self.pid, tid)
    }
}

/// Whether process `pid` has vCPUs; of one that may not be looked into, whether a thread is called like a vCPU's.
pub fn has_vcpus(pid: i32) -> bool {
    let mut maps = String::new();
    let file = File::open(format!("/proc/{pid}/maps"));
    match file.and_then(|file| file.take(MOST_LIST_BYTES).read_to_string(&mut maps)) {
        Ok(_) => maps.contains(RUN_PAGE),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            let names = threads(pid).into_iter().filter_map(|tid| {
                std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/comm")).ok()
            });
            names
                .map(|name| name.to_ascii_lowercase())
                .any(|name| name.contains("vcpu") || name.trim_end().ends_with("/kvm"))
        }
        Err(_) => false,
    }
}

/// The vCPUs in the list of mappings that `maps`, a monitor's `/proc/PID/maps`, yields now, also those of several
/// guests with the same number. `None` if the list can't be read, or is too long. Reads at its beginning, wherever
/// another process that shares the descriptor is.
pub fn vcpus_of(maps: &File) -> Option<Vec<MonitorVcpu>> {
    let mut text = Vec::new();
    let mut piece = [0; 4096];
    while let count @ 1.. = maps.read_at(&mut piece, text.len() as u64).ok()? {
        text.extend_from_slice(&piece[..count]);
        if text.len() as u64 > MOST_LIST_BYTES {
            return None;
        }
    }
    Some(parse(&String::from_utf8_lossy(&text)).0)
}

/// The ids of the threads of process `pid`.
fn threads(pid: i32) -> Vec<i32> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/task"));
    let entries = entries.into_iter().flatten().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.collect()
}

/// The activity of thread `tid` of process `pid`.
pub fn doing(pid: i32, tid: i32) -> Doing {
    let path = format!("/proc/{pid}/task/{tid}/syscall");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    match parse_call(&text) {
        Some(descriptor) => {
            let link = std::fs::read_link(format!("/proc/{pid}/fd/{descriptor}"));
            let number = link.ok().and_then(|link| number(link.to_str()?));
            number.map_or(Doing::Other, Doing::RunsVcpu)
        }
        None if text.starts_with("running") => Doing::Unknown,
        None => Doing::Other,
    }
}

/// The activity of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doing {
    /// It is in KVM_RUN of this vCPU.
    RunsVcpu(u32),
    /// It runs, so its activity is known only once it is stopped.
    Unknown,
    /// Neither.
    Other,
}

/// The descriptor on which a thread called KVM_RUN, given its `syscall` (proc_pid_syscall(5)).
fn parse_call(text: &str) -> Option<u32> {
    let mut words = text.split(' ');
    let (call, descriptor, request) = (words.next()?, words.next()?, words.next()?);
    let descriptor = u32::from_str_radix(descriptor.strip_prefix("0x")?, 16).ok()?;
    (call == IOCTL && request == KVM_RUN).then_some(descriptor)
}

fn number(path: &str) -> Option<u32> {
    path.strip_prefix(RUN_PAGE)?.parse().ok()
}

/// The vCPUs in a process's `maps`, by number, and the large mappings.
fn parse(maps: &str) -> (Vec<MonitorVcpu>, Vec<Area>) {
    let (mut vcpus, mut areas) = (Vec::new(), Vec::new());
    for line in maps.lines() {
        let mut words = line.split_ascii_whitespace();
        let (Some(range), Some(access), Some(offset)) = (words.next(), words.next(), words.next())
        else {
            continue;
        };
        let path = words.nth(2).unwrap_or_default();
        let range = range.split_once('-').and_then(|(start, end)| {
            let word = |word| u64::from_str_radix(word, 16).ok();
            Some((word(start)?, word(end)?))
        });
        let Some((start, end)) = range.filter(|(start, end)| start < end) else {
            continue;
        };
        if !access.starts_with("rw") {
            continue;
        }
        // A vCPU may have a ring beyond its first pages, which a monitor maps separately.
        if let Some(number) = number(path).filter(|_| offset.bytes().all(|digit| digit == b'0')) {
            vcpus.push(MonitorVcpu {
                number,
                run_page: start,
            });
        } else if end - start >= LEAST_BYTES && !path.starts_with("anon_inode:kvm") {
            areas.push(Area {
                start,
                bytes: end - start,
            });
        }
    }
    vcpus.sort_unstable_by_key(|vcpu| vcpu.number);
    areas.sort_by_key(|area| std::cmp::Reverse(area.bytes));
    areas.truncate(AREAS_MAX);
    (vcpus, areas)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vcpus_and_memory_are_found_among_mappings() {
        let maps = "\
55d0c0000000-55d0c0021000 rw-p 00000000 00:00 0                          [heap]
7f2000000000-7f2008000000 rw-s 00000000 00:1a 1027                       /dev/shm/guest (deleted)
7f2010000000-7f2018000000 r-xp 00000000 00:1a 1028                       /usr/lib/large.so
7f2020000000-7f2030000000 rw-p 00000000 00:00 0 
7f2080000000-7f2080003000 rw-s 00000000 00:0e 11                         anon_inode:kvm-vcpu:1
7f2080003000-7f2080013000 rw-s 00040000 00:0e 11                         anon_inode:kvm-vcpu:0
7f2080013000-7f2080016000 rw-s 00000000 00:0e 11                         anon_inode:kvm-vcpu:0
ffffffffffffffff-7f00 rw-p zz
";
        let (vcpus, areas) = parse(maps);
        let place = |number, run_page| MonitorVcpu { number, run_page };
        assert_eq!(
            vcpus,
            [place(0, 0x7f20_8001_3000), place(1, 0x7f20_8000_0000)]
        );
        let area = |start, bytes| Area { start, bytes };
        assert_eq!(
            areas,
            [
                area(0x7f20_2000_0000, 256 << 20),
                area(0x7f20_0000_0000, 128 << 20)
            ]
        );
    }

    #[test]
    fn a_process_with_several_guests_is_refused() {
        let of = |numbers: [u32; 2]| {
            let line = |number: u32| {
                format!("7f2080000000-7f2080003000 rw-s 00000000 00:0e 11 {RUN_PAGE}{number}\n")
            };
            let memory = tempfile::tempfile().unwrap();
            Monitor::with_mappings(7, "vmm", memory, &numbers.map(line).concat())
        };
        assert_eq!(of([0, 1]).unwrap().vcpus.len(), 2);
        let said = of([0, 0]).unwrap_err().0;
        assert!(
            said.contains("process 7 (vmm) runs several guests"),
            "{said}"
        );
    }

    #[test]
    fn a_list_that_is_not_read_to_its_end_tells_no_vcpus() {
        let maps = tempfile::tempfile().unwrap();
        assert_eq!(vcpus_of(&maps), Some(Vec::new()));
        maps.set_len(MOST_LIST_BYTES + 1).unwrap();
        assert_eq!(vcpus_of(&maps), None);
        let folder = File::open("/").unwrap();
        assert_eq!(vcpus_of(&folder), None);
    }

    #[test]
    fn a_vcpus_thread_is_told_by_its_call() {
        let call = "16 0xd 0xae80 0x0 0xffff 0x0 0x0 0x7ffd 0x7f20\n";
        assert_eq!(parse_call(call), Some(13));
        for other in [
            "running\n",
            "",
            "-1 0x7ffd 0x7f20\n",
            "16 0xd 0xae81 0x0\n",
            "0 0xd 0xae80 0x0\n",
            "16 d 0xae80",
        ] {
            assert_eq!(parse_call(other), None, "{other}");
        }
    }

    #[test]
    fn who_is_no_monitor_is_told_so() {
        let own = std::process::id() as i32;
        let said = |pid| Monitor::of(pid).err().unwrap().0;
        assert!(
            said(own).contains("runs no guest under KVM"),
            "{}",
            said(own)
        );
        assert!(said(i32::MAX).contains("there is no process"));
    }
}
