//! The rows and words that all forms of a trend share, and how rules see it.

use super::{Change, FunctionTrend, Order, Point, Trend};
use crate::diff::{Figure, Rule, RuleError, RuleSubject, sentence};
use crate::text::calendar::calendar;
use crate::text::{in_percent, percent, printable, short};
use std::collections::BTreeSet;

/// Most changes that the verdict names.
const NAMED_MAX: usize = 2;
/// Columns of a small picture of a function's shares.
const PICTURE_COLUMNS: usize = 20;
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// The smallest range that a picture has, relative to the mean share: noise alone shall look small.
const RANGE_MIN: f64 = 0.2;

/// A change of a function, or a function that didn't change.
pub(crate) struct Row<'t> {
    pub function: &'t FunctionTrend,
    pub change: Option<&'t Change>,
}

impl Trend {
    /// A row for each change, then one for each other function.
    pub(crate) fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        self.functions.iter().flat_map(|function| {
            let changes = function.changes.iter().map(Some);
            let none = function.changes.is_empty().then_some(None);
            changes
                .chain(none)
                .map(move |change| Row { function, change })
        })
    }

    /// Number of certain changes.
    pub fn changes(&self) -> usize {
        self.functions
            .iter()
            .map(|function| function.changes.len())
            .sum()
    }

    /// What is in the series: the number of recordings, and the first and the last of them as `placed` shows them.
    pub(crate) fn about(&self, placed: &dyn Fn(&str) -> String) -> String {
        let samples: f64 = self.points.iter().map(|point| point.samples).sum();
        let ends = [self.points.first(), self.points.last()];
        let ends = ends.map(|point| point.map(|it| placed(&self.place(it))));
        let [first, last] = ends.map(Option::unwrap_or_default);
        format!(
            "{} recordings with {samples:.0} samples, from {first} to {last}",
            self.points.len()
        )
    }

    /// The verdict as one sentence: the first line of every form, with functions as `quoted` shows them, and
    /// recordings as `placed` does.
    pub(crate) fn verdict(
        &self,
        quoted: &dyn Fn(&str) -> String,
        placed: &dyn Fn(&str) -> String,
    ) -> String {
        let mut named = Vec::new();
        for Row { function, change } in self.rows() {
            if let Some(change) = change.filter(|_| named.len() < NAMED_MAX) {
                let name = quoted(&short(&function.name));
                named.push(format!("{name} {}", self.verb(change, placed)));
            }
        }
        match self.changes() - named.len() {
            _ if named.is_empty() => "No change is certain.".to_owned(),
            0 => format!("{}: certain. No other change is.", named.join(", and ")),
            more => format!("{}: certain. So are {more} more.", named.join(", and ")),
        }
    }

    /// What a function does since a change: `takes 5.1 % more (± 0.9) since 2026-11-22 10:00`.
    pub(crate) fn verb(&self, change: &Change, placed: &dyn Fn(&str) -> String) -> String {
        let since = placed(&self.place(&self.points[change.at]));
        let what = self.unit.what();
        match change.ratio() {
            None => format!(
                "is new, with {:.1} % of the {what}, since {since}",
                change.after * 100.0
            ),
            Some(_) if change.after <= 0.0 => {
                format!(
                    "is gone since {since}; it had {:.1} % of the {what}",
                    change.before * 100.0
                )
            }
            Some(ratio) => {
                let more = if ratio > 0.0 { "more" } else { "less" };
                let size = percent(ratio);
                let interval = interval(change);
                format!("takes {size} % {more} of the {what}{interval} since {since}")
            }
        }
    }

    /// A recording by what the series is in order of.
    pub(crate) fn place(&self, point: &Point) -> String {
        let time = point.start_realtime_ns.map(calendar);
        let name = printable(&point.name).into_owned();
        let label = point
            .label
            .as_deref()
            .map(|label| printable(label).into_owned());
        match (&self.options.order, label, time) {
            (Order::Label(_), Some(label), _) => label,
            (Order::Given, ..) | (_, _, None) => name,
            (_, Some(label), Some(time)) => format!("{time} ({label})"),
            (_, None, Some(time)) => time,
        }
    }

    /// What was asked, and the meaning of the numbers.
    pub(crate) fn legend(&self) -> Vec<String> {
        let options = &self.options;
        let mut lines = vec![format!(
            "Asked about {} functions with at least {}% of the {} in some recordings. Own {2}, in percent of all. \
             A change is certain if it is larger than {} points, lasts for 3 recordings or more, and is not only \
             because others changed; of functions that certainly changed, at most {}% did not.",
            self.functions.len(),
            in_percent(options.least_share),
            self.unit.what(),
            in_percent(options.least_change),
            in_percent(options.false_discoveries),
        )];
        if self.inflation > 1.0 {
            lines.push(format!(
                "Recordings that are near each other are alike, so changes have to be {:.1} times as large.",
                self.inflation.sqrt()
            ));
        }
        lines
    }
}

