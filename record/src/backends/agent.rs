//! Guests that carry the agent of package `uniprof-agent`, which samples them from inside.
//!
//! Bytes come in through a [connection](crate::guest::endpoint) or `vchan`; both are a `line`. The bytes become frames
//! in [`frame`] and messages in [`message`]. [`clock`] converts the guest's times to our own, [`intake`] makes samples,
//! and `source` is the source of a recording.
//! docs/agent-protocol.md describes the protocol, and its sections are cited here. No code is shared with the agent.

pub mod error;
pub mod frame;
pub mod message;
pub mod clock;
pub mod intake;
mod line;
mod vchan;
mod client;
mod source;
pub mod open;
pub mod doctor;
