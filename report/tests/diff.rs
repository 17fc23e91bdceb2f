//! Diffs of synthetic recordings whose truth is known.

mod made;

use made::Made;
use uniprof_report::diff::flame::{self, Widths};
use uniprof_report::diff::html::{self, PageOptions, Samples};
use uniprof_report::diff::listing::{Fragment, ListingSource};
use uniprof_report::diff::sentence::verdict;
use uniprof_report::diff::{
    BLOCKS, Diff, DiffOptions, Ending, Kind, Rule, RuleVerdict, Standing, TimeRatio, Times, diff,
    json, markdown, table,
};
use uniprof_report::images::Library;
use uniprof_report::profile::{Profile, Sampled};
use uniprof_report::recording::Recording;
use uniprof_report::stacks::Tables;
use uniprof_report::text::Screen;
use uniprof_report::views::flame::FlameOptions;

/// 10 s at 1000 Hz. Of every 100 samples, `slow` are in `hash` and the rest in `parse` or `walk`, shuffled by
/// a simple generator.
fn recorded(seed: u64, slow: u64, names: &[&str]) -> Recording {
    made::open(bytes_of(seed, slow, names))
}

fn bytes_of(seed: u64, slow: u64, names: &[&str]) -> Vec<u8> {
    const STACKS: [&[u64]; 3] = [&[1, 0], &[2, 0], &[3, 0]];
    let mut state = seed;
    let samples: Vec<Made> = (0..10_000)
        .map(|at_ms| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let draw = (state >> 33) % 100;
            let stack = match draw {
                _ if draw < slow => STACKS[1],
                _ if draw.is_multiple_of(2) => STACKS[0],
                _ => STACKS[2],
            };
            Made {
                at_ms,
                thread: 7,
                state: uprof::State::Running,
                stack,
            }
        })
        .collect();
    made::recording(names, &[], &samples)
}

const NAMES: [&str; 4] = ["main", "parse", "hash", "walk"];

fn compare(a: &[&Recording], b: &[&Recording]) -> Diff {
    let mut library = Library::default();
    library.only_given = true;
    diff(
        a,
        b,
        &Tables::of_builds(&library),
        &DiffOptions::default(),
        &|_, _| {},
        None,
    )
}

fn certain(diff: &Diff) -> Vec<String> {
    let changes = diff.verdicts.changes.iter().filter(|change| change.certain);
    let items = &diff.series.items;
    changes
        .map(|change| diff.series.item_name(&items[change.item]))
        .collect()
}

#[test]
fn blocks_of_time_lie_within_the_part_that_is_looked_at() {
    let (a, b) = (recorded(1, 30, &NAMES), recorded(2, 30, &NAMES));
    let mut library = Library::default();
    library.only_given = true;
    let mut options = DiffOptions::default();
    options.gather.filter.from_ns = Some(6_000_000_000);
    options.gather.filter.to_ns = Some(8_000_000_000);
    let found = diff(
        &[&a],
        &[&b],
        &Tables::of_builds(&library),
        &options,
        &|_, _| {},
        None,
    );
    for side in &found.series.sides {
        let mut totals = vec![0.0; BLOCKS];
        for cell in &side.recordings[0].cells {
            totals[cell.block] += cell.count;
        }
        assert_eq!(side.total(), 2_000.0);
        // 2,000 samples in 120 blocks.
        assert!(totals.iter().all(|total| (16.0..=17.0).contains(total)));
    }
    for account in &found.accounts {
        assert_eq!((account.counted, account.outside), (2_000, 8_000));
    }
}

