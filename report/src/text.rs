//! What all outputs have in common: foreign text made printable, names shortened, dates, JSON, and the width and
//! colours of a screen.

mod printable;
mod names;
pub(crate) mod calendar;
pub(crate) mod json_writer;
pub(crate) mod screen;

pub use names::short;
pub(crate) use names::{bare, unparenthesized};
pub use printable::printable;
pub use screen::Screen;
