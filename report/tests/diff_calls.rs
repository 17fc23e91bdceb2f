//! The comparison of calls of traces, with synthetic traces whose truth is known.

use uniprof_report::diff::calls::{Blocks, CallChange, Measure};
use uniprof_report::diff::table::TableOptions;
use uniprof_report::diff::{
    CallDiff, Comparable, DiffOptions, Rule, RuleVerdict, comparable, diff_calls, json, table,
};
use uniprof_report::images::Library;
use uniprof_report::recording::Recording;
use uniprof_report::text::Screen;
use uprof::cold::{End, EndReason, Metadata};
use uprof::{Span, SpanKind, Task, Writer};

mod made;

/// How the program differs from the usual one.
#[derive(Clone, Copy)]
struct Program {
    /// Self time of a call of `hash` (nanoseconds).
    hash_ns: u64,
    /// Number of calls of `copy` in each round.
    copies: u64,
    rounds: u64,
    is_timed: bool,
}

const USUAL: Program = Program {
    hash_ns: 3_000,
    copies: 2,
    rounds: 2_000,
    is_timed: true,
};

/// A trace: each round calls `parse`, `hash` and `walk`, and `copy` as often as `program` says. Durations
/// vary by a fifth.
fn traced(seed: u64, program: Program) -> Recording {
    let mut metadata = Metadata::default();
    metadata.target.name = "made".into();
    let mut writer = Writer::create(Vec::new(), [7; 16], &metadata, 0).unwrap();
    let mut random = fastrand::Rng::with_seed(seed);
    let mut now_ns = 0;
    for _ in 0..program.rounds {
        let begun_ns = now_ns;
        let mut call = |name: &str, mean_ns: u64, depth: u16| {
            let length_ns = mean_ns * random.u64(80..=120) / 100;
            let start_ns = if depth == 0 { begun_ns } else { now_ns };
            let span = Span {
                name,
                task: Task { space: 7, vcpu: 7 },
                cpu: None,
                start_ns: program.is_timed.then_some(start_ns),
                length_ns: Some(if depth == 0 {
                    now_ns - begun_ns
                } else {
                    length_ns
                }),
                depth,
                complete: true,
                kind: SpanKind::Function,
                result: None,
            };
            writer.span(&span).unwrap();
            now_ns += if depth == 0 { 500 } else { length_ns };
        };
        call("parse", 4_000, 1);
        call("hash", program.hash_ns, 1);
        call("walk", 2_000, 1);
        (0..program.copies).for_each(|_| call("copy", 1_000, 1));
        call("round", 0, 0);
    }
    let totals = match program.is_timed {
        true => Vec::new(),
        false => vec![("spans_without_a_time".to_owned(), program.rounds)],
    };
    let end = End {
        time_ns: now_ns,
        reason: EndReason::InputEnded,
        message: String::new(),
        totals,
    };
    made::open(writer.finish(&end).unwrap())
}

fn sides(a: Program, b: Program) -> [Vec<Recording>; 2] {
    let runs = |first: u64, program| (0..3).map(|run| traced(first + run, program)).collect();
    [runs(1, a), runs(11, b)]
}

fn compare([a, b]: &[Vec<Recording>; 2]) -> CallDiff {
    let mut library = Library::default();
    library.only_given = true;
    let options = DiffOptions {
        least_change: 0.01,
        ..DiffOptions::default()
    };
    let [a, b] = [a, b].map(|side| side.iter().collect::<Vec<_>>());
    diff_calls(&a, &b, &library, &options, &|_, _| {})
}

fn certain(diff: &CallDiff) -> Vec<(String, Measure)> {
    let changes = diff.verdicts.changes.iter().filter(|change| change.certain);
    let mut all: Vec<_> = changes
        .map(|change| (diff.name(change).to_owned(), change.of))
        .collect();
    all.sort();
    all
}

fn change<'d>(diff: &'d CallDiff, name: &str, of: Measure) -> &'d CallChange {
    let mut changes = diff.verdicts.changes.iter();
    let found = changes.find(|change| diff.name(change) == name && change.of == of);
    found.unwrap_or_else(|| panic!("no {of:?} of {name}"))
}

#[test]
fn what_takes_longer_and_what_is_called_more_often_are_told_apart() {
    let changed = Program {
        hash_ns: 6_000,
        copies: 4,
        ..USUAL
    };
    let found = compare(&sides(USUAL, changed));
    assert_eq!(found.series.by, Blocks::Time);
    let expected = [
        ("copy", Measure::Rate),
        ("hash", Measure::Own),
        ("round", Measure::Total),
    ];
    assert_eq!(
        certain(&found),
        expected.map(|(name, of)| (name.to_owned(), of))
    );
    let hash = change(&found, "hash", Measure::Own);
    assert!((hash.apart() - 1.0).abs() < 0.05, "{hash:?}");
    assert!((hash.values[0] - 3_000.0).abs() < 60.0, "{hash:?}");
    // A round takes 5 us more, so all functions are called less often. That is a common change, and not one
    // of each function.
    let copy = change(&found, "copy", Measure::Rate);
    assert!((copy.apart() - 1.0).abs() < 0.02, "{copy:?}");
    assert!(copy.relative() < 0.5, "{copy:?}");
    let walk = change(&found, "walk", Measure::Rate);
    assert!(
        walk.relative() < -0.25 && walk.apart().abs() < 0.01,
        "{walk:?}"
    );
    assert!((found.verdicts.common[1] - walk.relative()).abs() < 0.01);
    for one in found.verdicts.changes.iter().filter(|one| one.certain) {
        let (low, high) = one.interval();
        assert!(low > 0.0 || high < 0.0, "{one:?}");
        assert!(one.p <= 1.0 - one.confidence);
    }
}