/// Replaces the content of the first block of samples, with checksums that fit. Returns the number of its samples.
fn make_undecodable(bytes: &mut [u8]) -> u64 {
    const HEADER_BYTES: usize = 64;
    let number = |bytes: &[u8], at: usize| {
        let field: [u8; 4] = bytes[at..at + 4].try_into().unwrap();
        u32::from_le_bytes(field) as usize
    };
    // The first block follows the preamble; format-spec.md, section 3, has the fields.
    let mut at = 32;
    while number(bytes, at + 48) == 0 {
        at += HEADER_BYTES + number(bytes, at + 16);
    }
    let payload = at + HEADER_BYTES..at + HEADER_BYTES + number(bytes, at + 16);
    bytes[payload.clone()].fill(0xff);
    let sum = crc32fast::hash(&bytes[payload]);
    bytes[at + 56..at + 60].copy_from_slice(&sum.to_le_bytes());
    let sum = crc32fast::hash(&bytes[at..at + 60]);
    bytes[at + 60..at + HEADER_BYTES].copy_from_slice(&sum.to_le_bytes());
    number(bytes, at + 48) as u64
}

#[test]
fn samples_that_can_not_be_decoded_are_missing_on_their_side() {
    let mut bytes = bytes_of(2, 30, &NAMES);
    let lost = make_undecodable(&mut bytes);
    let found = compare(&[&recorded(1, 30, &NAMES)], &[&made::open(bytes)]);
    let [a, b] = &found.accounts;
    assert_eq!((a.undecoded, a.is_incomplete()), (0, false));
    assert_eq!((b.undecoded, b.is_incomplete()), (lost, true));
    let told = format!("undecodable: {lost} samples");
    let mut warnings = found.warnings.iter();
    assert!(
        warnings.any(|it| it.starts_with("B is incomplete") && it.contains(&told)),
        "{:?}",
        found.warnings
    );
}

#[test]
fn a_planted_change_is_certain_and_breaks_its_rule() {
    let sides = [30, 36].map(|slow| [1, 2, 3].map(|seed| recorded(seed * slow, slow, &NAMES)));
    let [a, b] = sides.each_ref().map(|side| side.iter().collect::<Vec<_>>());
    let found = compare(&a, &b);
    assert!(certain(&found).contains(&"hash".to_owned()));
    let verdict = |text: &str| Rule::parse(text).unwrap().verdict(&found).unwrap();
    let broken =
        |text: &str| matches!(verdict(text), RuleVerdict::Broken(why) if why.contains("hash"));
    assert!(broken("hash>+5%"));
    assert!(broken("any>+5%"));
    // `parse` takes a smaller share only because `hash` grew.
    for kept in ["hash>+50%", "walk>+1%", "hash<-1%", "parse<-1%"] {
        let told = verdict(kept);
        // The verdict shows the figures that it is based on.
        let numbers = matches!(&told, RuleVerdict::Passed(how) if how.contains("points"));
        assert!(numbers, "{told:?}");
    }
    assert!(matches!(verdict("hahs>+5%"), RuleVerdict::Missing(why) if why.contains("hahs")));
    let hash = found
        .verdicts
        .changes
        .iter()
        .find(|change| found.series.item_name(&found.series.items[change.item]) == "hash");
    let (low, high) = hash.unwrap().interval;
    assert!(
        low < 0.06 && 0.06 < high,
        "the truth lies outside {low} to {high}"
    );
}

#[test]
fn a_whole_that_takes_longer_breaks_a_rule_of_any_function() {
    let runs = [1, 2].map(|seed| recorded(seed, 30, &NAMES));
    let mut found = compare(&[&runs[0]], &[&runs[1]]);
    let verdict = |found: &Diff, text: &str| Rule::parse(text).unwrap().verdict(found).unwrap();
    assert!(matches!(
        verdict(&found, "any>+50%"),
        RuleVerdict::Passed(_)
    ));
    found.times = Some(Times {
        processor: TimeRatio::new([&[1.0, 1.01, 1.02], &[2.0, 2.01, 2.02]], true, 0.95),
        wall: None,
    });
    let broken = verdict(&found, "any>+50%");
    assert!(matches!(broken, RuleVerdict::Broken(why) if why.contains("processor time")));
    for kept in ["any>+150%", "any<-5%", "any>+5pp"] {
        assert!(
            matches!(verdict(&found, kept), RuleVerdict::Passed(_)),
            "{kept}"
        );
    }
}

