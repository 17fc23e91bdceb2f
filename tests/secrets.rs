//! A secret is planted in every text, register and stack byte of a recording, and searched for in every
//! output. A redacted bundle may only have those that the list of kept texts allows. Outputs for others
//! (pages, pictures, exports, comparisons) must not show the command line, the host or a folder without
//! `--identify`.

#![cfg(feature = "report")]

mod unpacked;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt::Debug;
use std::path::Path;
use uprof::cold::{
    ClockPair, Code, End, EndReason, ExitCause, ExitKind, Exits, HandledExit, Loss, LossReason,
    MappedFile, Mapping, Metadata, ModuleChange, ModuleEvent, Place, ProcessTime, SpaceChange,
    SpaceEvent, TargetKind, TaskChange, TaskEvent, VcpuTime,
};
use uprof::image::{ImageIdentity, ImagePart, Inlined, Segment, Symbol};
use uprof::{
    Arch, BlockType, Frame, Item, RawStack, Registers, Sample, SliceReader, Span, SpanKind, Task,
    Writer,
};

/// What may stay in a redacted bundle, each in the field that format-spec.md, section 14, names.
const KEPT: [&str; 22] = [
    "kept-processor",
    "kept-thread",
    "kept-program",
    "kept-process",
    "app.js:1:2",
    "kept-module",
    "kept-library.dll",
    "kept.wasm",
    "kept.so",
    "[anon]",
    "/memfd:",
    "kept_function",
    "keptpkg.(*T).Run",
    "keptpkg.Map[keptother.T]",
    "kept_inlined",
    "kept_windows x.js:3:4",
    "kept_link [redacted]",
    "kept-source.c",
    "kept_call",
    "kept_syscall",
    "kept_slice [redacted]",
    "kept_work [redacted]",
];
/// All other planted secrets.
const SECRETS: [&str; 56] = [
    "secret-recorder",
    "secret-command",
    "secret-host",
    "secret-system",
    "secret-model",
    "secret-argument",
    "secret-trigger",
    "secret-note-name",
    "secret-note-value",
    "secret-label-key",
    "secret-label-value",
    "secret-long-thread-name",
    "secret-short",
    "secret-folder",
    "secret-tok",
    "secret-use",
    "secret-win",
    "secret-mail",
    "secret-process",
    "secret-image-folder",
    "secret-drive",
    "secret-login",
    "secret-pass",
    "secret-web",
    "secret-query",
    "secret-anon",
    "secret-memfd",
    "secret-value",
    "secret-origin",
    "secret-end",
    "secret-total",
    "secret-in-a-section",
    "inode=424242",
    "secret-script",
    "secret-forge",
    "secret-team",
    "secret-other",
    "secret-name",
    "secret-word",
    "secret-site",
    "secret-link",
    "secret-pattern",
    "secret-quoted",
    "secret-inlining",
    "secret-source",
    "secret-code",
    "secret-unknown",
    "secret-call-folder",
    "secret-syscall-file",
    "secret-sql",
    "secret-server",
    "secret-customer",
    "secret-account",
    "secret-key",
    "secret-assumed",
    "SECRETST",
];
/// What an output for others must not show without `--identify`.
const PERSONAL: [&str; 6] = [
    "secret-command",
    "secret-host",
    "secret-argument",
    "secret-note-name",
    "secret-note-value",
    "secret-end",
];

const MAIN: Task = Task {
    space: 300,
    vcpu: 300,
};
const OTHER: Task = Task {
    space: 300,
    vcpu: 301,
};

/// A task that only makes calls.
const CALLER: Task = Task {
    space: 300,
    vcpu: 302,
};

fn metadata() -> Metadata {
    let mut metadata = Metadata::default();
    metadata.recorder.program = "uniprof secret-recorder".into();
    metadata.recorder.command_line = vec!["uniprof".into(), "--secret-command".into()];
    metadata.host.name = "secret-host".into();
    metadata.host.system = "Linux 6.1.0-secret-system".into();
    metadata.host.processor = "kept-processor model=secret-model".into();
    metadata.target.kind = TargetKind::Process;
    metadata.target.id = 300;
    metadata.target.name = "/opt/secret-folder/kept-program --secret-argument".into();
    metadata.sampling.rate_millihertz = 99_000;
    metadata.sampling.trigger = "secret-trigger".into();
    metadata.notes = vec![("secret-note-name".into(), "secret-note-value".into())];
    metadata.labels = vec![("secret-label-key".into(), "secret-label-value".into())];
    metadata
}

