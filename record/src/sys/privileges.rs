//! Capabilities of this thread and of threads that it starts later, core files, and the ban on new privileges.
//!
//! Sources: capabilities(7), capset(2), prctl(2), and linux/capability.h for the numbers.

use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::resource::{Resource, setrlimit};

/// A capability, with its number in linux/capability.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Capability {
    /// Write and search files and folders of anyone (CAP_DAC_OVERRIDE).
    WriteAnyFile = 1,
    /// Read files and folders of anyone (CAP_DAC_READ_SEARCH).
    ReadAnyFile = 2,
    /// Send signals to anyone's processes (CAP_KILL).
    Kill = 5,
    /// Trace and read anyone's processes (CAP_SYS_PTRACE).
    Trace = 19,
    /// See kernel addresses (CAP_SYSLOG).
    KernelAddresses = 34,
    /// Open the files that processes have mapped (CAP_CHECKPOINT_RESTORE).
    MappedFiles = 40,
}

/// `_LINUX_CAPABILITY_VERSION_3`: 64 bits in two halves.
const VERSION_3: u32 = 0x2008_0522;
/// More than there are; the kernel returns EINVAL for numbers that it doesn't have.
const NUMBERS: libc::c_ulong = 64;

/// `struct __user_cap_header_struct`.
#[repr(C)]
struct Header {
    version: u32,
    pid: i32,
}

/// `struct __user_cap_data_struct`, one half.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Half {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

const _: () = assert!(size_of::<Header>() == 8 && size_of::<Half>() == 12);

/// Drops for good all capabilities of this thread but those in `kept`, also for programs that it might execute. Must be
/// called while there is one thread, since other threads would keep theirs.
///
/// # Errors
/// The error of `capget`, `capset` or `prctl`.
pub fn keep_only(kept: &[Capability]) -> Result<(), Errno> {
    let mut header = Header {
        version: VERSION_3,
        pid: 0,
    };
    let mut halves = [Half::default(); 2];
    // SAFETY: the header names version 3, for which the kernel writes two halves.
    let got = unsafe { libc::syscall(libc::SYS_capget, &raw mut header, halves.as_mut_ptr()) };
    Errno::result(got)?;
    for number in 0..NUMBERS {
        // SAFETY: takes a number. It fails without the right to drop, and beyond the last capability. Programs that
        // are executed then still gain nothing, because of no_new_privs below.
        unsafe { libc::prctl(libc::PR_CAPBSET_DROP, number, 0, 0, 0) };
    }
    let mask = kept
        .iter()
        .fold(0u64, |mask, &capability| mask | 1 << capability as u8);
    for (half, part) in halves.iter_mut().zip([mask as u32, (mask >> 32) as u32]) {
        half.permitted &= part;
        half.effective &= part;
        half.inheritable = 0;
    }
    // SAFETY: as for capget; the kernel reads both halves.
    let set = unsafe { libc::syscall(libc::SYS_capset, &raw mut header, halves.as_ptr()) };
    Errno::result(set)?;
    prctl::set_no_new_privs()
}

/// Disables core files of this process.
///
/// # Errors
/// The error of `setrlimit`.
pub fn forbid_core_files() -> Result<(), Errno> {
    setrlimit(Resource::RLIMIT_CORE, 0, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(field: &str) -> String {
        let text = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(field));
        line.unwrap().trim().to_owned()
    }

    #[test]
    fn what_is_not_kept_is_gone_for_this_thread_and_its_own() {
        // In a thread of its own, so that the other threads of this test program keep theirs.
        let thread = std::thread::spawn(|| {
            let before = u64::from_str_radix(&status("CapEff:"), 16).unwrap();
            keep_only(&[Capability::Trace, Capability::KernelAddresses]).unwrap();
            let inner = std::thread::spawn(|| [status("CapEff:"), status("CapPrm:")]);
            for mask in inner.join().unwrap() {
                let now = u64::from_str_radix(&mask, 16).unwrap();
                assert_eq!(now, before & (1 << 19 | 1 << 34));
            }
            assert_eq!(status("NoNewPrivs:"), "1");
            assert_eq!(status("CapInh:"), "0000000000000000");
        });
        thread.join().unwrap();
    }
}