#[test]
fn the_same_program_twice_shows_nothing() {
    let found = compare(&sides(USUAL, USUAL));
    assert_eq!(certain(&found), []);
    let any = Rule::parse("any>+0%").unwrap().verdict(&found);
    assert!(matches!(any, Ok(RuleVerdict::Passed(_))), "{any:?}");
}

#[test]
fn rules_ask_of_the_time_and_of_the_number_of_calls() {
    let changed = Program {
        hash_ns: 6_000,
        copies: 4,
        ..USUAL
    };
    let found = compare(&sides(USUAL, changed));
    let verdict = |text: &str| Rule::parse(text).unwrap().verdict(&found);
    for broken in ["hash>+50%", "copy>+20%", "any>+50%"] {
        let told = verdict(broken);
        assert!(matches!(told, Ok(RuleVerdict::Broken(_))), "{told:?}");
    }
    // There are four copies in place of two, but the round is longer. So the rate grows by less than a half.
    for kept in ["copy>+80%", "hash>+200%", "walk>+1%", "walk<-5%"] {
        let told = verdict(kept);
        assert!(matches!(told, Ok(RuleVerdict::Passed(_))), "{told:?}");
    }
    assert!(matches!(verdict("hahs>+5%"), Ok(RuleVerdict::Missing(_))));
    let refused = verdict("hash>+1pp").unwrap_err();
    assert!(
        refused.to_string().contains("points are of shares"),
        "{refused}"
    );
}

#[test]
fn without_times_there_is_order_and_no_second() {
    let untimed = |copies| Program {
        copies,
        is_timed: false,
        ..USUAL
    };
    let found = compare(&sides(untimed(2), untimed(4)));
    assert_eq!(found.series.by, Blocks::Order);
    let copy = ("copy".to_owned(), Measure::Rate);
    assert!(certain(&found).contains(&copy), "{:?}", certain(&found));
    // Two of six calls, and four of eight calls.
    let rates = change(&found, "copy", Measure::Rate).values;
    assert!((rates[0] - 333.3).abs() < 0.1 && (rates[1] - 500.0).abs() < 0.1);
    let text = written(&found);
    assert!(text.contains("333/1000") && !text.contains("/s "), "{text}");
    assert!(text.contains("there are no calls a second"), "{text}");
    let mut out = Vec::new();
    json::write(&found, false, &mut out).unwrap();
    let told: serde_json::Value = serde_json::from_slice(&out).unwrap();
    assert_eq!(told["blocks"], "order");
    assert!(told["seconds"].is_null());
    // If one side lacks times, those of the other are not used.
    let mixed = compare(&sides(USUAL, untimed(2)));
    assert_eq!(mixed.series.by, Blocks::Order);
    assert_eq!(certain(&mixed), []);
}

#[test]
fn few_calls_are_too_few_to_tell() {
    let few = Program {
        rounds: 12,
        ..USUAL
    };
    let slower = Program {
        hash_ns: 30_000,
        ..few
    };
    let [a, b] = [few, slower].map(|program| vec![traced(5, program)]);
    let found = compare(&[a, b]);
    assert_eq!(certain(&found), []);
    let text = written(&found);
    assert!(
        text.contains("the time per call of 4 of 5 functions"),
        "{text}"
    );
    assert!(text.contains("A has only 72 calls"), "{text}");
    let one = Program { rounds: 1, ..USUAL };
    let [a, b] = [one, one].map(|program| vec![traced(5, program)]);
    let text = written(&compare(&[a, b]));
    assert!(text.contains("no function has 16 on each side"), "{text}");
}

#[test]
fn samples_and_calls_are_not_compared() {
    let sampled = made::open(made::recording(
        &["main"],
        &[],
        &[made::Made {
            at_ms: 1,
            thread: 7,
            state: uprof::State::Running,
            stack: &[0],
        }],
    ));
    let traced = traced(1, Program { rounds: 3, ..USUAL });
    assert_eq!(
        comparable([&sampled, &sampled].into_iter()),
        Comparable::Samples
    );
    assert_eq!(
        comparable([&traced, &traced].into_iter()),
        Comparable::Calls
    );
    assert_eq!(
        comparable([&traced, &sampled].into_iter()),
        Comparable::Neither {
            samples: 1,
            calls: 0
        }
    );
}

fn written(diff: &CallDiff) -> String {
    let options = TableOptions {
        rows: 0,
        explain: true,
        paths: false,
        screen: Screen::default(),
    };
    let mut out = Vec::new();
    table::write(diff, options, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}
