//! A recording from a stranger, and a recorder that runs as root: what they must not be able to do.
//! docs/security.md names these tests.
#![cfg(all(feature = "record", feature = "report"))]

mod busy;

use busy::Busy;
use kit::{text, uniprof};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use uprof::cold::{End, EndReason, Mapping, Metadata, ModuleChange, ModuleEvent, TargetKind};
use uprof::image::{ImageIdentity, ImagePart, Inlined, Symbol};
use uprof::{Arch, Frame, Sample, Task, Writer, machine};

/// Address of the function in module `number`.
fn address(number: usize) -> u64 {
    0x10_0000 * (number as u64 + 1)
}

/// A recording with a sample in each of `paths`. `source` is a source file that the line table of the first
/// one names.
fn hostile(paths: &[String], source: &str) -> Vec<u8> {
    hostile_made_on(None, paths, source)
}

/// The same recording, with the mark of a machine.
fn hostile_made_on(mark: Option<String>, paths: &[String], source: &str) -> Vec<u8> {
    let notes = mark.map(|mark| (machine::MADE_ON.to_owned(), mark));
    let mut metadata = Metadata {
        notes: notes.into_iter().collect(),
        ..Metadata::default()
    };
    metadata.target.kind = TargetKind::Process;
    metadata.target.name = "<script>alert(1)</script>\u{1b}[2J".into();
    let mut writer = Writer::create(Vec::new(), [9; 16], &metadata, 0).unwrap();
    let modules: Vec<ModuleEvent> = paths
        .iter()
        .enumerate()
        .map(|(number, path)| ModuleEvent {
            time_ns: 0,
            space: 7,
            what: ModuleChange::Mapped(Mapping {
                start: address(number),
                length: 0x1000,
                file_offset: 0,
                path: path.clone(),
                build_id: Vec::new(),
                file: None,
            }),
        })
        .collect();
    writer.modules(&modules).unwrap();
    writer.image_part(&lines(&paths[0], source), 0).unwrap();
    for number in 0..paths.len() {
        let chain = [Frame::exact(address(number) + 8)];
        let task = Task { space: 7, vcpu: 7 };
        let sample = Sample::bare(number as u64 * 1_000_000, task, &chain);
        writer.sample(&sample).unwrap();
    }
    let end = End {
        time_ns: 1_000_000_000,
        reason: EndReason::Duration,
        message: "x".into(),
        totals: Vec::new(),
    };
    writer.finish(&end).unwrap()
}

/// The lines of the module `path`: line 1 of `source` at the sampled address (format-spec.md, section 7).
fn lines(path: &str, source: &str) -> ImagePart {
    let mut part = ImagePart::new(ImageIdentity {
        path: path.into(),
        build_id: Vec::new(),
        arch: Arch::X86_64,
        load_bias: 0,
        origin: "test".into(),
    });
    part.push(Symbol {
        address: 0,
        size_bytes: 0x1000,
        name: "evil",
    });
    let one = Inlined {
        function: 1,
        file: 2,
        line: 1,
    };
    part.set_lines(&["evil", source], [(8, &[one][..])].into_iter());
    part
}

/// Paths that a stranger might want the program to open.
fn traps(folder: &Path) -> Vec<String> {
    let fifo = folder.join("fifo");
    assert!(
        Command::new("mkfifo")
            .arg(&fifo)
            .status()
            .unwrap()
            .success()
    );
    let huge = folder.join("huge");
    let file = std::fs::File::create(&huge).unwrap();
    file.set_len(1 << 40).unwrap();
    let link = folder.join("link");
    std::os::unix::fs::symlink("/proc/kcore", &link).unwrap();
    let named = [fifo, huge, link, folder.to_owned()];
    let named = named.iter().map(|path| path.display().to_string());
    let system = [
        "/dev/zero",
        "/dev/tty",
        "/dev/mem",
        "/proc/kcore",
        "/proc/self/mem",
    ];
    let odd = [
        "/../../../etc/shadow",
        "relative/../path",
        "//host/share",
        "http://host.invalid/x",
    ];
    named
        .chain(system.into_iter().chain(odd).map(str::to_owned))
        .collect()
}

