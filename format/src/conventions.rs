//! Decisions on which recorder and report must agree, and which the format doesn't state: whether an image is a guest's
//! and where ([`placement`]), which of several names is preferred ([`alias`]), how many samples were due ([`due`]),
//! percentiles ([`durations`]), on which machine a recording was made ([`machine`]), the words of what both say
//! ([`words`]), and which texts could harm their reader ([`control_characters`], [`log_commands`]).

pub mod placement;
pub mod alias;
pub mod due;
pub mod words;
pub(crate) mod durations;
pub mod machine;
pub(crate) mod control_characters;
pub mod log_commands;
