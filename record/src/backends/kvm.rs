//! Guests under KVM, sampled through their monitor's process. Any monitor will do: it needs no stub, no socket and no
//! option.
//!
//! KVM answers only the monitor. But it also provides registers without a request: if a word in the page that it shares
//! with the monitor says so (`kvm_valid_regs`), it writes them there whenever a vCPU leaves the guest. So the recorder
//! stops the vCPUs' threads by ptrace, which makes them leave the guest, and reads that page. No register of the
//! monitor is changed, no code is put into it, and it makes no call for us. The kernel detaches its threads as soon as
//! the recorder is gone, at whatever point that happens.

mod run_page;
mod monitor;
mod thread;
mod search;
mod ram;
mod rescue;
mod host;
mod source;
mod machine;
mod boot;
pub mod doctor;

pub use boot::open as open_boot;
pub use machine::MachineGuests;
pub use source::open;
