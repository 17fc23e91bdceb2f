//! Every control, format and separator character of Unicode, including those that change the direction of
//! text, is planted in every text of a recording and in a monitor's replies, and searched for in every
//! output.

#![cfg(feature = "report")]

use std::path::Path;
use std::process::{Command, Output};
use uniprof_report::export::FORMATS;
use uprof::cold::{
    End, EndReason, Mapping, Metadata, ModuleChange, ModuleEvent, TargetKind, TaskChange, TaskEvent,
};
use uprof::image::{ImageIdentity, ImagePart, Symbol};
use uprof::{Arch, Frame, Sample, Span, SpanKind, Task, Writer};

/// Unicode 17.0, DerivedGeneralCategory.txt: Cc, Cf, Zl and Zp. Line ends and tabs come first.
const STEERING: [(u32, u32); 24] = [
    (0x00, 0x1f),
    (0x7f, 0x9f),
    (0xad, 0xad),
    (0x600, 0x605),
    (0x61c, 0x61c),
    (0x6dd, 0x6dd),
    (0x70f, 0x70f),
    (0x890, 0x891),
    (0x8e2, 0x8e2),
    (0x180e, 0x180e),
    (0x200b, 0x200f),
    (0x2028, 0x2029),
    (0x202a, 0x202e),
    (0x2060, 0x2064),
    (0x2066, 0x206f),
    (0xfeff, 0xfeff),
    (0xfff9, 0xfffb),
    (0x110bd, 0x110bd),
    (0x110cd, 0x110cd),
    (0x13430, 0x1343f),
    (0x1bca0, 0x1bca3),
    (0x1d173, 0x1d17a),
    (0xe0001, 0xe0001),
    (0xe0020, 0xe007f),
];

fn all() -> impl Iterator<Item = char> {
    let numbers = STEERING.iter().flat_map(|&(first, last)| first..=last);
    numbers.filter_map(char::from_u32)
}

/// A text that begins with `name`.
fn planted(name: &str) -> String {
    let mut text = name.to_owned();
    text.extend(all());
    text + "end"
}

const TASK: Task = Task {
    space: 300,
    vcpu: 300,
};

/// Makes the planted text with this name.
type Planting = fn(&str) -> String;

/// A text that the runner of a build would take for commands.
fn commanding(name: &str) -> String {
    format!("::set-output name={name}::x ##[set-output name={name}]y###VSO[task.{name}]z")
}

fn metadata(planted: Planting) -> Metadata {
    let mut metadata = Metadata::default();
    metadata.recorder.program = planted("program");
    metadata.recorder.command_line = vec![planted("command")];
    metadata.host.name = planted("host");
    metadata.host.system = planted("system");
    metadata.host.processor = planted("processor");
    metadata.target.kind = TargetKind::Qemu;
    metadata.target.name = planted("target");
    metadata.sampling.rate_millihertz = 99_000;
    metadata.sampling.trigger = planted("trigger");
    metadata.notes = vec![(planted("note"), planted("value"))];
    metadata
}

fn write(path: &Path, planted: Planting) -> std::io::Result<()> {
    let file = std::fs::File::create(path)?;
    let mut writer = Writer::create(file, [7; 16], &metadata(planted), 1_000)?;
    let mut named = TaskEvent {
        time_ns: 1_000,
        task: TASK,
        what: TaskChange::Named(planted("thread")),
    };
    writer.tasks(&[named.clone()])?;
    named.task.vcpu = 301;
    writer.tasks(&[named])?;
    let module = planted("/module");
    writer.modules(&[ModuleEvent {
        time_ns: 1_000,
        space: 300,
        what: ModuleChange::Mapped(Mapping {
            start: 0x40_0000,
            length: 0x10_0000,
            path: module.clone(),
            build_id: vec![1; 20],
            ..Mapping::default()
        }),
    }])?;
    let mut image = ImagePart::new(ImageIdentity {
        path: module,
        build_id: vec![1; 20],
        arch: Arch::X86_64,
        load_bias: 0,
        origin: planted("origin"),
    });
    image.push(Symbol {
        address: 0x1000,
        size_bytes: 0x1000,
        name: &planted("function"),
    });
    writer.image_part(&image, 1_000)?;
    for round in 0..40 {
        let task = Task {
            vcpu: 300 + round as u32 % 2,
            ..TASK
        };
        let chain = [Frame::exact(0x40_1010), Frame::return_address(0x40_9020)];
        writer.sample(&Sample::bare(2_000 + round * 10_000_000, task, &chain))?;
    }
    writer.finish(&End {
        time_ns: 500_000_000,
        reason: EndReason::TargetEnded,
        message: planted("message"),
        totals: vec![(planted("total"), 1)],
    })?;
    Ok(())
}

