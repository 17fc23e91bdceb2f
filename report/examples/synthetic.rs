//! Writes a made-up recording of any length, for measuring: `synthetic SAMPLES FILE`.
//!
//! 3,800 distinct stacks of 4 to 28 frames, two threads, 997 samples a second of each.

use std::fs::File;
use std::io::{self, BufWriter};
use uprof::cold::{End, EndReason, Mapping, Metadata, ModuleChange, ModuleEvent, TargetKind};
use uprof::image::{ImageIdentity, ImagePart, Symbol};
use uprof::{Arch, Details, Frame, Sample, Task, Writer};

const STACKS: u64 = 3_800;
const FUNCTIONS: u64 = 900;
const BASE: u64 = 0x40_0000;
const FUNCTION_BYTES: u64 = 0x200;

fn mix(word: u64) -> u64 {
    let mixed = (word ^ word >> 31).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed ^ mixed >> 29
}

/// The frames of stack `number`: neighbours in number share their outer half.
fn stack(number: u64) -> Vec<Frame> {
    let depth = 4 + mix(number / 8) % 25;
    let mut chain: Vec<Frame> = (0..depth)
        .map(|level| {
            let which = if level * 2 < depth {
                mix(number / 64 * 131 + level)
            } else {
                mix(number * 977 + level)
            };
            Frame::return_address(
                BASE + which % FUNCTIONS * FUNCTION_BYTES + 8 + (which >> 40) % 400,
            )
        })
        .collect();
    chain.reverse();
    chain[0] = Frame::exact(chain[0].address);
    chain
}

fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let usage = || io::Error::other("usage: synthetic SAMPLES FILE");
    let samples = arguments
        .next()
        .and_then(|text| text.parse::<u64>().ok())
        .ok_or_else(usage)?;
    let path = arguments.next().ok_or_else(usage)?;
    let mut metadata = Metadata::default();
    metadata.target.kind = TargetKind::Process;
    metadata.target.name = "synthetic".into();
    metadata.sampling.rate_millihertz = 997_000;
    let mut writer = Writer::create(BufWriter::new(File::create(path)?), [1; 16], &metadata, 0)?;
    let mapping = Mapping {
        start: BASE,
        length: FUNCTIONS * FUNCTION_BYTES,
        file_offset: 0,
        path: "/synthetic/app".into(),
        build_id: vec![7; 20],
        file: None,
    };
    writer.modules(&[ModuleEvent {
        time_ns: 0,
        space: 1,
        what: ModuleChange::Mapped(mapping),
    }])?;
    let mut part = ImagePart::new(ImageIdentity {
        path: "/synthetic/app".into(),
        build_id: vec![7; 20],
        arch: Arch::X86_64,
        load_bias: 0,
        origin: "synthetic".into(),
    });
    for function in 0..FUNCTIONS {
        part.push(Symbol {
            address: function * FUNCTION_BYTES,
            size_bytes: FUNCTION_BYTES,
            name: &format!("function_{function}"),
        });
    }
    writer.image_part(&part, 0)?;
    let stacks: Vec<Vec<Frame>> = (0..STACKS).map(stack).collect();
    for number in 0..samples {
        // Some stacks are hot, as in any program.
        let draw = mix(number);
        let which = (draw % STACKS).min((draw >> 32) % STACKS);
        let task = Task {
            space: 1,
            vcpu: 1 + (number % 2) as u32,
        };
        writer.sample(&Sample {
            details: Details {
                cost_ns: Some(1_000 + draw % 500),
                ..Details::default()
            },
            ..Sample::bare(number * 501_505, task, &stacks[which as usize])
        })?;
    }
    let end = End {
        time_ns: samples * 501_505,
        reason: EndReason::Duration,
        message: "all samples were made".into(),
        totals: Vec::new(),
    };
    writer.finish(&end)?;
    Ok(())
}
