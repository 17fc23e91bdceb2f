//! The rows and words that the table, the Markdown and the annotations of a comparison share, whether samples
//! or calls are compared.

use crate::recording::account::Account;
use crate::text::screen::{Notes, Screen};
use crate::views::columns::Column;

/// A comparison that can be written in all forms.
pub trait ListingSource {
    /// Its rows, the certain ones first. Call paths are included only if `paths` is set.
    fn listing(&self, paths: bool) -> Listing<'_>;
}

/// A part of a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fragment {
    /// Words of this program.
    Words(String),
    /// The name of a function, which each form quotes in its way.
    Function(String),
}

/// The rows of a comparison, and their basis.
#[derive(Debug)]
pub struct Listing<'d> {
    /// Sentences that precede the verdict.
    pub(super) lead: Vec<Vec<Fragment>>,
    /// Whether they say that the time of whole runs certainly changed.
    pub(super) has_changed_time: bool,
    /// Descriptions of A's and of B's recordings.
    pub(super) names: &'d [Vec<String>; 2],
    pub(super) accounts: &'d [Account; 2],
    pub(super) warnings: &'d [String],
    /// What the comparison could have shown, and how it could show more.
    pub(super) advice: Vec<String>,
    /// What was asked about.
    pub(super) asked: String,
    /// The meaning of the numbers.
    pub(super) legend: String,
    pub(super) columns: &'static [Column],
    pub(super) rows: Vec<Row>,
}

/// The column that says which samples or measure are compared.
pub(super) const OF: Column = Column::new("of").width(5).text();

/// A change in words and numbers.
#[derive(Debug, Default)]
pub(super) struct Row {
    pub certain: bool,
    pub grew: bool,
    /// Whether the function's own time is counted, without its callees.
    pub is_own_time: bool,
    /// What the function does, to follow its name in the verdict: `takes 58 % more (± 9)`.
    pub verb: String,
    /// Text of each column.
    pub cells: Vec<String>,
    pub function: String,
    /// Remarks after the function's name.
    pub notes: String,
    /// The remarks for a narrow screen.
    pub short_notes: String,
    /// The text of an annotation after the function's name.
    pub sentence: String,
}

impl Row {
    /// The function with its remarks, to follow `used` columns.
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
    /// Number of certain changes, which come first.
    pub(super) fn certain(&self) -> usize {
        self.rows.iter().filter(|row| row.certain).count()
    }

    /// The names of the recordings, as a list for each side.
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
