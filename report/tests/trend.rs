//! Trends of simulated recordings, whose truth is known.

mod simulated_series;

use fastrand::Rng;
use simulated_series::{FUNCTIONS, drawn, normal, push, series, sighting, step, tailed};
use uniprof_report::diff::{Rule, RuleVerdict};
use uniprof_report::text::Screen;
use uniprof_report::trend::markdown;
use uniprof_report::trend::table::TableOptions;
use uniprof_report::trend::{Collector, Order, Point, Trend, TrendError, TrendOptions};

const SERIES: u64 = 200;

/// Series in which something is found, and series in which exactly the planted step is, within one recording.
fn found(draw: fn(&mut Rng) -> f64, slower: f64) -> (usize, usize) {
    let (mut any, mut right) = (0, 0);
    for seed in 0..SERIES {
        let at = step(seed);
        let trend = series(seed, draw, (at, slower));
        any += usize::from(trend.changes() > 0);
        let of_first = trend.functions.iter().find(|it| it.name == "f0").unwrap();
        let is_near = of_first
            .changes
            .iter()
            .any(|change| change.at.abs_diff(at) <= 1);
        right += usize::from(is_near && trend.changes() == 1);
    }
    (any, right)
}

#[test]
fn false_changes_are_few_and_planted_steps_are_found_where_they_are() {
    let (any, _) = found(normal, 0.0);
    assert!(any <= 10, "{any} false changes");
    let (any, _) = found(tailed, 0.0);
    assert!(any <= 10, "{any} false changes with tails");
    let (_, right) = found(normal, 0.05);
    assert!(right >= 190, "{right} steps found");
}

/// Recordings of 3,000 samples of a program that works in phases of random lengths, so many in each. In a phase, one
/// function has 70 % of the time.
fn in_phases(seed: u64, recordings: usize, phases: f64) -> Trend {
    let mut random = Rng::with_seed(seed);
    let mut collector = Collector::new(TrendOptions::default());
    let all: f64 = FUNCTIONS.iter().sum();
    for number in 0..recordings {
        let mut times = FUNCTIONS.map(|time| 0.3 * phases * time / all);
        let mut left = phases;
        while left > 0.0 {
            let length = (-(1.0 - random.f64()).ln()).min(left);
            left -= length;
            let mut at = random.f64() * all;
            let function = FUNCTIONS.iter().position(|time| {
                at -= time;
                at < 0.0
            });
            times[function.unwrap_or(0)] += 0.7 * length;
        }
        let counts = times.map(|time| drawn(&mut random, 3000.0 * time / phases));
        push(&mut collector, number, &counts);
    }
    collector.finish().unwrap()
}

#[test]
fn programs_that_work_in_phases_have_few_false_changes() {
    for (recordings, phases) in [(20, 10.0), (40, 10.0)] {
        let any = (0..40).filter(|seed| in_phases(*seed, recordings, phases).changes() > 0);
        let any = any.count();
        assert!(
            any <= 4,
            "{any} of 40: {recordings} recordings of {phases} phases"
        );
    }
}

#[test]
fn intervals_of_shares_hold_the_truth() {
    let (mut inside, mut all) = (0, 0);
    for seed in 0..50 {
        let trend = series(seed, normal, (0, 0.0));
        for function in trend.functions.iter().filter(|it| it.changes.is_empty()) {
            let number: usize = function.name[1..].parse().unwrap();
            let truth = FUNCTIONS[number] / FUNCTIONS.iter().sum::<f64>();
            all += 1;
            inside += usize::from(function.interval.0 <= truth && truth <= function.interval.1);
        }
    }
    assert!(inside * 100 >= all * 93, "{inside} of {all}");
}

