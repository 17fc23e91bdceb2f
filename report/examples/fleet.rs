//! Writes made-up recordings of a fleet, for tests and measuring: `fleet RECORDINGS SAMPLES FOLDER`.
//!
//! Four services on several days and hours, in versions that name the same functions at other addresses; recursion, a
//! kernel, equal names in two images, idle samples, waits. One has no labels, and one no time of day.

use std::fs;
use std::io;
use std::path::PathBuf;
use uprof::cold::{
    ClockPair, End, EndReason, Mapping, Metadata, ModuleChange, ModuleEvent, TargetKind,
    TaskChange, TaskEvent,
};
use uprof::image::{ImageIdentity, ImagePart, Symbol};
use uprof::{Arch, Frame, Sample, State, Task, Wait, Writer};

const SERVICES: [&str; 4] = ["web", "db", "batch/nightly 1", "7"];
const FUNCTION_BYTES: u64 = 0x100;
/// Images with their first address and the number of their functions.
const IMAGES: [(&str, u64, u64); 3] = [
    ("/opt/fleet/app", 0x40_0000, 40),
    ("/usr/lib/libfleet.so", 0x7f00_0000_0000, 20),
    ("[kernel]", 0xffff_ffff_8100_0000, 10),
];
const PERIOD_NS: u64 = 10_101_010;
/// 2026-11-25 20:00:30 UTC.
const START_NS: u64 = 1_795_636_830_000_000_000;

fn mix(word: u64) -> u64 {
    let mixed = (word ^ word >> 31).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed ^ mixed >> 29
}

/// The functions of a stack, outermost first: image and number.
fn stack(draw: u64) -> Vec<(usize, u64)> {
    let depth = 1 + draw % 6;
    let mut functions = vec![(0, 0)];
    functions.extend((0..depth).map(|level| (0, 1 + mix(draw % 17 + level * level) % 39)));
    if draw.is_multiple_of(3) {
        // Recursion.
        functions.extend([(0, 5), (0, 5), (0, 6), (0, 5)]);
    }
    if draw.is_multiple_of(4) {
        functions.push((1, draw % 20));
    }
    if draw.is_multiple_of(5) {
        functions.push((2, draw % 10));
    }
    functions
}

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [recordings, samples, folder] = &arguments[..] else {
        return Err(io::Error::other("usage: fleet RECORDINGS SAMPLES FOLDER"));
    };
    let number = |text: &str| text.parse::<u64>().map_err(io::Error::other);
    let folder = PathBuf::from(folder);
    fs::create_dir_all(&folder)?;
    for recording in 0..number(recordings)? {
        let bytes = made(recording, number(samples)?)?;
        fs::write(folder.join(format!("{recording:04}.uprof")), bytes)?;
    }
    Ok(())
}

fn made(recording: u64, samples: u64) -> io::Result<Vec<u8>> {
    let version = recording % 3;
    let mut metadata = Metadata::default();
    metadata.target.kind = TargetKind::Process;
    metadata.target.id = 7;
    metadata.target.name = "/opt/fleet/app --serve".into();
    metadata.sampling.rate_millihertz = 99_000;
    if recording != 1 {
        let service = SERVICES[(recording % 4) as usize];
        metadata.labels = vec![
            ("service".into(), service.into()),
            ("version".into(), format!("1.{version}")),
            ("region".into(), "eu \"west\"".into()),
        ];
    }
    let mut uuid = [0x5a; 16];
    uuid[..8].copy_from_slice(&recording.to_be_bytes());
    let mut writer = Writer::create(Vec::new(), uuid, &metadata, 1_000)?;
    if recording != 2 {
        // Every five hours, so that there are several days.
        let realtime_ns = START_NS + recording % 24 * 5 * 3_600_000_000_000;
        writer.clocks(&[ClockPair {
            monotonic_ns: 1_000,
            realtime_ns: realtime_ns as i64,
            guest: None,
        }])?;
    }
    let named = (1..=3).map(|thread| TaskEvent {
        time_ns: 1_000,
        task: task(thread),
        what: TaskChange::Named(format!("worker {thread}")),
    });
    writer.tasks(&named.collect::<Vec<_>>())?;
    write_images(&mut writer, version)?;
    for number in 0..samples {
        let draw = mix(recording * 1_000_003 + number * 7) >> 8;
        let mut chain: Vec<Frame> = Vec::new();
        for (image, function) in stack(draw).into_iter().rev() {
            let (_, base, count) = IMAGES[image];
            let function = (function + version) % count;
            let address = base + function * FUNCTION_BYTES + 8 + draw % 64;
            chain.push(if chain.is_empty() {
                Frame::exact(address)
            } else {
                Frame::return_address(address)
            });
        }
        let is_wait = draw.is_multiple_of(11);
        writer.sample(&Sample {
            state: match draw % 7 {
                _ if is_wait => State::Blocked,
                0 => State::Blocked,
                _ => State::Running,
            },
            wait: is_wait.then_some(Wait {
                time_ns: 1_000 + draw % 1_000_000,
                count: 1,
            }),
            ..Sample::bare(1_000 + number * PERIOD_NS, task(1 + draw % 3), &chain)
        })?;
    }
    writer.finish(&End {
        time_ns: 1_000 + samples * PERIOD_NS,
        reason: EndReason::Duration,
        message: "all samples were made".into(),
        totals: Vec::new(),
    })
}

fn task(thread: u64) -> Task {
    Task {
        space: 7,
        vcpu: 6 + thread as u32,
    }
}

/// The images. In another version, a function has another address.
fn write_images(writer: &mut Writer<Vec<u8>>, version: u64) -> io::Result<()> {
    for (number, (path, start, count)) in (1..).zip(IMAGES) {
        let build_id = vec![number * 16 + version as u8; 20];
        let mapping = Mapping {
            start,
            length: count * FUNCTION_BYTES,
            file_offset: 0,
            path: path.into(),
            build_id: build_id.clone(),
            file: None,
        };
        writer.modules(&[ModuleEvent {
            time_ns: 1_000,
            space: 7,
            what: ModuleChange::Mapped(mapping),
        }])?;
        let mut part = ImagePart::new(ImageIdentity {
            path: path.into(),
            build_id,
            arch: Arch::X86_64,
            load_bias: 0,
            origin: "symtab".into(),
        });
        // The last function of each image has no name.
        for function in 0..count - 1 {
            let number = (function + count - version) % count;
            part.push(Symbol {
                address: function * FUNCTION_BYTES,
                size_bytes: FUNCTION_BYTES,
                name: &format!("handle_{number}"),
            });
        }
        writer.image_part(&part, 1_000)?;
    }
    Ok(())
}
