//! Simulated windows: what grows, what is saved, and what the files are.

use super::*;
use crate::writing::trigger::Condition;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use uprof::cold::{Mapping, ModuleChange, ModuleEvent, Target, TargetKind, TaskChange, TaskEvent};
use uprof::{
    BlockType, Details, Frame, Item, Joined, Payload, SliceReader, State, Stop, StreamReader, Task,
};

const SECOND_NS: u64 = 1_000_000_000;
/// The clock when the window begins.
const START_NS: u64 = 1000 * SECOND_NS;
/// How often the encoder writes.
const WRITE_NS: u64 = 400_000_000;

fn recorder(
    file: &Path,
    seconds: u64,
    triggers: Vec<Trigger>,
) -> (FlightRecorder, Receiver<KeepEvent>) {
    let (events, received) = channel();
    let keep = Keep {
        window: Duration::from_secs(seconds),
        after: Duration::ZERO,
        triggers,
        folder: WindowFolder::create(file).unwrap().into(),
        requests: Arc::default(),
        events,
    };
    let target = Target {
        kind: TargetKind::Process,
        ..Target::default()
    };
    let mut metadata = Metadata {
        target: target.clone(),
        ..Metadata::default()
    };
    metadata.sampling.rate_millihertz = 99_000;
    let clock = ClockPair {
        monotonic_ns: START_NS,
        ..ClockPair::default()
    };
    let facts = Facts::new(target);
    let counters = Arc::default();
    let recorder = FlightRecorder::create(keep, &metadata, &facts, clock, counters).unwrap();
    (recorder, received)
}

/// A process that starts in a write and ends in the next one.
fn process(pending: &mut Pending, pid: u32, time_ns: u64) {
    let task_event = |pid, what| TaskEvent {
        time_ns,
        task: Task {
            space: pid,
            vcpu: pid,
        },
        what,
    };
    pending
        .tasks
        .push(task_event(pid, TaskChange::Named("sh".into())));
    pending.tasks.push(task_event(pid, TaskChange::Ended));
    pending.modules.push(ModuleEvent {
        time_ns,
        space: pid,
        what: ModuleChange::Mapped(Mapping {
            start: 0x40_0000,
            length: 0x1000,
            path: "/usr/bin/sh".into(),
            ..Mapping::default()
        }),
    });
}

/// A sample of a vCPU with a stack of 20 frames, one of very many.
fn sample(chain: &mut [Frame; 20], time_ns: u64) -> Sample<'_> {
    let mut seed = time_ns.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for frame in chain.iter_mut() {
        seed = seed.rotate_left(17).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        *frame = Frame::return_address(0xffff_8000_0000_0000 + seed % (1 << 24));
    }
    Sample {
        time_ns,
        task: Task { space: 0, vcpu: 0 },
        state: State::Running,
        chain,
        stop: Stop::Complete,
        details: Details::default(),
        registers: None,
        stack: None,
        wait: None,
    }
}

/// Bytes and number of the files.
fn size(recorder: &FlightRecorder) -> (u64, usize) {
    let files = fs::read_dir(&recorder.folder).unwrap();
    let sizes: Vec<u64> = files
        .map(|file| file.unwrap().metadata().unwrap().len())
        .collect();
    (sizes.iter().sum(), sizes.len())
}

