//! A recording from start to end.
//!
//! Input: an open guest, a plan and an output. Output: the recording, and its summary. Only a session starts and joins
//! the threads of sampling and writing.
//!
//! `lockdown` drops privileges before the first sample, `sample_session` records samples, `monitor_session` those of a
//! guest's monitor beside it, `call_session` records calls, and `bounds` is the start and the end of all. By
//! `save_socket`, another process asks for the window of a flight recorder.

pub mod lockdown;
mod bounds;
mod monitor_session;
pub mod sample_session;
pub mod call_session;
pub mod save_socket;
