//! Written data is read back unchanged, from a slice and from a pipe.

use proptest::prelude::*;
use uprof::cold::{ClockPair, Code, Cost, End, EndReason, Loss, LossReason, Metadata};
use uprof::cold::{
    Contents, MappedFile, Mapping, ModuleChange, ModuleEvent, ProcessTime, SpaceChange, SpaceEvent,
    TaskChange, TaskEvent, space_of_root,
};
use uprof::cold::{ExitCause, ExitKind, Exits, HandledExit, Place, VcpuTime};
use uprof::image::{ImageIdentity, Symbol};
use uprof::{
    Arch, Details, Found, Frame, FrameKind, Item, Payload, RawStack, Registers, Sample,
    SampleBlock, SliceReader, State, Stop, StreamReader, Task, Wait, Writer,
};

/// A sample that owns its data.
#[derive(Debug, Clone, PartialEq)]
struct Owned {
    time_ns: u64,
    task: Task,
    state: State,
    chain: Vec<Frame>,
    stop: Stop,
    details: Details,
    registers: Option<Registers>,
    stack: Option<(u64, Vec<u8>)>,
    wait: Option<Wait>,
}

impl Owned {
    fn borrow(&self) -> Sample<'_> {
        Sample {
            time_ns: self.time_ns,
            task: self.task,
            state: self.state,
            chain: &self.chain,
            stop: self.stop,
            details: self.details,
            registers: self.registers.as_ref(),
            stack: self.stack.as_ref().map(|(address, bytes)| RawStack {
                address: *address,
                bytes,
            }),
            wait: self.wait,
        }
    }
}

fn frames() -> impl Strategy<Value = Vec<Frame>> {
    let frame = (
        0u64..6,
        any::<bool>(),
        prop::sample::select(FrameKind::ALL),
        prop::sample::select(Found::ALL),
    )
        .prop_map(|(low, high, kind, found)| Frame {
            address: if high { !low } else { 0x40_0000 + low },
            kind,
            found,
        });
    prop::collection::vec(frame, 0..12)
}

fn registers() -> impl Strategy<Value = Registers> {
    let pairs = prop::collection::vec((0u8..64, any::<u64>()), 1..6);
    pairs.prop_map(|pairs| {
        let mut registers = Registers::default();
        pairs
            .into_iter()
            .for_each(|(number, value)| registers.set(number, value));
        registers
    })
}

fn samples() -> impl Strategy<Value = Vec<Owned>> {
    let small = 0..u64::MAX - 1;
    let sample = (
        (any::<u64>(), 0u32..3, 0u32..3),
        (
            prop::sample::select(State::ALL),
            prop::sample::select(Stop::ALL),
        ),
        frames(),
        (
            prop::array::uniform(prop::option::of(small)),
            prop::option::of(registers()),
            prop::option::of((any::<u64>(), prop::collection::vec(0u8..2, 0..64))),
            prop::option::of((0..u64::MAX - 1, 1u64..)),
        ),
    )
        .prop_map(
            |((time_ns, space, vcpu), (state, stop), chain, rest)| Owned {
                time_ns,
                task: Task { space, vcpu },
                state,
                chain,
                stop,
                details: Details::of(rest.0),
                registers: rest.1,
                stack: rest.2,
                wait: rest.3.map(|(time_ns, count)| Wait { time_ns, count }),
            },
        );
    prop::collection::vec(sample, 1..60)
}

fn end() -> End {
    End {
        time_ns: 9,
        reason: EndReason::Duration,
        message: "3 s were over".into(),
        totals: vec![("rounds".into(), 7)],
    }
}

/// A recording of these samples.
fn written(samples: &[Owned]) -> Vec<u8> {
    let mut writer = Writer::create(Vec::new(), [7; 16], &Metadata::default(), 1).unwrap();
    for sample in samples {
        writer.sample(&sample.borrow()).unwrap();
    }
    writer.finish(&end()).unwrap()
}

fn owned_rows(block: &SampleBlock) -> Vec<Owned> {
    let mut rows = block.rows();
    let mut all = Vec::new();
    while let Some(row) = rows.next_row().unwrap() {
        all.push(Owned {
            time_ns: row.time_ns,
            task: row.task,
            state: row.state,
            chain: block.chain(row.node).collect(),
            stop: row.stop,
            details: row.details,
            registers: row.registers.copied(),
            stack: row.stack.map(|stack| (stack.address, stack.bytes.to_vec())),
            wait: row.wait,
        });
    }
    all
}

proptest! {
    #[test]
    fn samples_survive_in_any_split(samples in samples(), split in 1usize..20) {
        let mut writer = Writer::create(Vec::new(), [7; 16], &Metadata::default(), 1).unwrap();
        for (index, sample) in samples.iter().enumerate() {
            writer.sample(&sample.borrow()).unwrap();
            if index % split == 0 {
                writer.flush().unwrap();
            }
        }
        let bytes = writer.finish(&end()).unwrap();

        let recording = SliceReader::open(&bytes).unwrap();
        let items: Vec<_> = recording.blocks().collect();
        let mut read = Vec::new();
        for item in &items {
            let Item::Block(block) = item else { panic!("damage in a sound file: {item:?}") };
            if let Payload::Samples(samples) = block.payload().unwrap() {
                read.extend(owned_rows(&samples));
            }
        }
        prop_assert_eq!(read, samples);

        let streamed: Vec<_> = StreamReader::open(&bytes[..]).unwrap().map(Result::unwrap).collect();
        prop_assert_eq!(streamed, items);
    }
}

