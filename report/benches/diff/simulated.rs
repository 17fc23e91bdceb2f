//! Simulated recordings: only there the truth is known.
//!
//! Two threads serve requests one after the other. A request is one of four types; each type is a
//! sequence of functions of random length (half fixed, half exponential), so that neighbouring
//! samples are of the same request. The mix of types drifts (an autoregressive process with a time
//! constant of 0.3 s), so that samples are correlated well beyond a request. Samples are taken at
//! 997 Hz with jitter, as the recorder does. The true share of a function is the ratio of expected
//! times; the drift is symmetric, so it does not move the mean mix.
//!
//! Workloads: one that drifts much, whose shares vary several times as much as those of independent
//! samples would; a steady one; and steady ones whose runs differ, each function's time by a factor
//! of its own with a standard deviation of 1 %. Recorded twice, five times, or once a side. Then
//! larger ones, of 160 functions: each of the first has two callers, which take some samples
//! themselves, each type has one for all, and many small functions share an eighth. Runs of the
//! last are of a fixed piece of work on a machine that is slower by a factor with a standard deviation of
//! 10 %, and each function is slowed by a power of its own of it. The design effect, the ratio of the
//! variance within runs to that of independent samples, is printed for all.
//!
//! - A/A: pairs of one workload; the share of pairs in which anything is called certain: with
//!   nothing to find, every discovery is a false one.
//! - Coverage: how often the 95 % interval of the change holds the true change, over all functions
//!   of the pairs in which one function is 5 % slower.
//! - Power: in how many of these pairs, and of those where it is 10 % slower, that function is called certain; and
//!   how often another one is.
//! - The oracle: in how many a z test of that function alone, which takes samples to be independent,
//!   would have found it.
//! - The plan: how many recordings the diff of two a side asks for to show these 5 %, and how often
//!   so many show them.

use crate::share;
use fastrand::Rng;
use std::time::Instant;
use uniprof_report::diff::{
    BLOCKS, Cell, Counts, DiffOptions, Item, Kind, Match, Quantity, Series, Side, Verdicts, judge,
};
use uniprof_report::profile::ROOT;

const SECONDS: f64 = 10.0;
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

fn normal(random: &mut Rng) -> f64 {
    (0..12).map(|_| random.f64()).sum::<f64>() - 6.0
}

/// Factors for the functions' times that one run has, and the logarithm of its machine's.
fn factors(seed: u64, workload: &Workload) -> ([f64; FUNCTIONS], f64) {
    let mut random = Rng::with_seed(!seed.wrapping_mul(0xD134_2543_DE82_EF95));
    let differ = [(); FUNCTIONS].map(|()| normal(&mut random) * workload.runs_differ);
    let machine = normal(&mut random) * workload.load;
    let mut random = Rng::with_seed(7919);
    let factors = differ.map(|own| (own + machine * (1.0 + 0.3 * normal(&mut random))).exp());
    (factors, machine)
}

/// Small functions, where there are callers.
const SMALL: usize = 60;
/// Stacks of a function with its callers: of itself, and of both of them.
const CHAIN: usize = 3;

/// What is compared, and for each kind of stack the items that its samples belong to.
fn stacks(has_callers: bool) -> (Vec<Item>, Vec<Vec<usize>>) {
    let mut items: Vec<Item> = Vec::new();
    let mut add = |counted, count: usize| {
        let first = items.len();
        items.extend((first..first + count).map(|number| Item {
            counted,
            function: number as u32,
            node: ROOT,
        }));
        first
    };
    let own = add(Quantity::Own, FUNCTIONS);
    if !has_callers {
        return (
            items,
            (0..FUNCTIONS).map(|function| vec![function]).collect(),
        );
    }
    let inner = add(Quantity::Total, FUNCTIONS);
    let outer = add(Quantity::Total, FUNCTIONS);
    let inner_own = add(Quantity::Own, FUNCTIONS);
    let types = add(Quantity::Total, TYPES.len());
    let small = add(Quantity::Own, SMALL);
    let mut stacks = Vec::new();
    for (number, kind) in TYPES.iter().enumerate() {
        for (function, _) in *kind {
            let callers = [outer + function, types + number];
            let in_inner = [&[inner + function], &callers[..]].concat();
            stacks.push([&[own + function], &in_inner[..]].concat());
            stacks.push([&[inner_own + function], &in_inner[..]].concat());
            stacks.push(callers.to_vec());
        }
        stacks.extend((0..SMALL).map(|it| vec![types + number, small + it]));
    }
    (items, stacks)
}

/// The stack of a sample in a function, the `at`-th of a type of request.
fn stack(random: &mut Rng, kind: usize, at: usize) -> usize {
    let of_type = |functions: &[(usize, f64)]| functions.len() * CHAIN + SMALL;
    let first: usize = TYPES[..kind].iter().map(|it| of_type(it)).sum();
    first
        + match random.f64() {
            draw if draw < 0.12 => TYPES[kind].len() * CHAIN + random.usize(0..SMALL),
            draw if draw < 0.15 => at * CHAIN + 1,
            draw if draw < 0.18 => at * CHAIN + 2,
            _ => at * CHAIN,
        }
}

