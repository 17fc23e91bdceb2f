//! What recorder and report must decide alike, and the format does not say: whether an image is a guest's and where
//! ([`placement`]), which of several names wins ([`alias`]), how many samples were due ([`due`]), percentiles
//! ([`durations`]), on which machine a recording was made ([`machine`]), and what no text may do to its reader
//! ([`control_characters`], [`log_commands`]).

pub mod placement;
pub mod alias;
pub mod due;
pub(crate) mod durations;
pub mod machine;
pub(crate) mod control_characters;
pub mod log_commands;
