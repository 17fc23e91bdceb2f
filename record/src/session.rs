//! A recording from start to end.
//!
//! Input: an open guest, a plan and an output. Output: the recording, and its summary. Only a session starts and joins
//! the threads of sampling and writing.
//!
//! `lockdown` drops privileges before the first sample, `sample_session` records samples (of a guest's
//! monitor beside it by `monitor_session`), `call_session` records calls,
//! and `bounds` is the start and the end of both.

pub mod lockdown;
mod bounds;
mod monitor_session;
pub mod sample_session;
pub mod call_session;
