//! The encoder's thread, which may allocate, wait and fail.
//!
//! What enters: slots and notes from the ring, and what observers of the guest report. What leaves: the bytes of a
//! recording. `encoder` is the thread; `pending` holds records until the next block, `placement` finds the images of a
//! guest in its code. Nothing here reaches the guest itself.

pub mod shared_observer;
mod pending;
mod placement;
pub mod encoder;
pub mod output;
