//! Recordings in which what is beside the samples is what there is too much of: mappings, images, calls.

use super::{Content, LENGTH_NS, TEXT, count, memory, recording, task, time_ns};
use fastrand::Rng;
use uprof::cold::{Mapping, ModuleChange, ModuleEvent};
use uprof::image::{ImageIdentity, ImagePart, Inlined, Symbol};
use uprof::{Arch, Frame, Sample, Span, SpanKind, Task, Writer};

/// Bytes of each crafted image.
const IMAGE_BYTES: u64 = 1 << 20;

fn mapping(start: u64, length: u64, path: String) -> Mapping {
    Mapping {
        start,
        length,
        path,
        ..Mapping::default()
    }
}

fn map(writer: &mut Writer<Vec<u8>>, time_ns: u64, space: u32, what: ModuleChange) {
    let event = ModuleEvent {
        time_ns,
        space,
        what,
    };
    memory(writer.modules(&[event]));
}

fn sample(writer: &mut Writer<Vec<u8>>, time_ns: u64, task: Task, addresses: &[u64]) {
    let chain: Vec<Frame> = addresses.iter().copied().map(Frame::exact).collect();
    memory(writer.sample(&Sample::bare(time_ns, task, &chain)));
}

/// Changes of a few address spaces, and a sample after each.
pub(super) fn mappings(random: &mut Rng) -> Content {
    recording(random, |writer, random| {
        let events = count(random, 1 << 14);
        let spaces = count(random, 1 << 10) as u32;
        let places = count(random, 1 << 14);
        let (clears, copies) = (random.bool(), random.bool());
        for number in 0..events {
            let space = random.u32(1..=spaces);
            let at_ns = number * LENGTH_NS / events;
            let start = TEXT + 0x1000 * random.u64(..places);
            let length = 0x1000 * count(random, places);
            let what = match random.u32(..8) {
                0 if clears => ModuleChange::Cleared,
                1 if copies => ModuleChange::CopiedFrom(random.u32(1..=spaces)),
                _ => ModuleChange::Mapped(mapping(start, length, format!("/lib/{}", number & 63))),
            };
            map(writer, at_ns, space, what);
            sample(writer, at_ns, Task { space, vcpu: space }, &[start, TEXT]);
        }
    })
}

fn part(path: &str, random: &mut Rng) -> ImagePart {
    ImagePart::new(ImageIdentity {
        path: path.into(),
        build_id: vec![1; random.usize(..2) * 20],
        arch: Arch::X86_64,
        load_bias: 0,
        origin: "symtab".into(),
    })
}

/// Symbols and lines of one image, with long names, many at the same place.
pub(super) fn tables(random: &mut Rng) -> Content {
    recording(random, |writer, random| {
        map(
            writer,
            0,
            1,
            ModuleChange::Mapped(mapping(TEXT, IMAGE_BYTES, "/image".into())),
        );
        let symbols = count(random, 1 << 16);
        let name_bytes = count(random, (4 << 20) / symbols) as usize;
        let name = ["f", "_ZN1a", "_R", "St6vector"][random.usize(..4)].repeat(name_bytes / 2 + 1);
        let step = random.u64(..IMAGE_BYTES / symbols + 1);
        let size_bytes = count(random, IMAGE_BYTES);
        let mut image = part("/image", random);
        for number in 0..symbols {
            let name = format!("{name}{number}");
            let symbol = Symbol {
                address: TEXT + number * step,
                size_bytes,
                name: &name,
            };
            if !image.push(symbol) {
                let full = std::mem::replace(&mut image, part("/image", random));
                let _ = writer.image_part(&full, 0);
            }
        }
        set_lines(&mut image, random);
        // One that is too long for a block is left out.
        let _ = writer.image_part(&image, 0);
        for _ in 0..count(random, 1 << 16) {
            let address = TEXT + random.u64(..IMAGE_BYTES);
            sample(
                writer,
                time_ns(random),
                Task { space: 1, vcpu: 1 },
                &[address],
            );
        }
    })
}

fn set_lines(image: &mut ImagePart, random: &mut Rng) {
    let texts = count(random, 1 << 12) as u32;
    let text_bytes = count(random, (2 << 20) / u64::from(texts)) as usize;
    let texts: Vec<String> = (0..texts)
        .map(|number| format!("{number}{}", "t".repeat(text_bytes)))
        .collect();
    let inlined = count(random, 1 << 10);
    let functions: Vec<Inlined> = (0..inlined)
        .map(|_| Inlined {
            function: random.u32(..texts.len() as u32),
            file: random.u32(..texts.len() as u32),
            line: random.u32(..),
        })
        .collect();
    let addresses = count(random, (1 << 20) / inlined);
    let step = IMAGE_BYTES / addresses;
    let rows: Vec<(u64, &[Inlined])> = (0..addresses)
        .map(|number| (TEXT + number * step, &functions[..]))
        .collect();
    image.set_lines(&texts, rows.into_iter());
}

/// Images of a symbol each, with mappings of them in a few spaces.
pub(super) fn images(random: &mut Rng) -> Content {
    recording(random, |writer, random| {
        let images = count(random, 1 << 14);
        let spaces = count(random, 16) as u32;
        let different = count(random, images);
        for number in 0..images {
            let path = format!("/lib/{}.so", number % different);
            let start = TEXT + number * IMAGE_BYTES;
            let space = random.u32(1..=spaces);
            let mapped = mapping(start, IMAGE_BYTES, path.clone());
            map(writer, 0, space, ModuleChange::Mapped(mapped));
            let mut image = part(&path, random);
            image.push(Symbol {
                address: 0x10,
                size_bytes: IMAGE_BYTES,
                name: &format!("f{number}"),
            });
            memory(writer.image_part(&image, 0));
            let task = Task { space, vcpu: space };
            sample(writer, time_ns(random), task, &[start + 0x20]);
        }
    })
}

/// Calls that lie deep in one another, some without a beginning or an end.
pub(super) fn spans(random: &mut Rng) -> Content {
    recording(random, |writer, random| {
        let spans = count(random, 1 << 19);
        let deepest = count(random, 1023) as u16;
        let names = count(random, 1 << 14);
        let tasks = count(random, 1 << 12) as u32;
        let (ends, starts) = (random.u32(..8) > 0, random.u32(..8) > 0);
        for number in 0..spans {
            let name = format!("f{}", random.u64(..names));
            let length_ns = count(random, LENGTH_NS);
            let span = Span {
                name: name.as_str(),
                task: task(random, tasks),
                cpu: None,
                start_ns: starts.then_some(number),
                length_ns: ends.then_some(length_ns),
                depth: deepest - (number % (u64::from(deepest) + 1)) as u16,
                complete: ends,
                kind: SpanKind::Function,
                result: None,
            };
            memory(writer.span(&span));
        }
    })
}
