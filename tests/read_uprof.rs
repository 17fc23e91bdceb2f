//! Compares `uniprof dump` with a second reader of the format. Input: all recordings in corpus/, the worked
//! example of format-spec.md, and damaged copies of them. For each, the program must print line by line what
//! tests/read_uprof.py prints, which was written from format-spec.md alone. The images there have all
//! sections, sound and damaged.
#![cfg(feature = "report")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use uprof::cold::{
    Contents, End, EndReason, MappedFile, Mapping, Metadata, ModuleChange, ModuleEvent, TargetKind,
};
use uprof::image::{
    Cfa, ImageIdentity, ImagePart, Inlined, MissedCaller, Place, RuleRow, RuleSet, Save, Segment,
    Symbol,
};
use uprof::{Arch, Frame, Sample, Span, SpanKind, Task, Writer};

/// A Python with the package zstandard: the one in PATH, or the system's, which Debian's package is for.
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

/// The lines of a dump, and the program's messages. The text of an `error` line is for people, so only its
/// first word is compared (format-spec.md, section 10).
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

/// The commands that dump a recording: uniprof and the second reader.
fn readers(python: &str) -> [Command; 2] {
    let mut program = kit::uniprof();
    program.arg("dump");
    let mut script = Command::new(python);
    script.arg("-B").arg(in_repository("tests/read_uprof.py"));
    [program, script]
}

