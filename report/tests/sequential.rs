//! Looking at runs while they are made, as `uniprof compare` does: equal sides hardly ever alarm, and a slower
//! function is found. `cargo bench -p uniprof-report --bench diff -- looks` has the figures of thousands of
//! comparisons.

use fastrand::Rng;
use uniprof_report::diff::{
    BLOCKS, Cell, Counts, DiffOptions, Item, Kind, LookRates, Match, Quantity, Sequence, Series,
    Side, judge,
};
use uniprof_report::profile::ROOT;

const SHARES: [f64; 6] = [0.35, 0.25, 0.2, 0.1, 0.07, 0.03];
const SAMPLES: f64 = 2400.0;
const MOST: usize = 50;

fn normal(random: &mut Rng) -> f64 {
    (0..12).map(|_| random.f64()).sum::<f64>() - 6.0
}

/// A run whose first function is slower by a part.
fn run(random: &mut Rng, slower: f64) -> Counts {
    let mut weights = SHARES.map(|share| share * (1.0 + 0.01 * normal(random)));
    weights[0] *= 1.0 + slower;
    let whole: f64 = weights.iter().sum();
    let mut cells = Vec::new();
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

/// The number of runs after which something is certain, if it ever is.
fn ends(seed: u64, slower: f64) -> Option<usize> {
    let mut random = Rng::with_seed(seed);
    let sequence = Sequence::new(MOST);
    let options = DiffOptions {
        false_discoveries: LookRates::new(&sequence, 0.05).functions,
        ..DiffOptions::default()
    };
    let functions = (0..SHARES.len()).map(|number| Match {
        name: format!("function {number}"),
        module: String::new(),
        kind: Kind::Same,
        made: false,
        own: true,
    });
    let items = (0..SHARES.len() as u32).map(|function| Item {
        counted: Quantity::Own,
        function,
        node: ROOT,
    });
    let mut series = Series {
        one: 1.0,
        functions: functions.collect(),
        items: items.collect(),
        stacks: (0..SHARES.len()).map(|item| vec![item]).collect(),
        sides: [Side::default(), Side::default()],
        ..Series::default()
    };
    (1..=MOST).find(|runs| {
        for (side, slower) in [0.0, slower].into_iter().enumerate() {
            series.sides[side].recordings.push(run(&mut random, slower));
        }
        let is_certain = || judge(&series, &options).changes.iter().any(|it| it.certain);
        sequence.is_look(*runs) && is_certain()
    })
}

#[test]
fn looks_after_every_run_hardly_ever_alarm_and_find_a_slower_function() {
    let comparisons = 40;
    let alarms = (0..comparisons).filter(|seed| ends(*seed, 0.0).is_some());
    // With a rate of 5 %, more than six of 40 come in one of 70 cases; without spending, half of them would alarm.
    let alarms = alarms.count();
    assert!(
        alarms <= 6,
        "{alarms} of {comparisons} comparisons of equal sides alarm"
    );
    let ended: Vec<usize> = (0..5).filter_map(|seed| ends(1000 + seed, 0.08)).collect();
    assert_eq!(ended.len(), 5, "{ended:?}");
    assert!(ended.iter().all(|runs| *runs < MOST), "{ended:?}");
}
