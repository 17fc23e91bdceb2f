//! Damaged and hostile files (corpus/bad/). `uniprof recover` must give the recorded message for each, and no
//! other subcommand may do worse than report the damage.
//!
//! `UNIPROF_BLESS=1 cargo test --test bad_files` writes the files and messages anew. Files named `found-…`
//! were found by fuzzing and are kept as they are.
#![cfg(feature = "report")]

#[allow(dead_code)]
#[path = "../format/tests/fixture/mod.rs"]
mod fixture;

use fixture::{UUID, small_recording};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;
use uprof::layout::SYNC;
use uprof::{Block, BlockHeader, Item, Preamble, SliceReader};
use zerocopy::{FromBytes, IntoBytes};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/bad")
}

fn is_blessing() -> bool {
    std::env::var_os("UNIPROF_BLESS").is_some()
}

/// Runs a subcommand on a file in the current folder.
fn uniprof<W: AsRef<OsStr>>(folder: &Path, args: &[W]) -> Output {
    let mut command = kit::uniprof();
    command.current_dir(folder).args(args).output().unwrap()
}

/// A sound recording, and the positions of its blocks.
struct Sound {
    bytes: Vec<u8>,
    places: Vec<std::ops::Range<usize>>,
}

impl Sound {
    fn new() -> Self {
        let bytes = small_recording();
        let place = |block: &Block<'_>| {
            let start = block.offset as usize;
            start..start + block.file_bytes() as usize
        };
        let items = SliceReader::open(&bytes).unwrap().blocks();
        let places = items
            .map(|item| match item {
                Item::Block(block) => place(&block),
                Item::Damage(damage) => panic!("{damage}"),
            })
            .collect();
        Sound { bytes, places }
    }

    /// A copy with one byte changed.
    fn flipped(&self, at: usize) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        bytes[at] ^= 0x10;
        bytes
    }

    /// A copy with a changed header of block `number`, whose checksum is corrected.
    fn with_header(&self, number: usize, change: impl FnOnce(&mut BlockHeader)) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        let place = &mut bytes[self.places[number].start..][..BlockHeader::BYTES];
        let mut header = BlockHeader::read_from_bytes(place).unwrap();
        change(&mut header);
        header.header_crc = header.checksum().into();
        place.copy_from_slice(header.as_bytes());
        bytes
    }

    fn without(&self, range: std::ops::Range<usize>) -> Vec<u8> {
        [&self.bytes[..range.start], &self.bytes[range.end..]].concat()
    }
}

/// Number of the first block of samples in the small recording, from 0.
const SAMPLES: usize = 3;

/// The files, as name and bytes.
fn files() -> Vec<(&'static str, Vec<u8>)> {
    let sound = Sound::new();
    let bytes = &sound.bytes;
    let samples = sound.places[SAMPLES].clone();
    let mut newer = Preamble::new(UUID);
    newer.major = 2.into();
    newer.crc = newer.checksum().into();
    let mut hole = bytes.clone();
    hole[samples.start + 100..samples.start + 400].fill(0);
    vec![
        ("empty", Vec::new()),
        ("cut-in-preamble", bytes[..20].to_vec()),
        ("preamble-only", bytes[..32].to_vec()),
        ("not-a-recording", b"<!DOCTYPE html>\n<p>404\n".repeat(9)),
        ("syncs-only", SYNC.repeat(40)),
        ("newer-major", [newer.as_bytes(), &bytes[32..]].concat()),
        ("flipped-magic", sound.flipped(1)),
        ("flipped-uuid", sound.flipped(20)),
        ("flipped-metadata", sound.flipped(sound.places[0].end - 1)),
        ("flipped-header", sound.flipped(samples.start + 17)),
        ("flipped-payload", sound.flipped(samples.end - 9)),
        ("flipped-end", sound.flipped(bytes.len() - 9)),
        ("cut-in-block", bytes[..samples.end - 5].to_vec()),
        ("cut-in-header", bytes[..samples.start + 9].to_vec()),
        ("cut-between-blocks", bytes[..samples.end].to_vec()),
        ("hole-of-zeros", hole),
        ("line-ends-converted", convert_line_ends(bytes)),
        ("block-missing", sound.without(samples.clone())),
        (
            "bytes-missing",
            sound.without(samples.start + 80..samples.start + 95),
        ),
        (
            "block-twice",
            [&bytes[..samples.end], &bytes[samples.start..]].concat(),
        ),
        ("two-recordings", bytes.repeat(2)),
        (
            "claims-16-mib",
            sound.with_header(SAMPLES, |header| header.stored_bytes = (16 << 20).into()),
        ),
        (
            "claims-4-gib",
            sound.with_header(SAMPLES, |header| header.stored_bytes = u32::MAX.into()),
        ),
        (
            "claims-more-samples",
            sound.with_header(SAMPLES, |header| header.samples = 9999.into()),
        ),
        (
            "unknown-codec",
            sound.with_header(SAMPLES, |header| header.codec = 77),
        ),
        (
            "unknown-block",
            sound.with_header(1, |header| header.block_type = 77.into()),
        ),
        (
            "unknown-critical-block",
            sound.with_header(SAMPLES, |header| header.block_type = 77.into()),
        ),
    ]
}