#[test]
fn a_long_recording_grows_nothing() {
    let folder = tempfile::tempdir().unwrap();
    // A window of 4 s has as many changes in 8 minutes as one of 4 minutes has in 8 hours.
    let (mut recorder, events) = recorder(&folder.path().join("run.uprof"), 4, Vec::new());
    let mut pending = Pending::default();
    let mut chain = [Frame::exact(0); 20];
    let (mut now_ns, mut early, mut most) = (START_NS, (0, 0), (0, 0));
    for number in 1..=1200 {
        for at in 1..=40 {
            recorder.sample(&sample(&mut chain, now_ns + at * 10_000_000));
        }
        now_ns += WRITE_NS;
        process(&mut pending, number, now_ns);
        recorder.write(&mut pending, &[], now_ns);
        let size = size(&recorder);
        let of = if number <= 60 { &mut early } else { &mut most };
        *of = (size.0.max(of.0), size.1.max(of.1));
    }
    println!("{early:?} {most:?}");
    assert!(
        most.0 <= early.0 * 11 / 10,
        "bytes: {early:?}, later {most:?}"
    );
    assert!(most.1 <= early.1, "files: {early:?}, later {most:?}");
    assert_eq!(events.try_iter().count(), 0);
    // Only the processes of the window are there.
    let KeepEvent::Last(capture) = ({
        recorder.finish(&end_of_file(now_ns));
        events.recv().unwrap()
    }) else {
        panic!("no last window");
    };
    let mut bytes = Vec::new();
    let saved = capture.write(&mut bytes).unwrap();
    assert!((4 * 99..=6 * 100).contains(&saved.samples), "{saved:?}");
    let mut names = 0;
    for item in SliceReader::open(&bytes).unwrap().blocks() {
        let Item::Block(block) = item else {
            panic!("{item:?}");
        };
        match block.payload().unwrap() {
            Payload::Tasks(events) => {
                let named = events
                    .iter()
                    .filter(|it| matches!(it.what, TaskChange::Named(_)));
                names += named.count();
            }
            // Its blocks state how many rows they have, of which waits are no samples.
            Payload::End(end) => assert!(end.totals.is_empty(), "{:?}", end.totals),
            _ => {}
        }
    }
    assert!((10..20).contains(&names), "{names} processes");
}

/// Stacks of a real guest repeat, these don't: it is far more than any has.
#[test]
fn a_minute_of_one_vcpu_takes_two_mebibytes_at_most() {
    let folder = tempfile::tempdir().unwrap();
    let (mut recorder, _events) = recorder(&folder.path().join("run.uprof"), 60, Vec::new());
    let mut chain = [Frame::exact(0); 20];
    let (mut now_ns, mut most) = (START_NS, 0);
    for _ in 0..400 {
        for at in 1..=40 {
            recorder.sample(&sample(&mut chain, now_ns + at * 10_000_000));
        }
        now_ns += WRITE_NS;
        recorder.write(&mut Pending::default(), &[], now_ns);
        most = most.max(size(&recorder).0);
    }
    println!("{most} bytes");
    assert!(most <= MOST_MINUTE_BYTES, "{most} bytes");
}

#[test]
fn a_condition_that_always_holds_saves_once_and_one_that_comes_back_up_to_a_limit() {
    let folder = tempfile::tempdir().unwrap();
    let trigger = |condition, for_ns| Trigger {
        text: "condition".into(),
        condition,
        for_ns,
    };
    let always = vec![trigger(Condition::Busy(0.1), SECOND_NS)];
    let mut chain = [Frame::exact(0); 20];
    let mut saves = |triggers, file: &str, is_on_and_off: bool| {
        let (mut recorder, events) = recorder(&folder.path().join(file), 1, triggers);
        let mut now_ns = START_NS;
        let (mut saves, mut troubles) = (0, 0);
        for number in 0..2800 {
            for at in 1..=8 {
                // On for 5 s, off for 5 s.
                if !is_on_and_off || number % 26 < 13 {
                    recorder.sample(&sample(&mut chain, now_ns + at * 10_000_000));
                }
            }
            now_ns += WRITE_NS;
            recorder.write(&mut Pending::default(), &[], now_ns);
            for event in events.try_iter() {
                match event {
                    KeepEvent::Save(_) => saves += 1,
                    KeepEvent::Trouble(_) => troubles += 1,
                    KeepEvent::Last(_) => panic!("it goes on"),
                }
            }
        }
        (saves, troubles)
    };
    assert_eq!(saves(always.clone(), "always.uprof", false), (1, 0));
    assert_eq!(saves(always, "often.uprof", true), (MOST_SAVES, 1));
}

