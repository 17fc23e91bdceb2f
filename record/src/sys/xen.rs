//! Xen as dom0's kernel shows it: `/dev/xen/privcmd`, without any of Xen's libraries.
//!
//! Input: domains and vCPUs by number. Output: answers as safe values, errors with call, errno and subject. All
//! addresses passed to Xen are made here. Layouts are those of Xen's public headers (xen/include/public/), which
//! every file names.

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

pub use error::XenError;