/// Writes calls of a trace with texts of all sorts.
fn write_calls(path: &Path) -> std::io::Result<()> {
    let mut writer = Writer::create(
        std::fs::File::create(path)?,
        [8; 16],
        &metadata(planted),
        1_000,
    )?;
    let texts = ["function", "slice"].map(planted);
    for (number, kind) in (0..).zip(SpanKind::ALL.iter().cycle().take(30)) {
        writer.span(&Span {
            name: &texts[number as usize % texts.len()],
            task: TASK,
            cpu: Some(1),
            start_ns: Some(2_000 + number * 10_000),
            length_ns: Some(1_000),
            depth: 0,
            complete: true,
            kind: *kind,
            result: (*kind == SpanKind::Syscall).then_some(-2),
        })?;
    }
    writer.finish(&End {
        time_ns: 500_000_000,
        reason: EndReason::TargetEnded,
        message: planted("message"),
        totals: Vec::new(),
    })?;
    Ok(())
}

fn uniprof<W: AsRef<std::ffi::OsStr>>(words: &[W]) -> Output {
    let output = kit::uniprof().args(words).output().unwrap();
    assert!(output.status.code().is_some(), "{:?}", output.status);
    output
}

/// Asserts that an output has none of the characters, apart from its own line ends and tabs.
fn check(words: &[String], output: &Output) {
    for bytes in [&output.stdout, &output.stderr] {
        // RFC 4180 ends lines of CSV this way.
        let text = String::from_utf8(bytes.clone())
            .unwrap()
            .replace("\r\n", "\n");
        let found = all().find(|letter| !"\n\t".contains(*letter) && text.contains(*letter));
        if let Some(letter) = found {
            let at = text.find(letter).unwrap();
            let before: String = text[..at].chars().rev().take(80).collect();
            let before: String = before.chars().rev().collect();
            panic!("{words:?} shows U+{:04X} behind {before:?}", letter as u32);
        }
    }
}

#[test]
fn no_character_steers_whoever_reads_an_output() {
    let folder = tempfile::tempdir().unwrap();
    // A file name can't have a zero byte, or a slash, after which a new name would begin.
    let name: String = planted("run").chars().filter(|it| *it != '\0').collect();
    let named: String = name.chars().take(60).collect();
    let path = folder.path().join(named + ".uprof");
    write(&path, planted).unwrap();
    let path = path.to_str().unwrap();
    let calls = folder.path().join("calls\u{202e}.uprof");
    write_calls(&calls).unwrap();
    let calls = calls.to_str().unwrap();
    let missing = format!("{path}.none");
    let out = folder.path().join("out\u{202e}\u{9b}");
    let out = out.to_str().unwrap();
    for words in outputs(&[path, calls], &missing, out) {
        let output = uniprof(&words);
        if is_binary(&words) {
            check_packed(&words, &output.stdout);
            continue;
        }
        let is_silent = output.stdout.is_empty() && output.stderr.is_empty();
        let is_copy = words.iter().any(|word| word == out);
        assert!(!is_silent || is_copy, "{words:?} says nothing");
        check(&words, &output);
        // JSON must stay valid: its readers get the characters back.
        if output.status.success() && words.iter().any(|word| word == "json" || word == "--json") {
            let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            assert!(value.is_object());
        }
    }
}

/// Whether this is a binary export.
fn is_binary(words: &[String]) -> bool {
    let binary = FORMATS.iter().filter(|format| format.is_binary);
    words[0] == "export"
        && binary
            .into_iter()
            .any(|format| words.iter().any(|word| word == format.name))
}