fn named(task: Task, name: &str) -> TaskEvent {
    TaskEvent {
        time_ns: 1_000,
        task,
        what: TaskChange::Named(name.into()),
    }
}

fn identity(path: &str, origin: &str) -> ImageIdentity {
    ImageIdentity {
        path: path.into(),
        build_id: vec![1; 20],
        arch: Arch::X86_64,
        load_bias: 0,
        origin: origin.into(),
    }
}

/// Symbols as a recorder writes them, and a section of an unknown type.
fn image() -> ImagePart {
    let mut image = ImagePart::new(identity(
        "/secret-image-folder/kept-module",
        "secret-origin",
    ));
    image.push(Symbol {
        address: 0x1000,
        size_bytes: 0x10,
        name: "kept_function",
    });
    let mut bytes = Vec::new();
    image.put(&mut bytes);
    // The tag of this section is 4000.
    let section = b"secret-in-a-section";
    bytes.extend([0xa0, 0x1f, section.len() as u8]);
    bytes.extend(section);
    ImagePart::parse(&bytes).unwrap()
}

/// Tables as `bundle` writes them, for the addresses of the samples.
fn tables() -> ImagePart {
    let mut image = ImagePart::new(identity("/secret-image-folder/kept-module", "bundle"));
    image.set_segments(std::iter::once(Segment {
        address: 0,
        file_offset: 0,
        file_bytes: 0x10_0000,
        memory_bytes: 0x10_0000,
        has_code: true,
    }));
    let names = [
        (0x1010, "secret-forge.example/secret-team/keptpkg.(*T).Run"),
        (0x1020, "a/keptpkg.Map[secret-other.example/keptother.T]"),
        (
            0x1030,
            "https://secret-name:secret-word@secret-site.example",
        ),
        (0x1040, "RegExp:secret-pattern"),
    ];
    for (address, name) in names {
        image.push(Symbol {
            address,
            size_bytes: 0x10,
            name,
        });
    }
    let texts = [
        "/secret-inlining/a/kept_inlined",
        "C:\\secret-source\\kept-source.c",
    ];
    let line = Inlined {
        function: 1,
        file: 2,
        line: 3,
    };
    let rows = [(0x1010, &[line][..]), (0x1020, &[line][..])];
    image.set_lines(&texts, rows.into_iter());
    image
}

fn write_samples<W: std::io::Write>(writer: &mut Writer<W>) -> std::io::Result<()> {
    let mut registers = Registers::default();
    registers.set(3, u64::from_le_bytes(*b"SECRETST"));
    for round in 0..20 {
        let task = if round % 2 == 0 { MAIN } else { OTHER };
        let chain = [
            Frame::exact(0x40_1010),
            Frame::return_address(0x40_1021),
            Frame::return_address(0x40_1031),
            Frame::return_address(0x40_1041),
            Frame::return_address(0x40_1051),
        ];
        writer.sample(&Sample {
            registers: Some(&registers),
            stack: Some(RawStack {
                address: 0x7ff0,
                bytes: b"SECRETST",
            }),
            ..Sample::bare(2_000 + round * 10_000_000, task, &chain)
        })?;
    }
    Ok(())
}

/// Writes calls of each sort, including those of a thread without samples.
fn write_calls<W: std::io::Write>(writer: &mut Writer<W>) -> std::io::Result<()> {
    let names = [
        ("/secret-call-folder/kept_call", SpanKind::Function),
        ("kept_syscall(\"/secret-syscall-file\")", SpanKind::Syscall),
        ("SELECT 1 FROM secret-sql", SpanKind::Syscall),
        (
            "kept_slice https://secret-server/secret-page",
            SpanKind::Slice,
        ),
        ("kept_work customer='secret-customer'", SpanKind::Slice),
        ("secret-account@example.com", SpanKind::Slice),
        ("/secret-key", SpanKind::Slice),
    ];
    for (number, (name, kind)) in (0..).zip(names) {
        for task in [OTHER, CALLER] {
            writer.span(&Span {
                name,
                task,
                cpu: Some(1),
                start_ns: Some(3_000 + number * 1_000),
                length_ns: Some(500),
                depth: 0,
                complete: true,
                kind,
                result: (kind == SpanKind::Syscall).then_some(-2),
            })?;
        }
    }
    Ok(())
}

