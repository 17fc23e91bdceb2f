//! Simulated recordings: only there the truth is known.
//!
//! Two threads serve requests one after the other. A request is one of four types; each type is a
//! sequence of functions of random length (half fixed, half exponential), so that neighbouring
//! samples are of the same request. The mix of types drifts (an autoregressive process with a time
//! constant of 0.3 s), so that samples are correlated well beyond a request. Samples are taken at
//! 997 Hz with jitter, as the recorder does. The true share of a function is the ratio of expected
//! times; the drift is symmetric, so it does not move the mean mix.
//!
//! Three workloads: one that drifts much, whose shares vary several times as much as those of
//! independent samples would; a steady one; and a steady one whose runs differ, each function's time
//! by a factor of its own with a standard deviation of 1 %, recorded three times a side. The bundled
//! workload (`uniprof workload`) is steady, and its runs differ by 0 to 2 %. The design effect, the
//! ratio of the variance to that of independent samples, is printed for all.
//!
//! - A/A: pairs of one workload; the share of pairs in which anything is called certain. With
//!   nothing to find, every discovery is a false one, and the rate of Benjamini and Hochberg (1995)
//!   bounds the probability of any.
//! - Coverage: how often the 95 % interval of the change holds the true change, over all functions
//!   of the pairs in which one function is 5 % slower.
//! - Power: in how many of these pairs that function is called certain; 60 s each. The limit holds
//!   for the steady workload; what drifts needs longer recordings, as the diff itself says.

use crate::random::Random;
use crate::share;
use std::time::Instant;
use uniprof_report::diff::{BLOCKS, Counted, Counts, DiffOptions, Item, Kind, Match, Series, Side};
use uniprof_report::diff::{Verdicts, judge};
use uniprof_report::tree::{ROOT, StackTree};

const SECONDS: f64 = 60.0;
const RATE_HZ: f64 = 997.0;
const THREADS: usize = 2;
const FUNCTIONS: usize = 24;
/// The function that is slower in B.
const SLOW: usize = 0;

/// Functions of each type of request, with their mean times in microseconds.
const TYPES: [&[(usize, f64)]; 4] = [
    &[
        (1, 60.0),
        (0, 420.0),
        (2, 150.0),
        (3, 40.0),
        (4, 15.0),
        (20, 2.0),
    ],
    &[
        (1, 60.0),
        (5, 300.0),
        (6, 200.0),
        (7, 90.0),
        (8, 30.0),
        (21, 3.0),
    ],
    &[
        (9, 500.0),
        (0, 700.0),
        (10, 120.0),
        (11, 45.0),
        (12, 20.0),
        (22, 4.0),
    ],
    &[
        (13, 240.0),
        (14, 110.0),
        (15, 60.0),
        (16, 25.0),
        (17, 12.0),
        (18, 8.0),
        (19, 5.0),
        (23, 1.5),
    ],
];

fn slow_factor(function: usize, slower: f64) -> f64 {
    if function == SLOW { 1.0 + slower } else { 1.0 }
}

/// Shares that the simulation has in the long run.
fn true_shares(slower: f64) -> Vec<f64> {
    let mut times = [0.0; FUNCTIONS];
    for kind in TYPES {
        for (function, mean) in kind {
            times[*function] += mean * slow_factor(*function, slower);
        }
    }
    let whole: f64 = times.iter().sum();
    times.iter().map(|time| time / whole).collect()
}

/// Factors for the functions' times that one run has.
fn factors(seed: u64, runs_differ: f64) -> [f64; FUNCTIONS] {
    let mut random = Random(!seed.wrapping_mul(0xD134_2543_DE82_EF95));
    [(); FUNCTIONS].map(|()| {
        let normal = (0..12).map(|_| random.unit()).sum::<f64>() - 6.0;
        (normal * runs_differ).exp()
    })
}

/// A side's recordings.
fn side(workload: &Workload, number: u64, slower: f64) -> Side {
    let runs = 0..workload.recordings;
    let seeds = runs.map(|run| number * workload.recordings + run);
    Side {
        recordings: seeds.map(|seed| record(seed, slower, workload)).collect(),
    }
}

/// One recording's own samples by function and block of time.
fn record(seed: u64, slower: f64, workload: &Workload) -> Counts {
    let factors = factors(seed, workload.runs_differ);
    let mut counts = Counts {
        totals: vec![0.0; BLOCKS],
        items: vec![vec![0.0; BLOCKS]; FUNCTIONS],
    };
    for thread in 0..THREADS {
        let mut random = Random(seed.wrapping_mul(0xD134_2543_DE82_EF95) ^ (thread as u64) << 56);
        let (mut now_us, mut drift) = (0.0, 0.0_f64);
        let mut next_us = 1e6 / RATE_HZ * random.unit();
        while now_us < SECONDS * 1e6 {
            // Types 0 and 1 share half of the requests between them, as 2 and 3 do; the drift moves
            // weight within each half.
            let lean = 0.25 * (1.0 + drift.clamp(-0.9, 0.9));
            let draw = random.unit();
            let kind = match draw {
                _ if draw < lean => 0,
                _ if draw < 0.5 => 1,
                _ if draw < 0.5 + lean => 2,
                _ => 3,
            };
            let began_us = now_us;
            for (function, mean) in TYPES[kind] {
                let length = mean * slow_factor(*function, slower) * factors[*function];
                now_us += length * (0.5 + 0.5 * random.exponential());
                while next_us < now_us {
                    let block = (next_us / (SECONDS * 1e6) * BLOCKS as f64) as usize;
                    if block < BLOCKS {
                        counts.totals[block] += 1.0;
                        counts.items[*function][block] += 1.0;
                    }
                    next_us += 1e6 / RATE_HZ * (0.9 + 0.2 * random.unit());
                }
            }
            let kept = (-(now_us - began_us) / 300_000.0).exp();
            let noise = (random.unit() + random.unit() + random.unit() - 1.5) * 2.0;
            drift = drift * kept + noise * workload.drifts * (1.0 - kept * kept).sqrt();
        }
    }
    counts
}

