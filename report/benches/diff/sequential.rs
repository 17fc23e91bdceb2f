//! Looks at runs that are still being made: how often any look of a comparison of equal sides calls something
//! certain, how often a slower function is found, and after how many runs, beside one look at the end.
//!
//! Runs are drawn directly, block by block, so that thousands of comparisons can be made: each of twelve functions
//! takes a factor of its own in each run, and the counts of a block spread as those of independent samples do. The
//! same comparisons are judged at every look that `Sequence` plans, and again as if each run were followed by a look
//! with an equal part of the error rate, and without any spending, which shows what it is for.

use crate::drawn_runs;
use crate::share;
use fastrand::Rng;
use rayon::prelude::*;
use uniprof_report::diff::{Counts, DiffOptions, LookRates, Sequence, Side, judge};

/// Shares of the functions.
const SHARES: [f64; 12] = [
    0.25, 0.2, 0.15, 0.1, 0.08, 0.06, 0.05, 0.04, 0.03, 0.02, 0.01, 0.01,
];
/// Most runs of each side.
const MOST: usize = 50;
const RATE: f64 = 0.05;

/// Whether the first function is certainly slower, and whether anything is certain, with this error rate.
fn look(sides: &[Vec<Counts>; 2], runs: usize, rate: f64) -> (bool, bool) {
    let sides = sides.each_ref().map(|side| Side {
        recordings: side[..runs].to_vec(),
    });
    let series = drawn_runs::series(SHARES.len(), sides);
    let options = DiffOptions {
        false_discoveries: rate,
        ..DiffOptions::default()
    };
    let verdicts = judge(&series, &options);
    let certain = || verdicts.changes.iter().filter(|change| change.certain);
    let is_found = certain().any(|change| change.item == 0 && change.estimate.change() > 0.0);
    (is_found, certain().count() > 0)
}

/// A rule of when to look, and at what error rate.
struct Rule {
    name: &'static str,
    rate_at: fn(usize) -> Option<f64>,
}

const RULES: [Rule; 4] = [
    Rule {
        name: "planned looks, the rate spent",
        rate_at: |runs| {
            let sequence = Sequence::new(MOST);
            let rate = LookRates::new(&sequence, RATE).functions;
            sequence.is_look(runs).then_some(rate)
        },
    },
    Rule {
        name: "a look after every run, the rate spent",
        rate_at: |runs| (runs > 1).then_some(RATE * 0.8 / (MOST - 1) as f64),
    },
    Rule {
        name: "a look after every run, the rate not spent",
        rate_at: |runs| (runs > 1).then_some(RATE),
    },
    Rule {
        name: "one look at the end",
        rate_at: |runs| (runs == MOST).then_some(RATE),
    },
];

/// Numbers of runs that a fixed plan might have.
const FIXED: [usize; 8] = [4, 8, 12, 16, 20, 25, 30, 40];

/// What a rule, or a fixed plan, makes of comparisons.
#[derive(Clone, Copy, Default)]
struct Tally {
    found: u64,
    alarms: u64,
    runs: u64,
}

impl Tally {
    /// Looks at one comparison until anything is certain.
    fn look(sides: &[Vec<Counts>; 2], rate_at: impl Fn(usize) -> Option<f64>) -> Tally {
        let looks = (1..=MOST).filter_map(|runs| Some((runs, rate_at(runs)?)));
        for (runs, rate) in looks {
            let (is_found, has_alarm) = look(sides, runs, rate);
            if is_found || has_alarm {
                return Tally {
                    found: u64::from(is_found),
                    alarms: 1,
                    runs: runs as u64,
                };
            }
        }
        Tally {
            runs: MOST as u64,
            ..Tally::default()
        }
    }

    fn and(self, other: Tally) -> Tally {
        Tally {
            found: self.found + other.found,
            alarms: self.alarms + other.alarms,
            runs: self.runs + other.runs,
        }
    }
}

/// The runs of both sides of a comparison.
fn drawn(comparison: u64, slower: f64) -> [Vec<Counts>; 2] {
    let mut random = Rng::with_seed(comparison * 2 + u64::from(slower > 0.0));
    [0.0, slower].map(|slower| {
        let runs = (0..MOST).map(|_| drawn_runs::run(&mut random, SHARES, slower));
        runs.collect()
    })
}

/// Judges comparisons by each of `ways`.
fn tallies<const N: usize>(
    comparisons: u64,
    slower: f64,
    ways: [&(dyn Fn(usize) -> Option<f64> + Sync); N],
) -> [Tally; N] {
    let none = || [Tally::default(); N];
    let sum = |a: [Tally; N], b: [Tally; N]| std::array::from_fn(|way| a[way].and(b[way]));
    let all = (0..comparisons).into_par_iter();
    let judged = all.map(|comparison| {
        let sides = drawn(comparison, slower);
        ways.map(|rate_at| Tally::look(&sides, rate_at))
    });
    judged.reduce(none, sum)
}

/// Prints the figures of so many comparisons of equal sides, and so many with a planted change.
pub fn judge_all(equal: u64, planted: u64) {
    let rules = RULES.each_ref().map(|rule| &rule.rate_at as _);
    for (rule, tally) in RULES.iter().zip(tallies(equal, 0.0, rules)) {
        let percent = share(tally.alarms, equal);
        let name = rule.name;
        println!("{name}: {equal} comparisons of equal sides, {percent:.2} % ever alarm");
        if name == RULES[0].name {
            println!(
                "figure\tcompare: A/A that ever alarm, 50 runs\t{percent:.2}\t%\t\t\tours <= 5"
            );
        }
    }
    for (rule, tally) in RULES.iter().zip(tallies(planted, 0.05, rules)) {
        let percent = share(tally.found, planted);
        let mean = tally.runs as f64 / planted as f64;
        let name = rule.name;
        println!(
            "{name}: 5 % slower function found in {percent:.1} %, after {mean:.1} runs of each on average"
        );
    }
    let plans = FIXED.map(|plan| move |runs: usize| (runs == plan).then_some(RATE));
    let ways = plans.each_ref().map(|plan| plan as _);
    for (runs, tally) in FIXED.iter().zip(tallies(planted, 0.05, ways)) {
        let percent = share(tally.found, planted);
        println!("a fixed plan of {runs} runs of each: found in {percent:.1} %");
    }
}