/// Converts line ends, as a transfer in text mode does.
fn convert_line_ends(bytes: &[u8]) -> Vec<u8> {
    let mut converted = bytes.to_vec();
    let mut at = 0;
    while at + 1 < converted.len() {
        if converted[at..at + 2] == *b"\r\n" {
            converted.remove(at);
        }
        at += 1;
    }
    converted
}

#[test]
fn every_bad_file_has_its_message() {
    let folder = folder();
    if is_blessing() {
        fs::create_dir_all(&folder).unwrap();
        for (name, bytes) in files() {
            fs::write(folder.join(name).with_extension("uprof"), bytes).unwrap();
        }
    }
    let (mut made, mut found) = (0, 0);
    for entry in fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        if path
            .extension()
            .is_none_or(|extension| extension != "uprof")
        {
            continue;
        }
        match path.file_name().unwrap().to_string_lossy() {
            name if name.starts_with("found-") => found += 1,
            _ => made += 1,
        }
        let scratch = tempfile::tempdir().unwrap();
        fs::copy(&path, scratch.path().join("bad.uprof")).unwrap();
        let args = ["recover", "bad.uprof", "-o", "new.uprof"];
        let output = uniprof(scratch.path(), &args);
        let status = output.status.code().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        let said = format!("{message}exit status {status}\n");
        check(&path.with_extension("txt"), &said);
        check_recovered(scratch.path(), status);
        check_others(scratch.path(), &path);
    }
    assert_eq!(
        made,
        files().len(),
        "files in corpus/bad; UNIPROF_BLESS=1 writes them anew"
    );
    assert!(found >= 3, "{found} files that fuzzing found");
}

fn check(golden: &Path, found: &str) {
    if is_blessing() {
        fs::write(golden, found).unwrap();
    }
    let expected = fs::read_to_string(golden).unwrap_or_default();
    let place = golden.display();
    assert_eq!(
        found, expected,
        "{place}; UNIPROF_BLESS=1 accepts what is found"
    );
}

/// A recovered file must be a sound recording. A failure must leave no file behind.
fn check_recovered(folder: &Path, status: i32) {
    let new = folder.join("new.uprof");
    assert_eq!(new.exists(), status < 2);
    if status < 2 {
        let bytes = fs::read(new).unwrap();
        let recording = SliceReader::open(&bytes).unwrap();
        for item in recording.blocks() {
            assert!(matches!(item, Item::Block(_)), "{item:?}");
        }
        // One whose identity is lost has one of its own.
        assert_ne!(recording.uuid(), Some([0; 16]));
    }
    let names = fs::read_dir(folder).unwrap().count();
    assert_eq!(
        names,
        1 + usize::from(status < 2),
        "nothing half-written is left"
    );
}