fn compare(sides: [Side; 2]) -> Verdicts {
    let functions = (0..FUNCTIONS).map(|number| Match {
        name: format!("function {number}"),
        module: String::new(),
        kind: Kind::Same,
    });
    let items = (0..FUNCTIONS as u32).map(|function| Item {
        counted: Counted::Own,
        function,
        node: ROOT,
    });
    let series = Series {
        unit: uniprof_report::unit::Unit::Samples,
        one: 1.0,
        functions: functions.collect(),
        tree: StackTree::default(),
        ends: Vec::new(),
        items: items.collect(),
        sides,
    };
    judge(&series, &DiffOptions::default())
}

struct Workload {
    name: &'static str,
    /// Standard deviation of its drift.
    drifts: f64,
    /// How many recordings a side.
    recordings: u64,
    /// Standard deviation of what each function's time is multiplied by in a run.
    runs_differ: f64,
}

const WORKLOADS: [Workload; 3] = [
    Workload {
        name: "drifting",
        drifts: 0.35,
        recordings: 1,
        runs_differ: 0.0,
    },
    Workload {
        name: "steady",
        drifts: 0.03,
        recordings: 1,
        runs_differ: 0.0,
    },
    Workload {
        name: "three runs",
        drifts: 0.03,
        recordings: 3,
        runs_differ: 0.01,
    },
];

/// Prints the figures of `pairs` pairs of each workload.
pub fn judge_all(pairs: u64) {
    for workload in &WORKLOADS {
        let began = Instant::now();
        println!(
            "{}: {pairs} pairs, {} recordings a side of {SECONDS} s at {RATE_HZ} Hz, {THREADS} threads",
            workload.name, workload.recordings
        );
        false_alarms(workload, pairs);
        coverage_and_power(workload, pairs);
        println!("  {:.1} s\n", began.elapsed().as_secs_f64());
    }
}

fn false_alarms(workload: &Workload, pairs: u64) {
    let name = workload.name;
    let mut alarms = 0;
    let mut effects = Vec::new();
    for pair in 0..pairs {
        let verdicts = compare([2 * pair, 2 * pair + 1].map(|number| side(workload, number, 0.0)));
        alarms += u64::from(verdicts.certain > 0);
        effects.extend(
            verdicts
                .changes
                .iter()
                .map(|change| change.estimate.design_effect),
        );
    }
    effects.sort_by(f64::total_cmp);
    println!("  design effect, median: {:.2}", effects[effects.len() / 2]);
    let percent = share(alarms, pairs);
    println!("  A/A pairs with anything called certain: {alarms}, {percent:.1} % (at most 5 %)");
    println!("figure\tdiff: false alarms, {name}\t{percent:.1}\t%\t\t\tours <= 5");
}

fn coverage_and_power(workload: &Workload, pairs: u64) {
    let name = workload.name;
    let (before, after) = (true_shares(0.0), true_shares(0.05));
    let (mut inside, mut asked, mut found) = (0, 0, 0);
    for pair in 0..pairs {
        let seed = 1_000_000 + 2 * pair;
        let verdicts = compare([side(workload, seed, 0.0), side(workload, seed + 1, 0.05)]);
        for change in &verdicts.changes {
            let (low, high) = change.estimate.interval(0.95);
            let truth = after[change.item] - before[change.item];
            asked += 1;
            inside += u64::from(low <= truth && truth <= high);
            found += u64::from(change.item == SLOW && change.certain && low > 0.0);
        }
    }
    let percent = share(inside, asked);
    println!(
        "  95 % intervals that hold the truth: {inside} of {asked}, {percent:.1} % (93 to 97 %)"
    );
    println!(
        "figure\tdiff: intervals that hold the truth, {name}\t{percent:.1}\t%\t\t\tours 93 to 97"
    );
    let (percent, of) = (share(found, pairs), before[SLOW] * 100.0);
    println!(
        "  a function with {of:.1} % of the samples made 5 % slower: found in {found}, {percent:.1} % \
         (at least 95 % where the workload is steady)"
    );
    println!("figure\tdiff: 5 % slower function found, {name}\t{percent:.1}\t%\t\t\tours >= 95");
}
