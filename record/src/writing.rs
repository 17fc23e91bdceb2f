//! The encoder's thread, which may allocate, wait and fail.
//!
//! Input: slots and notes from the ring, and reports of the guest's observers. Output: the bytes of a recording.
//! `encoder` is the thread, `pending` holds records until the next block, `monitor_part` bytes of the monitor's
//! recording, and `placement` finds the images of a guest in its code. `wall_clock` ties the recording's time to that
//! of the day. `flight_recorder` is an output of which only the last minute is kept. Nothing here reaches the guest
//! itself.

pub mod shared_observer;
mod wall_clock;
mod target_state;
mod pending;
mod placement;
pub mod guest_kernels;
pub mod monitor_part;
pub mod trigger;
mod function_finder;
pub mod window_folder;
pub mod capture;
pub mod save_requests;
pub mod flight_recorder;
pub mod outlet;
pub mod encoder;
pub mod output;