#[test]
fn cold_records_survive() {
    let task = Task { space: 5, vcpu: 6 };
    let metadata = Metadata {
        notes: vec![("xen".into(), "4.17".into())],
        cost: Some(Cost::Work),
        labels: vec![("service".into(), "web".into())],
        ..Metadata::default()
    };
    let tasks = [
        TaskEvent {
            time_ns: 3,
            task,
            what: TaskChange::Named("worker".into()),
        },
        TaskEvent {
            time_ns: 4,
            task,
            what: TaskChange::Ended,
        },
    ];
    let mapping = Mapping {
        start: 0x1000,
        length: 0x2000,
        file_offset: 0x800,
        path: "/bin/true".into(),
        build_id: vec![1, 2, 3],
        file: None,
    };
    let without_file = mapping.clone();
    let file = |contents| {
        Some(MappedFile {
            device_major: 8,
            device_minor: 300,
            inode: 1 << 40,
            contents,
        })
    };
    let contents = Contents {
        size_bytes: 70_000,
        crc: 0xdead_beef,
    };
    let with_file = |contents| Mapping {
        file: file(contents),
        ..without_file.clone()
    };
    let modules = [
        ModuleChange::Mapped(mapping),
        ModuleChange::Mapped(with_file(None)),
        ModuleChange::Mapped(with_file(Some(contents))),
        ModuleChange::Cleared,
        ModuleChange::CopiedFrom(4),
    ]
    .map(|what| ModuleEvent {
        time_ns: 5,
        space: 5,
        what,
    });
    let clocks = [ClockPair {
        monotonic_ns: 6,
        realtime_ns: -7,
        guest: Some(8),
    }];
    let losses = [Loss {
        first_ns: 1,
        last_ns: 2,
        task: Some(task),
        reason: LossReason::RingFull,
        count: 9,
    }];
    let times = [ProcessTime {
        space: 300,
        first_ns: 5,
        last_ns: 1 << 40,
        own_ns: 250,
        ended_ns: u64::MAX,
    }];

    let vcpu_times = [VcpuTime {
        task,
        first_ns: 5,
        last_ns: 105,
        spent: vec![(Place::Guest, 60), (Place::Unknown, 40)],
    }];
    let exits = [None, Some(u64::MAX)].map(|known| Exits {
        task,
        first_ns: 5,
        last_ns: 105,
        cause: ExitCause {
            kind: ExitKind::Svm,
            reason: 0x7b,
            address: known,
            argument: known,
        },
        count: 12,
        seen: 3,
        spent: vec![(Place::Monitor, 1 << 40)],
        lengths: vec![(15, 2), (16, 1)],
    });
    let handled = [HandledExit {
        time_ns: 50,
        thread: 1 << 22,
        task,
        place: Place::Monitor,
        cause: exits[1].cause,
    }];

    let code = [Code {
        time_ns: 6,
        space: 0,
        address: 0xffff_ffff_8100_0040,
        bytes: vec![0x55, 0x48, 0xff],
    }];

    let root = 0x1a2_b000;
    let named = SpaceChange::Named {
        pid: 7,
        name: "sh".into(),
    };
    let spaces = [SpaceChange::Seen, named].map(|what| SpaceEvent {
        time_ns: 7,
        space: space_of_root(0, root),
        root,
        what,
    });

    let mut writer = Writer::create(Vec::new(), [7; 16], &metadata, 1).unwrap();
    writer.tasks(&tasks).unwrap();
    writer.modules(&modules).unwrap();
    writer.clocks(&clocks).unwrap();
    writer.losses(&losses).unwrap();
    writer.times(&times).unwrap();
    writer.vcpu_times(&vcpu_times).unwrap();
    writer.exits(&exits).unwrap();
    writer.monitor(b"a recording", 6).unwrap();
    writer.handled(&handled).unwrap();
    writer.code(&code).unwrap();
    writer.spaces(&spaces).unwrap();
    let identity = ImageIdentity {
        path: "[kernel]".into(),
        build_id: vec![],
        arch: Arch::X86_64,
        load_bias: 0,
        origin: "kallsyms".into(),
    };
    let symbols = [
        Symbol {
            address: 0x1000,
            size_bytes: 16,
            name: "schedule",
        },
        Symbol {
            address: 0x1010,
            size_bytes: 0,
            name: "é",
        },
    ];
    writer.symbols(&identity, symbols, 5).unwrap();
    let bytes = writer.finish(&end()).unwrap();

    let recording = SliceReader::open(&bytes).unwrap();
    assert_eq!(recording.uuid(), Some([7; 16]));
    for item in recording.blocks() {
        let Item::Block(block) = item else {
            panic!("{item:?}")
        };
        match block.payload().unwrap() {
            Payload::Metadata(read) => assert_eq!(read, metadata),
            Payload::Tasks(read) => assert_eq!(read, tasks),
            Payload::Modules(read) => assert_eq!(read, modules),
            Payload::Clocks(read) => assert_eq!(read, clocks),
            Payload::Losses(read) => assert_eq!(read, losses),
            Payload::Times(read) => assert_eq!(read, times),
            Payload::VcpuTimes(read) => assert_eq!(read, vcpu_times),
            Payload::Exits(read) => assert_eq!(read, exits),
            Payload::Monitor(read) => assert_eq!(read, b"a recording"),
            Payload::Handled(read) => assert_eq!(read, handled),
            Payload::Code(read) => assert_eq!(read, code),
            Payload::Spaces(read) => assert_eq!(read, spaces),
            Payload::Image(read) => {
                assert_eq!(read.identity, identity);
                assert!(read.symbols().eq(symbols));
            }
            Payload::End(read) => assert_eq!(read, end()),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_chain_that_is_too_long_loses_its_outer_end_and_says_so() {
    let chain: Vec<Frame> = (0..2000).map(Frame::return_address).collect();
    let sample = Sample::bare(1, Task { space: 0, vcpu: 0 }, &chain);
    let mut writer = Writer::create(Vec::new(), [0; 16], &Metadata::default(), 0).unwrap();
    writer.sample(&sample).unwrap();
    let bytes = writer.finish(&end()).unwrap();
    let recording = SliceReader::open(&bytes).unwrap();
    let rows = recording.blocks().find_map(|item| match item {
        Item::Block(block) => match block.payload().unwrap() {
            Payload::Samples(samples) => Some(owned_rows(&samples)),
            _ => None,
        },
        Item::Damage(_) => None,
    });
    let row = &rows.unwrap()[0];
    assert_eq!(row.chain, chain[..1024]);
    assert_eq!(row.stop, Stop::Depth);
}

#[test]
fn roots_that_stay_cost_few_bytes_and_those_that_change_are_read_back() {
    // By sample number, with two vCPUs alternating.
    let stays = |_: u64| Some(0x1a2_b000);
    let changes = |number: u64| match number / 50 % 3 {
        0 => None,
        turn => Some(0x1a2_b000 + (number % 2) * 0x1000 + turn),
    };
    let size = |root: &dyn Fn(u64) -> Option<u64>| {
        let samples: Vec<Owned> = (0..5_000u64)
            .map(|number| Owned {
                time_ns: number,
                task: Task {
                    space: 0,
                    vcpu: (number % 2) as u32,
                },
                state: State::Running,
                chain: vec![Frame::exact(0x1000 + number % 7)],
                stop: Stop::NotWalked,
                details: Details {
                    root: root(number),
                    ..Details::default()
                },
                registers: None,
                stack: None,
                wait: None,
            })
            .collect();
        let bytes = written(&samples);
        let mut read = Vec::new();
        for item in SliceReader::open(&bytes).unwrap().blocks() {
            let Item::Block(block) = item else {
                panic!("{item:?}")
            };
            if let Payload::Samples(samples) = block.payload().unwrap() {
                read.extend(owned_rows(&samples));
            }
        }
        assert_eq!(read, samples);
        bytes.len()
    };
    let without = size(&|_| None);
    let constant = size(&stays);
    assert!(constant <= without + 16, "{without} and {constant} bytes");
    let changing = size(&changes);
    assert!(changing <= without + 600, "{without} and {changing} bytes");
}

#[test]
fn registers_that_repeat_the_row_take_no_bytes() {
    let sizes = [true, false].map(|repeats| {
        let samples: Vec<Owned> = (0..500u64)
            .map(|number| {
                let scattered = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
                let mut registers = Registers::default();
                registers.set(16, scattered + u64::from(!repeats));
                registers.set(7, scattered + 64 + u64::from(!repeats));
                Owned {
                    time_ns: number,
                    task: Task { space: 0, vcpu: 0 },
                    state: State::Running,
                    chain: vec![Frame::exact(scattered)],
                    stop: Stop::NotWalked,
                    details: Details::default(),
                    registers: Some(registers),
                    stack: Some((scattered + 64, vec![0; 16])),
                    wait: None,
                }
            })
            .collect();
        let bytes = written(&samples);
        let recording = SliceReader::open(&bytes).unwrap();
        let read = recording.blocks().find_map(|item| match item {
            Item::Block(block) => match block.payload().unwrap() {
                Payload::Samples(samples) => Some((block.raw_bytes, owned_rows(&samples))),
                _ => None,
            },
            Item::Damage(_) => None,
        });
        let (raw_bytes, rows) = read.unwrap();
        assert_eq!(rows, samples);
        raw_bytes
    });
    let saved = sizes[1] - sizes[0];
    assert!(
        saved > 2 * 500 * 6,
        "only {saved} bytes saved in {}",
        sizes[1]
    );
}