const VIEWS: [&[&str]; 7] = [
    &["report", "--top"],
    &["report", "--tree", "--by", "line"],
    &["report", "--annotate", "evil"],
    &["report", "--flame=-"],
    &["report", "--html=-"],
    &["export", "--format", "json", "-o", "-"],
    &["info"],
];

#[test]
fn no_path_in_a_recording_makes_a_report_wait_fail_or_read_devices() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("evil.uprof");
    std::fs::write(&file, hostile(&traps(folder.path()), "/etc/shadow")).unwrap();
    for words in VIEWS {
        let began = Instant::now();
        let output = uniprof().args(words).arg(&file).output().unwrap();
        let said = text(&output.stderr);
        assert!(
            matches!(output.status.code(), Some(0 | 1)),
            "{words:?}: {said}"
        );
        assert!(began.elapsed() < Duration::from_secs(20), "{words:?} waits");
        for bytes in [&output.stdout, &output.stderr] {
            assert!(!bytes.contains(&0x1b), "{words:?} steers the terminal");
        }
        if words.iter().any(|word| word.ends_with("=-")) {
            assert!(!text(&output.stdout).contains("<script>alert"));
        }
    }
}

/// Under strace: one program is started, nothing is sent, only the output is written, and no path of the
/// stranger is opened.
#[test]
fn a_report_starts_nothing_sends_nothing_and_writes_only_where_told() {
    if Command::new("strace")
        .arg("-V")
        .stdout(Stdio::null())
        .status()
        .is_err()
    {
        eprintln!("skipped: strace is not installed (apt-get install strace)");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("evil.uprof");
    let picture = folder.path().join("out.svg");
    std::fs::write(&file, hostile(&traps(folder.path()), "/etc/shadow")).unwrap();
    let mut command = Command::new("strace");
    let calls = "-e trace=execve,execveat,socket,connect,openat,open,creat,unlink,unlinkat,rename,\
                 renameat,renameat2,mkdir,mkdirat,symlink,symlinkat,link,linkat,truncate,chmod,fchmodat";
    command
        .args(["-f", "-qq", "-s", "300"])
        .args(calls.split(' '));
    command.arg("-o").arg(folder.path().join("calls"));
    command.arg(kit::program()).args(["report", "--top"]);
    command
        .arg(format!("--flame={}", picture.display()))
        .arg(&file);
    let output = command.output().unwrap();
    let log = std::fs::read_to_string(folder.path().join("calls")).unwrap_or_default();
    if !log.contains("execve(") {
        eprintln!("skipped: strace can't trace here: {}", text(&output.stderr));
        return;
    }
    assert!(
        matches!(output.status.code(), Some(0 | 1)),
        "{}",
        text(&output.stderr)
    );
    assert_eq!(log.matches("execve").count(), 1, "{log}");
    assert!(
        !log.contains("socket(") && !log.contains("connect("),
        "{log}"
    );
    for line in log.lines() {
        let named = [
            "fifo",
            "/link",
            "/dev/zero",
            "/dev/tty",
            "/dev/mem",
            "kcore",
            "self/mem",
            "shadow",
        ];
        // O_PATH opens no content; it only shows what is at the path.
        let marked = line.contains("O_PATH");
        let opened = line.contains("open") && !line.contains("ENOENT") && !marked;
        assert!(
            !opened || !named.iter().any(|name| line.contains(name)),
            "{line}"
        );
        let writes = [
            "O_WRONLY", "O_RDWR", "O_CREAT", "rename", "unlink", "mkdir", "symlink", "creat(",
        ];
        let own = folder.path().display().to_string() + "/out.svg";
        let hidden = line.contains("out.svg");
        assert!(
            !writes.iter().any(|word| line.contains(word)) || line.contains(&own) || hidden,
            "{line}"
        );
    }
    assert!(picture.exists());
}

#[test]
fn source_that_a_recording_names_is_shown_only_if_it_is_source() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("id_rsa");
    let source = folder.path().join("evil.c");
    let key = folder.path().join("key.pem");
    let link = folder.path().join("secret.c");
    std::fs::write(&secret, "swordfish\n").unwrap();
    std::fs::write(&key, "swordfish\n").unwrap();
    std::fs::write(&source, "int evil;\n").unwrap();
    std::os::unix::fs::symlink(&secret, &link).unwrap();
    let output_of = |mark: Option<String>, path: &PathBuf, more: &[&str]| {
        let file = folder.path().join("x.uprof");
        let paths = ["/no/such/image".to_owned()];
        let bytes = hostile_made_on(mark, &paths, &path.display().to_string());
        std::fs::write(&file, bytes).unwrap();
        let mut command = uniprof();
        command.args(["report", "--annotate", "evil"]).args(more);
        let output = command.arg(&file).output().unwrap();
        (text(&output.stdout), text(&output.stderr))
    };
    let shown_with = |path: &PathBuf, more: &[&str]| output_of(None, path, more).0;
    // A stranger's recording shows none of its reader's files, and the report says what to do.
    for mark in [None, Some("0123456789abcdef".to_owned())] {
        let (shown, said) = output_of(mark, &source, &[]);
        assert!(!shown.contains("int evil;"), "{shown}");
        assert!(shown.contains("not looked for"), "{shown}");
        assert!(said.contains("--source FOLDER says"), "{said}");
    }
    let (own, said) = output_of(machine::mark(), &source, &[]);
    assert!(own.contains("int evil;"), "{own}");
    assert!(!said.contains("--source"), "{said}");
    // Every user of this machine can write its mark: the file's owner counts, too, and a pipe has none.
    let file = folder.path().join("x.uprof");
    let read_from = |input: Stdio, name: &Path| {
        let mut command = uniprof();
        command.args(["report", "--annotate", "evil"]).arg(name);
        text(&command.stdin(input).output().unwrap().stdout)
    };
    let redirected = || Stdio::from(std::fs::File::open(&file).unwrap());
    let input = Path::new("-");
    assert!(read_from(redirected(), input).contains("int evil;"));
    let mut cat = Command::new("cat");
    let mut cat = cat.arg(&file).stdout(Stdio::piped()).spawn().unwrap();
    let piped = read_from(cat.stdout.take().unwrap().into(), input);
    cat.wait().unwrap();
    assert!(piped.contains("not looked for"), "{piped}");
    if std::os::unix::fs::chown(&file, Some(65534), None).is_ok() {
        for shown in [
            read_from(Stdio::null(), &file),
            read_from(redirected(), input),
        ] {
            assert!(shown.contains("not looked for"), "{shown}");
            assert!(!shown.contains("int evil;"), "{shown}");
        }
        std::fs::remove_file(&file).unwrap();
    } else {
        eprintln!("skipped: only root can give a file away");
    }
    let image = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/images/calls");
    let named = shown_with(&source, &["--elf", image]);
    assert!(named.contains("int evil;"), "{named}");
    let shown = |path: &PathBuf| shown_with(path, &["--source", "/"]);
    assert!(shown(&source).contains("int evil;"), "{}", shown(&source));
    for hidden in [&secret, &key, &link] {
        assert!(
            shown(hidden).contains("not readable here"),
            "{}",
            shown(hidden)
        );
        assert!(!shown(hidden).contains("swordfish"));
    }
    // Only the recording names this file.
    let searched = shown_with(&source, &["--no-search"]);
    assert!(searched.contains("not looked for"), "{searched}");
    assert!(!searched.contains("int evil;"), "{searched}");
}

