//! Annotated functions for tests: reports on them, parsed; and synthetic recordings and images.

#![allow(dead_code)]

use std::path::{Path, PathBuf};
use uniprof_report::images::Library;
use uniprof_report::profile::{By, Options, gather};
use uniprof_report::recording::Recording;
use uniprof_report::source_files::SourceFiles;
use uniprof_report::stacks::Codes;
use uniprof_report::text::Screen;
use uniprof_report::views::annotate::{self, Annotation};
use uprof::cold::{End, EndReason, Mapping, Metadata, ModuleChange, ModuleEvent, TargetKind};
use uprof::image::{ImageIdentity, ImagePart, Symbol};
use uprof::{Arch, Frame, Sample, Task, Writer};

/// A file of corpus/.
pub fn corpus(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../corpus")
        .join(name)
}

/// The report on `function`, with these images and no other files.
pub fn annotated(
    recordings: &[&Recording],
    images: &[PathBuf],
    function: &str,
    assembly: bool,
) -> String {
    let mut library = Library::default();
    library.only_given = true;
    for image in images {
        library.add_image(image).unwrap();
    }
    let options = Options {
        by: By::Place,
        ..Options::default()
    };
    let profile = gather(recordings, &library, &options, &|_, _| {}, None);
    let what = Annotation {
        function,
        assembly,
        sources: &SourceFiles::of(true, Vec::new()),
        codes: &Codes::new(recordings, &library, true),
        screen: Screen::default(),
    };
    let mut out = Vec::new();
    annotate::write(&profile, &what, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// An instruction in a report.
#[derive(Debug)]
pub struct Shown {
    pub own: u64,
    pub total: u64,
    pub text: String,
}

/// The instructions in a report, in order.
pub fn instructions(report: &str) -> Vec<Shown> {
    let mut found = Vec::new();
    for line in report.lines() {
        let letters: Vec<char> = line.chars().collect();
        let column = |range: std::ops::Range<usize>| -> Option<String> {
            Some(letters.get(range)?.iter().collect::<String>().trim().into())
        };
        let (Some(own), Some(total), Some(rest)) =
            (column(0..9), column(10..19), column(19..letters.len()))
        else {
            continue;
        };
        let mut words = rest.split_whitespace();
        let is_address = words
            .next()
            .is_some_and(|word| u64::from_str_radix(word, 16).is_ok());
        if is_address && words.next().is_some_and(|word| word.starts_with("+0x")) {
            let number = |text: String| match text.is_empty() {
                true => 0,
                false => text.parse().unwrap(),
            };
            found.push(Shown {
                own: number(own),
                total: number(total),
                text: words.collect::<Vec<_>>().join(" "),
            });
        }
    }
    found
}

/// Path of the image in synthetic recordings.
const PATH: &str = "/somewhere/app";
/// The address of the image's first byte.
const MAPPED: u64 = 0x5555_0000_0000;

/// A synthetic recording of stacks, innermost frames first, as offsets in the file of `PATH`. The image has
/// these functions: start, size in bytes and name.
pub fn made(build_id: &[u8], functions: &[(u64, u64, String)], stacks: &[&[u64]]) -> Recording {
    made_of(TargetKind::Process, build_id, functions, stacks)
}

/// The same for a target of any sort.
pub fn made_of(
    kind: TargetKind,
    build_id: &[u8],
    functions: &[(u64, u64, String)],
    stacks: &[&[u64]],
) -> Recording {
    let mut metadata = Metadata::default();
    metadata.target.kind = kind;
    // A guest's addresses are those of address space 0, in which nothing moves.
    let space = match kind {
        TargetKind::Process => 7,
        _ => 0,
    };
    let mut writer = Writer::create(Vec::new(), [7; 16], &metadata, 0).unwrap();
    let mapping = Mapping {
        start: MAPPED,
        length: 1 << 24,
        file_offset: 0,
        path: PATH.into(),
        build_id: build_id.to_vec(),
        file: None,
    };
    let event = ModuleEvent {
        time_ns: 0,
        space,
        what: ModuleChange::Mapped(mapping),
    };
    writer.modules(&[event]).unwrap();
    let mut part = ImagePart::new(ImageIdentity {
        path: PATH.into(),
        build_id: build_id.to_vec(),
        arch: Arch::X86_64,
        load_bias: 0,
        origin: "test".into(),
    });
    for (address, size_bytes, name) in functions {
        assert!(part.push(Symbol {
            address: *address,
            size_bytes: *size_bytes,
            name,
        }));
    }
    if !functions.is_empty() {
        writer.image_part(&part, 0).unwrap();
    }
    for stack in stacks {
        let frames = stack.iter().enumerate().map(|(depth, offset)| match depth {
            0 => Frame::exact(MAPPED + offset),
            _ => Frame::return_address(MAPPED + offset),
        });
        let chain: Vec<Frame> = frames.collect();
        let sample = Sample::bare(1, Task { space, vcpu: 7 }, &chain);
        writer.sample(&sample).unwrap();
    }
    let end = End {
        time_ns: 2,
        reason: EndReason::Duration,
        message: String::new(),
        totals: Vec::new(),
    };
    Recording::from_bytes("made.uprof", writer.finish(&end).unwrap()).unwrap()
}

/// Start of the code in an image that has only `nop`, both in the file and in memory.
pub const NOPS: u64 = 0x1000;

/// Writes such an image: a file header, one program header, and code.
pub fn nops(folder: &Path, code_bytes: u64) -> PathBuf {
    let mut image = Vec::new();
    image.extend(*b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    // ET_DYN, EM_X86_64, EV_CURRENT.
    image.extend([3, 0, 62, 0, 1, 0, 0, 0]);
    // Entry, program headers, no section headers.
    image.extend([0, 64, 0].map(u64::to_le_bytes).concat());
    let sizes: [u16; 8] = [0, 0, 64, 56, 1, 64, 0, 0];
    image.extend(sizes.map(u16::to_le_bytes).concat());
    // PT_LOAD, readable and executable.
    image.extend([1, 5].map(u32::to_le_bytes).concat());
    let segment = [NOPS, NOPS, NOPS, code_bytes, code_bytes, 0x1000];
    image.extend(segment.map(u64::to_le_bytes).concat());
    image.resize(NOPS as usize, 0);
    image.resize((NOPS + code_bytes) as usize, 0x90);
    let path = folder.join("app");
    std::fs::write(&path, image).unwrap();
    path
}
