//! Which functions are asked about, and which of them first. The fewer questions, and the more of the error rate
//! the likely ones have, the smaller is the change that is certain.
//!
//! Unasked, a function's own time in an image of the user has four times the part of the error rate that its time
//! with callees has, or any function of the system's libraries and kernel: who compares two builds mostly
//! asks which of their functions changed. Nothing is left out. The weights are chosen before the samples are
//! seen, so the error rate holds (Genovese, Roeder and Wasserman, Biometrika 93, 2006).

use super::series::{Item, Quantity, Series};
use std::collections::BTreeSet;

/// The functions to ask about; by default all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inquiry {
    /// Their names, as in the table; empty for any.
    pub functions: Vec<String>,
    /// Whether only functions of the user's own images are asked about.
    pub own: bool,
}

/// The weight of a question that is less likely to be meant.
pub(crate) const ASIDE: f64 = 0.25;

impl Inquiry {
    /// The weight of the question about an item: 0 if it isn't asked.
    pub(super) fn weight(&self, series: &Series, item: &Item) -> f64 {
        let function = &series.functions[item.function as usize];
        let is_named = self.functions.contains(&function.name);
        match (self.functions.is_empty(), is_named, self.own, function.own) {
            (false, false, ..) | (_, _, true, false) => 0.0,
            (false, true, ..) => 1.0,
            (true, _, _, true) if item.counted == Quantity::Own => 1.0,
            _ => ASIDE,
        }
    }

    /// The names to ask about that neither side has.
    pub fn missing<'a>(&'a self, series: &Series) -> Vec<&'a str> {
        let found: BTreeSet<&str> = series.functions.iter().map(|it| it.name.as_str()).collect();
        let names = self.functions.iter().map(String::as_str);
        names.filter(|name| !found.contains(name)).collect()
    }

    /// What is asked about, in words. Functions have at least `least_share` of the samples.
    pub(super) fn words(&self, series: &Series, least_share: f64) -> String {
        let asked = series.items.iter().filter(|item| {
            let is_asked = item.counted != Quantity::Path && series.is_matched(item);
            is_asked && self.weight(series, item) > 0.0
        });
        let functions: BTreeSet<u32> = asked.map(|item| item.function).collect();
        let count = functions.len();
        let functions = if count == 1 { "function" } else { "functions" };
        let of = match (&self.functions[..], self.own) {
            ([], false) => "",
            ([], true) => " of your own images",
            (_, false) => " that you named",
            (_, true) => " of your own images that you named",
        };
        let (unit, least) = (series.unit.what(), least_share * 100.0);
        format!("Asked about {count} {functions}{of} with at least {least}% of the {unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diff::matching::{Kind, Match};
    use crate::profile::tree::ROOT;

    #[test]
    fn who_names_functions_asks_about_nothing_else() {
        let function = |name: &str, own: bool| Match {
            name: name.to_owned(),
            module: String::new(),
            kind: Kind::Same,
            made: false,
            own,
        };
        let item = |function: u32, counted: Quantity| Item {
            counted,
            function,
            node: ROOT,
        };
        let series = Series {
            functions: vec![function("parse", true), function("memcpy", false)],
            items: vec![
                item(0, Quantity::Own),
                item(0, Quantity::Total),
                item(1, Quantity::Own),
            ],
            ..Series::default()
        };
        let weights = |functions: &[&str], own: bool| {
            let functions = functions.iter().map(|name| (*name).to_owned()).collect();
            let asked = Inquiry { functions, own };
            let weights = series.items.iter().map(|item| asked.weight(&series, item));
            (weights.collect::<Vec<f64>>(), asked.words(&series, 0.001))
        };
        let (all, words) = weights(&[], false);
        assert_eq!(all, [1.0, ASIDE, ASIDE]);
        assert_eq!(
            words,
            "Asked about 2 functions with at least 0.1% of the samples"
        );
        assert_eq!(weights(&[], true).0, [1.0, ASIDE, 0.0]);
        assert_eq!(weights(&["memcpy"], true).0, [0.0; 3]);
        let (named, words) = weights(&["memcpy"], false);
        assert_eq!(named, [0.0, 0.0, 1.0]);
        assert!(
            words.starts_with("Asked about 1 function that you named"),
            "{words}"
        );
        let asked = Inquiry {
            functions: vec!["parse".to_owned(), "pares".to_owned()],
            own: false,
        };
        assert_eq!(asked.missing(&series), ["pares"]);
    }
}