/// Busy for 4 s from its start on, and 20 s later; a window of a minute.
#[test]
fn a_condition_that_comes_back_too_soon_is_saved_while_the_window_has_it() {
    let folder = tempfile::tempdir().unwrap();
    let busy = Trigger {
        text: "busy".into(),
        condition: Condition::Busy(0.5),
        for_ns: SECOND_NS,
    };
    let file = folder.path().join("run.uprof");
    let (mut recorder, events) = recorder(&file, 60, vec![busy]);
    let mut chain = [Frame::exact(0); 20];
    let mut saved = Vec::new();
    for number in 0..400_u64 {
        let now_ns = START_NS + number * WRITE_NS;
        let after = number * WRITE_NS / SECOND_NS;
        if after < 4 || (20..24).contains(&after) {
            for at in 1..=40 {
                recorder.sample(&sample(&mut chain, now_ns + at * 10_000_000));
            }
        }
        recorder.write(&mut Pending::default(), &[], now_ns + WRITE_NS);
        let new = events.try_iter().map(|event| match event {
            KeepEvent::Save(_) => after,
            other => panic!("{other:?}"),
        });
        saved.extend(new);
    }
    let [first, second] = saved[..] else {
        panic!("{saved:?}")
    };
    assert!((1..4).contains(&first), "{saved:?}");
    assert!((60..=first + 61).contains(&second), "{saved:?}");
}

#[test]
fn saves_by_hand_are_a_second_apart() {
    let folder = tempfile::tempdir().unwrap();
    let (mut recorder, events) = recorder(&folder.path().join("run.uprof"), 1, Vec::new());
    let mut saved_ns = Vec::new();
    for number in 1..=20 {
        let (near, _far) = UnixStream::pair().unwrap();
        recorder.keep.requests.ask("test".into(), near);
        let now_ns = START_NS + number * WRITE_NS;
        recorder.write(&mut Pending::default(), &[], now_ns);
        let saves = events.try_iter();
        saved_ns.extend(saves.map(|event| match event {
            KeepEvent::Save(capture) => (now_ns, capture.replies.len()),
            other => panic!("{other:?}"),
        }));
    }
    let gaps = saved_ns.windows(2).map(|pair| pair[1].0 - pair[0].0);
    assert!(
        gaps.clone().all(|gap_ns| gap_ns >= LEAST_GAP_NS),
        "{saved_ns:?}"
    );
    assert!(gaps.count() >= 5);
    assert!(
        saved_ns[1].1 > 1,
        "those that waited share one: {saved_ns:?}"
    );
}

#[test]
fn saves_wait_while_others_are_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let (mut recorder, events) = recorder(&folder.path().join("run.uprof"), 1, Vec::new());
    let mut captures = Vec::new();
    for number in 1..=40 {
        let (near, _far) = UnixStream::pair().unwrap();
        recorder.keep.requests.ask("test".into(), near);
        let now_ns = START_NS + number * SECOND_NS;
        recorder.write(&mut Pending::default(), &[], now_ns);
        captures.extend(events.try_iter().map(|event| match event {
            KeepEvent::Save(capture) => capture.replies.len(),
            other => panic!("{other:?}"),
        }));
    }
    assert_eq!(captures, [1; 40], "they are written at once");
    let mut waiting = Vec::new();
    for number in 41..=60 {
        let (near, _far) = UnixStream::pair().unwrap();
        recorder.keep.requests.ask("test".into(), near);
        let now_ns = START_NS + number * SECOND_NS;
        recorder.write(&mut Pending::default(), &[], now_ns);
        waiting.extend(events.try_iter());
    }
    assert_eq!(waiting.len(), UNWRITTEN_MAX);
    waiting.clear();
    recorder.write(&mut Pending::default(), &[], START_NS + 61 * SECOND_NS);
    let KeepEvent::Save(late) = events.try_iter().next().unwrap() else {
        panic!("no save")
    };
    assert_eq!(late.replies.len(), 20 - UNWRITTEN_MAX, "they become one");
}

#[test]
fn tables_are_full_at_a_limit() {
    let folder = tempfile::tempdir().unwrap();
    let (mut recorder, events) = recorder(&folder.path().join("run.uprof"), 1, Vec::new());
    let mut dice = fastrand::Rng::with_seed(36);
    let code: Vec<Code> = (0..3000)
        .map(|number| Code {
            time_ns: START_NS,
            space: 0,
            address: number * 256,
            bytes: std::iter::repeat_with(|| dice.u8(..)).take(256).collect(),
        })
        .collect();
    let mut troubles = 0;
    for number in 0..110 {
        recorder.write(&mut Pending::default(), &code, START_NS + number);
        troubles += events.try_iter().count();
    }
    assert_eq!(troubles, 1);
    let size = fs::metadata(recorder.folder.join(TABLES)).unwrap().len();
    assert!(
        (MOST_TABLES_BYTES..MOST_TABLES_BYTES + (1 << 20)).contains(&size),
        "{size}"
    );
}

