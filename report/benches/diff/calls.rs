//! Simulated traces: how often the comparison of calls is right, where the truth is known.
//!
//! A program serves requests one after the other, each a sequence of functions of random length (half fixed, half
//! exponential), some of them by chance; which kind of request comes drifts, as for samples (`simulated`). Now and
//! then the system takes the processor away in the middle of a call, for up to 3 ms. A run is slower than another as a
//! whole by a factor with a standard deviation of 5 %, and each function's time differs by one of 1 %.
//!
//! - A/A: pairs of one program, with anything called certain.
//! - The same with everything a third slower in B, as on a slower machine: again nothing is to be told.
//! - Power: one function that takes half as long again, and one that is called half as often again: in how many pairs
//!   each is called certain, and how often anything else is.

use crate::share;
use fastrand::Rng;
use std::time::Instant;
use uniprof_report::diff::calls::{Blocks, CallCell, CallRun, CallSeries, Measure, judge_calls};
use uniprof_report::diff::calls::{CallChange, CallVerdicts};
use uniprof_report::diff::{BLOCKS, DiffOptions, Kind, Match};

const FUNCTIONS: usize = 16;
/// The function that takes longer in B.
const SLOW: u32 = 2;
/// The one that is called more often.
const OFTEN: u32 = 7;
const SECONDS: f64 = 4.0;

/// How B differs from A.
#[derive(Debug, Clone, Copy)]
struct Difference {
    /// The factor of one function's time.
    slow: f64,
    /// The factor of how often one is called.
    often: f64,
    /// The factor of all times.
    all: f64,
}

const NONE: Difference = Difference {
    slow: 1.0,
    often: 1.0,
    all: 1.0,
};

fn exponential(random: &mut Rng) -> f64 {
    -(1.0 - random.f64()).ln()
}

fn normal(random: &mut Rng) -> f64 {
    (0..12).map(|_| random.f64()).sum::<f64>() - 6.0
}

/// One run.
fn run(seed: u64, by: Blocks, differs: Difference) -> CallRun {
    let mut random = Rng::with_seed(seed.wrapping_mul(0xD134_2543_DE82_EF95) ^ 0x5bd1_e995);
    let machine = (normal(&mut random) * 0.05).exp() * differs.all;
    let factors = [(); FUNCTIONS].map(|()| (normal(&mut random) * 0.01).exp());
    let mut calls: Vec<(f64, u32, f64)> = Vec::new();
    let (mut now_us, mut drift) = (0.0, 0.0_f64);
    while now_us < SECONDS * 1e6 {
        let half = random.f64() < 0.5 + 0.3 * drift.clamp(-1.0, 1.0);
        let functions = if half { 0..10 } else { 5..16 };
        for function in functions {
            let mut times = if random.f64() < 0.8 { 1.0 } else { 0.0 };
            if function == OFTEN && random.f64() < differs.often - 1.0 {
                times += 1.0;
            }
            for _ in 0..times as u32 {
                let slower = if function == SLOW { differs.slow } else { 1.0 };
                let mean = 10.0 * f64::from(function + 1) * slower;
                let mut length = mean * (0.5 + 0.5 * exponential(&mut random));
                length *= machine * factors[function as usize];
                if random.f64() < length * 1e-5 {
                    length += 3000.0 * random.f64();
                }
                calls.push((now_us, function, length));
                now_us += length;
            }
        }
        let kept = (-1.0_f64 / 300.0).exp();
        drift = drift * kept + normal(&mut random) * 0.5 * (1.0 - kept * kept).sqrt();
    }
    let whole = calls.len();
    let mut run = CallRun {
        blocks: vec![now_us / 1e6 / BLOCKS as f64; BLOCKS],
        calls: vec![0.0; BLOCKS],
        ..CallRun::default()
    };
    for (number, (at_us, function, length)) in calls.into_iter().enumerate() {
        let part = match by {
            Blocks::Time => at_us / now_us,
            Blocks::Order => number as f64 / whole as f64,
        };
        let block = ((part * BLOCKS as f64) as usize).min(BLOCKS - 1);
        run.calls[block] += 1.0;
        let cells = run.functions.entry(function).or_default();
        let cell: &mut CallCell = cells.entry(block).or_default();
        let length_ns = (length * 1e3) as u64;
        cell.add(length_ns, Some(length_ns));
    }
    if by == Blocks::Order {
        run.blocks = run.calls.iter().map(|calls| calls / 1e3).collect();
    }
    run
}

