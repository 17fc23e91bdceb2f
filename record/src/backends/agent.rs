//! Guests that carry the agent of package `uniprof-agent`, which samples them from inside.
//!
//! Bytes come in through a [connection](crate::guest::endpoint) or `vchan`, both of them a `line`, become frames in
//! [`frame`] and what they say in [`message`], the guest's times our own by [`clock`], samples in [`intake`], and a
//! recording's source in `source`.
//! The protocol is docs/agent-protocol.md, whose sections are cited here; no code is shared with the agent.

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
