//! `uniprof dump` against a second reader of the format. Recordings enter: all of corpus/, the
//! worked example of format-spec.md, and damaged copies of them. Of each, the program must print
//! line by line what tests/read_uprof.py prints, which was written from format-spec.md alone.
#![cfg(feature = "report")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use uprof::Writer;
use uprof::cold::{
    Contents, End, EndReason, MappedFile, Mapping, Metadata, ModuleChange, ModuleEvent,
};

/// A Python that has the package zstandard: the one in PATH, or the system's, for which Debian's
/// package is.
fn python() -> &'static str {
    let has_zstandard = |python: &&str| {
        let output = Command::new(python)
            .args(["-c", "import zstandard"])
            .output();
        output.is_ok_and(|output| output.status.success())
    };
    ["python3", "/usr/bin/python3"]
        .into_iter()
        .find(has_zstandard)
        .expect(
            "tests/read_uprof.py needs Python 3 with the package zstandard: \
         apt-get install python3-zstandard, or python3 -m pip install zstandard",
        )
}

/// The lines of a dump, and what the program wrote to stderr. The text of an `error` line is for
/// people, so that only its first word counts (format-spec.md, section 10).
fn dump(mut command: Command, recording: &Path) -> (Vec<String>, String) {
    let shown = format!("{command:?} on {}", recording.display());
    let Output { stdout, stderr, .. } = command
        .arg(recording)
        .output()
        .unwrap_or_else(|error| panic!("{shown}: {error}"));
    let stdout = String::from_utf8(stdout).unwrap_or_else(|error| panic!("{shown}: {error}"));
    let lines = stdout.lines().map(|line| match line.split_once(' ') {
        Some(("error", _)) => "error".to_owned(),
        _ => line.to_owned(),
    });
    (
        lines.collect(),
        String::from_utf8_lossy(&stderr).into_owned(),
    )
}

/// Panics where the two dumps of `recording` differ first; returns their number of lines.
fn compare(python: &str, recording: &Path) -> usize {
    let mut program = Command::new(env!("CARGO_BIN_EXE_uniprof"));
    program.arg("dump");
    let mut script = Command::new(python);
    script.arg("-B").arg(in_repository("tests/read_uprof.py"));
    let (program, program_stderr) = dump(program, recording);
    let (script, script_stderr) = dump(script, recording);
    for (index, (ours, theirs)) in program.iter().zip(&script).enumerate() {
        let (place, line) = (recording.display(), index + 1);
        assert_eq!(
            ours, theirs,
            "{place}, line {line}: uniprof dump (left), read_uprof.py (right)"
        );
    }
    let (ours, theirs) = (program.len(), script.len());
    assert_eq!(
        ours,
        theirs,
        "{}: lines of uniprof dump (left) and read_uprof.py (right); their stderr:\n{}{}",
        recording.display(),
        program_stderr,
        script_stderr
    );
    ours
}

fn in_repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Every recording below `folder`, in order of its path; none if there is no such folder.
fn recordings(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for path in entries.map(|entry| entry.expect("reading corpus/").path()) {
        if path.is_dir() {
            found.extend(recordings(&path));
        } else if path
            .extension()
            .is_some_and(|extension| extension == "uprof")
        {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// A recording with mappings of files: with a build-id, with contents, with neither.
fn mapped_files() -> Vec<u8> {
    let mut writer = Writer::create(Vec::new(), [1; 16], &Metadata::default(), 1).unwrap();
    let contents = Contents {
        size_bytes: 70_000,
        crc: 0x00c0_ffee,
    };
    let events = [
        (vec![0xab; 20], None),
        (vec![], Some(contents)),
        (vec![], None),
    ];
    let events = events.map(|(build_id, contents)| ModuleEvent {
        time_ns: 2,
        space: 7,
        what: ModuleChange::Mapped(Mapping {
            start: 0x1000,
            length: 0x1000,
            file_offset: 0x2000,
            path: "/usr/bin/a \"b\"".into(),
            build_id,
            file: Some(MappedFile {
                device_major: 254,
                device_minor: 1 << 18,
                inode: 1 << 40,
                contents,
            }),
        }),
    });
    writer.modules(&events).unwrap();
    let end = End {
        time_ns: 3,
        reason: EndReason::Duration,
        message: String::new(),
        totals: Vec::new(),
    };
    writer.finish(&end).unwrap()
}

/// The recording that section 13 of format-spec.md shows in hexadecimal.
fn worked_example() -> Vec<u8> {
    let text = fs::read_to_string(in_repository("format-spec.md")).expect("format-spec.md");
    let dump = text
        .split("```hexdump\n")
        .nth(1)
        .expect("format-spec.md has a block `hexdump`");
    let dump = dump
        .split("```")
        .next()
        .expect("split gives at least one piece");
    let bytes = dump.lines().flat_map(|line| {
        let line = line
            .split_once(": ")
            .expect("a line of a hex dump has an offset")
            .1;
        line.split('|')
            .next()
            .expect("split gives at least one piece")
            .split_whitespace()
    });
    bytes
        .map(|byte| u8::from_str_radix(byte, 16).expect("two hexadecimal digits"))
        .collect()
}

/// Copies of a recording with what can happen to a file: a name for the damage, and the bytes.
fn damaged(sound: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let flipped = |at: usize| {
        let mut copy = sound.to_vec();
        copy[at] ^= 0x10;
        copy
    };
    let (third, middle) = (sound.len() / 3, sound.len() / 2);
    vec![
        ("flipped-preamble", flipped(12)),
        ("flipped-first-header", flipped(60)),
        ("flipped-third", flipped(third)),
        ("flipped-middle", flipped(middle)),
        ("front-cut", sound[40..].to_vec()),
        (
            "piece-cut-out",
            [&sound[..third], &sound[middle..]].concat(),
        ),
        ("end-cut", sound[..sound.len() - 5].to_vec()),
        ("middle-cut", sound[..middle].to_vec()),
        ("block-header-cut", sound[..62].to_vec()),
        ("appended", [sound, sound].concat()),
    ]
}

#[test]
fn dump_is_what_the_second_reader_prints() {
    let python = python();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let worked = folder.path().join("worked-example.uprof");
    fs::write(&worked, worked_example()).expect("writing the worked example");
    let mapped = folder.path().join("mapped-files.uprof");
    fs::write(&mapped, mapped_files()).expect("writing a made recording");
    let mut all = vec![worked, mapped];
    all.extend(recordings(&in_repository("corpus")));
    for recording in &all {
        let lines = compare(python, recording);
        let bytes = fs::read(recording).expect("it was just dumped");
        println!("{}: {lines} lines are the same", recording.display());
        if recording.starts_with(in_repository("corpus/bad")) {
            // Damaged already, some beyond recognition: then neither reader prints a line.
            continue;
        }
        assert!(
            bytes.len() > 100 && lines > 0,
            "{} is no recording",
            recording.display()
        );
        for (name, bytes) in damaged(&bytes) {
            let stem = recording
                .file_stem()
                .expect("a file has a name")
                .to_string_lossy();
            let copy = folder.path().join(format!("{stem}-{name}.uprof"));
            fs::write(&copy, bytes).expect("writing a damaged copy");
            compare(python, &copy);
            fs::remove_file(&copy).expect("removing a damaged copy");
        }
    }
}
