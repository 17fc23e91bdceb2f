//! Synthetic recordings for tests: known stacks at known times.

#![allow(dead_code)]

use uniprof_report::recording::Recording;
use uprof::cold::{ClockPair, End, EndReason, Loss, LossReason, Mapping, Metadata};
use uprof::cold::{ModuleChange, ModuleEvent, TargetKind, TaskChange, TaskEvent};
use uprof::image::{ImageIdentity, ImagePart, Symbol};
use uprof::{Arch, Details, Frame, Sample, State, Task, Wait, Writer};

/// Address of the first function of the synthetic program; each function has 0x100 bytes.
pub const BASE: u64 = 0x40_1000;
/// Address of the first function of the synthetic kernel.
pub const KERNEL: u64 = 0xffff_ffff_8100_0000;

/// A synthetic sample: milliseconds, thread, state, and functions by number, innermost first. Numbers from
/// 100 on are the kernel's.
pub struct Made<'a> {
    pub at_ms: u64,
    pub thread: u32,
    pub state: State,
    pub stack: &'a [u64],
}

/// An address inside a synthetic function.
pub fn address(function: u64) -> u64 {
    match function {
        0..100 => BASE + 0x100 * function + 0x10,
        _ => KERNEL + 0x100 * (function - 100) + 0x10,
    }
}

/// A recording in which function `n` is called `names[n]`, and function `100 + n` is called `kernel[n]`.
pub fn recording(names: &[&str], kernel: &[&str], samples: &[Made<'_>]) -> Vec<u8> {
    recording_of(names, kernel, samples, |_| None)
}

/// The same with waits: the numbers of the samples that are waits, and their durations.
pub fn recording_of(
    names: &[&str],
    kernel: &[&str],
    samples: &[Made<'_>],
    wait: impl Fn(usize) -> Option<Wait>,
) -> Vec<u8> {
    let mut metadata = Metadata::default();
    metadata.recorder.program = "uniprof test".into();
    metadata.recorder.command_line = vec!["uniprof".into(), "record".into()];
    metadata.target.kind = TargetKind::Process;
    metadata.target.id = 7;
    metadata.target.name = "made".into();
    metadata.host.name = "host".into();
    metadata.sampling.rate_millihertz = 1_000_000;
    let mut writer = Writer::create(Vec::new(), [7; 16], &metadata, 1_000).unwrap();
    writer
        .clocks(&[ClockPair {
            monotonic_ns: 1_000,
            realtime_ns: 1_499_764_364_000_000_000,
            guest: None,
        }])
        .unwrap();
    writer.tasks(&tasks(samples)).unwrap();
    writer.modules(&modules(names.len(), kernel.len())).unwrap();
    for (path, start, list) in [("/made/app", BASE, names), ("[kernel]", KERNEL, kernel)] {
        if !list.is_empty() {
            let part = image(path, start, list);
            writer.image_part(&part, 1_000).unwrap();
        }
    }
    for (number, made) in samples.iter().enumerate() {
        let mut chain: Vec<Frame> = Vec::new();
        for function in made.stack {
            let kind = match chain.is_empty() {
                true => Frame::exact(address(*function)),
                false => Frame::return_address(address(*function)),
            };
            chain.push(kind);
        }
        let task = Task {
            space: 7,
            vcpu: made.thread,
        };
        let sample = Sample {
            state: made.state,
            details: Details {
                cost_ns: Some(1_500),
                late_ns: Some(100),
                ..Details::default()
            },
            wait: wait(number),
            ..Sample::bare(1_000 + made.at_ms * 1_000_000, task, &chain)
        };
        writer.sample(&sample).unwrap();
    }
    let last_ms = samples.iter().map(|made| made.at_ms).max().unwrap_or(0);
    writer
        .losses(&[Loss {
            first_ns: 1_000,
            last_ns: 2_000,
            task: None,
            reason: LossReason::RingFull,
            count: 0,
        }])
        .unwrap();
    let end = End {
        time_ns: 1_000 + (last_ms + 1) * 1_000_000,
        reason: EndReason::Duration,
        message: "the time asked for was over".into(),
        totals: Vec::new(),
    };
    writer.finish(&end).unwrap()
}

fn tasks(samples: &[Made<'_>]) -> Vec<TaskEvent> {
    let mut threads: Vec<u32> = samples.iter().map(|made| made.thread).collect();
    threads.sort_unstable();
    threads.dedup();
    let named = threads.iter().map(|thread| TaskEvent {
        time_ns: 1_000,
        task: Task {
            space: 7,
            vcpu: *thread,
        },
        what: TaskChange::Named(format!("worker-{thread}")),
    });
    named.collect()
}

fn modules(names: usize, kernel: usize) -> Vec<ModuleEvent> {
    let parts = [
        (7, "/made/app", BASE, 0x1000, names),
        (0, "[kernel]", KERNEL, KERNEL, kernel),
    ];
    let parts = parts.into_iter().filter(|part| part.4 > 0);
    let events = parts.map(|(space, path, start, file_offset, count)| ModuleEvent {
        time_ns: 1_000,
        space,
        what: ModuleChange::Mapped(Mapping {
            start,
            length: 0x100 * count as u64,
            file_offset,
            path: path.into(),
            build_id: Vec::new(),
            file: None,
        }),
    });
    events.collect()
}

fn image(path: &str, start: u64, names: &[&str]) -> ImagePart {
    let mut part = ImagePart::new(ImageIdentity {
        path: path.into(),
        build_id: Vec::new(),
        arch: Arch::X86_64,
        load_bias: 0,
        origin: "test".into(),
    });
    // Image addresses: the offset of the program's first function in its file.
    let from = if start == BASE { 0x1000 } else { start };
    for (number, name) in names.iter().enumerate() {
        let address = from + 0x100 * number as u64;
        assert!(part.push(Symbol {
            address,
            size_bytes: 0x100,
            name,
        }));
    }
    part
}

/// Two threads, a kernel, a blocked sample and a recursion.
pub fn small() -> Vec<u8> {
    let run = State::Running;
    let made = |at_ms, thread, state, stack| Made {
        at_ms,
        thread,
        state,
        stack,
    };
    recording(
        &["main", "parse", "hash", "walk"],
        &["sys_read", "copy"],
        &[
            made(0, 7, run, &[1, 0]),
            made(1, 7, run, &[1, 0]),
            made(2, 8, run, &[2, 0]),
            made(3, 7, State::Blocked, &[100, 1, 0]),
            made(4, 7, run, &[101, 100, 1, 0]),
            made(5, 8, run, &[3, 3, 3, 0]),
            made(6, 8, run, &[2, 3, 0]),
            made(7, 8, run, &[50, 0]),
        ],
    )
}

/// Opens a synthetic recording.
pub fn open(bytes: Vec<u8>) -> Recording {
    Recording::from_bytes("made.uprof", bytes).unwrap()
}
