//! Runs of a program with functions of known shares, drawn directly, block by block: each function takes a factor of
//! its own in each run, and the counts of a block spread as those of independent samples do.

use fastrand::Rng;
use uniprof_report::diff::{BLOCKS, Cell, Counts, Item, Kind, Match, Quantity, Series, Side};
use uniprof_report::profile::ROOT;

/// Samples of a run.
const SAMPLES: f64 = 2400.0;
/// Standard deviation of the factors of a run.
const RUNS_DIFFER: f64 = 0.01;

fn normal(random: &mut Rng) -> f64 {
    (0..12).map(|_| random.f64()).sum::<f64>() - 6.0
}

/// A run of functions with these shares, the first one slower by a part.
pub fn run<const N: usize>(random: &mut Rng, shares: [f64; N], slower: f64) -> Counts {
    let mut weights = shares.map(|share| share * (1.0 + RUNS_DIFFER * normal(random)));
    weights[0] *= 1.0 + slower;
    let whole: f64 = weights.iter().sum();
    let mut cells = Vec::with_capacity(BLOCKS * N);
    for block in 0..BLOCKS {
        for (stack, weight) in weights.iter().enumerate() {
            let mean = SAMPLES / BLOCKS as f64 * weight / whole;
            let count = (mean + mean.sqrt() * normal(random)).round().max(0.0);
            cells.push(Cell {
                block,
                stack,
                count,
            });
        }
    }
    Counts { cells }
}

/// The runs of both sides, of which the own time of so many functions is asked.
pub fn series(functions: usize, sides: [Side; 2]) -> Series {
    let own = |function| Item {
        counted: Quantity::Own,
        function,
        node: ROOT,
    };
    let named = |number| Match {
        name: format!("function {number}"),
        module: String::new(),
        kind: Kind::Same,
        made: false,
        own: true,
    };
    Series {
        one: 1.0,
        functions: (0..functions).map(named).collect(),
        items: (0..functions as u32).map(own).collect(),
        stacks: (0..functions).map(|item| vec![item]).collect(),
        sides,
        ..Series::default()
    }
}
