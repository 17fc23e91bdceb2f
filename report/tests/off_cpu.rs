//! Off-CPU time in every view, export and diff: never added to samples, and always shown with its unit.

mod exported;
mod made;

use exported::exported;
use made::{Made, open};
use uniprof_report::diff::{DiffOptions, diff, table};
use uniprof_report::export::{FORMATS, folded};
use uniprof_report::images::Library;
use uniprof_report::profile::load::loads;
use uniprof_report::profile::{Each, Options, Profile, Sampled, gather};
use uniprof_report::recording::{Recording, Unit};
use uniprof_report::stacks::Tables;
use uniprof_report::text::Screen;
use uniprof_report::views::flame::FlameOptions;
use uniprof_report::views::{chart, flame, html, info, top, tree};
use uprof::{State, Wait};

const MS: u64 = 1_000_000;

fn library() -> Library {
    let mut library = Library::default();
    library.only_given = true;
    library
}

fn in_unit(unit: Option<Unit>) -> Options {
    let mut options = Options::default();
    options.filter.unit = unit;
    options
}

fn profile(recording: &Recording, options: &Options) -> Profile {
    gather(&[recording], &library(), options, &|_, _| {}, None)
}

fn folded(profile: &Profile) -> String {
    let mut out = Vec::new();
    folded::write(profile, folded::FoldedOptions::default(), &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn top(profile: &Profile) -> String {
    let mut out = Vec::new();
    top::write(profile, Default::default(), &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// Two samples, unless `waits_only` is set; then waits: 30 ms in a read, 8 ms ready, and three waits of 1.5
/// ms in total in the read again.
fn waiting(waits_only: bool) -> Vec<u8> {
    let made = |at_ms, thread, state, stack| Made {
        at_ms,
        thread,
        state,
        stack,
    };
    let all = [
        made(0, 7, State::Running, &[1, 0][..]),
        made(1, 8, State::Running, &[2, 0]),
        made(2, 7, State::Blocked, &[102, 101, 100, 1, 0]),
        made(5, 8, State::Ready, &[101, 2, 0]),
        made(40, 7, State::Blocked, &[102, 101, 100, 1, 0]),
    ];
    let waits = [(30_000_000, 1), (8_000_000, 1), (1_500_000, 3)];
    let skipped = if waits_only { 2 } else { 0 };
    made::recording_of(
        &["main", "parse", "hash"],
        &["sys_read", "schedule", "__schedule"],
        &all[skipped..],
        |number| {
            let (time_ns, count) = *waits.get((number + skipped).checked_sub(2)?)?;
            Some(Wait { time_ns, count })
        },
    )
}

/// A filter that leaves no sample must not show waits as if they were what it left.
#[test]
fn no_filter_changes_the_unit() {
    let [mixed, waits] = [false, true].map(|waits_only| open(waiting(waits_only)));
    for (from_ns, to_ns, ignore) in [
        (Some(10 * MS), Some(20 * MS), None),
        (Some(1_000_000 * MS), None, None),
        (None, None, Some(regex::Regex::new("main").unwrap())),
    ] {
        let mut options = Options::default();
        options.filter.from_ns = from_ns;
        options.filter.to_ns = to_ns;
        options.filter.ignore = ignore;
        for (recording, unit) in [(&mixed, Unit::Samples), (&waits, Unit::OffCpu)] {
            let found = profile(recording, &options);
            assert_eq!(found.unit(), unit, "{options:?}");
        }
        let account = profile(&mixed, &options).account;
        assert_eq!(account.counted, 0);
        // Of a block that is all outside, the samples, and not the three waits.
        assert_eq!(
            account.outside,
            if options.filter.ignore.is_none() {
                2
            } else {
                0
            }
        );
    }
}

/// A wait that lasts longer than its block is found in the time that is selected, and is there, not where it began.
#[test]
fn a_part_of_a_wait_is_at_its_own_time() {
    let recording = open(waiting(true));
    for (from_ms, to_ms, expected) in [
        (10, 20, vec![(10, 3), (10, 10)]),
        // All began before, in the only block.
        (41, 60, vec![(41, 0)]),
        (0, 6, vec![(2, 4), (5, 1)]),
    ] {
        let mut options = in_unit(Some(Unit::OffCpu));
        options.filter.from_ns = Some(from_ms * MS);
        options.filter.to_ns = Some(to_ms * MS);
        let mut found = Vec::new();
        let mut take = |sampled: &Sampled, _: &Profile| {
            found.push((sampled.since_ns / MS, sampled.weight.amount / MS));
        };
        let each: Option<&mut Each<'_>> = Some(&mut take);
        gather(&[&recording], &library(), &options, &|_, _| {}, each);
        found.sort_unstable();
        assert_eq!(found, expected, "from {from_ms} to {to_ms} ms");
    }
}

#[test]
fn a_wait_is_no_sample_to_info_and_to_the_load() {
    let recording = open(waiting(false));
    let survey = info::survey(&recording, &library(), &|_, _| {});
    let lines = info::lines(&recording, &survey, false);
    let line = |wanted: &str| {
        let mut found = lines.iter().filter(|(name, _)| name == wanted);
        found.next().map_or("", |(_, value)| value.as_str())
    };
    assert_eq!(line("samples"), "2 (2 running)");
    assert_eq!(line("waits"), "5 (4 blocked, 1 ready)");
    // The recorder works for them, too.
    let cost = line("sampling time");
    assert!(cost.ends_with("(measured 5 times)"), "{cost}");
    // Each thread has one sample of the 41 of its time.
    let loads = loads(&recording, &profile(&recording, &Options::default()));
    let busy = loads.iter().map(|load| (load.busy * 41.0).round());
    assert_eq!(busy.collect::<Vec<_>>(), [1.0, 1.0]);
}

#[test]
fn samples_and_time_are_told_apart() {
    let recording = open(waiting(false));
    let samples = profile(&recording, &Options::default());
    assert_eq!(folded(&samples), "main;hash 1\nmain;parse 1\n");
    assert_eq!(samples.account.counted, 2);
    let lines = samples.account.lines().join("\n");
    assert!(
        lines.contains("not counted: 39.5 ms off CPU (see --off-cpu)"),
        "{lines}"
    );

    let time = profile(&recording, &in_unit(Some(Unit::OffCpu)));
    // The scheduler's own frames don't show the reason for a wait.
    assert_eq!(folded(&time), "main;hash 8000\nmain;parse;sys_read 31500\n");
    let lines = time.account.lines().join("\n");
    assert!(
        lines.starts_with(
            "39.5 ms off CPU in 5 waits (blocked 31.5 ms, ready 8.0 ms) of all threads"
        ),
        "{lines}"
    );
    assert!(
        lines.contains("not counted: 2 samples (without --off-cpu)"),
        "{lines}"
    );
    let top = top(&time);
    assert!(
        top.contains("  31.5 ms    79.7%    31.5 ms    79.7%  sys_read"),
        "{top}"
    );
    let mut out = Vec::new();
    tree::write(&time, tree::TreeOptions::default(), &mut out).unwrap();
    let tree = String::from_utf8(out).unwrap();
    assert!(
        tree.contains("  39.5 ms   100.0%       0 ns  main"),
        "{tree}"
    );
}

#[test]
fn a_recording_of_waits_alone_shows_time_at_once() {
    let recording = open(waiting(true));
    let found = profile(&recording, &Options::default());
    assert_eq!(
        (found.unit(), found.account.counted),
        (Unit::OffCpu, 39_500_000)
    );
    // Samples are shown if they are asked for.
    let found = profile(&recording, &in_unit(Some(Unit::Samples)));
    assert_eq!((found.unit(), found.account.counted), (Unit::Samples, 0));
    // A state that no sample has selects waits.
    let mut options = Options::default();
    options.filter.states.insert(State::Ready);
    let found = profile(&open(waiting(false)), &options);
    assert_eq!(folded(&found), "main;hash 8000\n");
}

#[test]
fn filters_take_the_part_of_a_wait_that_lies_inside() {
    let recording = open(waiting(false));
    let mut options = in_unit(Some(Unit::OffCpu));
    options.filter.from_ns = Some(12 * MS);
    options.filter.to_ns = Some(22 * MS);
    // The waits are from 2 to 32 ms, from 5 to 13 ms, and at 40 ms.
    let found = profile(&recording, &options);
    assert_eq!(
        folded(&found),
        "main;hash 1000\nmain;parse;sys_read 10000\n"
    );
    let line = found.account.lines().swap_remove(0);
    assert_eq!(
        line,
        "11.0 ms off CPU in 2 waits (blocked 10.0 ms, ready 1.0 ms) of all threads in 0.0 s"
    );
    assert!((found.account.seconds - 0.010).abs() < 1e-9);
    // Not the samples before, which aren't asked for anyway.
    assert_eq!(found.account.outside, 1);
    // What a view of samples leaves out is the same part.
    options.filter.unit = Some(Unit::Samples);
    let others = profile(&recording, &options).account.other_units;
    assert_eq!(others.get(&Unit::OffCpu), Some(&(11 * MS)));
    let mut options = in_unit(Some(Unit::OffCpu));
    options.filter.vcpus.insert(8);
    assert_eq!(
        profile(&recording, &options).account.lines().swap_remove(0),
        "8.0 ms off CPU in 1 waits (ready 8.0 ms) in 0.0 s"
    );
    let mut options = in_unit(Some(Unit::OffCpu));
    options.filter.min_wait_ns = Some(MS);
    options.filter.max_wait_ns = Some(10 * MS);
    assert_eq!(folded(&profile(&recording, &options)), "main;hash 8000\n");
    options.filter.min_wait_ns = Some(500_000);
    let found = profile(&recording, &options);
    assert_eq!(folded(&found), "main;hash 8000\nmain;parse;sys_read 1500\n");
}

#[test]
fn exports_say_their_unit() {
    let recording = open(waiting(false));
    let options = in_unit(Some(Unit::OffCpu));
    let export = |name: &str| exported(name, &[&recording], &library(), &options);
    let text = |name: &str| String::from_utf8(export(name).unwrap()).unwrap();
    let mut pprof = Vec::new();
    let packed = export("pprof").unwrap();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&packed[..]), &mut pprof).unwrap();
    for word in ["off-cpu", "nanoseconds"] {
        assert!(
            pprof
                .windows(word.len())
                .any(|part| part == word.as_bytes()),
            "{word}"
        );
    }
    let json: serde_json::Value = serde_json::from_str(&text("json")).unwrap();
    assert_eq!(json["account"]["unit"], "nanoseconds");
    let stacks = json["stacks"].as_array().unwrap();
    let sum: u64 = stacks
        .iter()
        .map(|stack| stack["count"].as_u64().unwrap())
        .sum();
    assert_eq!(sum, 39_500_000);
    let speedscope: serde_json::Value = serde_json::from_str(&text("speedscope")).unwrap();
    let thread = &speedscope["profiles"][0];
    assert_eq!(thread["unit"], "nanoseconds");
    assert_eq!(thread["endValue"], 31_500_000);
    assert_eq!(thread["weights"].to_string(), "[30000000,1500000]");
    let firefox: serde_json::Value = serde_json::from_str(&text("firefox")).unwrap();
    let samples = &firefox["threads"][0]["samples"];
    assert_eq!(samples["weightType"], "tracing-ms");
    assert_eq!(samples["weight"].to_string(), "[30,2]");
    let csv = text("csv");
    assert!(
        csv.starts_with("function,module,self_ns,total_ns,self_share,total_share,inlined\r\n"),
        "{csv}"
    );
    assert!(text("perf-script").contains(": 8000000 offcpu-time: \n"));
    let refused = export("uniprof-text").unwrap_err().to_string();
    assert!(refused.contains("no place for times"), "{refused}");
}

#[test]
fn diffs_compare_shares_of_time() {
    let (a, b) = (open(waiting(false)), open(waiting(true)));
    let options = DiffOptions {
        gather: in_unit(Some(Unit::OffCpu)),
        ..DiffOptions::default()
    };
    let found = diff(
        &[&a],
        &[&b],
        &Tables::of_builds(&library()),
        &options,
        &|_, _| {},
        None,
    );
    assert_eq!(found.series.unit, Unit::OffCpu);
    assert_eq!(
        found.accounts.each_ref().map(|one| one.counted),
        [39_500_000; 2]
    );
    let mut out = Vec::new();
    let form = table::TableOptions {
        rows: 0,
        explain: true,
        paths: false,
        screen: Screen::default(),
    };
    table::write(&found, form, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(text.contains("39.5 ms off CPU in 5 waits"), "{text}");
    assert!(text.contains("Shares of time off CPU in percent"), "{text}");
    assert!(text.contains("A has only 5 waits"), "{text}");
}

/// Durations that no clock ever measured: every view must stay readable.
#[test]
fn waits_of_any_length_are_survived() {
    survive(300, &[u64::MAX - 1, 1 << 63, 0, 7, 40_000_000_000_000_000]);
    survive(1, &[0]);
}

fn survive(count: u64, waits: &[u64]) {
    let stack = [100, 1, 0];
    let samples: Vec<Made<'_>> = (0..count)
        .map(|number| Made {
            at_ms: number,
            thread: 7 + (number % 3) as u32,
            state: State::Blocked,
            stack: &stack[..(number % 4) as usize],
        })
        .collect();
    let bytes = made::recording_of(&["main", "parse"], &["sys_read"], &samples, |number| {
        Some(Wait {
            time_ns: waits[number % waits.len()],
            count: [u64::MAX, 1][number % 2],
        })
    });
    let recording = open(bytes);
    let mut chart = chart::Chart::default();
    let mut tally = html::Tally::default();
    let mut take = |sampled: &Sampled, _: &Profile| {
        chart.add(sampled, "t");
        tally.add(sampled);
    };
    let each: Option<&mut Each<'_>> = Some(&mut take);
    let found = gather(
        &[&recording],
        &library(),
        &Options::default(),
        &|_, _| {},
        each,
    );
    assert_eq!(found.unit(), Unit::OffCpu);
    assert_eq!(found.tree.totals()[0], found.account.counted);
    let drawing = FlameOptions {
        title: "t".into(),
        subtitle: String::new(),
        reverse: false,
        icicle: false,
        least_share: 0.0,
        fold: false,
    };
    let mut out = Vec::new();
    flame::write(&found, &drawing, &mut out).unwrap();
    chart.write(&found, &[MS], &drawing, &[], &mut out).unwrap();
    let page = html::Page {
        recordings: &[(
            &recording,
            info::survey(&recording, &Library::default(), &|_, _| {}),
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
    // So few samples make no large picture, however long they waited.
    assert!(out.len() < 1 << 20, "{} bytes", out.len());
    for format in FORMATS {
        let _ = exported(format.name, &[&recording], &library(), &Options::default());
    }
    diff(
        &[&recording],
        &[&recording],
        &Tables::of_builds(&library()),
        &DiffOptions::default(),
        &|_, _| {},
        None,
    );
}
