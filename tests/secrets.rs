//! A secret is planted in every text, register and stack byte that a recording can have, and looked
//! for in every output: in a redacted bundle there is none but where the list of what is kept says so,
//! and in what goes to others (pages, pictures, exports, comparisons) neither the command line nor
//! the host nor a folder shows unless `--identify` asks for them.

#![cfg(feature = "report")]

use assert_cmd::cargo::cargo_bin;
use std::path::Path;
use std::process::Command;
use uprof::cold::{
    End, EndReason, MappedFile, Mapping, Metadata, ModuleChange, ModuleEvent, TargetKind,
    TaskChange, TaskEvent,
};
use uprof::image::{ImageIdentity, ImagePart, Symbol};
use uprof::{Arch, Frame, RawStack, Registers, Sample, Span, SpanKind, Task, Writer};

/// What may stay in a redacted bundle, each in the place that format-spec.md, section 14, names.
const KEPT: [&str; 11] = [
    "kept-processor",
    "kept-thread",
    "app.js:1:2",
    "kept-module",
    "kept_function",
    "kept_call",
    "kept_syscall",
    "kept_slice",
    "kept_pkg.(*T).Run",
    "kept-library",
    "KEPT=",
];
/// Everything else that is planted.
const SECRETS: [&str; 29] = [
    "secret-recorder",
    "secret-command",
    "secret-host",
    "secret-system",
    "secret-argument",
    "secret-trigger",
    "secret-note-name",
    "secret-note-value",
    "secret-long-thread-name",
    "secret-short",
    "secret-folder",
    "secret-image-folder",
    "secret-origin",
    "secret-end",
    "secret-total",
    "secret-in-a-section",
    "inode=424242",
    "secret-script",
    "secret-call-folder",
    "secret-server",
    "SECRETST",
    "secret-team",
    "secret-password",
    "secret-query",
    "secret-value",
    "secret-memory",
    "secret-file",
    "secret-words",
    "secret-user",
];
/// What an output for others doesn't have without `--identify`.
const PERSONAL: [&str; 3] = ["secret-command", "secret-host", "secret-argument"];

const MAIN: Task = Task {
    space: 300,
    vcpu: 300,
};
const OTHER: Task = Task {
    space: 300,
    vcpu: 301,
};

/// Only makes calls.
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
    metadata.host.processor = "kept-processor".into();
    metadata.target.kind = TargetKind::Process;
    metadata.target.id = 300;
    metadata.target.name = "/opt/secret-folder/server --secret-argument".into();
    metadata.sampling.rate_millihertz = 99_000;
    metadata.sampling.trigger = "secret-trigger".into();
    metadata.notes = vec![("secret-note-name".into(), "secret-note-value".into())];
    metadata
}

fn named(task: Task, name: &str) -> TaskEvent {
    TaskEvent {
        time_ns: 1_000,
        task,
        what: TaskChange::Named(name.into()),
    }
}

fn image() -> ImagePart {
    let mut image = ImagePart::new(ImageIdentity {
        path: "/secret-image-folder/kept-module".into(),
        build_id: vec![1; 20],
        arch: Arch::X86_64,
        load_bias: 0,
        origin: "secret-origin".into(),
    });
    image.push(Symbol {
        address: 0x1000,
        size_bytes: 0x1000,
        name: "kept_function",
    });
    image.push(Symbol {
        address: 0x2000,
        size_bytes: 0x800,
        name: "gitlab.example/secret-team/kept_pkg.(*T).Run",
    });
    image.push(Symbol {
        address: 0x2800,
        size_bytes: 0x800,
        name: "load https://secret-user:secret-password@host",
    });
    let mut bytes = Vec::new();
    image.put(&mut bytes);
    // A section that nobody knows: its tag is 4000.
    let section = b"secret-in-a-section";
    bytes.extend([0xa0, 0x1f, section.len() as u8]);
    bytes.extend(section);
    ImagePart::parse(&bytes).unwrap()
}