fn mapped(start: u64, path: &str, build_id: &[u8]) -> ModuleEvent {
    ModuleEvent {
        time_ns: 1_000,
        space: 300,
        what: ModuleChange::Mapped(Mapping {
            start,
            length: 0x10_0000,
            file_offset: 0,
            path: path.into(),
            build_id: build_id.into(),
            file: Some(MappedFile {
                device_major: 9,
                device_minor: 9,
                inode: 424_242,
                contents: None,
            }),
        }),
    }
}

/// Writes each sort of record that has no text. If one gets a text later, these tests will notice.
fn write_numbers<W: std::io::Write>(writer: &mut Writer<W>) -> std::io::Result<()> {
    writer.clocks(&[ClockPair::default()])?;
    writer.losses(&[Loss {
        first_ns: 1_000,
        last_ns: 2_000,
        task: Some(MAIN),
        reason: LossReason::Deadline,
        count: 1,
    }])?;
    writer.times(&[ProcessTime::default()])?;
    let spent = vec![(Place::Guest, 700), (Place::Monitor, 300)];
    writer.vcpu_times(&[VcpuTime {
        task: MAIN,
        first_ns: 1_000,
        last_ns: 2_000,
        spent: spent.clone(),
    }])?;
    writer.exits(&[Exits {
        task: MAIN,
        first_ns: 1_000,
        last_ns: 2_000,
        cause: ExitCause {
            kind: ExitKind::Svm,
            reason: 0x7b,
            address: Some(0x10_2000),
            argument: None,
        },
        count: 2,
        seen: 2,
        spent,
        lengths: vec![(104, 1), (208, 1)],
    }])?;
    writer.monitor(&of_monitor()?, 2_000)?;
    writer.handled(&[HandledExit {
        time_ns: 1_500,
        thread: 70,
        task: MAIN,
        place: Place::Monitor,
        cause: ExitCause {
            kind: ExitKind::Svm,
            reason: 0x7b,
            address: None,
            argument: Some(0x3f8),
        },
    }])
}

/// A recording of the guest's monitor.
fn of_monitor() -> std::io::Result<Vec<u8>> {
    let mut writer = Writer::create(Vec::new(), [8; 16], &Metadata::default(), 1_000)?;
    writer.tasks(&[named(MAIN, "secret-monitor")])?;
    let end = End {
        time_ns: 2_000,
        reason: EndReason::Stopped,
        message: "secret-monitor-end".into(),
        totals: Vec::new(),
    };
    writer.finish(&end)
}

/// Writes a block of an unknown type.
fn write_unknown<W: std::io::Write>(writer: &mut Writer<W>) -> std::io::Result<()> {
    let mut other = Writer::without_metadata(Vec::new(), [7; 16])?;
    other.tasks(&[named(MAIN, "secret-unknown")])?;
    let end = End {
        time_ns: 0,
        reason: EndReason::Stopped,
        message: String::new(),
        totals: Vec::new(),
    };
    let bytes = other.finish(&end)?;
    let mut blocks = SliceReader::open(&bytes).unwrap().blocks();
    let Some(Item::Block(mut block)) = blocks.next() else {
        panic!("no block");
    };
    block.block_type = 4_000;
    writer.copy(&block)
}

