//! A recording whose rate changed: each sample stands for a time of its own.

use uniprof_report::export::{FORMATS, Request, Writes};
use uniprof_report::images::Library;
use uniprof_report::profile::{Options, Profile, gather_again};
use uniprof_report::recording::{Recording, Unit};
use uniprof_report::stacks::Tables;
use uprof::cold::{ClockPair, End, EndReason, Metadata, TargetKind};
use uprof::{Details, Frame, Sample, Task, Writer};

/// Two samples, one for 1 ms and one for 9 ms.
fn uneven() -> Recording {
    let mut metadata = Metadata::default();
    metadata.target.kind = TargetKind::Process;
    metadata.target.id = 7;
    let mut writer = Writer::create(Vec::new(), [7; 16], &metadata, 0).unwrap();
    let clocks = ClockPair {
        monotonic_ns: 0,
        realtime_ns: 1_499_764_364_000_000_000,
        guest: None,
    };
    writer.clocks(&[clocks]).unwrap();
    let task = Task { space: 7, vcpu: 7 };
    for (time_ns, period_ns) in [(1_000_000, 1_000_000), (10_000_000, 9_000_000)] {
        let chain = [Frame::exact(0x40_1000 + time_ns)];
        let sample = Sample {
            details: Details {
                period_ns: Some(period_ns),
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