/// What is made of a recording that was cut or damaged is as incomplete as that was.
#[test]
fn copies_of_what_was_cut_or_damaged_count_as_it() {
    let scratch = tempfile::tempdir().unwrap();
    let cut = scratch.path().join("cut.uprof");
    fs::copy(folder().join("cut-between-blocks.uprof"), &cut).unwrap();
    let said = |args: &[&str]| {
        let output = uniprof(scratch.path(), args);
        let text = kit::text(&output.stdout) + &kit::text(&output.stderr);
        (output.status.code(), text)
    };
    // Its recorder may still be writing to it.
    let (status, text) = said(&["bundle", "cut.uprof"]);
    assert_eq!(status, Some(2), "{text}");
    assert!(text.contains("it has no end"), "{text}");
    // Damage is the only advice, as it refuses -o, too.
    let sound = fs::read(&cut).unwrap();
    fs::write(
        scratch.path().join("torn.uprof"),
        &sound[..sound.len() - 10],
    )
    .unwrap();
    let (status, text) = said(&["bundle", "torn.uprof"]);
    assert_eq!(status, Some(2), "{text}");
    assert!(
        text.contains("run `uniprof recover`") && !text.contains("-o"),
        "{text}"
    );
    for command in ["bundle", "recover"] {
        let (status, text) = said(&[command, "cut.uprof", "-o", "copy.uprof"]);
        assert!(status < Some(2), "{text}");
        assert_eq!(said(&["info", "copy.uprof"]).0, Some(1), "{command}");
        let (status, text) = said(&["report", "--top", "--no-search", "copy.uprof"]);
        assert_eq!(status, Some(1), "{command}: {text}");
        assert!(text.contains("the recording has no end"), "{text}");
        assert!(!text.contains("damaged: "), "{text}");
    }
    // A block without samples, of mappings.
    let sound = Sound::new();
    fs::write(&cut, sound.flipped(sound.places[SAMPLES - 1].end - 1)).unwrap();
    said(&["recover", "cut.uprof", "-o", "copy.uprof"]);
    let (status, text) = said(&["info", "copy.uprof"]);
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains("1 places, at least 0 samples gone"), "{text}");
    let (status, text) = said(&["report", "--top", "--no-search", "copy.uprof"]);
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains("damaged: 1 places in the file"), "{text}");
}

/// What else is in the folder of a window is none of it.
#[test]
fn a_window_is_the_files_that_a_flight_recorder_names() {
    let scratch = tempfile::tempdir().unwrap();
    let window = scratch.path().join("run.uprof.keep");
    fs::create_dir(&window).unwrap();
    let put = |name: &str, from: &str| fs::copy(kit::corpus(from), window.join(name)).unwrap();
    let recovered = || {
        let args = ["recover", "run.uprof.keep", "-o", "new.uprof"];
        let output = uniprof(scratch.path(), &args);
        assert!(output.status.success(), "{output:?}");
        fs::read(scratch.path().join("new.uprof")).unwrap()
    };
    put("00000001.uprof", "agent.uprof");
    let alone = recovered();
    put("run.uprof", "pack-stack.uprof");
    put("2-notes.uprof", "pack-stack.uprof");
    assert!(recovered() == alone, "a stranger's file is read");
    put("00000002.uprof", "pack-stack.uprof");
    assert!(recovered() != alone);
    // What is missing is told.
    let incomplete = |part: &str| {
        let args = ["recover", "run.uprof.keep", "-o", "new.uprof"];
        let output = uniprof(scratch.path(), &args);
        let said = kit::text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(
            said.contains(part) && !said.contains("nothing was wrong"),
            "{said}"
        );
    };
    fs::write(window.join("00000003.uprof"), "").unwrap();
    incomplete("00000003.uprof is left out: the recording is empty");
    fs::remove_file(window.join("00000003.uprof")).unwrap();
    put("00000004.uprof", "agent.uprof");
    incomplete("between 00000002.uprof and 00000004.uprof are gone");
}

/// Other subcommands end with one of uniprof's statuses and a message, never with a panic.
fn check_others(folder: &Path, path: &Path) {
    let scratch = tempfile::tempdir().unwrap();
    let out = scratch.path().join("out");
    for args in kit::commands::all("bad.uprof", "main", out.to_str().unwrap()) {
        let output = uniprof(folder, &args);
        let shown = format!("{}: {}", path.display(), args.join(" "));
        let stderr = String::from_utf8_lossy(&output.stderr);
        let status = output.status.code();
        assert!(
            matches!(status, Some(0..=2)),
            "{shown}: {status:?} {stderr}"
        );
        assert!(!stderr.contains("panicked"), "{shown}: {stderr}");
        if status == Some(2) {
            assert!(stderr.starts_with("uniprof: "), "{shown}: {stderr}");
        }
    }
}
