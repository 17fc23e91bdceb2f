//! The words and numbers of a comparison of calls. Changes are relative to A's value: 0.5 is half as much
//! more. `change` is the whole change; `apart`, which has an interval, excludes the change that most
//! functions have in common.

use super::{Blocks, CallChange, CallDiff, Measure};
use crate::diff::json::JsonSource;
use crate::diff::listing::{Listing, ListingSource, OF, Row};
use crate::diff::matching::Kind;
use crate::diff::sentence;
use crate::recording::account::Account;
use crate::text::in_percent;
use crate::views::columns::{CHANGE, Column};
use serde_json::{Value, json};
use uprof::words::duration;

/// The version of the JSON; incremented when the meaning of a field changes.
const VERSION: u32 = 2;

const COLUMNS: &[Column] = &[
    Column::new("A").width(9).dispensable(2),
    Column::new("B").width(9),
    Column::new(CHANGE).width(7).dispensable(1),
    Column::new("apart").width(7).dispensable(0),
    Column::new("interval").width(18),
    OF,
];

impl ListingSource for CallDiff {
    fn listing(&self, _: bool) -> Listing<'_> {
        Listing {
            lead: Vec::new(),
            has_changed_time: false,
            names: &self.names,
            accounts: &self.accounts,
            warnings: &self.warnings,
            advice: self.advice(),
            asked: format!(
                "Asked about {} changes of calls",
                self.verdicts.changes.len()
            ),
            legend: legend(self),
            columns: COLUMNS,
            rows: self
                .verdicts
                .changes
                .iter()
                .map(|it| row(self, it))
                .collect(),
        }
    }
}

fn row(diff: &CallDiff, change: &CallChange) -> Row {
    let function = &diff.series.functions[change.function as usize];
    let (low, high) = change.interval();
    let [calls_a, calls_b] = change.calls;
    let mut notes = match change.of {
        Measure::Rate => format!("({calls_a:.0} / {calls_b:.0} calls"),
        _ => format!("({calls_a:.0} / {calls_b:.0} calls with a length"),
    };
    if function.kind != Kind::Same {
        notes += &format!("; {}", function.kind.name());
    }
    notes += ")";
    let is_rate = change.of == Measure::Rate;
    let (whole, apart) = match change.calls {
        [0.0, _] if is_rate => ("new".to_owned(), "-".to_owned()),
        [_, 0.0] if is_rate => ("gone".to_owned(), "-".to_owned()),
        _ => (percent(change.relative()), percent(change.apart())),
    };
    let interval = format!("{} to {}", percent(low), percent(high));
    let [a, b] = change
        .values
        .map(|value| quantity(value, change.of, diff.series.by));
    let of = change.of.name();
    let sentence = format!(
        "({of}): {a} to {b}, change {whole}, apart from what most functions changed by {apart} ({interval})"
    );
    let more = if change.apart() > 0.0 { "more" } else { "less" };
    let size = crate::text::percent(change.apart());
    let within = sentence::interval(change.apart(), (low, high));
    let verb = match (change.of, change.calls) {
        (Measure::Rate, [0.0, _]) => "is called now".to_owned(),
        (Measure::Rate, [_, 0.0]) => "is no more called".to_owned(),
        (Measure::Rate, _) => format!("has {size} % {more} calls ({within})"),
        (Measure::Own | Measure::Total, _) => format!("takes {size} % {more} per call ({within})"),
    };
    Row {
        verb,
        is_own_time: change.of == Measure::Own,
        certain: change.certain,
        grew: change.estimate.change() > 0.0,
        cells: vec![a, b, whole, apart, interval, of.to_owned()],
        function: function.name.clone(),
        short_notes: notes.clone(),
        notes,
        sentence,
    }
}

/// A value with its unit: a time per call, calls a second, or calls of a thousand.
fn quantity(value: f64, of: Measure, by: Blocks) -> String {
    let per = match (of, by) {
        (Measure::Own | Measure::Total, _) => return time(value),
        (Measure::Rate, Blocks::Time) => "/s",
        (Measure::Rate, Blocks::Order) => "/1000",
    };
    match value {
        0.0 => "-".to_owned(),
        100.0.. => format!("{value:.0}{per}"),
        _ => format!("{value:.2}{per}"),
    }
}

/// A mean time. A short one needs a decimal, because a difference may be less than a nanosecond.
fn time(mean_ns: f64) -> String {
    match mean_ns {
        ..100.0 => format!("{mean_ns:.1} ns"),
        _ => duration(mean_ns.round() as u64),
    }
}

/// The meaning of the numbers.
fn legend(diff: &CallDiff) -> String {
    let rate = match diff.series.by {
        Blocks::Time => "calls a second",
        Blocks::Order => "calls of a thousand",
    };
    format!(
        "self: time of a call itself; total: with all that it called; calls: {rate}. Changes are parts of A; apart: \
         from what most functions changed by together, with the interval. Certain: false discoveries held below {}%, \
         apart more than {}%, and the whole change as well.",
        in_percent(diff.options.false_discoveries),
        in_percent(diff.options.least_change)
    )
}