#[test]
fn what_a_full_disk_refuses_is_counted_and_told_once() {
    let folder = tempfile::tempdir().unwrap();
    let (mut recorder, events) = recorder(&folder.path().join("run.uprof"), 4, Vec::new());
    let full = File::options().write(true).open("/dev/full").unwrap();
    recorder.writer = Some(Writer::without_metadata(full, [0; 16]).unwrap());
    let mut chain = [Frame::exact(0); 20];
    for at in 1..=7 {
        recorder.sample(&sample(&mut chain, START_NS + at));
    }
    recorder.write(&mut Pending::default(), &[], START_NS + WRITE_NS);
    assert_eq!(recorder.lost, 7, "those of the writer's block");
    recorder.sample(&sample(&mut chain, START_NS + WRITE_NS));
    assert_eq!(recorder.lost, 8);
    recorder.write(&mut Pending::default(), &[], START_NS + 2 * WRITE_NS);
    let told = events.try_iter().count();
    assert_eq!((recorder.lost, told), (0, 1), "not written again yet");
    assert_eq!(recorder.lost_in_all(), 8);
    recorder.sample(&sample(&mut chain, START_NS + 2 * WRITE_NS));
    recorder.write(&mut Pending::default(), &[], START_NS + 3 * WRITE_NS);
    assert_eq!((events.try_iter().count(), recorder.lost), (1, 0));
}

#[test]
fn joined_files_are_one_recording() {
    let folder = tempfile::tempdir().unwrap();
    let (mut recorder, events) = recorder(&folder.path().join("run.uprof"), 2, Vec::new());
    let mut chain = [Frame::exact(0); 20];
    let mut now_ns = START_NS;
    for _ in 0..20 {
        recorder.sample(&sample(&mut chain, now_ns + 1));
        now_ns += WRITE_NS;
        recorder.write(&mut Pending::default(), &[], now_ns);
    }
    recorder.finish(&end_of_file(now_ns));
    let KeepEvent::Last(capture) = events.recv().unwrap() else {
        panic!("no last window");
    };
    let readers = |files: Vec<(File, u64)>| -> Vec<StreamReader<File>> {
        let open = |(file, _)| StreamReader::open(file).unwrap();
        files.into_iter().map(open).collect()
    };
    let joined = Joined::new(readers(capture.before), readers(capture.segments)).unwrap();
    let mut began = None;
    let types: Vec<Option<BlockType>> = joined
        .map(|item| match item.unwrap() {
            Item::Block(block) => {
                if let Ok(Payload::Clocks(pairs)) = block.payload() {
                    began.get_or_insert((pairs[0].monotonic_ns, pairs[0].realtime_ns));
                }
                block.known_type()
            }
            Item::Damage(damage) => panic!("{damage}"),
        })
        .collect();
    // By the first pair, readers tell when a recording began.
    let (began_ns, dated_ns) = began.unwrap();
    assert_eq!(began_ns, capture.first_ns);
    // The clock of these files is not the machine's, and the date is that of their time.
    let ahead_ns = realtime_ns() - monotonic_ns() as i64;
    let off_ns = (dated_ns - began_ns as i64).abs_diff(ahead_ns);
    assert!(off_ns < SECOND_NS, "{off_ns} ns");
    let count = |wanted| types.iter().filter(|found| **found == Some(wanted)).count();
    assert_eq!(types.first(), Some(&Some(BlockType::Metadata)));
    assert_eq!(types.last(), Some(&Some(BlockType::End)));
    assert_eq!((count(BlockType::Metadata), count(BlockType::End)), (1, 1));
    assert!((5..9).contains(&count(BlockType::Samples)), "{types:?}");
}
