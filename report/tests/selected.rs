//! What is selected of a recording: a process of a guest, and what was lost of a part of the time.

mod made;

use made::open;
use uniprof_report::images::Library;
use uniprof_report::profile::{Options, Profile, gather};
use uniprof_report::recording::Recording;
use uprof::cold::{DECOMPRESSOR, End, EndReason, Loss, LossReason, Metadata, SpaceChange};
use uprof::cold::{SpaceEvent, TargetKind, space_of_root};
use uprof::{Details, Frame, Sample, Task, Writer};

const START_NS: u64 = 1_000;
const MS: u64 = 1_000_000;

fn profile(recording: &Recording, options: &Options) -> Profile {
    let mut library = Library::default();
    library.only_given = true;
    gather(&[recording], &library, options, &|_, _| {}, None)
}

/// A recording of 100 ms with a sample each millisecond, in turns in these address spaces, and these losses.
fn recording(kind: TargetKind, spaces: &[SpaceEvent], losses: &[Loss]) -> Recording {
    let mut metadata = Metadata::default();
    metadata.target.kind = kind;
    metadata.target.vcpus = 1;
    metadata.sampling.rate_millihertz = 1_000_000;
    let mut writer = Writer::create(Vec::new(), [7; 16], &metadata, START_NS).unwrap();
    writer.spaces(spaces).unwrap();
    for number in 0..100 {
        let chain = [Frame::exact(0x1000)];
        let task = Task { space: 0, vcpu: 0 };
        let space = spaces.get(number as usize % spaces.len().max(1));
        let sample = Sample {
            details: Details {
                root: space.map(|space| space.root),
                ..Details::default()
            },
            ..Sample::bare(START_NS + number * MS, task, &chain)
        };
        writer.sample(&sample).unwrap();
    }
    writer.losses(losses).unwrap();
    let end = End {
        time_ns: START_NS + 100 * MS,
        reason: EndReason::Duration,
        message: String::new(),
        totals: Vec::new(),
    };
    open(writer.finish(&end).unwrap())
}

#[test]
fn what_unpacks_a_kernel_is_no_process_with_a_number() {
    let named = |root, name: &str| SpaceEvent {
        time_ns: START_NS,
        space: space_of_root(0, root),
        root,
        what: SpaceChange::Named {
            pid: 0,
            name: name.into(),
        },
    };
    let spaces = [named(0x1000, DECOMPRESSOR), named(0x2000, "swapper")];
    let recording = recording(TargetKind::Qemu, &spaces, &[]);
    let mut options = Options::default();
    assert_eq!(profile(&recording, &options).account.counted, 100);
    options.filter.pids.insert(0);
    assert_eq!(profile(&recording, &options).account.counted, 50);
}

#[test]
fn losses_are_those_of_the_selected_time() {
    let at = |reason, count, times_ms: [u64; 2]| {
        Loss::new(reason, count, times_ms.map(|ms| START_NS + ms * MS))
    };
    let losses = [
        at(LossReason::RingFull, 8, [10, 30]),
        at(LossReason::Deadline, 6, [40, 46]),
    ];
    let recording = recording(TargetKind::Qemu, &[], &losses);
    let account = |from_ms: u64, to_ms: u64| {
        let mut options = Options::default();
        options.filter.from_ns = (from_ms > 0).then_some(from_ms * MS);
        options.filter.to_ns = (to_ms > 0).then_some(to_ms * MS);
        profile(&recording, &options).account
    };
    let lost =
        |from_ms, to_ms| -> Vec<u64> { account(from_ms, to_ms).lost.into_values().collect() };
    assert_eq!(lost(0, 0).iter().sum::<u64>(), 14);
    assert_eq!(lost(50, 0), [0; 0]);
    assert_eq!(lost(0, 20), [4]);
    assert_eq!(lost(29, 40), [1], "it may be of this part");
    assert!(account(0, 20).is_incomplete());
    assert!(!account(50, 0).is_incomplete());
    // One of sixty deadlines may be missed, and one of six is much.
    assert!(!account(45, 0).is_incomplete());
    assert!(account(45, 50).is_incomplete());
}

#[test]
fn what_is_lost_for_good_is_so_in_all_that_follows() {
    let lost = Loss::new(LossReason::CallsLost, 1, [START_NS + 15 * MS; 2]);
    let recording = recording(TargetKind::Qemu, &[], &[lost]);
    let is_incomplete = |from_ms: u64, to_ms: u64| {
        let mut options = Options::default();
        options.filter.from_ns = Some(from_ms * MS);
        options.filter.to_ns = Some(to_ms * MS);
        profile(&recording, &options).account.is_incomplete()
    };
    assert_eq!(
        [(0, 10), (10, 20), (20, 30)].map(|(from, to)| is_incomplete(from, to)),
        [false, true, true]
    );
}

#[test]
fn losses_of_other_threads_are_not_those_of_a_chosen_one() {
    let lost = |vcpu| Loss {
        task: Some(Task { space: 0, vcpu }),
        ..Loss::new(LossReason::RingFull, 5, [START_NS, START_NS + MS])
    };
    let recording = recording(TargetKind::Qemu, &[], &[lost(0), lost(1)]);
    let lost =
        |options: &Options| -> u64 { profile(&recording, options).account.lost.values().sum() };
    let mut options = Options::default();
    assert_eq!(lost(&options), 10);
    options.filter.vcpus.insert(0);
    assert_eq!(lost(&options), 5);
}