/// Writes a recording with all secrets.
fn write(path: &Path) -> std::io::Result<()> {
    let file = std::fs::File::create(path)?;
    let mut writer = Writer::create(file, [7; 16], &metadata(), 1_000)?;
    // Earlier recordings named the first thread by the command line.
    let command = metadata().target.name;
    writer.tasks(&[
        named(MAIN, &command),
        named(OTHER, "kept-thread"),
        named(OTHER, "./sh secret-short"),
        named(OTHER, "env TOKEN=secret-long-thread-name"),
        named(OTHER, "T=secret-tok"),
        named(OTHER, "su: secret-use"),
        named(OTHER, "\\secret-win\\x"),
        named(OTHER, "secret-mail@h"),
        named(OTHER, "kept-thread"),
        named(CALLER, "/opt/secret-folder/kept-thread"),
    ])?;
    writer.spaces(&[SpaceEvent {
        time_ns: 1_000,
        space: uprof::cold::space_of_root(0, 0x1000),
        root: 0x1000,
        what: SpaceChange::Named {
            pid: 1,
            name: "kept-process secret-process".into(),
        },
    }])?;
    let link = "https://secret-login:secret-pass@secret-web.example/a/kept.wasm?token=secret-query";
    writer.modules(&[
        mapped(0x40_0000, "/secret-image-folder/kept-module", &[1; 20]),
        mapped(0x1040_0000, "C:\\secret-drive\\kept-library.dll", &[]),
        mapped(0x2040_0000, link, &[]),
        mapped(0x3040_0000, "[anon:secret-anon]", &[]),
        mapped(0x4040_0000, "/memfd:secret-memfd (deleted)", &[]),
        mapped(0x5040_0000, "/secret-assumed/kept.so?key=secret-value", &[]),
    ])?;
    writer.image_part(&image(), 1_000)?;
    let mut made = image();
    made.identity.path = "[jit]".into();
    let names = [
        "kept_script file:///secret-script/app.js:1:2",
        "kept_windows C:\\Users\\secret-win dows\\x.js:3:4",
        "kept_link https://secret-link",
        "kept_link \"secret-quoted\"",
    ];
    for (address, name) in (0x3000..).zip(names) {
        made.push(Symbol {
            address,
            size_bytes: 1,
            name,
        });
    }
    writer.image_part(&made, 1_000)?;
    writer.image_part(&tables(), 1_000)?;
    writer.code(&[Code {
        time_ns: 1_000,
        space: 300,
        address: 0x40_1000,
        bytes: b"secret-code".to_vec(),
    }])?;
    write_samples(&mut writer)?;
    write_calls(&mut writer)?;
    write_numbers(&mut writer)?;
    write_unknown(&mut writer)?;
    writer.finish(&End {
        time_ns: 300_000_000,
        reason: EndReason::TargetEnded,
        message: "`/opt/secret-folder/kept-program secret-end` ended".into(),
        totals: vec![("secret-total".into(), 1), ("samples".into(), 20)],
    })?;
    Ok(())
}

/// Both outputs of `uniprof`, as one text.
fn uniprof<W: AsRef<OsStr> + Debug>(folder: &Path, words: &[W]) -> String {
    let output = kit::uniprof()
        .args(words)
        .current_dir(folder)
        .output()
        .unwrap();
    let both = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&both).into_owned();
    assert!(
        output.status.code().is_some_and(|code| code < 2),
        "{words:?}: {text}"
    );
    text
}

#[test]
fn a_redacted_bundle_has_what_is_listed_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write(&folder.join("run.uprof")).unwrap();
    let before = uniprof(folder, &["dump", "run.uprof"]);
    let said = uniprof(
        folder,
        &["bundle", "run.uprof", "--redact", "-o", "r.uprof"],
    );
    let bytes = std::fs::read(folder.join("r.uprof")).unwrap();
    let dumped = uniprof(folder, &["dump", "r.uprof"]);
    let outputs = [
        kit::commands::reports("r.uprof", "kept_function"),
        kit::commands::exports("r.uprof"),
    ];
    let shown = outputs.concat().into_iter().map(|mut words| {
        words.push("--identify".to_owned());
        uniprof(folder, &words)
    });
    let everything = [
        said,
        String::from_utf8_lossy(&bytes).into_owned(),
        dumped.clone(),
        uniprof(folder, &["info", "r.uprof"]),
    ]
    .into_iter()
    .chain(shown)
    .collect::<String>();
    // Not even the start of a secret that was cut.
    for secret in ["secret", "inode=424242"] {
        assert!(!everything.contains(secret), "{secret} is still there");
    }
    for kept in KEPT {
        assert!(dumped.contains(kept), "{kept} is gone: {dumped}");
    }
    let value = format!("{:x}", u64::from_le_bytes(*b"SECRETST"));
    assert!(before.contains(&value) && !everything.contains(&value));
}