impl JsonSource for CallDiff {
    fn fields(&self, _: bool) -> Value {
        let verdicts = &self.verdicts;
        let is_timed = self.series.by == Blocks::Time;
        let [time, rate] = verdicts.common;
        let changes = verdicts.changes.iter();
        json!({
            "format": "uniprof-diff-calls",
            "version": VERSION,
            "blocks": if is_timed { "time" } else { "order" },
            "calls": self.accounts.each_ref().map(Account::counted_samples),
            "nanoseconds": self.accounts.each_ref().map(|account| account.counted),
            "seconds": is_timed.then(|| self.accounts.each_ref().map(|account| account.seconds)),
            "runs_measured": verdicts.runs_measured,
            "functions_with_too_few_calls": {"time_per_call": verdicts.too_few[0], "calls": verdicts.too_few[1]},
            "common": {"time_per_call": time, "calls": rate},
            "changes": changes.map(|change| value(self, change)).collect::<Vec<Value>>(),
        })
    }
}

fn value(diff: &CallDiff, change: &CallChange) -> Value {
    let function = &diff.series.functions[change.function as usize];
    let (low, high) = change.interval();
    let unit = match (change.of, diff.series.by) {
        (Measure::Own | Measure::Total, _) => "nanoseconds a call",
        (Measure::Rate, Blocks::Time) => "calls a second",
        (Measure::Rate, Blocks::Order) => "calls of a thousand",
    };
    json!({
        "name": function.name,
        "match": function.kind.name(),
        "of": change.of.name(),
        "unit": unit,
        "a": change.values[0],
        "b": change.values[1],
        "calls_a": change.calls[0],
        "calls_b": change.calls[1],
        "share": change.share,
        "change": change.relative().is_finite().then(|| change.relative()),
        "apart": change.apart(),
        "interval": [low, high],
        "interval_confidence": change.confidence,
        "p": change.p,
        "certain": change.certain,
        "detectable": change.detectable,
    })
}

impl CallDiff {
    /// The name of a change's function.
    pub fn name(&self, change: &CallChange) -> &str {
        &self.series.functions[change.function as usize].name
    }

    /// What makes the sides hard to compare, with the remedy.
    fn advice(&self) -> Vec<String> {
        let mut lines = vec![self.basis().to_owned()];
        lines.extend(self.common_lines());
        let verdicts = &self.verdicts;
        if verdicts.changes.is_empty() {
            lines.push(
                "Too few calls to tell: no function has 16 on each side, in several blocks. Trace for longer."
                    .to_owned(),
            );
            return lines;
        }
        lines.extend(self.could_have_shown());
        if verdicts.too_few != [0, 0] {
            let [time, rate] = verdicts.too_few;
            let all = self.series.functions.len();
            lines.push(format!(
                "Too few calls to tell: the time per call of {time} of {all} functions, and of {rate} how often."
            ));
        }
        if !verdicts.runs_measured {
            lines.push(
                "Next: how much runs of this program differ isn't known from one recording of each side, so only \
                 large changes are certain. Trace two or more a side, in turns: A B A B."
                    .to_owned(),
            );
        }
        lines
    }

    /// The definition of blocks and rates.
    fn basis(&self) -> &'static str {
        match self.series.by {
            Blocks::Time => "Compared: time per call, and calls a second.",
            Blocks::Order => {
                "Compared: time per call, and how many of a thousand calls are of which function: not all of these \
                 traces say when calls began, so there are no calls a second, and blocks are of calls in their order."
            }
        }
    }

    /// Lines on the changes that all functions have in common.
    fn common_lines(&self) -> Vec<String> {
        let (rate, why) = match self.series.by {
            Blocks::Time => (
                "Calls a second",
                "where one function takes longer, or on a busier machine, all are called less often",
            ),
            Blocks::Order => (
                "Parts of all calls",
                "where some functions are called more often, all others are a smaller part",
            ),
        };
        let time = ("Time per call", "a busier or slower machine does that");
        let all = [time, (rate, why)].into_iter().zip(self.verdicts.common);
        let all = all.filter(|(_, common)| common.abs() >= LEAST_COMMON);
        all.map(|((what, why), common)| {
            let by = percent(common);
            format!("{what} of most functions changed together, by {by} ({why}); 'apart' leaves that out.")
        })
        .collect()
    }

    fn could_have_shown(&self) -> Option<String> {
        let parts: Vec<String> = [Measure::Own, Measure::Rate]
            .into_iter()
            .filter_map(|of| {
                let changes = self.verdicts.changes.iter();
                let mine = changes.filter(|change| change.of == of);
                let busiest = mine.max_by(|x, y| x.share.total_cmp(&y.share))?;
                let what = match (of, self.series.by) {
                    (Measure::Rate, Blocks::Time) => "calls a second",
                    (Measure::Rate, Blocks::Order) => "part of all calls",
                    _ => "time per call",
                };
                Some(format!("{} of its {what}", percent(busiest.detectable)))
            })
            .collect();
        (!parts.is_empty()).then(|| {
            format!(
                "Changes that these recordings would have shown with a probability of 80%, of the function with the \
                 most time: {}.",
                parts.join(", ")
            )
        })
    }
}

/// A smaller common change is not mentioned.
const LEAST_COMMON: f64 = 0.01;

/// A relative change for people.
pub(crate) fn percent(change: f64) -> String {
    // A factor of eleven is easier to read than a thousand percent more.
    match change {
        99.0.. => format!("×{:.0}", change + 1.0),
        9.0.. => format!("×{:.1}", change + 1.0),
        _ => format!("{:+.1}%", change * 100.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_changes_are_factors() {
        let told = [-0.998, 0.0, 8.99, 10.04, 233.9].map(percent);
        assert_eq!(told, ["-99.8%", "+0.0%", "+899.0%", "×11.0", "×235"]);
    }
}
