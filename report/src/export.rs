//! Exports: a profile in the formats of other programs.

pub mod folded;