#[test]
fn the_same_workload_twice_shows_nothing() {
    let (a, b) = (recorded(3, 30, &NAMES), recorded(4, 30, &NAMES));
    let mut found = compare(&[&a], &[&b]);
    assert_eq!(certain(&found), Vec::<String>::new());
    let all = Rule::parse("any>+0%").unwrap();
    assert!(matches!(all.verdict(&found), Ok(RuleVerdict::Passed(_))));
    // The recorder ended these, so they say nothing of how long a run takes.
    found.times = Some(Times::of([&[&a], &[&b]], false, 0.95));
    assert_eq!(found.times, Some(Times::default()));
    assert_eq!(verdict(&found.listing(false)), "No change is certain.");
}

#[test]
fn a_legend_says_on_cpu_only_of_samples_in_the_default_states() {
    let (a, b) = (recorded(3, 30, &NAMES), recorded(4, 30, &NAMES));
    let mut found = compare(&[&a], &[&b]);
    let legend = |found: &Diff| {
        let mut out = Vec::new();
        let form = table::TableOptions {
            rows: 0,
            paths: false,
            explain: true,
            screen: Screen::default(),
        };
        table::write(found, form, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        text.lines().last().unwrap().to_owned()
    };
    assert!(legend(&found).starts_with("Shares of on-CPU samples in percent"));
    let idle = [uprof::State::Running, uprof::State::Blocked];
    found.options.gather.filter.states = idle.into();
    assert!(legend(&found).starts_with("Shares of samples in percent"));
}

#[test]
fn names_of_functions_are_code_in_all_sentences_of_markdown() {
    let (a, b) = (recorded(3, 30, &NAMES), recorded(4, 30, &NAMES));
    let mut found = compare(&[&a], &[&b]);
    found.ending = Some(Ending {
        runs: 4,
        standing: Standing {
            certain: 0,
            open: vec![
                Fragment::Function("<T as `U`>::f|g".to_owned()),
                Fragment::Words("processor time".to_owned()),
            ],
            is_timed: true,
            awaits_total: false,
        },
        size: 0.05,
    });
    let mut out = Vec::new();
    let form = table::TableOptions {
        rows: 0,
        paths: false,
        explain: false,
        screen: Screen::default(),
    };
    markdown::write(&found, form, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    let told = "neither certain nor excluded for ``<T as `U`>::f\\|g``, processor time: more";
    assert!(text.contains(told), "{text}");
}

#[test]
fn a_page_has_one_verdict_with_paths_too() {
    let sides = [30, 36].map(|slow| [1, 2, 3].map(|seed| recorded(seed * slow, slow, &NAMES)));
    let [a, b] = sides.each_ref().map(|side| side.iter().collect::<Vec<_>>());
    let mut library = Library::default();
    library.only_given = true;
    let mut samples = Samples::default();
    let mut take = |sampled: &Sampled, _: &Profile| samples.add(sampled);
    let tables = Tables::of_builds(&library);
    let options = DiffOptions::default();
    let found = diff(&a, &b, &tables, &options, &|_, _| {}, Some(&mut take));
    let [with, without] = [true, false].map(|paths| verdict(&found.listing(paths)));
    assert_ne!(with, without);
    let page = PageOptions {
        paths: true,
        chosen: String::new(),
    };
    let mut out = Vec::new();
    html::write(&found, [&a, &b], samples, &page, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    for told in [format!("<li>{with}</li>"), format!("<h2>{with}</h2>")] {
        assert!(text.contains(&told), "no {told}");
    }
}

#[test]
fn renamed_new_and_gone_functions_are_told_apart() {
    let a = recorded(5, 30, &["main", "parse.constprop.0", "hash", "walk"]);
    let b = recorded(6, 30, &["main", "parse", "hash", "crawl"]);
    let found = compare(&[&a], &[&b]);
    let kind = |name: &str| {
        let mut functions = found.series.functions.iter();
        functions
            .find(|function| function.name == name)
            .unwrap()
            .kind
    };
    assert_eq!(kind("main"), Kind::Same);
    assert_eq!(kind("parse"), Kind::Renamed);
    assert_eq!(kind("walk"), Kind::Gone);
    assert_eq!(kind("crawl"), Kind::New);
    assert_eq!(certain(&found).len(), 4, "{:?}", certain(&found));
}

#[test]
fn all_outputs_are_the_same_with_one_thread_and_with_two() {
    let (a, b) = (recorded(1, 30, &NAMES), recorded(2, 36, &NAMES));
    let others = [3, 4].map(|seed| recorded(seed, 30, &NAMES));
    let outputs = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap();
        pool.install(|| {
            let found = compare(&[&a, &others[0], &others[1]], &[&b]);
            let mut out = Vec::new();
            let form = table::TableOptions {
                rows: 0,
                paths: true,
                explain: true,
                screen: Screen::default(),
            };
            table::write(&found, form, &mut out).unwrap();
            json::write(&found, true, &mut out).unwrap();
            let drawing = FlameOptions {
                title: "diff".into(),
                subtitle: String::new(),
                reverse: false,
                icicle: false,
                least_share: 0.0,
                fold: false,
            };
            flame::write(&found, Widths::A, &drawing, &mut out).unwrap();
            flame::write(&found, Widths::B, &drawing, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        })
    };
    let one = outputs(1);
    assert!(one == outputs(2));
    assert!(one.contains("\"certain\": "));
    assert!(!one.contains("differences between runs"));
    let said = compare(&[&a], &[&b]).warnings;
    let unmeasured = |line: &String| line.contains("differences between runs");
    assert!(said.iter().any(unmeasured), "{said:?}");
}

#[test]
fn table_and_json_have_the_same_certain_changes_and_say_what_to_do_next() {
    let sides = [30, 33].map(|slow| [1, 2, 3].map(|seed| recorded(seed * slow, slow, &NAMES)));
    let [a, b] = sides.each_ref().map(|side| side.iter().collect::<Vec<_>>());
    let found = compare(&a, &b);
    for paths in [false, true] {
        let mut out = Vec::new();
        json::write(&found, paths, &mut out).unwrap();
        let told: serde_json::Value = serde_json::from_slice(&out).unwrap();
        let changes = told["changes"].as_array().unwrap();
        assert_eq!(paths, changes.iter().any(|change| change["of"] == "path"));
        let certain: Vec<_> = changes.iter().filter(|it| it["certain"] == true).collect();
        assert_eq!(told["certain"], certain.len());
        for change in &certain {
            let edge = |at: usize| change["interval"][at].as_f64().unwrap();
            assert!(edge(0) * edge(1) > 0.0, "{change}");
            let level = change["interval_confidence"].as_f64().unwrap();
            assert!(change["p"].as_f64().unwrap() <= 1.0 - level, "{change}");
        }
        let names: Vec<&str> = certain
            .iter()
            .filter_map(|it| it["name"].as_str())
            .collect();
        assert!(names.contains(&"hash"), "{names:?}");
        // A function that only made room for `hash` is reported as such.
        assert!(
            !names.contains(&"parse") && !names.contains(&"walk"),
            "{names:?}"
        );
        let mut out = Vec::new();
        let form = table::TableOptions {
            rows: 0,
            paths,
            explain: true,
            screen: Screen::default(),
        };
        table::write(&found, form, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let starred = text.lines().filter(|line| line.starts_with("* "));
        assert_eq!(starred.count(), certain.len());
        let verdict = told["verdict"].as_str().unwrap();
        assert!(verdict.starts_with("`hash` takes "), "{verdict}");
        assert!(text.starts_with(verdict), "{text}");
        let rest = format!("{} more change", certain.len() - 1);
        assert_eq!(verdict.contains(&rest), certain.len() > 1, "{verdict}");
        assert!(text.contains("Next: to show"), "{text}");
    }
}

#[test]
fn a_question_is_settled_if_a_change_is_certain_or_excluded() {
    let sides = [30, 36].map(|slow| [1, 2, 3].map(|seed| recorded(seed * slow, slow, &NAMES)));
    let [a, b] = sides.each_ref().map(|side| side.iter().collect::<Vec<_>>());
    let mut found = compare(&a, &b);
    let ratio = |times: [f64; 4]| TimeRatio::new([&[1.0, 1.1, 0.9, 1.0], &times], true, 0.95);
    let times = Times {
        wall: None,
        processor: ratio([1.07, 1.178, 0.962, 1.071]),
    };
    let open = |times: &Times, size: f64| Standing::new(&found, times, size).open;
    assert_eq!(open(&times, 5.0), []);
    // The certain one is settled, whatever its size, and so are those that it pushed.
    assert_eq!(open(&times, 1e-6), []);
    let mut equal = compare(&a, &[&recorded(11, 30, &NAMES), &recorded(12, 30, &NAMES)]);
    let left = Standing::new(&equal, &times, 1e-6).open;
    assert_eq!(left.len(), 3, "{left:?}");
    // A change of the share by this is excluded. That of the function's time is if the whole stays, but not of a part
    // of the samples, of which the processor time says nothing.
    let relative = equal.verdicts.changes.iter().filter_map(|it| it.relative);
    let widest = relative.fold(0.0_f64, |most, (low, high)| most.max(high).max(-low));
    let same = Times {
        wall: None,
        processor: ratio([1.0, 1.1, 0.9, 1.0]),
    };
    let open_of = |equal: &Diff, times: &Times| Standing::new(equal, times, widest * 1.001).open;
    assert_eq!(open_of(&equal, &same), []);
    assert_ne!(open_of(&equal, &Times::default()), []);
    equal.options.gather.filter.from_ns = Some(1);
    assert_ne!(open_of(&equal, &same), []);
    // Of all samples but a few, the time of the whole is asked about instead.
    for change in &mut equal.verdicts.changes {
        (change.estimate.a, change.estimate.b) = (0.95, 0.92);
    }
    assert_eq!(open_of(&equal, &same), []);
    let vague = Times {
        wall: None,
        processor: ratio([1.5, 0.9, 1.0, 1.3]),
    };
    assert_eq!(
        open(&vague, 0.05).last(),
        Some(&Fragment::Words("processor time".to_owned()))
    );
    found.times = Some(times);
    let mut out = Vec::new();
    json::write(&found, false, &mut out).unwrap();
    let told: serde_json::Value = serde_json::from_slice(&out).unwrap();
    let verdict = told["verdict"].as_str().unwrap();
    let start = "B takes 1.070 ± 0.00";
    assert!(
        verdict.starts_with(start) && verdict.contains("`hash` accounts for "),
        "{verdict}"
    );
    assert!(
        verdict.contains(" of the 7.0 points. `hash` takes "),
        "{verdict}"
    );
    // Shares of a part of the samples are no parts of the whole time.
    found.options.gather.filter.from_ns = Some(1);
    let mut out = Vec::new();
    json::write(&found, false, &mut out).unwrap();
    assert!(!String::from_utf8(out).unwrap().contains("accounts for"));
}

#[test]
fn a_side_is_as_long_as_what_is_selected_of_it() {
    let [a, b] = [20, 40].map(|length_ms| {
        let samples = (0..length_ms).map(|at_ms| Made {
            at_ms,
            thread: 7,
            state: uprof::State::Running,
            stack: &[1, 0],
        });
        let samples: Vec<Made> = samples.collect();
        made::open(made::recording(&NAMES, &[], &samples))
    });
    let mut library = Library::default();
    library.only_given = true;
    let differ = |to_ns| {
        let mut options = DiffOptions::default();
        options.gather.filter.to_ns = to_ns;
        let tables = Tables::of_builds(&library);
        let found = diff(&[&a], &[&b], &tables, &options, &|_, _| {}, None);
        let said = found.warnings.into_iter();
        said.filter(|line| line.contains(" differ: "))
            .collect::<Vec<_>>()
    };
    assert_eq!(differ(None), ["lengths differ: 0.0 s / 0.0 s"]);
    assert_eq!(differ(Some(10_000_000)), [""; 0]);
}
