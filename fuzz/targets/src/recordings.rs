//! Recordings: the file as a whole, its payloads, and everything a report makes of it.

use crate::markup;
use crate::repair::{recording_of, repair};
use crate::take::{Take, put_varint};
use std::io::{self, Read, Write};
use std::path::Path;
use uniprof_report::export::{FORMATS, Folder, Request, Writes};
use uniprof_report::images::Library;
use uniprof_report::import::{IMPORTS, examine, import};
use uniprof_report::profile::{By, Each, Options, gather};
use uniprof_report::recording::{Intervals, Recording, Window};
use uniprof_report::source_files::SourceFiles;
use uniprof_report::stacks::{Codes, Embedded, Tables};
use uniprof_report::text::Screen;
use uniprof_report::unwind::{Cache, Module, Stack, Unwinder};
use uniprof_report::views::annotate::Annotation;
use uniprof_report::views::chart::Chart;
use uniprof_report::views::dump::{self, DumpOptions};
use uniprof_report::views::flame::{self, FlameOptions};
use uniprof_report::views::html::{self, Tally};
use uniprof_report::views::{annotate, callers, info, top, tree};
use uprof::image::{ImageIdentity, ImagePart};
use uprof::layout::ImageSection;
use uprof::{Arch, Block, BlockType, Item, Payload, Registers, StreamReader, recover};

/// A terminal on which little has room.
const NARROW: Screen = Screen {
    columns: Some(60),
    colors: false,
};

/// A file as it is.
pub fn reader(bytes: &[u8]) {
    read(bytes);
    recovery(bytes);
}

/// A file with its checksums made right.
pub fn blocks(bytes: &[u8]) {
    let bytes = repair(bytes);
    read(&bytes);
    recovery(&bytes);
}

/// Keeps a window of the items, and cuts them into intervals: what is kept can be opened, and is sound.
fn windows(items: Vec<Item<'_>>, seed: u64) {
    let length_ns = 1 << (seed % 64);
    let mut window = Window::new([7; 16], length_ns);
    let mut intervals = Intervals::new([7; 16], length_ns);
    for item in items {
        let item = match item {
            Item::Block(block) => Item::Block(block.into_owned()),
            Item::Damage(damage) => Item::Damage(damage),
        };
        window.add(item.clone());
        intervals.add(item);
        if let Some(interval) = intervals.take().expect("memory is written") {
            opens(interval.bytes);
        }
    }
    let until_ns = window.latest_ns().saturating_add(seed);
    opens(window.recording(until_ns).expect("memory is written"));
}

/// Opens a recording, which is whole. Only what a reader must refuse in the file, too, can't be opened.
fn opens(bytes: Vec<u8>) {
    if let Ok(recording) = Recording::from_bytes("window", bytes) {
        assert_eq!(recording.damages().count, 0, "a window is damaged");
        assert!(recording.end().is_some());
    }
}

/// Reads from memory and from a pipe: both must come to the same.
fn read(bytes: &[u8]) {
    let piece = 1 + bytes.len() % 4099;
    let stream = StreamReader::open(Pieces { bytes, piece });
    match (uprof::SliceReader::open(bytes), stream) {
        (Ok(recording), Ok(stream)) => {
            let items: Vec<_> = recording.blocks().collect();
            let streamed: Vec<_> = stream.map(|item| item.expect("memory is read")).collect();
            assert!(items == streamed, "a pipe is read otherwise than a file");
            items.iter().for_each(exhaust);
            windows(items, bytes.len() as u64);
        }
        (Err(one), Err(other)) => {
            assert_eq!(one, other);
            assert!(!one.to_string().is_empty());
        }
        (one, other) => panic!("file: {:?}, pipe: {:?}", one.err(), other.err()),
    }
}

/// What is recovered is a sound recording with as many samples as was said.
fn recovery(bytes: &[u8]) {
    let Ok(recording) = uprof::SliceReader::open(bytes) else {
        return;
    };
    let items = recording.blocks().map(Ok);
    let (out, recovered) = recover(items, Vec::new(), [1; 16]).expect("memory takes all");
    let again = uprof::SliceReader::open(&out).expect("what was recovered is a recording");
    let mut samples = 0;
    for item in again.blocks() {
        match item {
            Item::Block(block) => samples += u64::from(block.samples),
            Item::Damage(damage) => panic!("recovery wrote damage: {damage}"),
        }
    }
    assert_eq!(samples, recovered.samples);
}

fn exhaust(item: &Item<'_>) {
    match item {
        Item::Block(block) => exhaust_block(block),
        Item::Damage(damage) => assert!(!damage.to_string().is_empty()),
    }
    markup::check_written(|out| {
        dump::write_item(item, DumpOptions::default(), out)?;
        Ok(())
    });
}

