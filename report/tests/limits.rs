//! Limits of reports, each at its value and beyond it. docs/limits.md names these tests.

use std::fs::File;
use std::io::Write;
use uniprof_report::images::{Image, Library};
use uniprof_report::import::{IMPORTS, ImportSummary, import};
use uniprof_report::text::printable;
use uniprof_report::unwind::{Cache, Options, Stack, Unwinder};
use uprof::{Arch, Registers, Stop};

/// The number of frames on a stack with this many callers, and why it ends.
fn unwound(callers: u64) -> (usize, Stop) {
    let base = 0x8000;
    let words = (0..callers).flat_map(|number| [base + 16 * (number + 1), 0x1000 + number]);
    let words = words.chain([0, 0]);
    let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    let mut registers = Registers::default();
    registers.set(16, 0x1000);
    registers.set(7, base);
    registers.set(6, base);
    let unwinder = Unwinder::new(Arch::X86_64, Vec::new());
    let memory = Stack {
        base,
        bytes: &bytes,
    };
    let mut frames = Vec::new();
    let mut cache = Cache::default();
    let options = Options::default();
    let stop = unwinder.unwind(&mut cache, &registers, &memory, options, &mut frames);
    (frames.len(), stop)
}

#[test]
fn frames_of_an_unwound_stack() {
    let most = Options::default().depth_max;
    assert_eq!(unwound(most as u64 - 1).0, most);
    assert_ne!(unwound(most as u64 - 2).1, Stop::Depth);
    assert_eq!(unwound(most as u64), (most, Stop::Depth));
    assert_eq!(unwound(10 * most as u64), (most, Stop::Depth));
}

/// Sparse files, which take no room on the disk.
#[test]
fn bytes_of_a_list_of_symbols() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("symbols");
    let add = |length: u64| {
        File::create(&path).unwrap().set_len(length).unwrap();
        let error = Library::default().add_symbols(&path).unwrap_err();
        error.to_string()
    };
    let message = add((512 << 20) + 1);
    assert!(message.contains("larger than 512 MiB"), "{message}");
    // A file that is small enough, but has no names.
    let message = add(1 << 10);
    assert!(!message.contains("larger"), "{message}");
}

#[test]
fn letters_of_a_name_that_is_shown() {
    let name = |letters| "n".repeat(letters);
    assert_eq!(printable(&name(4096)), name(4096));
    assert_eq!(printable(&name(4097)), name(4096) + "…");
    // A letter of several bytes must not be cut in the middle.
    let wide = "ü".repeat(2048) + "ü";
    assert_eq!(printable(&wide), "ü".repeat(2048) + "…");
}

fn import_folded(text: &str) -> Result<ImportSummary, String> {
    let format = IMPORTS.iter().find(|format| format.name == "folded");
    let mut out = Vec::new();
    let imported = import(
        format.unwrap(),
        "t",
        [1; 16],
        &mut text.as_bytes(),
        &mut out,
    );
    imported.map_err(|error| error.to_string())
}

#[test]
fn bytes_of_a_line_that_is_imported() {
    let line = |bytes: usize| format!("{} 3\nmain 1\n", "n".repeat(bytes - 3));
    // The end of the line counts, too.
    let whole = import_folded(&line(1 << 20)).unwrap();
    assert_eq!((whole.samples, whole.skipped), (4, 0));
    let cut = import_folded(&line((1 << 20) + 10)).unwrap();
    assert_eq!((cut.samples, cut.skipped, cut.lines), (1, 1, 2));
}

#[test]
fn samples_that_a_text_claims() {
    assert_eq!(import_folded("main 100000\n").unwrap().samples, 100_000);
    let message = import_folded("main 10000001\n").unwrap_err();
    assert!(message.contains("claims 10000001 samples"), "{message}");
    assert!(import_folded(&format!("main {}\n", u64::MAX)).is_err());
}

/// An ELF file with this many loadable segments, and optionally a compressed section.
fn elf(segments: u16, section: Option<&[u8]>) -> Vec<u8> {
    let halves = |halves: &[u16]| {
        halves
            .iter()
            .flat_map(|half| half.to_le_bytes())
            .collect::<Vec<u8>>()
    };
    let words = |words: &[u64]| {
        words
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect::<Vec<u8>>()
    };
    let names = b"\0.packed\0.names\0";
    let payload = section.unwrap_or_default();
    let body = 64 + 56 * u64::from(segments);
    let (names_at, headers_at) = (
        body + payload.len() as u64,
        body + (payload.len() + names.len()) as u64,
    );
    let mut out = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    out.extend([3, 0, 62, 0, 1, 0, 0, 0]);
    out.extend(words(&[0, 64, headers_at]));
    out.extend([0; 4]);
    out.extend(halves(&[64, 56, segments, 64, 3, 2]));
    for number in 0..u64::from(segments) {
        out.extend([1, 0, 0, 0, 5, 0, 0, 0]);
        out.extend(words(&[0, number << 12, number << 12, 16, 16, 4096]));
    }
    out.extend(payload);
    out.extend(names);
    out.extend([0; 64]);
    // SHT_PROGBITS with SHF_COMPRESSED; SHT_STRTAB.
    for (name, kind, flags, at, bytes) in [
        (1u32, 1u32, 0x800, body, payload.len() as u64),
        (9, 3, 0, names_at, names.len() as u64),
    ] {
        out.extend(name.to_le_bytes());
        out.extend(kind.to_le_bytes());
        out.extend(words(&[flags, 0, at, bytes, 0, 1, 0]));
    }
    out
}

#[test]
fn segments_of_an_image() {
    let count = |segments| {
        Image::from_bytes("t", elf(segments, None))
            .unwrap()
            .segments()
            .len()
    };
    assert_eq!(count(4096), 4096);
    assert_eq!(count(4097), 4096);
}

/// Decompresses a section with `bytes` that zlib compressed (ELF gABI, "Compressed Sections").
fn unpacked(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut section = vec![1, 0, 0, 0, 0, 0, 0, 0];
    section.extend((bytes.len() as u64).to_le_bytes());
    section.extend(1u64.to_le_bytes());
    let mut packer = flate2::write::ZlibEncoder::new(section, flate2::Compression::best());
    packer.write_all(bytes).unwrap();
    let image = Image::from_bytes("t", elf(1, Some(&packer.finish().unwrap()))).unwrap();
    image.section(".packed").map(std::borrow::Cow::into_owned)
}

#[test]
fn how_much_a_packed_section_may_grow() {
    // 40 of 1,000 bytes are noise, which gives a ratio of about 15:1.
    let mut word = 1u32;
    let mut noise = || {
        word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (word >> 24) as u8
    };
    let sane: Vec<u8> = (0..200_000)
        .map(|at| if at % 1000 < 40 { noise() } else { 0 })
        .collect();
    assert_eq!(unpacked(&sane), Some(sane));
    assert_eq!(unpacked(&[0; 1 << 20]), None, "1,000:1 is a bomb");
}
