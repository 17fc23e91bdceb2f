//! Recordings whose rate changed, in which each sample stands for a time of its own, and recordings of different rates.

use uniprof_report::export::{FORMATS, Request, Writes};
use uniprof_report::images::Library;
use uniprof_report::profile::{Options, Profile, gather, gather_again};
use uniprof_report::recording::{Recording, Unit};
use uniprof_report::stacks::Tables;
use uprof::cold::{ClockPair, End, EndReason, Metadata, TargetKind, TaskEvent};
use uprof::{Details, Frame, Sample, Task, Writer};

/// Two samples, one for 1 ms and one for 9 ms, of a thread that nobody named.
fn uneven() -> Recording {
    let samples = [(1_000_000, Some(1_000_000)), (10_000_000, Some(9_000_000))];
    recording(0, &samples)
}

/// Samples at these times, with the time that they stand for, at a nominal rate.
fn recording(rate_millihertz: u64, samples: &[(u64, Option<u64>)]) -> Recording {
    let mut metadata = Metadata::default();
    metadata.sampling.rate_millihertz = rate_millihertz;
    metadata.target.kind = TargetKind::Process;
    metadata.target.id = 7;
    let mut writer = Writer::create(Vec::new(), [7; 16], &metadata, 0).unwrap();
    let clocks = ClockPair {
        monotonic_ns: 0,
        realtime_ns: 1_499_764_364_000_000_000,
        guest: None,
    };
    writer.clocks(&[clocks]).unwrap();
    let main = Task { space: 7, vcpu: 7 };
    let named = TaskEvent::named(0, main, "worker".into());
    writer.tasks(&[named]).unwrap();
    let task = Task { vcpu: 9, ..main };
    for &(time_ns, period_ns) in samples {
        let chain = [Frame::exact(0x40_1000 + time_ns)];
        let sample = Sample {
            details: Details {
                period_ns,
                ..Details::default()
            },
            ..Sample::bare(time_ns, task, &chain)
        };
        writer.sample(&sample).unwrap();
    }
    let end = End {
        time_ns: 11_000_000,
        reason: EndReason::Duration,
        message: String::new(),
        totals: Vec::new(),
    };
    Recording::from_bytes("uneven.uprof", writer.finish(&end).unwrap()).unwrap()
}

/// Exports it in a format of one file.
fn export(name: &str) -> std::io::Result<Profile> {
    let format = FORMATS.iter().find(|format| format.name == name).unwrap();
    let Writes::File(write) = format.write else {
        panic!("{name} is a folder")
    };
    let library = Library::default();
    let request = Request {
        recordings: &[&uneven()],
        tables: &Tables::of_builds(&library),
        options: &Options::default(),
        progress: &|_, _| {},
        marks: false,
        fold: false,
        identify: false,
    };
    write(&request, &mut std::io::sink())
}

#[test]
fn a_window_of_samples_with_times_is_gathered_too() {
    let library = Library::default();
    let tables = Tables::of_builds(&library);
    let profile = gather_again(&uneven(), &tables, &Options::default());
    assert_eq!(profile.unit(), Unit::Sampled);
    assert_eq!(profile.account.counted, 10_000_000);
    assert_eq!(profile.account.counted_samples(), 2);
}

#[test]
fn samples_of_different_rates_are_added_up_by_their_time() {
    let seldom = recording(100_000, &[(1_000_000, None); 3]);
    let often = recording(1_000_000, &[(1_000_000, None); 3]);
    let of = |recordings: &[&Recording]| {
        let library = Library::default();
        gather(recordings, &library, &Options::default(), &|_, _| {}, None)
    };
    let both = of(&[&seldom, &often]);
    assert_eq!(both.unit(), Unit::Sampled);
    assert_eq!(both.account.counted, 33_000_000);
    assert_eq!(both.account.counted_samples(), 6);
    let alike = of(&[&seldom, &seldom]);
    assert_eq!(alike.unit(), Unit::Samples);
    assert_eq!(alike.account.counted, 6);
}

#[test]
fn a_thread_is_found_by_the_name_that_it_is_shown_by() {
    let counted = |name: &str| {
        let library = Library::default();
        let mut options = Options::default();
        options.filter.thread = Some(regex::Regex::new(name).unwrap());
        let tables = Tables::of_builds(&library);
        let account = gather_again(&uneven(), &tables, &options).account;
        account.counted_samples()
    };
    assert_eq!(counted("^worker$"), 2);
    assert_eq!(counted("another"), 0);
}

#[test]
fn perfetto_which_counts_them_alike_is_warned_of() {
    let warned = |name: &str| {
        let profile = export(name).unwrap();
        let mut warnings = profile.warnings.iter();
        warnings.any(|warning| warning.contains("shares are wrong"))
    };
    assert!(warned("perfetto"));
    assert!(!warned("pprof"));
}

#[test]
fn a_format_without_times_says_which_it_refuses() {
    let refused = export("uniprof-text").unwrap_err().to_string();
    assert!(refused.contains("this is time of samples;"), "{refused}");
}
