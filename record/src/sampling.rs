//! The sampler's thread.
//!
//! What enters: a source, the plan, and the control that all threads of a recording share. What leaves: filled slots
//! in the ring. Nothing here knows how a guest is frozen, nor what is written of it; nothing allocates, formats or
//! touches a file.
//!
//! `pace` sets the deadlines, `window` copies the stack of a frozen guest, `codes` chooses code that is recorded
//! beside it, and `sampler` is the loop.

mod pace;
mod codes;
mod window;
pub mod sampler;
