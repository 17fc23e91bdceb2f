//! The words and numbers of a comparison of samples: shares in percent, changes in points.

use super::Diff;
use super::listing::{Fragment, Listing, ListingSource, OF, Row};
use super::matching::Kind;
use super::plan::RECORDINGS_MAX;
use super::sentence;
use super::series::Quantity;
use super::settled::{Ending, verdict_on_times};
use super::verdict::{Change, DETECTABLE_AT};
use crate::recording::unit::Unit;
use crate::text::{in_percent, percent};
use crate::views::columns::{CHANGE, Column};

/// Change and B imply A and the relative change, so these are omitted first.
const COLUMNS: &[Column] = &[
    Column::new(CHANGE).width(8),
    Column::new("interval").width(17),
    Column::new("A").width(7).dispensable(1),
    Column::new("B").width(7),
    Column::new("relative").width(8).dispensable(0),
    OF,
];

impl ListingSource for Diff {
    fn listing(&self, paths: bool) -> Listing<'_> {
        Listing {
            lead: lead(self),
            has_changed_time: self.times.is_some_and(|times| times.has_changed()),
            names: &self.names,
            accounts: &self.accounts,
            warnings: &self.warnings,
            advice: advice(self),
            asked: self
                .options
                .asked
                .words(&self.series, self.options.least_share),
            legend: legend(self),
            columns: COLUMNS,
            rows: self.listed(paths).map(|it| row(self, it)).collect(),
        }
    }
}

fn row(diff: &Diff, change: &Change) -> Row {
    let cells = Cells::of(diff, change);
    let [a, b] = cells.shares;
    let sentence = format!(
        "({}): {a}% to {b}% of the {}, change {} points ({})",
        cells.of,
        diff.series.unit.what(),
        cells.change,
        cells.interval,
    );
    Row {
        certain: change.certain,
        grew: change.estimate.change() > 0.0,
        is_own_time: diff.series.items[change.item].counted == Quantity::Own,
        verb: verb(diff, change),
        cells: vec![
            cells.change,
            cells.interval,
            a,
            b,
            cells.relative,
            cells.of.to_owned(),
        ],
        function: cells.function,
        // On a narrow screen, only the word is shown.
        short_notes: cells.notes.replace(UNMATCHED, Kind::Unmatched.name()),
        notes: cells.notes,
        sentence,
    }
}

/// The verdict on the time of whole runs, and why there are no more of them.
fn lead(diff: &Diff) -> Vec<Vec<Fragment>> {
    let times = diff.times.as_ref();
    let times = times.and_then(|times| verdict_on_times(diff, times));
    let ending = diff.ending.as_ref().map(Ending::sentence);
    times.into_iter().chain(ending).collect()
}

/// What a function does in B, for the verdict.
fn verb(diff: &Diff, change: &Change) -> String {
    let estimate = &change.estimate;
    let whole = diff.series.unit.what();
    let all = |share: f64| format!("{:.1} % of the {whole}", share * 100.0);
    match (estimate.relative(), change.relative) {
        (None, _) => format!("is new, with {}", all(estimate.b)),
        (Some(_), _) if estimate.b <= 0.0 => format!("is gone; it had {}", all(estimate.a)),
        (Some(relative), interval) => {
            let size = percent(relative);
            let more = if relative > 0.0 { "more" } else { "less" };
            let interval = interval.map(|ends| sentence::interval(relative, ends));
            let interval = interval.map_or(String::new(), |it| format!(" ({it})"));
            format!("takes {size} % {more} of the {whole}{interval}")
        }
    }
}

/// The meaning of the numbers in a table.
pub(crate) fn legend(diff: &Diff) -> String {
    let shares = match diff.series.unit {
        Unit::Samples => "on-CPU samples",
        Unit::Sampled => "on-CPU time of samples",
        Unit::OffCpu => "time off CPU",
        Unit::Calls => "time in calls",
        Unit::VcpuTime => "wall time of vCPUs",
    };
    // In states that were chosen, a vCPU or thread may not run.
    let shares = if diff.options.gather.filter.states.is_empty() {
        shares
    } else {
        shares.trim_start_matches("on-CPU ")
    };
    format!(
        "Shares of {shares} in percent, changes in points. Certain: false discoveries \
         held below {}%, change more than {} points, and not only because others changed.",
        in_percent(diff.options.false_discoveries),
        in_percent(diff.options.least_change)
    )
}