/// Panics at the first difference between the two dumps of `recording`. Returns their number of lines.
fn compare(python: &str, recording: &Path) -> usize {
    let [program, script] = readers(python);
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

/// Every recording below `folder`, ordered by path; none if there is no such folder.
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

/// A recording with mappings of files: with a build-id, with a contents hash, and with neither.
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

/// A part of an image without tables.
fn bare_part() -> ImagePart {
    ImagePart::new(ImageIdentity {
        path: "/usr/bin/a".into(),
        build_id: vec![0xab; 20],
        arch: Arch::Aarch64,
        load_bias: 0,
        origin: "test \u{202e}".into(),
    })
}

/// A part with all sections, which have all entries that are possible.
fn whole_part() -> ImagePart {
    let mut part = bare_part();
    part.push(Symbol {
        address: 0x1000,
        size_bytes: 0,
        name: "f",
    });
    let segment = Segment {
        address: u64::MAX,
        file_offset: 0x1000,
        file_bytes: 7,
        memory_bytes: 9,
        has_code: true,
    };
    let data = Segment {
        has_code: false,
        ..segment
    };
    part.set_segments([segment, data].into_iter());
    let functions = [(1, 2, 33), (2, 0, 0)].map(|(function, file, line)| Inlined {
        function,
        file,
        line,
    });
    let rows = [
        (0x10, &functions[..]),
        (0x10, &[]),
        (u64::MAX, &functions[1..]),
    ];
    part.set_lines(&["f", "/a \"b\".c", "never"], rows.into_iter());
    let mut set = RuleSet::default();
    let number = set.push_expression(&[0x77, 8]).unwrap();
    let places = [
        Place::Lost,
        Place::AtCfa(i32::MIN),
        Place::IsCfa(i32::MAX),
        Place::Register(32),
        Place::AtExpression(number),
        Place::IsExpression(number),
    ];
    let saves = places.map(|place| Save {
        register: 30,
        place,
    });
    set.push(Cfa::Expression(number), true, 30, &saves);
    let cfa = Cfa::Register {
        register: 31,
        offset_bytes: -16,
    };
    set.push(cfa, false, 30, &[]);
    let rows = [(0x10, 0x20, 1), (0x20, 0x21, 0), (0x30, u64::MAX, 1)];
    let rows = rows.map(|(start, end, rule)| RuleRow { start, end, rule });
    part.set_rules(&set, rows.into_iter(), Some(&[0x11, u64::MAX]));
    part.set_file(b"\x7fELF".to_vec());
    part.set_callers(&[MissedCaller {
        callee: 0,
        function: 0x11,
        next: u64::MAX,
        caller: 0x12,
    }]);
    part
}

/// A part whose section `tag` has these bytes, followed by sound lines.
fn part_with(tag: u8, bytes: &[u8]) -> ImagePart {
    let mut payload = Vec::new();
    bare_part().put(&mut payload);
    payload.extend([tag, bytes.len() as u8]);
    payload.extend(bytes);
    if tag != 4 {
        // One text, and one address without a function.
        payload.extend([4, 6, 1, 1, b'f', 1, 0x10, 0]);
    }
    ImagePart::parse(&payload).unwrap()
}

/// Damaged sections, and the position of the damage: tag, bytes, name and byte.
const WRONG: &[(u8, &[u8], &str)] = &[
    (3, &[2, 1, 2, 3, 4, 5], "section segments, byte 0:"),
    (3, &[1, 1, 2, 3, 4, 0x80], "section segments, byte 5:"),
    (4, &[1, 1, 0xff, 0], "section lines, byte 2:"),
    (4, &[0, 1, 9, 1, 0, 1, 0], "section lines, byte 5:"),
    (5, &[0, 1, 2, 7, 16, 0, 16, 0, 0], "section rules, byte 2:"),
    (5, &[0, 1, 0, 33, 16, 0, 16, 0, 0], "section rules, byte 3:"),
    (5, &[0, 1, 1, 0, 0, 0, 16, 0, 0], "section rules, byte 4:"),
    (
        5,
        &[0, 1, 0, 7, 16, 0, 16, 1, 16, 6, 2, 0],
        "section rules, byte 9:",
    ),
    (
        5,
        &[0, 1, 0, 7, 16, 0, 16, 1, 16, 3, 66, 0],
        "section rules, byte 10:",
    ),
    (
        5,
        &[0, 1, 0, 7, 16, 0, 16, 0, 1, 9, 0, 0],
        "section rules, byte 10:",
    ),
    (
        5,
        &[0, 1, 0, 7, 16, 0, 16, 0, 1, 9, 1, 1],
        "section rules, byte 11:",
    ),
    (5, &[0, 0, 0, 1, 0x80], "section rules, byte 4:"),
];

/// A recording with one sample in an image that has these parts.
fn with_parts(parts: &[ImagePart]) -> Vec<u8> {
    let mut metadata = Metadata::default();
    metadata.target.kind = TargetKind::Process;
    let mut writer = Writer::create(Vec::new(), [2; 16], &metadata, 1).unwrap();
    let mapped = ModuleEvent {
        time_ns: 1,
        space: 7,
        what: ModuleChange::Mapped(Mapping {
            start: 0x1000,
            length: 0x1000,
            file_offset: 0,
            path: "/usr/bin/a".into(),
            build_id: vec![0xab; 20],
            file: None,
        }),
    };
    writer.modules(&[mapped]).unwrap();
    for part in parts {
        writer.image_part(part, 1).unwrap();
    }
    let task = Task { space: 7, vcpu: 7 };
    let chain = [Frame::exact(0x1010)];
    writer.sample(&Sample::bare(2, task, &chain)).unwrap();
    let end = End {
        time_ns: 3,
        reason: EndReason::Duration,
        message: String::new(),
        totals: Vec::new(),
    };
    writer.finish(&end).unwrap()
}

/// A recording of a trace: spans of every sort, with all facts known and with none, in several blocks.
fn traced() -> Vec<u8> {
    let mut writer = Writer::create(Vec::new(), [3; 16], &Metadata::default(), 1).unwrap();
    for number in 0..400u64 {
        let span = Span {
            name: ["main", "größe \"b\"", "", "a\u{202e}\n##[##VsO["][number as usize % 4],
            task: Task {
                space: 7,
                vcpu: 300 + (number % 3) as u32,
            },
            cpu: (number % 50 > 20).then_some(number as u32 / 50),
            start_ns: (!number.is_multiple_of(5)).then_some(number * number),
            length_ns: (!number.is_multiple_of(6)).then_some(u64::MAX >> (number % 64)),
            depth: (number * 7 % 1024) as u16,
            complete: !number.is_multiple_of(6),
            kind: SpanKind::ALL[number as usize % SpanKind::ALL.len()],
            result: number
                .is_multiple_of(4)
                .then_some(i64::MIN >> (number % 64)),
        };
        writer.span(&span).unwrap();
        if number % 150 == 149 {
            writer.flush().unwrap();
        }
    }
    writer
        .finish(&End {
            time_ns: 3,
            reason: EndReason::InputEnded,
            message: String::new(),
            totals: Vec::new(),
        })
        .unwrap()
}

/// A recording with one of its guest's monitor, in two blocks.
fn monitored() -> Vec<u8> {
    let mut writer = Writer::create(Vec::new(), [4; 16], &Metadata::default(), 1).unwrap();
    let inner = traced();
    for bytes in inner.chunks(inner.len().div_ceil(2)) {
        writer.monitor(bytes, 2).unwrap();
    }
    writer
        .finish(&End {
            time_ns: 3,
            reason: EndReason::Duration,
            message: String::new(),
            totals: Vec::new(),
        })
        .unwrap()
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

/// Damaged copies of a recording, each with a name for the damage.
fn damaged(sound: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let flipped = |at: usize| {
        let mut copy = sound.to_vec();
        copy[at] ^= 0x10;
        copy
    };
    let (third, middle) = (sound.len() / 3, sound.len() / 2);
    let other = traced();
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
        ("another-appended", [sound, &other].concat()),
        ("cut-and-another", [&sound[..middle], &other].concat()),
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
    let images = folder.path().join("images.uprof");
    let wrong = WRONG.iter().map(|(tag, bytes, _)| part_with(*tag, bytes));
    let parts: Vec<ImagePart> = [whole_part()].into_iter().chain(wrong).collect();
    fs::write(&images, with_parts(&parts)).expect("writing a made recording");
    let spans = folder.path().join("spans.uprof");
    fs::write(&spans, traced()).expect("writing a made recording");
    let monitor = folder.path().join("monitor.uprof");
    fs::write(&monitor, monitored()).expect("writing a made recording");
    let mut all = vec![worked, mapped, images, spans, monitor];
    all.extend(recordings(&in_repository("corpus")));
    for recording in &all {
        let lines = compare(python, recording);
        let bytes = fs::read(recording).expect("it was just dumped");
        println!("{}: {lines} lines are the same", recording.display());
        if recording.starts_with(in_repository("corpus/bad")) {
            // This file is already damaged, and some are unreadable: then neither reader prints a line.
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

/// Words and field names of the lines in a part of format-spec.md. The part begins with `start`.
fn templates(start: &str) -> Vec<String> {
    let page = fs::read_to_string(in_repository("format-spec.md")).expect("format-spec.md");
    let part = &page[page.find(start).expect("the page has these words")..];
    let part = part.split("\n\n").nth(1).expect("a table follows");
    let quoted = part.split('`').skip(1).step_by(2);
    let lines = quoted.filter(|quoted| quoted.contains('=')).map(names);
    lines.collect()
}

/// A line of a dump without quoted texts and without values.
fn names(line: &str) -> String {
    let outside = line.replace("\\\"", "");
    let outside: String = outside.split('"').step_by(2).collect();
    let names = outside
        .split(' ')
        .map(|field| field.split('=').next().unwrap_or(""));
    names.collect::<Vec<_>>().join(" ")
}

/// Every line of an image's sections is on the page with the same fields, and every such line of the page is
/// printed.
#[test]
fn lines_of_sections_are_those_of_the_page() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("images.uprof");
    fs::write(&file, with_parts(&[whole_part()])).expect("writing a made recording");
    let [program, _] = readers("");
    let (lines, _) = dump(program, &file);
    let sections = lines
        .iter()
        .skip_while(|line| !line.starts_with("symbol "))
        .skip(1);
    let sections = sections.take_while(|line| !line.starts_with("block "));
    let mut written: Vec<String> = sections.map(|line| names(line)).collect();
    written.dedup();
    assert_eq!(written, templates("Lines of an image's sections"));
}

/// The error names the block, the section and the byte.
#[test]
fn a_damaged_section_is_told_with_its_place() {
    let python = python();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("damaged.uprof");
    for (tag, bytes, place) in WRONG {
        let recording = with_parts(&[part_with(*tag, bytes)]);
        fs::write(&file, recording).expect("writing a made recording");
        let sound = (*tag != 4).then_some("line address=10 functions=-");
        for mut reader in readers(python) {
            let output = reader.arg(&file).output().expect("it is there");
            let lines = String::from_utf8(output.stdout).expect("text");
            let error = lines
                .lines()
                .find(|line| line.starts_with("error block 2 "));
            assert!(
                error.is_some_and(|line| line.contains(place)),
                "{place} {lines}"
            );
            assert!(
                sound.is_none_or(|sound| lines.contains(sound)),
                "{place} {lines}"
            );
        }
        for arguments in [&["info"][..], &["report", "--top", "--no-search"]] {
            let mut program = kit::uniprof();
            let output = program
                .args(arguments)
                .arg(&file)
                .output()
                .expect("it is there");
            let said = [output.stdout, output.stderr].concat();
            let said = String::from_utf8(said).expect("text");
            let words: Vec<&str> = said.split_whitespace().collect();
            let said = words.join(" ");
            assert!(
                said.contains("block 2 (image) at byte "),
                "{arguments:?}: {said}"
            );
            assert!(said.contains(place), "{arguments:?}: {said}");
        }
    }
}