/// The interval of a relative change, to follow it: ` (± 0.9)`, ` (at least 21 %)`.
fn interval(change: &Change) -> String {
    let known = change.ratio().zip(change.relative);
    let interval = known.map(|(ratio, ends)| sentence::interval(ratio, ends));
    interval.map_or(String::new(), |it| format!(" ({it})"))
}

/// A relative change in words: `+5.1% (± 0.9)`, `new`, `gone`.
pub(crate) fn relative(change: &Change) -> String {
    match change.ratio() {
        None => "new".to_owned(),
        Some(_) if change.after <= 0.0 => "gone".to_owned(),
        Some(ratio) => {
            let sign = if ratio < 0.0 { "-" } else { "+" };
            format!("{sign}{}%{}", percent(ratio), interval(change))
        }
    }
}

/// The image of a function in brackets, and whether it made room for others.
pub(crate) fn notes(function: &FunctionTrend) -> String {
    let module = match function.module.trim_matches(['[', ']']) {
        "" => String::new(),
        module => format!("[{module}]"),
    };
    let pushed = if function.pushed {
        "(pushed: others changed)"
    } else {
        ""
    };
    [module.as_str(), pushed].join(" ").trim().to_owned()
}

/// A small picture of shares: means of successive recordings, from the smallest to the largest.
pub(crate) fn picture(shares: &[f64]) -> String {
    let columns = shares.len().min(PICTURE_COLUMNS);
    let means = (0..columns).map(|column| {
        let [first, end] = [column, column + 1].map(|at| at * shares.len() / columns);
        shares[first..end].iter().sum::<f64>() / (end - first) as f64
    });
    let means: Vec<f64> = means.collect();
    let low = means.iter().copied().fold(f64::INFINITY, f64::min);
    let high = means.iter().copied().fold(0.0, f64::max);
    let middle = (low + high) / 2.0;
    let range = (high - low).max(middle * RANGE_MIN).max(f64::MIN_POSITIVE);
    let bar = |mean: &f64| {
        let part = (mean - middle) / range + 0.5;
        BARS[((part * BARS.len() as f64) as usize).min(BARS.len() - 1)]
    };
    means.iter().map(bar).collect()
}

/// A rule applies to the last certain change of a function.
impl RuleSubject for Trend {
    fn missing(&self, name: &str) -> Option<String> {
        let names: BTreeSet<&str> = self.functions.iter().map(|it| it.name.as_str()).collect();
        let least = in_percent(self.options.least_share);
        (!names.contains(name))
            .then(|| format!("no function with at least {least}% of the samples is called {name}"))
    }

    fn figures(&self, rule: &Rule) -> Result<Vec<Figure>, RuleError> {
        let named =
            |function: &&FunctionTrend| rule.function().is_none_or(|name| name == function.name);
        let figures = self.functions.iter().filter(named).filter_map(|function| {
            let change = function.changes.last()?;
            let interval = match change.relative {
                _ if !rule.is_relative() => change.interval,
                Some(relative) => relative,
                None => (f64::INFINITY, f64::INFINITY),
            };
            Some(Figure {
                interval,
                is_sound: true,
                words: format!(
                    "{}: {:.2}% → {:.2}% of the {}, {} since {}",
                    function.name,
                    change.before * 100.0,
                    change.after * 100.0,
                    self.unit.what(),
                    relative(change),
                    self.place(&self.points[change.at]),
                ),
            })
        });
        Ok(figures.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_shows_a_step_and_little_noise() {
        let step: Vec<f64> = (0..40).map(|at| if at < 20 { 0.1 } else { 0.2 }).collect();
        assert_eq!(picture(&step), "▁".repeat(10) + &"█".repeat(10));
        assert_eq!(picture(&[0.0; 5]), "▅".repeat(5));
        let noise = picture(&[0.100, 0.101, 0.099]);
        assert!(!noise.contains('▁') && !noise.contains('█'), "{noise}");
    }
}
