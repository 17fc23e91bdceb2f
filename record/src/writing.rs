//! The encoder's thread, which may allocate, wait and fail.
//!
//! Input: slots and notes from the ring, and reports of the guest's observers. Output: the bytes of a recording.
//! `encoder` is the thread, `pending` holds records until the next block, `monitor_part` bytes of the monitor's
//! recording, and `placement` finds the images of a guest
//! in its code. Nothing here reaches the guest itself.

pub mod shared_observer;
mod pending;
mod placement;
pub mod monitor_part;
pub mod encoder;
pub mod output;
