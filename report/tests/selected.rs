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
