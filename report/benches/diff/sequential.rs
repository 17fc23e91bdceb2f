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

/// Prints the figures of `comparisons` comparisons for each rule.
pub fn judge_all(comparisons: u64) {
    for slower in [0.0, 0.05] {
        let mut found = [0; RULES.len()];
        let mut alarms = [0; RULES.len()];
        let mut runs_made = [0; RULES.len()];
        let mut found_by_plan = [0; FIXED.len()];
        for comparison in 0..comparisons {
            let mut random = Rng::with_seed(comparison * 2 + u64::from(slower > 0.0));
            let sides = [0.0, slower].map(|slower| {
                let runs = (0..MOST).map(|_| drawn_runs::run(&mut random, SHARES, slower));
                runs.collect::<Vec<Counts>>()
            });
            for (plan, runs) in FIXED.iter().enumerate().filter(|_| slower > 0.0) {
                found_by_plan[plan] += u64::from(look(&sides, *runs, RATE).0);
            }
            for (rule, judged) in RULES.iter().enumerate() {
                let mut ended = MOST;
                for runs in 1..=MOST {
                    let Some(rate) = (judged.rate_at)(runs) else {
                        continue;
                    };
                    let (is_found, has_alarm) = look(&sides, runs, rate);
                    if is_found || has_alarm {
                        ended = runs;
                        found[rule] += u64::from(is_found);
                        alarms[rule] += 1;
                        break;
                    }
                }
                runs_made[rule] += ended as u64;
            }
        }
        for (rule, judged) in RULES.iter().enumerate() {
            let name = judged.name;
            if slower == 0.0 {
                let percent = share(alarms[rule], comparisons);
                println!(
                    "{name}: {comparisons} comparisons of equal sides, {percent:.2} % ever alarm"
                );
                if rule == 0 {
                    println!(
                        "figure\tcompare: A/A that ever alarm, 50 runs\t{percent:.2}\t%\t\t\tours <= 5"
                    );
                }
            } else {
                let percent = share(found[rule], comparisons);
                let mean = runs_made[rule] as f64 / comparisons as f64;
                println!(
                    "{name}: 5 % slower function found in {percent:.1} %, after {mean:.1} runs of each on average"
                );
            }
        }
        for (plan, runs) in FIXED.iter().enumerate().filter(|_| slower > 0.0) {
            let percent = share(found_by_plan[plan], comparisons);
            println!("a fixed plan of {runs} runs of each: found in {percent:.1} %");
        }
    }
}
