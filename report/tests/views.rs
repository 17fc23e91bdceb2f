//! Views and exports of a recording whose truth is known.

mod made;

use made::{open, small};
use uniprof_report::export::folded;
use uniprof_report::images::Library;
use uniprof_report::profile::functions::{TopOptions, rows};
use uniprof_report::profile::{By, Options, Profile, Sampled, gather};
use uniprof_report::recording::{Recording, Unit};
use uniprof_report::source_files::SourceFiles;
use uniprof_report::stacks::Codes;
use uniprof_report::text::Screen;
use uniprof_report::views::{annotate, callers, chart, flame, html, info, top, tree};

fn profile(recording: &Recording, options: &Options) -> Profile {
    let mut library = Library::default();
    library.only_given = true;
    gather(&[recording], &library, options, &|_, _| {}, None)
}

fn folded(profile: &Profile) -> String {
    let mut out = Vec::new();
    folded::write(profile, folded::FoldedOptions::default(), &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn stacks_have_their_functions_and_counts() {
    let recording = open(small());
    let profile = profile(&recording, &Options::default());
    let expected = "main;0x404210 1\n\
                    main;hash 1\n\
                    main;parse 2\n\
                    main;parse;sys_read;copy 1\n\
                    main;walk;hash 1\n\
                    main;walk;walk;walk 1\n";
    assert_eq!(folded(&profile), expected);
    assert_eq!(profile.account.counted, 7);
    assert_eq!(profile.account.by_state.values().sum::<u64>(), 1);
}

#[test]
fn filters_choose_samples_and_frames() {
    let recording = open(small());
    let mut options = Options::default();
    options.filter.focus = Some(regex::Regex::new("walk").unwrap());
    options.filter.hide = Some(regex::Regex::new("^main$").unwrap());
    let found = profile(&recording, &options);
    assert_eq!(folded(&found), "walk;hash 1\nwalk;walk;walk 1\n");
    let lines = found.account.lines().join("\n");
    assert!(
        lines.contains("not counted: 1 idle (12.5% of the samples"),
        "{lines}"
    );
    options.filter.ignore = Some(regex::Regex::new("hash").unwrap());
    assert_eq!(folded(&profile(&recording, &options)), "walk;walk;walk 1\n");
    let mut options = Options {
        by_task: true,
        ..Options::default()
    };
    options.filter.from_ns = Some(1_000_000);
    options.filter.to_ns = Some(3_000_000);
    let expected = "worker-7;main;parse 1\nworker-8;main;hash 1\n";
    let found = profile(&recording, &options);
    assert_eq!(folded(&found), expected);
    let line = found.account.lines().swap_remove(0);
    assert_eq!(line, "2 samples in 0.0 s (1000.0 a second)");
    options.filter.vcpus.insert(8);
    assert_eq!(
        folded(&profile(&recording, &options)),
        "worker-8;main;hash 1\n"
    );
    let by_module = Options {
        by: By::Module,
        ..Options::default()
    };
    let expected = "app 5\napp;[kernel] 1\napp;[unknown] 1\n";
    assert_eq!(folded(&profile(&recording, &by_module)), expected);
}

#[test]
fn a_recursive_function_counts_each_sample_once() {
    let recording = open(small());
    let profile = profile(&recording, &Options::default());
    let rows = rows(&profile);
    let walk = rows
        .iter()
        .find(|row| profile.labels.name(row.label) == "walk");
    assert_eq!(walk.map(|row| (row.own, row.total)), Some((1, 2)));
    let main = rows
        .iter()
        .find(|row| profile.labels.name(row.label) == "main");
    assert_eq!(main.map(|row| (row.own, row.total)), Some((0, 7)));
}

/// A trace of one thread: name, depth, start and duration (milliseconds) of its calls, in the order of their ends.
fn traced(calls: &[(&str, u16, u64, Option<u64>)]) -> Recording {
    const MS: u64 = 1_000_000;
    let metadata = uprof::cold::Metadata::default();
    let mut writer = uprof::Writer::create(Vec::new(), [7; 16], &metadata, 0).unwrap();
    for (name, depth, start_ms, length_ms) in calls {
        let span = uprof::Span {
            name: *name,
            task: uprof::Task { space: 7, vcpu: 7 },
            cpu: None,
            start_ns: Some(start_ms * MS),
            length_ns: length_ms.map(|ms| ms * MS),
            depth: *depth,
            complete: length_ms.is_some(),
            kind: uprof::SpanKind::Function,
            result: None,
        };
        writer.span(&span).unwrap();
    }
    let end = uprof::cold::End {
        time_ns: 10 * MS,
        reason: uprof::cold::EndReason::InputEnded,
        message: String::new(),
        totals: Vec::new(),
    };
    open(writer.finish(&end).unwrap())
}

#[test]
fn the_total_of_a_function_is_of_its_outermost_calls_that_count_and_ended() {
    let own_and_total = |recording: &Recording, options: &Options| {
        let found = profile(recording, options);
        let functions = found.calls.functions.iter();
        let mut of_walk = functions.filter(|(label, _)| found.labels.name(**label) == "walk");
        let (_, calls) = of_walk.next().unwrap();
        [calls.own_ns, calls.total_ns].map(|ns| ns / 1_000_000)
    };
    let all = Options::default();
    let unended = traced(&[("walk", 1, 1, Some(5)), ("walk", 0, 0, None)]);
    assert_eq!(own_and_total(&unended, &all), [5, 5]);
    let nested = traced(&[
        ("walk", 2, 2, Some(2)),
        ("visit", 1, 1, Some(4)),
        ("walk", 0, 0, Some(6)),
    ]);
    assert_eq!(own_and_total(&nested, &all), [4, 6]);
    let line = profile(&nested, &all).account.lines().swap_remove(0);
    assert_eq!(line, "6.0 ms in calls of 3 calls, in 10.0 ms");
    let [mut focused, mut late] = [all.clone(), all];
    focused.filter.focus = Some(regex::Regex::new("visit").unwrap());
    late.filter.from_ns = Some(1_000_000);
    for part in [focused, late] {
        assert_eq!(own_and_total(&nested, &part), [2, 2]);
    }
}

/// A recursive function, and two that call each other.
fn recursive() -> Vec<u8> {
    let made = |at_ms, stack| made::Made {
        at_ms,
        thread: 1,
        state: uprof::State::Running,
        stack,
    };
    made::recording(
        &["main", "walk", "eval", "apply", "leaf"],
        &[],
        &[
            made(1, &[1, 0]),
            made(2, &[1, 1, 1, 0]),
            made(3, &[4, 1, 1, 0]),
            made(4, &[2, 3, 2, 3, 2, 0]),
            made(5, &[3, 2, 3, 2, 0]),
            made(6, &[4, 3, 2, 0]),
            made(7, &[0]),
        ],
    )
}

/// Samples with a function in their stack, and samples with it as the innermost frame, counted from folded
/// stacks.
fn counted(folded: &str, function: &str) -> (u64, u64) {
    let stacks = folded.lines().map(|line| line.rsplit_once(' ').unwrap());
    let mut counts = (0, 0);
    for (stack, count) in stacks {
        let (frames, count): (Vec<&str>, u64) =
            (stack.split(';').collect(), count.parse().unwrap());
        counts.0 += if frames.contains(&function) { count } else { 0 };
        counts.1 += if frames.last() == Some(&function) {
            count
        } else {
            0
        };
    }
    counts
}

/// Total and self of each line of a tree, with the text after them.
fn tree_lines(text: &str) -> Vec<(u64, u64, &str)> {
    let lines = text.lines().skip_while(|line| !line.contains("total"));
    let lines = lines.skip(1).filter(|line| line.contains('%'));
    let parsed = lines.filter_map(|line| {
        let (total, rest) = line.trim_start().split_once(' ')?;
        let (_, rest) = rest.split_once('%')?;
        let (own, name) = rest.trim_start().split_once("  ")?;
        Some((total.parse().ok()?, own.parse().ok()?, name))
    });
    parsed.collect()
}

#[test]
fn callers_tell_what_was_in_the_function_itself() {
    for bytes in [small(), recursive()] {
        let recording = open(bytes);
        let profile = profile(&recording, &Options::default());
        for function in ["main", "walk", "eval", "apply", "leaf", "hash", "parse"] {
            let (total, own) = counted(&folded(&profile), function);
            for fold in [false, true] {
                let form = tree::TreeOptions {
                    fold,
                    ..tree::TreeOptions::default()
                };
                let mut out = Vec::new();
                let found = callers::write(&profile, function, form, &mut out).unwrap();
                assert_eq!(found, total > 0, "{function}");
                let text = String::from_utf8(out).unwrap();
                let first = tree_lines(&text).first().map(|line| (line.0, line.1));
                assert_eq!(
                    first.unwrap_or_default(),
                    (total, own),
                    "{function}:\n{text}"
                );
            }
        }
    }
    // Each line has the part of the samples that came by this path.
    let recording = open(recursive());
    let profile = profile(&recording, &Options::default());
    let mut out = Vec::new();
    callers::write(&profile, "eval", tree::TreeOptions::default(), &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    let expected = [
        (3, 1, "eval  [app]  ↻ 2 (2 functions)"),
        (2, 1, "├ apply  [app]"),
        (2, 1, "│ eval  [app]"),
        (2, 1, "│ main  [app]"),
        (1, 0, "└ main  [app]"),
    ];
    assert_eq!(tree_lines(&text), expected, "{text}");
}

#[test]
fn trees_tell_recursion_once_and_indent_branches_only() {
    let recording = open(recursive());
    let profile = profile(&recording, &Options::default());
    let written_above = |fold, least_share| {
        let form = tree::TreeOptions {
            fold,
            least_share,
            ..tree::TreeOptions::default()
        };
        let mut out = Vec::new();
        tree::write(&profile, form, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    };
    let written = |fold| written_above(fold, 0.0);
    let folded = written(true);
    let expected = [
        (7, 1, "main  [app]"),
        (3, 0, "├ eval  [app]  ↻ 2 (2 functions)"),
        (3, 1, "│ apply  [app]"),
        (1, 1, "│ ├ eval  [app]"),
        (1, 1, "│ └ leaf  [app]"),
        (3, 2, "└ walk  [app]  ↻ 3"),
        (1, 1, "  leaf  [app]"),
    ];
    assert_eq!(tree_lines(&folded), expected, "{folded}");
    assert!(
        folded.ends_with("(--recursion whole shows each)\n"),
        "{folded}"
    );
    let whole = written(false);
    assert_eq!(whole.matches("walk").count(), 3, "{whole}");
    assert!(!whole.contains('↻'), "{whole}");
    let large = written_above(false, 0.29);
    assert!(
        large.contains(" branches below 29% are not shown"),
        "{large}"
    );
}

#[test]
fn what_is_not_shown_is_told_with_its_reason() {
    let recording = open(small());
    let profile = profile(&recording, &Options::default());
    let last = |depth, least_share| {
        let form = tree::TreeOptions {
            depth,
            least_share,
            ..tree::TreeOptions::default()
        };
        let mut out = Vec::new();
        tree::write(&profile, form, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let line = text.lines().find(|line| line.starts_with('…'));
        line.unwrap_or_default().to_owned()
    };
    assert_eq!(last(0, 0.0), "");
    assert_eq!(last(1, 0.0), "… 4 branches too deep are not shown");
    assert_eq!(
        last(1, 0.2),
        "… 4 branches below 20% or too deep are not shown"
    );
    assert_eq!(last(0, 0.9), "… 4 branches below 90% are not shown");
    assert_eq!(last(3, 0.0), "… 1 branch too deep is not shown");
    let top = |least_share| {
        let options = TopOptions {
            rows: 1,
            least_share,
            ..TopOptions::default()
        };
        let mut out = Vec::new();
        top::write(&profile, options, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    };
    assert!(!top(0.0).contains("below"), "{}", top(0.0));
    let text = top(0.4);
    assert!(
        text.ends_with("… and 1 more (--rows 0 shows all)\n… and 5 below 40%\n"),
        "{text}"
    );
}

/// There are two outermost functions. The lines below the first are its callees.
#[test]
fn several_outermost_functions_are_branches() {
    let options = Options {
        by_task: true,
        ..Options::default()
    };
    let recording = open(small());
    let profile = profile(&recording, &options);
    let mut out = Vec::new();
    tree::write(&profile, tree::TreeOptions::default(), &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    let lines = tree_lines(&text);
    assert_eq!(lines[0], (4, 0, "├ worker-8"), "{text}");
    assert_eq!(lines[1], (4, 0, "│ main  [app]"), "{text}");
}

#[test]
fn text_views_show_what_they_rest_on() {
    let recording = open(small());
    let profile = profile(&recording, &Options::default());
    let mut out = Vec::new();
    top::write(&profile, Default::default(), &mut out).unwrap();
    tree::write(&profile, tree::TreeOptions::default(), &mut out).unwrap();
    let screen = Screen::default();
    info::write(
        &recording,
        &info::survey(&recording, &Library::default(), &|_, _| {}),
        screen,
        &mut out,
    )
    .unwrap();
    let text = String::from_utf8(out).unwrap();
    println!("{text}");
    for part in [
        "7 samples in 0.0 s",
        "not counted: 1 idle (12.5% of the samples; --idle counts them too)",
        "42.9%",
        "copy  [kernel]",
        "2017-07-11 09:12:44 UTC",
        "p50 1.5 us",
    ] {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
}

#[test]
fn several_recordings_add_up_and_are_told_apart() {
    let (a, b) = (open(small()), open(small()));
    let mut library = Library::default();
    library.only_given = true;
    let options = Options {
        by_recording: true,
        ..Options::default()
    };
    let profile = gather(&[&a, &b], &library, &options, &|_, _| {}, None);
    assert_eq!(profile.account.counted, 14);
    let text = folded(&profile);
    for line in ["made.uprof (1);main;parse 2", "made.uprof (2);main;parse 2"] {
        assert!(
            text.lines().any(|found| found == line),
            "{line} is not in:\n{text}"
        );
    }
}

/// A whole drawing with this title.
fn titled(title: &str) -> flame::FlameOptions {
    flame::FlameOptions {
        title: title.into(),
        subtitle: String::new(),
        reverse: false,
        icicle: false,
        least_share: 0.0,
        fold: false,
    }
}

#[test]
fn hostile_names_stay_text() {
    let long = "very_long_name::".repeat(60);
    let names = [
        "<script>alert(1)</script>",
        "a;b\n\u{1b}[31mc",
        "\"'&é日本語",
        long.as_str(),
    ];
    let made = |at_ms, stack| made::Made {
        at_ms,
        thread: 1,
        state: uprof::State::Running,
        stack,
    };
    let samples = [made(1, &[2, 1, 0][..]), made(2, &[3, 1, 0])];
    let recording = open(made::recording(&names, &[], &samples));
    let profile = profile(&recording, &Options::default());
    let expected = "<script>alert(1)</script>;a:b\u{fffd}\u{fffd}[31mc;\"'&é日本語 1\n";
    let text = folded(&profile);
    assert!(text.starts_with(expected), "{text}");
    let drawing = titled("<b>");
    let mut svg = Vec::new();
    flame::write(&profile, &drawing, &mut svg).unwrap();
    // For inspection by people.
    std::fs::write(concat!(env!("CARGO_TARGET_TMPDIR"), "/hostile.svg"), &svg).unwrap();
    let svg = String::from_utf8(svg).unwrap();
    assert!(!svg.contains("<script>alert"));
    assert!(!svg.contains("<b>"));
    assert!(svg.contains("&lt;script&gt;alert(1)"));
}

/// The bytes of every view, gathered with this many threads.
fn all_views(recording: &Recording, threads: usize) -> Vec<u8> {
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()
        .unwrap();
    pool.install(|| {
        let drawing = titled("made");
        let mut out = Vec::new();
        for by in [By::Function, By::Line, By::Module, By::Address, By::Place] {
            let mut shown = chart::Chart::default();
            let mut tally = html::Tally::default();
            let mut take = |sampled: &Sampled, _: &Profile| {
                shown.add(sampled, "worker");
                tally.add(sampled);
            };
            let mut library = Library::default();
            library.only_given = true;
            let options = Options {
                by,
                ..Options::default()
            };
            let found = gather(
                &[recording],
                &library,
                &options,
                &|_, _| {},
                Some(&mut take),
            );
            shown
                .write(&found, &[1_000_000], &drawing, &[], &mut out)
                .unwrap();
            top::write(&found, Default::default(), &mut out).unwrap();
            let form = tree::TreeOptions {
                reverse: true,
                ..tree::TreeOptions::default()
            };
            tree::write(&found, form, &mut out).unwrap();
            callers::write(&found, "hash", form, &mut out).unwrap();
            let annotation = annotate::Annotation {
                function: "hash",
                assembly: false,
                sources: &SourceFiles::of(true, Vec::new()),
                codes: &Codes::new(&[recording], &library, true),
                screen: Screen::default(),
            };
            annotate::write(&found, &annotation, &mut out).unwrap();
            flame::write(&found, &drawing, &mut out).unwrap();
            let page = html::Page {
                recordings: &[(
                    recording,
                    info::survey(recording, &Library::default(), &|_, _| {}),
                )],
                profile: &found,
                tally: &tally,
                chosen: String::new(),
                is_part: false,
                identify: false,
                drawing: &drawing,
                least_share: 0.0,
            };
            html::write(&page, &mut out).unwrap();
        }
        out
    })
}

#[test]
fn every_view_has_the_same_bytes_with_one_thread_and_with_two() {
    let recording = open(small());
    let one = all_views(&recording, 1);
    assert!(one == all_views(&recording, 2));
    let text = String::from_utf8(one).unwrap();
    for part in [
        "2 of them (28.6%) have hash in their stack; by callers, in percent of these:\n",
        "2 samples in hash itself",
        "worker (8)",
        "<!DOCTYPE html>",
    ] {
        assert!(text.contains(part), "{part:?} is missing");
    }
}

/// The width of all boxes whose text begins so, in percent of the picture's.
fn width(svg: &str, text: &str) -> f64 {
    let boxes = svg.split("<title>").filter(|one| one.starts_with(text));
    let widths = boxes.map(|one| {
        let (_, width) = one.split_once("width=\"").unwrap();
        let (width, _) = width.split_once('%').unwrap();
        width.parse::<f64>().unwrap()
    });
    widths.sum()
}

/// The chart of a recording at this period, whose samples are in `unit`, each as `changed` makes it.
fn charted(
    recording: &Recording,
    unit: Unit,
    period_ns: u64,
    mut changed: impl FnMut(Sampled) -> Sampled,
) -> String {
    let mut shown = chart::Chart::default();
    let mut take = |sampled: &Sampled, _: &Profile| {
        let sampled = Sampled { unit, ..*sampled };
        shown.add(&changed(sampled), "sh");
    };
    let mut library = Library::default();
    library.only_given = true;
    let each = Some(&mut take as &mut _);
    let options = Options::default();
    let mut found = gather(&[recording], &library, &options, &|_, _| {}, each);
    found.account.unit = unit;
    let mut out = Vec::new();
    shown
        .write(&found, &[period_ns], &titled("made"), &[], &mut out)
        .unwrap();
    String::from_utf8(out).unwrap()
}

/// Samples come at any time of their periods, so that there are often two in one slot of the chart, and none in the
/// next.
#[test]
fn a_chart_shows_all_time_of_a_vcpu_that_is_always_busy() {
    let drawn = |every: u64, unit: Unit| {
        let samples: Vec<made::Made<'_>> = (1..=400_u64)
            .filter(|period| period.is_multiple_of(every))
            .map(|period| made::Made {
                at_ms: period * 10 + period * 37 % 101 % 10,
                thread: 7,
                state: uprof::State::Running,
                stack: &[1, 0],
            })
            .collect();
        let recording = open(made::recording(&["main", "work"], &[], &samples));
        let svg = charted(&recording, unit, 10_000_000, |mut sampled| {
            if unit == Unit::Sampled {
                sampled.weight.amount = 10_000_000;
            }
            sampled
        });
        width(&svg, "work (") / width(&svg, "sh (7) (")
    };
    for unit in [Unit::Samples, Unit::Sampled] {
        let (always, half) = (drawn(1, unit), drawn(2, unit));
        assert!(always > 0.99, "{unit:?}: {always}");
        assert!((0.49..0.51).contains(&half), "{unit:?}: {half}");
    }
}

/// Samples of a slow rate are divided among the slots that a fast rate needs.
#[test]
fn a_chart_shows_each_rate_as_finely_as_it_is() {
    let periods_ms = [[1_u64; 400].as_slice(), &[100; 10]].concat();
    let samples: Vec<made::Made<'_>> = (0..periods_ms.len())
        .map(|number| made::Made {
            at_ms: periods_ms[..number].iter().sum(),
            thread: 7,
            state: uprof::State::Running,
            // Two functions take turns of 20 ms, until the rate changes.
            stack: if number / 20 % 2 == 0 || number >= 400 {
                &[1, 0]
            } else {
                &[2, 0]
            },
        })
        .collect();
    let recording = open(made::recording(&["main", "work", "rest"], &[], &samples));
    let mut periods = periods_ms.iter();
    let svg = charted(&recording, Unit::Sampled, 1_000_000, |mut sampled| {
        sampled.weight.amount = periods.next().unwrap() * 1_000_000;
        sampled
    });
    let boxes = svg.matches("<title>work (").count();
    assert_eq!(boxes, 11, "ten turns, and the time after them");
    let work = width(&svg, "work (") / width(&svg, "sh (7) (");
    assert!((work - 1.2 / 1.4).abs() < 0.001, "{work}");
}

#[test]
fn a_chart_of_short_processes_is_full_of_their_code_and_has_a_key() {
    let stacks: [[u64; 2]; 2] = [[0, 1], [100, 0]];
    let samples: Vec<made::Made<'_>> = (0..200_u64)
        .map(|number| made::Made {
            at_ms: number / 10 * 1000 + number % 10,
            thread: (number / 10) as u32 + 1,
            state: uprof::State::Running,
            stack: &stacks[(number % 2) as usize],
        })
        .collect();
    let recording = open(made::recording(&["work", "main"], &["vfs_read"], &samples));
    let svg = charted(&recording, Unit::Samples, 1_000_000, |sampled| sampled);
    let wide = |name: &str| width(&svg, name);
    assert!(wide("work (") > 90.0, "{} %", wide("work ("));
    assert!(wide("vfs_read (") > 40.0, "{} %", wide("vfs_read ("));
    for kind in ["kernel", "program", "process, thread"] {
        assert!(svg.contains(&format!(">{kind}</text>")), "{kind}");
    }
    assert!(!svg.contains(">JIT</text>"));
}