/// Binary exports are for programs. Single control bytes are lengths in them, but a character of three bytes
/// is not.
fn check_packed(words: &[String], bytes: &[u8]) {
    let folder = tempfile::tempdir().unwrap();
    let packed = folder.path().join("packed.gz");
    std::fs::write(&packed, bytes).unwrap();
    // Uncompressed output is passed through unchanged.
    let unpacked = Command::new("gzip")
        .arg("-dcf")
        .arg(&packed)
        .output()
        .unwrap();
    assert!(unpacked.stdout.len() > 100, "{words:?}");
    let text = String::from_utf8_lossy(&unpacked.stdout);
    for letter in all().filter(|letter| *letter > '\u{7ff}') {
        assert!(
            !text.contains(letter),
            "{words:?} holds U+{:04X}",
            letter as u32
        );
    }
}

/// Every command that reads a recording, and commands that fail and quote the wrong input.
fn outputs(recordings: &[&str], missing: &str, out: &str) -> Vec<Vec<String>> {
    let path = recordings[0];
    let failing: [&[&str]; 11] = [
        &["report", missing],
        &["diff", path, missing],
        &["dump", missing],
        &["info", missing],
        &["recover", missing, "-o", out],
        &["bundle", missing],
        &["report", "--elf", path, path],
        &["report", "--elf", missing, path],
        &["import", missing, "-o", out],
        &["export", "-f", "folded", "-o", out, path, path],
        &["diff", path, path, "--fail-if", "x\u{9b}\u{202e}>+5%"],
    ];
    let failing = failing.map(|words| words.iter().map(|&word| word.to_owned()).collect());
    let mut all: Vec<Vec<String>> = failing.into();
    for recording in recordings {
        for mut words in kit::commands::all(recording, "function", out) {
            if ["report", "export", "diff"].contains(&words[0].as_str()) {
                words.push("--identify".to_owned());
            }
            all.push(words);
        }
    }
    all
}

#[test]
fn no_output_has_a_command_for_the_runner_of_a_build() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.uprof");
    write(&path, commanding).unwrap();
    let path = path.to_str().unwrap();
    let missing = folder.path().join("##[group]none");
    let out = folder.path().join("out");
    for words in outputs(&[path], missing.to_str().unwrap(), out.to_str().unwrap()) {
        let output = uniprof(&words);
        for bytes in [&output.stdout, &output.stderr] {
            let text = String::from_utf8_lossy(bytes).to_lowercase();
            // Annotations that were asked for, which have one line each.
            let is_own = |line: &str| line.contains(" title=uniprof::");
            for line in text.lines().filter(|line| !is_own(line)) {
                let is_command = line.trim_start().starts_with("::");
                let has_command = ["##[", "##vso["].iter().any(|one| line.contains(one));
                assert!(!is_command && !has_command, "{words:?}: {line}");
            }
        }
    }
}

/// A monitor that refuses every request with its own text.
#[cfg(feature = "record")]
#[test]
fn what_a_monitor_says_cannot_steer() {
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixListener;

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("qmp");
    let listener = UnixListener::bind(&path).unwrap();
    let monitor = std::thread::spawn(move || {
        for stream in listener.incoming().take(2) {
            let mut stream = stream.unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            stream.write_all(b"{\"QMP\": {}}\n").unwrap();
            while let Some(Ok(_)) = lines.next() {
                let answer = serde_json::json!({ "error": { "desc": planted("no") } });
                if writeln!(stream, "{answer}").is_err() {
                    break;
                }
            }
        }
    });
    let target = format!("qemu:{}", path.display());
    let run = folder.path().join("run.uprof");
    let recording: [&str; 4] = ["record", "-o", run.to_str().unwrap(), &target];
    for words in [&["doctor", &target][..], &recording] {
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        let output = uniprof(&words);
        assert_eq!(output.status.code(), Some(2));
        let said = [output.stdout.clone(), output.stderr.clone()].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        assert!(said.contains("refused qmp_capabilities: no"), "{said}");
        check(&words, &output);
    }
    monitor.join().unwrap();
}
