//! Looking at runs while they are made, as `uniprof compare` does: equal sides hardly ever alarm, and a slower
//! function is found. `cargo bench -p uniprof-report --bench diff -- looks` has the figures of thousands of
//! comparisons.

mod drawn_runs;

use fastrand::Rng;
use uniprof_report::diff::{DiffOptions, LookRates, Sequence, Side, judge};

const SHARES: [f64; 6] = [0.35, 0.25, 0.2, 0.1, 0.07, 0.03];
const MOST: usize = 50;

/// The number of runs after which something is certain, if it ever is.
fn ends(seed: u64, slower: f64) -> Option<usize> {
    let mut random = Rng::with_seed(seed);
    let sequence = Sequence::new(MOST);
    let options = DiffOptions {
        false_discoveries: LookRates::new(&sequence, 0.05).functions,
        ..DiffOptions::default()
    };
    let mut series = drawn_runs::series(SHARES.len(), [Side::default(), Side::default()]);
    (1..=MOST).find(|runs| {
        for (side, slower) in [0.0, slower].into_iter().enumerate() {
            let run = drawn_runs::run(&mut random, SHARES, slower);
            series.sides[side].recordings.push(run);
        }
        let is_certain = || judge(&series, &options).changes.iter().any(|it| it.certain);
        sequence.is_look(*runs) && is_certain()
    })
}

#[test]
fn looks_after_every_run_hardly_ever_alarm_and_find_a_slower_function() {
    let comparisons = 40;
    let alarms = (0..comparisons).filter(|seed| ends(*seed, 0.0).is_some());
    // With a rate of 5 %, more than six of 40 alarm in one of 295 such tests.
    let alarms = alarms.count();
    assert!(
        alarms <= 6,
        "{alarms} of {comparisons} comparisons of equal sides alarm"
    );
    let ended: Vec<usize> = (0..5).filter_map(|seed| ends(1000 + seed, 0.08)).collect();
    assert_eq!(ended.len(), 5, "{ended:?}");
    assert!(ended.iter().all(|runs| *runs < MOST), "{ended:?}");
}