fn compare(seed: u64, workload: &Workload, differs: Difference) -> CallVerdicts {
    let side = |side: u64, differs: Difference| {
        let seeds = 0..workload.recordings;
        let seeds = seeds.map(|run| (2 * seed + side) * workload.recordings + run);
        seeds.map(|seed| run(seed, workload.by, differs)).collect()
    };
    let functions = (0..FUNCTIONS).map(|number| Match {
        name: format!("function {number}"),
        module: String::new(),
        kind: Kind::Same,
        made: false,
        own: true,
    });
    let series = CallSeries {
        by: workload.by,
        functions: functions.collect(),
        sides: [side(0, NONE), side(1, differs)],
    };
    let options = DiffOptions {
        least_change: 0.01,
        ..DiffOptions::default()
    };
    judge_calls(&series, &options)
}

struct Workload {
    name: &'static str,
    by: Blocks,
    /// How many recordings a side.
    recordings: u64,
}

const WORKLOADS: [Workload; 4] = [
    Workload {
        name: "calls, one run",
        by: Blocks::Time,
        recordings: 1,
    },
    Workload {
        name: "calls, two runs",
        by: Blocks::Time,
        recordings: 2,
    },
    Workload {
        name: "calls, five runs",
        by: Blocks::Time,
        recordings: 5,
    },
    Workload {
        name: "calls without times, two runs",
        by: Blocks::Order,
        recordings: 2,
    },
];

/// Prints the figures of `pairs` pairs of each workload, and returns the part of false alarms of the worst, in percent.
pub fn judge_all(pairs: u64) -> f64 {
    let mut worst: f64 = 0.0;
    for workload in &WORKLOADS {
        let (began, name) = (Instant::now(), workload.name);
        println!("{name}: {pairs} pairs of {SECONDS} s");
        let slower = Difference { all: 1.33, ..NONE };
        for (what, differs) in [("A/A", NONE), ("a slower machine", slower)] {
            let any = |pair: &u64| {
                let verdicts = compare(*pair, workload, differs);
                verdicts.changes.iter().any(|change| change.certain)
            };
            let percent = share((0..pairs).filter(any).count() as u64, pairs);
            println!(
                "  {what}: {percent:.1} % of pairs with anything called certain (at most 5 %)"
            );
            println!("figure\tdiff: false alarms, {name}, {what}\t{percent:.1}\t%\t\t\tours <= 5");
            worst = worst.max(percent);
        }
        power(workload, pairs);
        println!("  {:.1} s\n", began.elapsed().as_secs_f64());
    }
    worst
}

fn power(workload: &Workload, pairs: u64) {
    let differs = Difference {
        slow: 1.5,
        often: 1.5,
        ..NONE
    };
    let (mut slow, mut often, mut others) = (0, 0, 0);
    for pair in 0..pairs {
        let verdicts = compare(1_000_000 + pair, workload, differs);
        let certain = verdicts.changes.iter().filter(|change| change.certain);
        let (mut is_slow, mut is_often, mut is_other) = (false, false, false);
        for change in certain {
            let is = |function, of: Measure| is_planted(change, function, of);
            match (is(SLOW, Measure::Own), is(OFTEN, Measure::Rate)) {
                (true, _) => is_slow = true,
                (_, true) => is_often = true,
                _ => is_other = true,
            }
        }
        slow += u64::from(is_slow);
        often += u64::from(is_often);
        others += u64::from(is_other);
    }
    let [slow, often, others] = [slow, often, others].map(|count| share(count, pairs));
    let name = workload.name;
    println!(
        "  half as long again: found in {slow:.1} %; half as often again: in {often:.1} %; anything else: {others:.1} %"
    );
    println!("figure\tdiff: half slower calls found, {name}\t{slow:.1}\t%\t\t\t");
    println!("figure\tdiff: half more calls found, {name}\t{often:.1}\t%\t\t\t");
}

fn is_planted(change: &CallChange, function: u32, of: Measure) -> bool {
    change.function == function && change.of == of && change.apart() > 0.0
}