fn exhaust_block(block: &Block<'_>) {
    match block.payload() {
        Ok(Payload::Samples(samples)) => {
            let mut rows = samples.rows();
            while let Ok(Some(row)) = rows.next_row() {
                samples.chain(row.node).for_each(drop);
            }
        }
        Ok(Payload::Spans(spans)) => {
            let mut rows = spans.rows();
            while let Ok(Some(row)) = rows.next_row() {
                assert!(spans.named(row).depth < 1024);
            }
        }
        Ok(Payload::Image(part)) => part.symbols().for_each(drop),
        Ok(_) => {}
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// A pipe that brings so many bytes at a time.
struct Pieces<'a> {
    bytes: &'a [u8],
    piece: usize,
}

impl Read for Pieces<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let length = self.piece.min(out.len()).min(self.bytes.len());
        let (head, tail) = self.bytes.split_at(length);
        out[..length].copy_from_slice(head);
        self.bytes = tail;
        Ok(length)
    }
}

/// A block's type, its number of samples, and its payload.
pub fn payload(bytes: &[u8]) {
    let mut take = Take(bytes);
    let all = BlockType::ALL;
    let block_type = all[usize::from(take.byte()) % all.len()];
    let samples = u32::from(take.byte());
    let bytes = recording_of(block_type, samples, take.rest());
    read(&bytes);
    report_of(&bytes, Options::default());
}

