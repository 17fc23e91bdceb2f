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

/// A share that a user gave, in percent: rounded, since 7 % is no binary fraction.
pub fn in_percent(share: f64) -> f64 {
    (share * 1e8).round() / 1e6
}

/// The size of a part of 1 in percent, without its sign.
pub(crate) fn percent(part: f64) -> String {
    match part.abs() * 100.0 {
        large @ 10.0.. => format!("{large:.0}"),
        small => format!("{small:.1}"),
    }
}

/// Most rows of a table, of which 0 stands for all.
pub(crate) fn rows_max(rows: usize) -> usize {
    match rows {
        0 => usize::MAX,
        rows => rows,
    }
}
