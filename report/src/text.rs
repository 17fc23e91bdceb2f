//! Text helpers of all outputs: untrusted text made printable, shortened names, dates, names of Linux errors,
//! JSON, and the width and colours of a terminal.

mod printable;
mod names;
pub(crate) mod calendar;
pub(crate) mod errno;
pub(crate) mod hexadecimal;
pub(crate) mod json_writer;
pub(crate) mod screen;

pub use hexadecimal::hexadecimal;
pub use names::short;
pub(crate) use names::{bare, unparenthesized};
pub use printable::printable;
pub use screen::Screen;

/// Most rows of a table, of which 0 stands for all.
pub(crate) fn rows_max(rows: usize) -> usize {
    match rows {
        0 => usize::MAX,
        rows => rows,
    }
}
