//! The sampler's thread.
//!
//! Input: a source, the plan, and the control that all threads of a recording share. Output: filled slots in the ring.
//! Nothing here knows how a guest is frozen, nor how its samples are encoded; nothing allocates, formats or touches a
//! file.
//!
//! `pace` sets the deadlines, `window` copies the stack of a frozen guest, `codes` chooses code that is recorded
//! beside the samples, and `sampler` is the loop.

mod pace;
mod codes;
mod window;
pub mod sampler;