/// An exponential number with mean 1.
fn exponential(random: &mut Rng) -> f64 {
    -(1.0 - random.f64()).ln()
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
    let (factors, machine) = factors(seed, workload);
    let whole_us = SECONDS * 1e6 * machine.exp();
    let kinds = stacks(workload.has_callers).1.len();
    let mut counts = vec![vec![0.0; kinds]; BLOCKS];
    for thread in 0..THREADS {
        let mut random =
            Rng::with_seed(seed.wrapping_mul(0xD134_2543_DE82_EF95) ^ (thread as u64) << 56);
        let (mut now_us, mut drift) = (0.0, 0.0_f64);
        let mut next_us = 1e6 / RATE_HZ * random.f64();
        while now_us < whole_us {
            // Types 0 and 1 share half of the requests between them, as 2 and 3 do; the drift moves
            // weight within each half.
            let lean = 0.25 * (1.0 + drift.clamp(-0.9, 0.9));
            let draw = random.f64();
            let kind = match draw {
                _ if draw < lean => 0,
                _ if draw < 0.5 => 1,
                _ if draw < 0.5 + lean => 2,
                _ => 3,
            };
            let began_us = now_us;
            for (at, (function, mean)) in TYPES[kind].iter().enumerate() {
                let length = mean * slow_factor(*function, slower) * factors[*function];
                now_us += length * (0.5 + 0.5 * exponential(&mut random));
                while next_us < now_us {
                    let block = (next_us / whole_us * BLOCKS as f64) as usize;
                    if block < BLOCKS {
                        let stack = if workload.has_callers {
                            stack(&mut random, kind, at)
                        } else {
                            *function
                        };
                        counts[block][stack] += 1.0;
                    }
                    next_us += 1e6 / RATE_HZ * (0.9 + 0.2 * random.f64());
                }
            }
            let kept = (-(now_us - began_us) / 300_000.0).exp();
            let noise = (random.f64() + random.f64() + random.f64() - 1.5) * 2.0;
            drift = drift * kept + noise * workload.drifts * (1.0 - kept * kept).sqrt();
        }
    }
    let cells = counts.iter().enumerate().flat_map(|(block, counts)| {
        let cells = counts.iter().enumerate();
        cells.map(move |(stack, count)| Cell {
            block,
            stack,
            count: *count,
        })
    });
    Counts {
        cells: cells.filter(|cell| cell.count > 0.0).collect(),
    }
}

