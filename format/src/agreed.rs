//! What recorder and report agree on beside the file, and what is no part of the format: which name wins, how
//! many samples were due, how long things took, what a Linux kernel tells of itself, which characters are never shown.

pub mod alias;
pub mod due;
pub(crate) mod durations;
pub mod linux;
pub(crate) mod steering;