#[test]
fn what_makes_room_for_another_is_pushed_and_a_rule_goes_by_the_last_change() {
    let trend = series(1, normal, (20, 0.5));
    let changed: Vec<&str> = trend
        .functions
        .iter()
        .filter(|it| !it.changes.is_empty())
        .map(|it| it.name.as_str())
        .collect();
    assert_eq!(changed, ["f0"]);
    assert!(trend.functions.iter().filter(|it| it.pushed).count() > 5);
    let change = trend.functions[0].changes[0];
    assert_eq!(change.at, 20);
    // 200 of 1000 become 300 of 1100.
    assert!((change.ratio().unwrap() - 0.364).abs() < 0.03, "{change:?}");
    let (low, high) = change.relative.unwrap();
    assert!(low < 0.364 && 0.364 < high, "{change:?}");
    for (rule, is_broken) in [("f0>+30%", true), ("any>+40%", false), ("f1<-1%", false)] {
        let verdict = Rule::parse(rule).unwrap().verdict(&trend).unwrap();
        assert_eq!(
            matches!(verdict, RuleVerdict::Broken(_)),
            is_broken,
            "{rule}"
        );
    }
    let rule = Rule::parse("f99>+1%").unwrap();
    assert!(matches!(
        rule.verdict(&trend).unwrap(),
        RuleVerdict::Missing(_)
    ));
}

#[test]
fn what_was_small_before_is_not_new() {
    // A function with 0.3 % of the samples, and with 8 % from the tenth recording on.
    let mut collector = Collector::new(TrendOptions {
        order: Order::Given,
        least_share: 0.05,
        ..TrendOptions::default()
    });
    for number in 0..20 {
        let noise = (number * 7919 % 13) as f64;
        let small = noise + if number < 10 { 30.0 } else { 800.0 };
        let point = Point {
            name: format!("{number}.uprof"),
            samples: 10_000.0,
            ..Point::default()
        };
        let functions = [("main", 10_000.0 - small), ("grown", small)];
        let functions = functions.map(|(name, count)| (sighting(name.to_owned()), count));
        collector.push(point, functions).unwrap();
    }
    let trend = collector.finish().unwrap();
    let grown = trend.functions.iter().find(|it| it.name == "grown");
    let change = grown.unwrap().changes[0];
    assert_eq!(change.at, 10);
    assert!(
        change.ratio().is_some_and(|ratio| ratio > 10.0),
        "{change:?}"
    );
}

#[test]
fn levels_begin_with_a_version_where_versions_are_the_order() {
    let mut collector = Collector::new(TrendOptions {
        order: Order::Label("version".to_owned()),
        ..TrendOptions::default()
    });
    // Ten recordings of each version, and a function that is new in 1.10.
    for number in 0..30 {
        let version = ["1.10", "1.9", "1.2"][number % 3];
        let noise = (number * 7919 % 13) as f64;
        let point = Point {
            name: format!("{number}.uprof"),
            label: Some(version.to_owned()),
            samples: 1000.0 + noise,
            ..Point::default()
        };
        let fresh = if version == "1.10" {
            100.0 + noise
        } else {
            0.0
        };
        let functions = [("main", 900.0 - fresh), ("fresh", fresh)];
        let functions = functions.map(|(name, count)| (sighting(name.to_owned()), count));
        collector.push(point, functions).unwrap();
    }
    let trend = collector.finish().unwrap();
    let labels: Vec<&str> = trend
        .points
        .iter()
        .filter_map(|it| it.label.as_deref())
        .collect();
    assert_eq!(labels[0], "1.2");
    assert_eq!(labels[29], "1.10");
    let fresh = trend
        .functions
        .iter()
        .find(|it| it.name == "fresh")
        .unwrap();
    assert_eq!(fresh.changes.len(), 1, "{fresh:?}");
    assert_eq!((fresh.changes[0].at, fresh.changes[0].ratio()), (20, None));
    // A label may be any text, so it must not become Markdown.
    let mut out = Vec::new();
    let options = TableOptions {
        rows: 0,
        screen: Screen::default(),
    };
    markdown::write(&trend, options, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    for code in ["since `1.10`", "from `1.2` to `1.10`", "| `1.10` |"] {
        assert!(text.contains(code), "{code}: {text}");
    }
}

#[test]
fn few_recordings_have_no_trend() {
    let collector = Collector::new(TrendOptions::default());
    assert_eq!(collector.finish().unwrap_err(), TrendError::TooFew(0, 6));
}
