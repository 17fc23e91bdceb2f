//! Xen through the interfaces of a domain's kernel, without any of Xen's libraries: in dom0 by `/dev/xen/privcmd`, in
//! every domain by `/dev/xen/gntdev` and `/dev/xen/evtchn` (`shared_pages`, `event_channel`).
//!
//! Input: domains and vCPUs by number. Output: answers as safe values, and errors with call, errno and subject. All
//! addresses passed to Xen are built here. Layouts are those of Xen's public headers (xen/include/public/); each file
//! names its own.

#[cfg_attr(not(target_arch = "aarch64"), allow(dead_code))]
pub mod context_aarch64;
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
pub mod context_x86_64;
pub mod domctl;
mod error;
pub mod privcmd;
pub mod foreign;
mod hypercall_buffer;
mod multicall;
pub mod call;
pub mod fetch;
pub mod sysctl;
pub mod trace_buffers;
pub mod cycles;
pub mod event_channel;
pub mod shared_pages;

pub use error::XenError;

use nix::errno::Errno;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;

/// Opens a device for reading and writing.
fn open_device(path: &str, is_nonblocking: bool) -> Result<File, Errno> {
    let flags = if is_nonblocking { libc::O_NONBLOCK } else { 0 };
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(flags);
    let opened = options.open(path);
    opened.map_err(|error| error.raw_os_error().map_or(Errno::EIO, Errno::from_raw))
}