/// Searches the bytes of each block, so that the test doesn't depend on a reader's knowledge.
#[test]
fn no_block_of_a_redacted_bundle_has_a_secret_in_its_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let recording = folder.join("run.uprof");
    write(&recording).unwrap();
    let before = unpacked::blocks(&recording);
    let types: BTreeSet<_> = before.iter().filter_map(|(kind, _)| *kind).collect();
    let all: BTreeSet<_> = BlockType::ALL.iter().copied().collect();
    assert_eq!(types, all, "a type of blocks in which nothing is planted");
    let bytes: Vec<u8> = before.into_iter().flat_map(|(_, bytes)| bytes).collect();
    for planted in SECRETS.iter().chain(&KEPT) {
        // These are numbers, texts that are made of others, and texts that are packed in words.
        let is_made = planted.contains(['[', '=']) || *planted == "SECRETST";
        let is_there = unpacked::found(&bytes, &[planted]).is_some();
        assert!(
            is_made || planted.contains("kept_windows") || is_there,
            "{planted} was not planted"
        );
    }
    let said = uniprof(
        folder,
        &["bundle", "run.uprof", "--redact", "-o", "r.uprof"],
    );
    assert!(
        said.contains("kept-module: 4 functions, 2 addresses with lines"),
        "{said}"
    );
    assert!(said.contains("removed: 1 blocks of unknown type"), "{said}");
    for (kind, bytes) in unpacked::blocks(&folder.join("r.uprof")) {
        let text = String::from_utf8_lossy(&bytes);
        assert_eq!(
            unpacked::found(&bytes, &["secret"]),
            None,
            "in {kind:?}: {text}"
        );
    }
}

#[test]
fn what_goes_to_others_tells_neither_command_line_nor_host() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write(&folder.join("run.uprof")).unwrap();
    let path = folder.join("run.uprof");
    let path = path.to_str().unwrap();
    let parent = folder.file_name().unwrap().to_str().unwrap();
    let outputs = [
        kit::commands::reports(path, "kept_function"),
        kit::commands::exports(path),
        kit::commands::comparisons(path, path),
    ];
    for words in outputs.concat() {
        let text = uniprof(folder, &words);
        for secret in PERSONAL.iter().chain([&parent]) {
            assert!(!text.contains(secret), "{words:?} tells {secret}: {text}");
        }
    }
    let asked = uniprof(folder, &["report", "--html=-", "--identify", path]);
    for secret in PERSONAL.iter().chain([&parent]) {
        assert!(asked.contains(secret), "--identify doesn't tell {secret}");
    }
}

/// A guest without a name is called by the address of its stub or monitor.
#[test]
fn what_goes_to_others_tells_no_address_of_a_guest() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.uprof");
    let path = path.to_str().unwrap();
    let mark = "5ec2e70badc0ffee";
    for (kind, name, public) in [
        (TargetKind::GdbStub, "secret-build.corp:1234", "gdb-stub"),
        (TargetKind::GdbStub, "/home/secret-user/vm/stub", "stub"),
        (TargetKind::Qemu, "[fe80::5ec]:4444", "qemu"),
        (TargetKind::Qemu, "web", "web"),
    ] {
        let mut metadata = metadata();
        metadata.target.kind = kind;
        metadata.target.name = name.into();
        metadata.notes = vec![
            (uprof::machine::MADE_ON.into(), mark.into()),
            ("gdb stub".into(), name.into()),
            ("accelerator".into(), "KVM".into()),
        ];
        let file = std::fs::File::create(path).unwrap();
        let mut writer = Writer::create(file, [7; 16], &metadata, 1_000).unwrap();
        write_samples(&mut writer).unwrap();
        let end = End {
            time_ns: 300_000_000,
            reason: EndReason::Stopped,
            message: format!("{name} ended"),
            totals: Vec::new(),
        };
        writer.finish(&end).unwrap();
        for words in [
            vec!["report", "--html=-", path],
            vec!["diff", "--html=-", path, path],
            vec!["report", "--brief", path],
            vec!["export", "-f", "json", "-o", "-", path],
        ] {
            let text = uniprof(folder.path(), &words);
            assert!(text.contains(public), "{words:?}: no {public} in {text}");
            let hidden = [mark, name].into_iter().filter(|one| *one != public);
            for secret in hidden {
                assert!(!text.contains(secret), "{words:?} tells {secret}: {text}");
            }
            if words[1] == "--html=-" {
                assert!(text.contains("accelerator") && text.contains("stopped"));
            }
        }
        let asked = uniprof(folder.path(), &["report", "--html=-", "--identify", path]);
        for told in [mark, name] {
            assert!(asked.contains(told), "--identify doesn't tell {told}");
        }
    }
}

#[test]
fn an_imported_recording_is_its_owners_alone() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("stacks.txt"), "main;work 3\n").unwrap();
    uniprof(folder, &["import", "-f", "folded", "stacks.txt"]);
    let imported = std::fs::metadata(folder.join("run.uprof")).unwrap();
    assert_eq!(imported.permissions().mode() & 0o777, 0o600);
}