fn compare(workload: &Workload, sides: [Side; 2]) -> Verdicts {
    let (items, stacks) = stacks(workload.has_callers);
    let functions = (0..items.len()).map(|number| Match {
        name: format!("function {number}"),
        module: String::new(),
        kind: Kind::Same,
        made: false,
        own: true,
    });
    let series = Series {
        unit: uniprof_report::recording::Unit::Samples,
        one: 1.0,
        functions: functions.collect(),
        items,
        stacks,
        sides,
        ..Series::default()
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
    /// Standard deviation of the logarithm of what the machine slows a run by.
    load: f64,
    /// Whether functions have callers and there are many small ones.
    has_callers: bool,
}

const WORKLOADS: [Workload; 9] = [
    workload("drifting, two runs", 0.35, 2, 0.0),
    workload("steady, two runs", 0.03, 2, 0.0),
    workload("two runs that differ", 0.03, 2, 0.01),
    workload("five runs that differ", 0.03, 5, 0.01),
    workload("one run that differs", 0.03, 1, 0.01),
    workload("callers, three runs", 0.1, 3, 0.01).with_callers(0.0),
    workload("callers, five runs", 0.1, 5, 0.01).with_callers(0.0),
    workload("callers and load, three runs", 0.1, 3, 0.01).with_callers(0.1),
    workload("callers and load, five runs", 0.1, 5, 0.01).with_callers(0.1),
];

const fn workload(name: &'static str, drifts: f64, recordings: u64, runs_differ: f64) -> Workload {
    Workload {
        name,
        drifts,
        recordings,
        runs_differ,
        load: 0.0,
        has_callers: false,
    }
}

impl Workload {
    const fn with_callers(mut self, load: f64) -> Workload {
        self.has_callers = true;
        self.load = load;
        self
    }
}

/// Prints the figures of `pairs` pairs of each workload.
pub fn judge_all(pairs: u64) {
    for workload in &WORKLOADS {
        let began = Instant::now();
        println!(
            "{}: {pairs} pairs, {} recordings a side of {SECONDS} s at {RATE_HZ} Hz, {THREADS} threads",
            workload.name, workload.recordings
        );
        false_alarms(workload, pairs);
        if !workload.has_callers {
            coverage(workload, pairs);
        }
        power(workload, pairs);
        if workload.recordings == 2 {
            plan(workload, pairs);
        }
        println!("  {:.1} s\n", began.elapsed().as_secs_f64());
    }
}

fn false_alarms(workload: &Workload, pairs: u64) {
    let name = workload.name;
    let mut alarms = 0;
    let mut effects = Vec::new();
    for pair in 0..pairs {
        let verdicts = compare(
            workload,
            [2 * pair, 2 * pair + 1].map(|number| side(workload, number, 0.0)),
        );
        alarms += u64::from(verdicts.changes.iter().any(|change| change.certain));
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

/// Pairs whose B has a slower function.
fn planted(workload: &Workload, pair: u64, slower: f64) -> [Side; 2] {
    let seed = 1_000_000 + 2 * pair;
    [side(workload, seed, 0.0), side(workload, seed + 1, slower)]
}

fn is_found(verdicts: &Verdicts) -> bool {
    let mut changes = verdicts.changes.iter();
    changes.any(|change| change.item == SLOW && change.certain && change.estimate.change() > 0.0)
}

/// What a z test of the slow function alone says at 5 %.
fn oracle_finds(sides: &[Side; 2]) -> bool {
    let totals = sides.each_ref().map(Side::total);
    let slow = sides.each_ref().map(|side| {
        let cells = side.recordings.iter().flat_map(|counts| &counts.cells);
        let slow = cells.filter(|cell| cell.stack == SLOW);
        slow.map(|cell| cell.count).sum::<f64>()
    });
    let share = (slow[0] + slow[1]) / (totals[0] + totals[1]);
    let error = (share * (1.0 - share) * (1.0 / totals[0] + 1.0 / totals[1])).sqrt();
    slow[1] / totals[1] - slow[0] / totals[0] > 1.96 * error
}

/// The slowdown by which intervals are judged, and the smaller one that is looked for.
const SLOWER: f64 = 0.05;

fn coverage(workload: &Workload, pairs: u64) {
    let name = workload.name;
    let (before, after) = (true_shares(0.0), true_shares(SLOWER));
    let (mut inside, mut compared) = (0, 0);
    for pair in 0..pairs {
        let verdicts = compare(workload, planted(workload, pair, SLOWER));
        for change in &verdicts.changes {
            let (low, high) = change.estimate.interval(0.95);
            let truth = after[change.item] - before[change.item];
            compared += 1;
            inside += u64::from(low <= truth && truth <= high);
        }
    }
    let percent = share(inside, compared);
    let goal = if workload.recordings > 1 {
        "93 to 98"
    } else {
        "at least 93"
    };
    println!(
        "  95 % intervals that hold the truth: {inside} of {compared}, {percent:.1} % ({goal} %)"
    );
    println!(
        "figure\tdiff: intervals that hold the truth, {name}\t{percent:.1}\t%\t\t\tours >= 93"
    );
}

fn power(workload: &Workload, pairs: u64) {
    let name = workload.name;
    let of = true_shares(0.0)[SLOW] * 100.0;
    for slower in [SLOWER, 2.0 * SLOWER] {
        let (mut found, mut others, mut oracle) = (0, 0, 0);
        for pair in 0..pairs {
            let sides = planted(workload, pair, slower);
            oracle += u64::from(!workload.has_callers && oracle_finds(&sides));
            let verdicts = compare(workload, sides);
            found += u64::from(is_found(&verdicts));
            let certain = verdicts.changes.iter().filter(|change| change.certain);
            others += certain.filter(|change| change.item != SLOW).count();
        }
        let (percent, slower) = (share(found, pairs), slower * 100.0);
        println!(
            "  a function with {of:.1} % of the samples made {slower} % slower: found in {found}, {percent:.1} %; \
             others called certain, its callers among them: {others}"
        );
        let peer = if workload.has_callers {
            "\t\t".to_owned()
        } else {
            format!("z test alone\t{:.1}\tratio >= 0.8", share(oracle, pairs))
        };
        println!("figure\tdiff: {slower} % slower function found, {name}\t{percent:.1}\t%\t{peer}");
    }
}

/// Whether as many recordings as the diff asks for show the slow function.
fn plan(workload: &Workload, pairs: u64) {
    let mut asked: Vec<u64> = Vec::new();
    for pair in 0..pairs.min(40) {
        let verdicts = compare(workload, planted(workload, pair, SLOWER));
        let largest = verdicts.plans.last();
        asked.extend(largest.and_then(|plan| plan.recordings).map(|it| it as u64));
    }
    asked.sort_unstable();
    let Some(&recordings) = asked.get(asked.len() / 2) else {
        println!("  the plan: no number of recordings is enough");
        return;
    };
    let larger = Workload {
        recordings,
        ..*workload
    };
    let pairs = pairs.min(60);
    let found = (0..pairs)
        .filter(|pair| is_found(&compare(&larger, planted(&larger, *pair, SLOWER))))
        .count() as u64;
    let percent = share(found, pairs);
    println!(
        "  the plan asks for {recordings} recordings a side: found in {percent:.1} % (80 % is meant)"
    );
    println!(
        "figure\tdiff: found with as many runs as planned, {}\t{percent:.1}\t%\t\t\tours >= 70",
        workload.name
    );
}