/// The sensitivity of the comparison, and what would increase it.
pub(crate) fn advice(diff: &Diff) -> Vec<String> {
    [Some(could_have_shown(diff)), what_next(diff)]
        .into_iter()
        .flatten()
        .collect()
}

fn could_have_shown(diff: &Diff) -> String {
    let parts = DETECTABLE_AT.iter().zip(diff.verdicts.detectable);
    let parts = parts.map(|(share, change)| {
        let (percent, points) = (share * 100.0, change * 100.0);
        format!(
            "±{points:.2} points ({:.1}%) at a share of {percent}%",
            change / share * 100.0
        )
    });
    let parts: Vec<String> = parts.collect();
    format!(
        "Changes that these recordings would have shown with a probability of 80%: {}.",
        parts.join(", ")
    )
}

/// The number of recordings that would show a slowdown.
fn what_next(diff: &Diff) -> Option<String> {
    let verdicts = &diff.verdicts;
    let plan = verdicts.plans.first()?;
    let slower = plan.slower * 100.0;
    if !verdicts.runs_measured {
        return Some(
            "Next: how much runs of this program differ isn't known from one recording of each side, so \
             only large changes are certain. Record two or more a side, in turns: A B A B."
                .to_owned(),
        );
    }
    let have = diff
        .series
        .sides
        .each_ref()
        .map(|side| side.recordings.len());
    let have = have[0].min(have[1]);
    let parts = verdicts.plans.iter().map(|plan| {
        let share = plan.share * 100.0;
        let of = format!("for a function with {share}% of the samples");
        match plan.recordings {
            Some(enough) if enough <= have => format!("no more {of}"),
            Some(enough) => format!("{} more a side {of}", enough - have),
            None => format!("more than {RECORDINGS_MAX} a side {of}"),
        }
    });
    let parts: Vec<String> = parts.collect();
    Some(format!(
        "Next: to show a slowdown of {slower}% with a probability of 80%, record {}, in turns: A B A B.",
        parts.join("; ")
    ))
}

/// A remark on a function without a counterpart.
const UNMATCHED: &str = "unmatched: it isn't known whether the other side has it";

/// A change in words and numbers: shares in percent, changes in points.
pub(crate) struct Cells {
    pub(crate) change: String,
    pub(crate) interval: String,
    /// Shares of A and B.
    pub(crate) shares: [String; 2],
    pub(crate) relative: String,
    /// Which samples of the function are counted.
    pub(crate) of: &'static str,
    pub(crate) function: String,
    /// The image in brackets, and other remarks; may be empty.
    pub(crate) notes: String,
}

impl Cells {
    pub(crate) fn of(diff: &Diff, change: &Change) -> Cells {
        let series = &diff.series;
        let item = &series.items[change.item];
        let function = &series.functions[item.function as usize];
        let estimate = &change.estimate;
        let (low, high) = change.interval;
        let mut notes = match function.module.as_str() {
            "" => String::new(),
            module => format!("[{}]", module.trim_matches(['[', ']'])),
        };
        let kind = match function.kind {
            Kind::Same => "",
            Kind::Unmatched => UNMATCHED,
            kind => kind.name(),
        };
        let pushed = if change.pushed {
            "pushed: others changed"
        } else {
            ""
        };
        for note in [kind, pushed].iter().filter(|note| !note.is_empty()) {
            let apart = if notes.is_empty() { "" } else { "  " };
            notes += &format!("{apart}({note})");
        }
        Cells {
            change: format!("{:+.2}", estimate.change() * 100.0),
            interval: format!("{:+.2} to {:+.2}", low * 100.0, high * 100.0),
            shares: [estimate.a, estimate.b].map(|share| format!("{:.2}", share * 100.0)),
            relative: match estimate.relative() {
                Some(relative) => format!("{:+.1}%", relative * 100.0),
                None => "new".to_owned(),
            },
            of: item.counted.name(),
            function: series.item_name(item),
            notes,
        }
    }
}
