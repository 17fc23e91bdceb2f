//! A recording from start to end.
//!
//! What enters: an open guest, a plan and an output. What leaves: the recording, and its summary. Sampling and writing
//! are threads that only a session starts and joins.
//!
//! `lockdown` drops privileges before the first sample, `sample_session` records samples, `call_session` calls;
//! `bounds` is how both begin and end.

pub mod lockdown;
mod bounds;
pub mod sample_session;
pub mod call_session;
