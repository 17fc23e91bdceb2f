//! A comparison in the rows and words that its table, its Markdown and its annotations share, whether samples or calls
//! were compared.

use crate::recording::account::Account;
use crate::text::screen::{Notes, Screen};

/// A comparison that can be written in all forms.
pub trait Listed {
    /// Its rows, certain ones first; call paths only with `paths`.
    fn listing(&self, paths: bool) -> Listing<'_>;
}

/// The rows of a comparison, and what they rest on.
#[derive(Debug)]
pub struct Listing<'d> {
    /// Descriptions of A's recordings and of B's.
    pub(super) names: &'d [Vec<String>; 2],
    pub(super) accounts: &'d [Account; 2],
    pub(super) warnings: &'d [String],
    /// What the comparison could have shown, and what would show more.
    pub(super) advice: Vec<String>,
    /// What the numbers mean.
    pub(super) legend: String,
    pub(super) columns: &'static [Column],
    pub(super) rows: Vec<Row>,
}

/// A column in front of functions.
#[derive(Debug, Clone, Copy)]
pub(super) struct Column {
    pub heading: &'static str,
    /// Its width where there is room for everything.
    pub width: usize,
    /// A narrow screen omits these, the lowest first: others imply them.
    pub dispensable: Option<u8>,
}

impl Column {
    pub(super) const fn new(heading: &'static str, width: usize) -> Column {
        Column {
            heading,
            width,
            dispensable: None,
        }
    }

    pub(super) const fn dispensable(mut self, order: u8) -> Column {
        self.dispensable = Some(order);
        self
    }

    /// The column of words.
    pub(super) fn is_text(&self) -> bool {
        self.heading == OF
    }
}

/// The heading of what is compared of a function.
pub(super) const OF: &str = "of";
/// The heading of the change, which is coloured.
pub(super) const CHANGE: &str = "change";

/// A change in words and numbers.
#[derive(Debug, Default)]
pub(super) struct Row {
    pub certain: bool,
    pub grew: bool,
    /// By column.
    pub cells: Vec<String>,
    pub function: String,
    /// What follows the function's name.
    pub notes: String,
    /// The same for a narrow screen.
    pub short_notes: String,
    /// What an annotation says behind the function's name.
    pub sentence: String,
}

impl Row {
    /// The function with its notes, behind `used` columns.
    pub(super) fn named(&self, screen: Screen, used: usize) -> String {
        let notes = match screen.columns {
            Some(_) => &self.short_notes,
            None => &self.notes,
        };
        let apart = if notes.is_empty() { "" } else { "  " };
        let notes = Notes {
            module: format!("{apart}{notes}"),
            ..Notes::default()
        };
        screen.name(&self.function, &notes, used)
    }
}

impl Listing<'_> {
    /// How many changes are certain; they stand first.
    pub(super) fn certain(&self) -> usize {
        self.rows.iter().filter(|row| row.certain).count()
    }

    /// What is compared: a list for each side, by the names of its recordings.
    pub(super) fn compared(&self) -> Vec<Vec<String>> {
        let side = |(letter, names, account): (&str, &[String], &Account)| {
            let lines = account.lines();
            let lines = names.iter().chain(&lines);
            lines.map(|line| format!("{letter}  {line}")).collect()
        };
        sides(self.names, self.accounts).map(side).collect()
    }
}

/// The letters of both sides, with their recordings and samples.
pub(crate) fn sides<'d>(
    names: &'d [Vec<String>; 2],
    accounts: &'d [Account; 2],
) -> impl Iterator<Item = (&'static str, &'d [String], &'d Account)> {
    let sides = ["A", "B"].into_iter().zip(names).zip(accounts);
    sides.map(|((letter, names), account)| (letter, &names[..], account))
}

/// How many changes are certain, in words.
pub(crate) fn verdict(certain: usize) -> String {
    match certain {
        0 => "No change is certain.".to_owned(),
        _ => format!("Certain changes: {certain}"),
    }
}
