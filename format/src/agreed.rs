//! Conventions that recorder and report share but that are not part of the format: which of several names wins, how
//! many samples were due, which bytes are a call, which machine a recording was made on, percentiles of durations, the
//! tables of a Linux kernel, characters that are never shown.

pub mod alias;
pub mod calls;
pub mod commands;
pub mod due;
pub(crate) mod durations;
pub mod linux;
pub mod machine;
pub(crate) mod steering;
