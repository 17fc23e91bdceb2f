//! The encoder's thread, which may allocate, wait and fail.
//!
//! What enters: slots and notes from the ring, and what observers of the guest report. What leaves: the bytes of a
//! recording. Nothing here reaches the guest itself.

pub mod shared_observer;
pub mod encoder;
pub mod output;