fn write_samples<W: std::io::Write>(writer: &mut Writer<W>) -> std::io::Result<()> {
    let mut registers = Registers::default();
    registers.set(3, u64::from_le_bytes(*b"SECRETST"));
    for round in 0..20 {
        let task = if round % 2 == 0 { MAIN } else { OTHER };
        let chain = [
            Frame::exact(0x40_1010),
            Frame::return_address(0x40_1020),
            Frame::return_address(0x40_2020),
            Frame::return_address(0x40_2820),
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

/// Calls of each kind, of a thread that is in no sample as well.
fn write_calls<W: std::io::Write>(writer: &mut Writer<W>) -> std::io::Result<()> {
    let names = [
        ("/secret-call-folder/kept_call", SpanKind::Function),
        ("kept_syscall", SpanKind::Syscall),
        ("GET https://secret-server/kept_slice", SpanKind::Slice),
        ("kept_syscall(\"secret-words\")", SpanKind::Syscall),
        ("SELECT 'secret-words' user=secret-user", SpanKind::Slice),
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

/// A recording with all of it.
fn write(path: &Path) -> std::io::Result<()> {
    let file = std::fs::File::create(path)?;
    let mut writer = Writer::create(file, [7; 16], &metadata(), 1_000)?;
    // As recordings had it that named the first thread by the command line.
    let command = metadata().target.name;
    writer.tasks(&[
        named(MAIN, &command),
        named(OTHER, "kept-thread"),
        named(OTHER, "./sh secret-short"),
        named(OTHER, "env TOKEN=secret-long-thread-name"),
        named(OTHER, "KEPT=secret-value"),
        named(OTHER, "KEPT=secret-val"),
        named(OTHER, "kept-thread"),
        named(CALLER, "/opt/secret-folder/kept-thread"),
    ])?;
    let paths = [
        "/secret-image-folder/kept-module",
        "C:\\secret-folder\\kept-library?token=secret-query",
        "[anon:secret-memory]",
        "/memfd:secret-file (deleted)",
    ];
    let mapped = (0..).zip(paths).map(|(number, path)| ModuleEvent {
        time_ns: 1_000,
        space: 300,
        what: ModuleChange::Mapped(Mapping {
            start: 0x40_0000 + number * 0x10_0000,
            length: 0x10_0000,
            file_offset: 0,
            path: path.into(),
            build_id: vec![1 + number as u8; 20],
            file: Some(MappedFile {
                device_major: 9,
                device_minor: 9,
                inode: 424_242,
                contents: None,
            }),
        }),
    });
    writer.modules(&mapped.collect::<Vec<_>>())?;
    writer.image_part(&image(), 1_000)?;
    let mut made = image();
    made.identity.path = "[jit]".into();
    made.push(Symbol {
        address: 0x3000,
        size_bytes: 1,
        name: "kept_script file:///secret-script/app.js:1:2",
    });
    writer.image_part(&made, 1_000)?;
    write_samples(&mut writer)?;
    write_calls(&mut writer)?;
    writer.finish(&End {
        time_ns: 300_000_000,
        reason: EndReason::TargetEnded,
        message: "`/opt/secret-folder/server secret-end` ended".into(),
        totals: vec![("secret-total".into(), 1), ("samples".into(), 20)],
    })?;
    Ok(())
}

/// What `uniprof` prints, on either side.
fn uniprof(folder: &Path, words: &[&str]) -> String {
    let output = Command::new(cargo_bin("uniprof"))
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
    for planted in SECRETS.iter().chain(&KEPT) {
        let shown = ["SECRETST", "secret-in-a-section"].contains(planted);
        assert!(
            shown || before.contains(planted),
            "{planted} was not planted"
        );
    }
    // One that has the tables which a bundle adds, too.
    uniprof(folder, &["bundle", "run.uprof", "-o", "bundled.uprof"]);
    for recording in ["run.uprof", "bundled.uprof"] {
        holds_no_secret(folder, recording, &before);
    }
}

fn holds_no_secret(folder: &Path, recording: &str, before: &str) {
    let said = uniprof(folder, &["bundle", recording, "--redact", "-o", "r.uprof"]);
    let bytes = std::fs::read(folder.join("r.uprof")).unwrap();
    let dumped = uniprof(folder, &["dump", "r.uprof"]);
    let everything = [
        said,
        String::from_utf8_lossy(&bytes).into_owned(),
        dumped.clone(),
        uniprof(folder, &["info", "r.uprof"]),
        uniprof(folder, &["report", "--html=-", "--identify", "r.uprof"]),
        uniprof(folder, &["report", "--calls", "--identify", "r.uprof"]),
        uniprof(folder, &["report", "--listing", "--identify", "r.uprof"]),
    ]
    .concat();
    for secret in SECRETS {
        assert!(!everything.contains(secret), "{secret} is still there");
        // Nor the beginning of one that was cut.
        let start = &secret[..secret.len().min(9)];
        assert!(!everything.contains(start), "{start} is still there");
    }
    for kept in KEPT {
        assert!(dumped.contains(kept), "{kept} is gone");
    }
    let value = format!("{:x}", u64::from_le_bytes(*b"SECRETST"));
    assert!(before.contains(&value) && !everything.contains(&value));
}

#[test]
fn what_goes_to_others_tells_neither_command_line_nor_host() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write(&folder.join("run.uprof")).unwrap();
    let path = folder.join("run.uprof");
    let path = path.to_str().unwrap();
    let parent = folder.file_name().unwrap().to_str().unwrap();
    let outputs: [&[&str]; 24] = [
        &["report", "--html=-", path],
        &["report", "--flame=-", path],
        &["report", "--chart=-", path],
        &["report", "--heatmap=-", path],
        &["report", "--top", path],
        &["report", "--calls", path],
        &["report", "--cpus=-", path],
        &["report", "--syscalls", path],
        &["report", "--listing", path],
        &["diff", "--calls", path, path],
        &["report", "--format", "markdown", path],
        &["report", "--format", "github", path],
        &["diff", "--format", "markdown", path, path],
        &["diff", "--format", "github", path, path],
        &["report", "--tree", "--by-thread", path],
        &["export", "-f", "json", path],
        &["export", "-f", "firefox", path],
        &["export", "-f", "speedscope", path],
        &["export", "-f", "folded", path],
        &["export", "-f", "perf-script", path],
        &["export", "-f", "csv", path],
        &["diff", path, path],
        &["diff", "--json", path, path],
        &["diff", "--html=-", path, path],
    ];
    for words in outputs {
        let text = uniprof(folder, words);
        for secret in PERSONAL.iter().chain([&parent]) {
            assert!(!text.contains(secret), "{words:?} tells {secret}: {text}");
        }
    }
    let asked = uniprof(folder, &["report", "--html=-", "--identify", path]);
    for secret in ["secret-command", "secret-host", "secret-argument", parent] {
        assert!(asked.contains(secret), "--identify doesn't tell {secret}");
    }
}
