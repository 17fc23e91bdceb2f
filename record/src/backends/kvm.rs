//! Guests under KVM, by their monitor's process, whatever monitor it is: it needs no stub, no socket and no option.
//!
//! KVM answers the monitor alone. But it hands out registers without being asked, too: while a word in the page that
//! it shares with the monitor says so (`kvm_valid_regs`), it writes them there whenever a vCPU leaves the guest. So the
//! recorder stops the vCPUs' threads by ptrace, upon which they leave the guest, and reads that page. No register of
//! the monitor is changed, no code is put into it, and it makes no call for us: the kernel detaches its threads as soon
//! as the recorder is gone, whatever it was about to do.

mod run_page;
mod monitor;
mod thread;
mod search;
mod ram;
mod rescue;
mod source;
pub mod doctor;

pub use source::open;