#[test]
fn a_source_file_that_is_too_large_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("large.c");
    let recording = folder.path().join("x.uprof");
    let paths = ["/no/such/image".to_owned()];
    let bytes = hostile_made_on(machine::mark(), &paths, &source.display().to_string());
    std::fs::write(&recording, bytes).unwrap();
    let most = 64 << 20;
    for (bytes, is_read) in [(most, true), (most + 1, false)] {
        std::fs::write(&source, "int evil;\n").unwrap();
        std::fs::File::options()
            .write(true)
            .open(&source)
            .unwrap()
            .set_len(bytes)
            .unwrap();
        let mut command = uniprof();
        command
            .args(["report", "--annotate", "evil"])
            .arg(&recording);
        let shown = text(&command.output().unwrap().stdout);
        assert_eq!(shown.contains("int evil;"), is_read, "{shown}");
        assert_eq!(shown.contains("not readable here"), !is_read);
    }
}

fn status(pid: u32, field: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(field));
    line.unwrap_or_default().trim().to_owned()
}

/// While it records, root's recorder has only the capabilities in docs/security.md.
#[test]
fn a_recorder_gives_up_what_it_does_not_need() {
    let busy = Command::new("bash")
        .args(["-c", "while :; do :; done"])
        .spawn();
    let busy = Busy(busy.unwrap());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.uprof");
    for backend in [&[][..], &["--ptrace"]] {
        let mut command = uniprof();
        command
            .args(["record", "-F", "99", "-d", "60s", "-o"])
            .arg(&file);
        command.args(backend).arg(format!("pid:{}", busy.0.id()));
        let mut recorder = Busy(command.stderr(Stdio::null()).spawn().unwrap());
        let pid = recorder.0.id();
        let began = Instant::now();
        while std::fs::metadata(&file).map_or(0, |found| found.len()) < 700 {
            assert!(
                began.elapsed() < Duration::from_secs(30),
                "nothing is written"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        // ReadAnyFile, Kill, Trace, KernelAddresses, MappedFiles.
        let allowed = 1u64 << 2 | 1 << 5 | 1 << 19 | 1 << 34 | 1 << 40;
        for field in ["CapEff:", "CapPrm:"] {
            let mask = u64::from_str_radix(&status(pid, field), 16).unwrap();
            assert_eq!(mask & !allowed, 0, "{field} {mask:x}");
        }
        assert_eq!(status(pid, "NoNewPrivs:"), "1");
        let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
        let core = limits
            .lines()
            .find(|line| line.starts_with("Max core file size"));
        assert_eq!(core.unwrap().split_ascii_whitespace().nth(4), Some("0"));
        let told = Command::new("kill")
            .args(["-s", "INT", &pid.to_string()])
            .status();
        assert!(told.unwrap().success());
        let code = recorder.0.wait().unwrap().code();
        assert!(matches!(code, Some(0 | 1)), "{code:?}");
        std::fs::remove_file(&file).unwrap();
    }
}

/// `report` and `format` contain no code that could start a program or open a connection.
#[test]
fn packages_that_read_strangers_files_know_no_programs_and_no_network() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut open = vec![root.join("format/src"), root.join("report/src")];
    let mut count = 0;
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
                continue;
            }
            count += 1;
            let source = std::fs::read_to_string(&path).unwrap();
            for word in [
                "std::process::Command",
                "process::{Command",
                "std::net",
                "UnixStream",
                "execv",
            ] {
                assert!(!source.contains(word), "{} has {word}", path.display());
            }
        }
    }
    assert!(count > 80, "only {count} files were looked at");
}

/// An existing empty file may be readable by everybody, but the recording must not be. Links are replaced
/// (tests/shared_folders.rs tests those of other users).
#[test]
fn an_empty_file_that_all_may_read_is_replaced_and_links_are_not_followed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.uprof");
    let (link, elsewhere) = (folder.path().join("link"), folder.path().join("elsewhere"));
    std::fs::write(&file, "").unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o666)).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &link).unwrap();
    let record = |output: &Path| {
        let mut command = uniprof();
        command.args(["record", "-F", "997", "-o"]).arg(output);
        let loop_ = "for ((i = 0; i < 200000; i++)); do :; done";
        command.args(["--", "bash", "-c", loop_]);
        command
    };
    let code = record(&file).status().unwrap().code();
    assert!(matches!(code, Some(0 | 1)), "{code:?}");
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let code = record(&link).status().unwrap().code();
    assert!(matches!(code, Some(0 | 1)), "{code:?}");
    assert!(!elsewhere.exists());
    assert!(std::fs::symlink_metadata(&link).unwrap().is_file());
}