/// Texts of other tools: what is made of them is a sound recording.
pub fn imports(bytes: &[u8]) {
    // A count of ten million samples is allowed, and takes its time.
    let short = |word: &[u8]| match word.iter().all(u8::is_ascii_digit) {
        true => word[..word.len().min(4)].to_vec(),
        false => word.to_vec(),
    };
    let is_space = |byte: &u8| byte.is_ascii_whitespace();
    let bytes: Vec<u8> = bytes
        .split_inclusive(is_space)
        .flat_map(|word| match word.split_last() {
            Some((space, word)) if is_space(space) => [short(word), vec![*space]].concat(),
            _ => short(word),
        })
        .collect();
    for format in IMPORTS {
        let mut out = Vec::new();
        let imported = import(format, "fuzz", [3; 16], &mut &bytes[..], &mut out);
        match imported {
            Ok(imported) => {
                let recording =
                    uprof::SliceReader::open(&out).expect("what we wrote is a recording");
                let blocks = recording.blocks().map(|item| match item {
                    Item::Block(block) => u64::from(block.samples),
                    Item::Damage(damage) => panic!("{}: {damage}", format.name),
                });
                assert_eq!(blocks.sum::<u64>(), imported.samples);
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

/// A pprof file, of which each stack counts once: ten million samples are allowed, and take their time.
pub fn pprof(bytes: &[u8]) {
    for found in IMPORTS.iter().filter_map(|format| examine(format, bytes)) {
        match found {
            Ok(found) => assert!(found.samples > 0 && found.samples <= 2 * found.lines),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

/// Sections of an embedded image; what they say is used.
pub fn embedded(bytes: &[u8]) {
    let mut take = Take(bytes);
    let part = ImagePart::new(ImageIdentity {
        path: "/a".into(),
        build_id: Vec::new(),
        arch: Arch::X86_64,
        load_bias: 0,
        origin: "fuzz".into(),
    });
    let sections = [take.piece(), take.piece(), take.piece(), take.rest()];
    let tags = [
        ImageSection::Segments,
        ImageSection::Callers,
        ImageSection::Lines,
        ImageSection::Rules,
    ];
    let mut payload = Vec::new();
    part.put(&mut payload);
    for (tag, section) in tags.into_iter().zip(sections) {
        put_varint(&mut payload, u64::from(tag.number()));
        put_varint(&mut payload, section.len() as u64);
        payload.extend(section);
    }
    let bytes = recording_of(BlockType::Image, 0, &payload);
    read(&bytes);
    let recording = Recording::from_bytes("fuzz", bytes).expect("its checksums are right");
    for embedded in Embedded::of(&recording, &mut Vec::new()) {
        let _ = embedded.segments.bias_of_mapping(0x40_0000, 0x1000);
        embedded.lines.iter().take(1 << 16).for_each(drop);
        let parts = embedded.parts();
        let fault = parts.iter().flat_map(ImagePart::faults).next();
        assert_eq!(fault, None, "what we wrote is sound");
        use_rules(&embedded);
    }
}

/// Unwinds at each of some addresses, on a stack of small numbers.
fn use_rules(embedded: &Embedded) {
    let bytes: Vec<u8> = (0..512u64).flat_map(|word| word.to_le_bytes()).collect();
    let memory = Stack {
        base: 0x8000,
        bytes: &bytes,
    };
    let module = Module {
        start: 0,
        end: 1 << 40,
        bias: 0,
        rules: embedded.rules.clone(),
        image: None,
    };
    let unwinder = Unwinder::new(Arch::X86_64, vec![module]);
    let mut cache = Cache::default();
    for address in (0..4096u64).step_by(37) {
        let mut registers = Registers::default();
        for register in 0..16 {
            registers.set(register, 0x8000 + u64::from(register) * 8);
        }
        registers.set(16, address);
        let mut frames = Vec::new();
        unwinder.unwind(
            &mut cache,
            &registers,
            &memory,
            Default::default(),
            &mut frames,
        );
        assert!(frames.len() <= uniprof_report::unwind::Options::default().depth_max);
    }
}

/// Every view and export of a file with right checksums.
pub fn report(bytes: &[u8]) {
    let by = [By::Function, By::Line, By::Module, By::Address, By::Place];
    let options = Options {
        by: by[bytes.len() % by.len()],
        by_task: bytes.len() & 8 != 0,
        unwind: uniprof_report::unwind::Options {
            scan: bytes.len() & 16 != 0,
            ..Default::default()
        },
        ..Options::default()
    };
    report_of(&repair(bytes), options);
}

/// Writes everything that can be written of a recording, and reads what is markup or JSON.
pub fn report_of(bytes: &[u8], options: Options) {
    let Ok(mut recording) = Recording::from_bytes("fuzz.uprof", bytes.to_vec()) else {
        return;
    };
    let mut library = Library::default();
    library.only_given = true;
    recording.assume_images(&library);
    let found = info::survey(&recording, &library, &|_, _| ());
    markup::check_written(|out| info::write(&recording, &found, NARROW, out));
    let (mut chart, mut tally) = (Chart::default(), Tally::default());
    let mut take = |sampled: &_, _: &_| {
        chart.add(sampled, "thread <&\"'>");
        tally.add(sampled);
    };
    let each: &mut Each<'_> = &mut take;
    let profile = gather(&[&recording], &library, &options, &|_, _| (), Some(each));
    markup::check_written(|out| top::write(&profile, Default::default(), out));
    markup::check_written(|out| tree::write(&profile, Default::default(), out));
    markup::check_written(|out| {
        callers::write(&profile, "a", Default::default(), out)?;
        for assembly in [false, true] {
            let what = Annotation {
                function: "a",
                assembly,
                sources: &SourceFiles::none(),
                codes: &Codes::new(&[&recording], &library, true),
                screen: NARROW,
            };
            annotate::write(&profile, &what, out)?;
        }
        Ok(())
    });
    let drawing = FlameOptions {
        title: uniprof_report::text::printable(&recording.metadata().target.name).into_owned(),
        subtitle: profile.account.short_line(140),
        reverse: options.by_task,
        icicle: options.by_task,
        least_share: 0.0,
        fold: false,
    };
    markup::check_drawn(|out| flame::write(&profile, &drawing, out));
    markup::check_drawn(|out| chart.write(&profile, &[1_000_000], &drawing, &[], out));
    let page = html::Page {
        recordings: &[(&recording, found)],
        profile: &profile,
        tally: &tally,
        chosen: String::new(),
        is_part: false,
        identify: false,
        drawing: &drawing,
        least_share: 0.0,
    };
    markup::check_page(|out| html::write(&page, out));
    export_all(&recording, &library, &options);
}

/// A folder whose files go nowhere.
struct NoFolder;

impl Folder for NoFolder {
    fn create(&mut self, _: &Path) -> io::Result<Box<dyn Write + Send>> {
        Ok(Box::new(io::sink()))
    }
}

fn export_all(recording: &Recording, library: &Library, options: &Options) {
    for format in FORMATS {
        let request = Request {
            recordings: &[recording],
            tables: &Tables::of_builds(library),
            options,
            progress: &|_, _| (),
            identify: false,
            marks: true,
            fold: false,
        };
        let mut out = Vec::new();
        let written = match format.write {
            Writes::File(write) => write(&request, &mut out),
            Writes::Folder(write) => write(&request, &mut NoFolder),
        };
        if let Err(refusal) = written {
            // Of time off the processor alone: memory takes all else.
            assert!(
                refusal.to_string().contains("no place for times"),
                "{refusal}"
            );
            continue;
        }
        if format.name == "csv" {
            // RFC 4180 ends lines with both.
            out.retain(|&byte| byte != b'\r');
        }
        if matches!(format.name, "json" | "firefox" | "speedscope") {
            let read: Result<serde_json::Value, _> = serde_json::from_slice(&out);
            assert!(read.is_ok(), "{}: {:?}", format.name, read.err());
        } else if !format.is_binary {
            markup::check_text(&out);
        }
    }
}
