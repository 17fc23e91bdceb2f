//! Recordings whose names were chosen to harm whoever draws or exports them.

use crate::recordings::report_of;
use uniprof_report::profile::{By, Options};
use uprof::cold::{End, EndReason};
use uprof::cold::{
    Mapping, Metadata, ModuleChange, ModuleEvent, TargetKind, TaskChange, TaskEvent,
};
use uprof::image::{ImageIdentity, ImagePart, Symbol};
use uprof::{Arch, Frame, Sample, Task, Writer};

/// Functions of the made-up program, 0x100 bytes each from here.
const BASE: u64 = 0x40_1000;
const MOST_NAMES: usize = 64;

/// Names, a line each.
pub fn run(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let names: Vec<&str> = text.split('\n').take(MOST_NAMES).collect();
    let by = [By::Function, By::Declared, By::Module];
    let options = Options {
        by: by[bytes.len() % by.len()],
        by_task: bytes.len() & 4 != 0,
        by_recording: bytes.len() & 8 != 0,
        ..Options::default()
    };
    report_of(&recording(&names), options);
}

/// A recording in which everything that has a name has one of `names`.
fn recording(names: &[&str]) -> Vec<u8> {
    let name = |number: usize| {
        names
            .get(number % names.len().max(1))
            .copied()
            .unwrap_or("")
    };
    let mut metadata = Metadata::default();
    metadata.recorder.program = name(0).into();
    metadata.recorder.command_line = names.iter().map(|name| (*name).to_owned()).collect();
    metadata.target.kind = TargetKind::Process;
    metadata.target.name = name(1).into();
    metadata.host.name = name(2).into();
    metadata.notes = vec![(name(3).into(), name(4).into())];
    let task = Task { space: 7, vcpu: 7 };
    let mapping = Mapping {
        start: BASE,
        length: 0x100 * names.len() as u64,
        file_offset: 0x1000,
        path: name(5).into(),
        build_id: Vec::new(),
        file: None,
    };
    let mut part = ImagePart::new(ImageIdentity {
        path: name(5).into(),
        build_id: Vec::new(),
        arch: Arch::X86_64,
        load_bias: 0,
        origin: name(6).into(),
    });
    for (number, name) in names.iter().enumerate() {
        part.push(Symbol {
            address: 0x1000 + 0x100 * number as u64,
            size_bytes: 0x100,
            name,
        });
    }
    let end = End {
        time_ns: 1 << 30,
        reason: EndReason::Stopped,
        message: name(7).into(),
        totals: vec![(name(8).into(), 1)],
    };
    let write = || -> std::io::Result<Vec<u8>> {
        let mut writer = Writer::create(Vec::new(), [7; 16], &metadata, 0)?;
        let what = TaskChange::Named(name(9).into());
        writer.tasks(&[TaskEvent {
            time_ns: 0,
            task,
            what,
        }])?;
        let what = ModuleChange::Mapped(mapping);
        writer.modules(&[ModuleEvent {
            time_ns: 0,
            space: 7,
            what,
        }])?;
        writer.image_part(&part, 0)?;
        for number in 0..names.len() as u64 {
            let address = BASE + 0x100 * number + 8;
            let chain = [Frame::exact(address), Frame::return_address(BASE + 8)];
            writer.sample(&Sample::bare(number * 1_000_000, task, &chain))?;
        }
        writer.finish(&end)
    };
    // A name too long for its record is refused by the writer: then there is nothing to draw.
    write().unwrap_or_default()
}
