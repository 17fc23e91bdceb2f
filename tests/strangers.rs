//! Anything may be at a path. No command waits for a pipe that nobody writes into, no output replaces its
//! input, and a signal ends the recorder whatever it is waiting for.

#![cfg(all(feature = "record", feature = "report"))]

use std::io::{Read, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const RECORDING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/calls.uprof");
const IMAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/images/calls");

fn uniprof(words: &[&str], folder: &Path) -> Child {
    let mut command = kit::uniprof();
    command.args(words).current_dir(folder);
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// The output of a child that must end within `patience`.
fn end_within(mut child: Child, patience: Duration) -> Output {
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > patience {
            let _ = child.kill();
            panic!("it hangs: {:?}", child.wait_with_output());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.wait_with_output().unwrap()
}

fn end_of(child: Child) -> Output {
    end_within(child, Duration::from_secs(10))
}

fn run(words: &[&str], folder: &Path) -> (i32, String) {
    // A comparison may be slow on a busy machine, but waiting for a pipe never ends.
    let output = end_within(uniprof(words, folder), Duration::from_secs(60));
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    (output.status.code().expect("no signal"), said)
}

fn pipe_in(folder: &Path, name: &str) {
    let made = Command::new("mkfifo").arg(folder.join(name)).status();
    assert!(made.unwrap().success());
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill")
        .args(["-s", name, &child.id().to_string()])
        .status();
    assert!(sent.unwrap().success());
}

#[test]
fn an_image_that_is_a_pipe_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    pipe_in(folder, "image");
    std::fs::copy(RECORDING, folder.join("run.uprof")).unwrap();
    let commands: &[&[&str]] = &[
        &["report", "--elf", "image"],
        &["bundle", "--elf", "image"],
        &["record", "--elf", "image", "-d", "1s", "gdb:localhost:1"],
        &["doctor", "--elf", "image", "gdb:localhost:1"],
    ];
    for words in commands {
        let (code, said) = run(words, folder);
        assert_eq!(code, 2, "{words:?}: {said}");
        assert!(said.contains("regular file"), "{words:?}: {said}");
    }
    // The existing recording stays at its path.
    assert!(!folder.join("run.uprof.old").exists());
}

#[test]
fn no_output_replaces_what_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let run_path = folder.join("run.uprof");
    std::fs::copy(RECORDING, &run_path).unwrap();
    std::fs::copy(IMAGE, folder.join("app")).unwrap();
    symlink("run.uprof", folder.join("link")).unwrap();
    std::fs::hard_link(&run_path, folder.join("hard")).unwrap();
    let before = [
        std::fs::read(RECORDING).unwrap(),
        std::fs::read(IMAGE).unwrap(),
    ];
    let commands: &[&[&str]] = &[
        &["report", "--flame=run.uprof", "run.uprof"],
        &["report", "--html=link", "run.uprof"],
        &["report", "--chart=hard", "link"],
        &["report", "--elf", "app", "--flame=app", "run.uprof"],
        &["export", "-f", "folded", "-o", "hard", "run.uprof"],
        &["diff", "run.uprof", "link", "--flame=run.uprof"],
        &["recover", "run.uprof", "-o", "run.uprof"],
        &["import", "-f", "folded", "run.uprof", "-o", "link"],
        &["bundle", "run.uprof", "--redact", "-o", "run.uprof"],
    ];
    for words in commands {
        let (code, said) = run(words, folder);
        assert_eq!(code, 2, "{words:?}: {said}");
        assert!(
            said.contains("it is read to make this"),
            "{words:?}: {said}"
        );
        let after = [std::fs::read(&run_path), std::fs::read(folder.join("app"))];
        assert!(after.map(Result::unwrap) == before, "{words:?}");
    }
    let left = std::fs::read_dir(folder).unwrap().flatten();
    let parts = left.filter(|it| it.file_name().to_string_lossy().contains("part"));
    assert_eq!(parts.count(), 0);
}

#[test]
fn manual_pages_follow_no_link() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("precious"), "mine").unwrap();
    std::fs::create_dir(folder.join("man")).unwrap();
    symlink("../precious", folder.join("man/uniprof.1")).unwrap();
    let (code, said) = run(&["man", "man"], folder);
    assert_eq!(code, 0, "{said}");
    assert_eq!(std::fs::read(folder.join("precious")).unwrap(), b"mine");
    let page = std::fs::read_to_string(folder.join("man/uniprof.1")).unwrap();
    assert!(page.starts_with(".ie"), "{page}");
    assert!(folder.join("man/uniprof-report.1").exists());
}

/// Starts a command, waits until it hangs where it should, and sends a signal.
fn stopped(words: &[&str], folder: &Path, name: &str, wait: Duration) -> Output {
    let child = uniprof(words, folder);
    std::thread::sleep(wait);
    signal(&child, name);
    end_of(child)
}

#[test]
fn a_signal_ends_a_recorder_that_waits_for_its_outputs_reader() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    pipe_in(folder, "out");
    let words = ["record", "-o", "out", "--", "sleep", "60"];
    let start = Instant::now();
    // Nobody opens the pipe.
    let output = stopped(&words, folder, "TERM", Duration::from_millis(500));
    assert!(!output.status.success());
    // The pipe is opened, but nobody reads from it.
    let mut options = std::fs::File::options();
    let reader = options.read(true).write(true).open(folder.join("out"));
    let mut reader = reader.unwrap();
    // A pipe holds 64 KiB, so the rest of it is soon full.
    reader.write_all(&[0; 60_000]).unwrap();
    let words = [
        "record",
        "--stack",
        "-F",
        "5000",
        "-o",
        "out",
        "--",
        "sh",
        "-c",
        "while :; do :; done",
    ];
    let output = stopped(&words, folder, "INT", Duration::from_secs(2));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("nobody reads it"), "{said}");
    drop(reader);
    assert!(start.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_signal_ends_a_recorder_that_starts_and_leaves_the_recording_before() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::copy(RECORDING, folder.join("run.uprof")).unwrap();
    // The stub accepts connections and stays silent.
    let listener = UnixListener::bind(folder.join("stub")).unwrap();
    for target in ["gdb:./stub", "qemu:./stub"] {
        let start = Instant::now();
        let output = stopped(
            &["record", target],
            folder,
            "TERM",
            Duration::from_millis(300),
        );
        assert!(!output.status.success());
        assert!(start.elapsed() < Duration::from_secs(2), "{target}");
        let kept = std::fs::read(folder.join("run.uprof")).unwrap();
        assert!(kept == std::fs::read(RECORDING).unwrap());
        assert!(!folder.join("run.uprof.old").exists());
    }
    drop(listener);
}

#[test]
fn a_signal_ends_a_recorder_that_embeds() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    // The program has debug information of thousands of functions.
    let program = kit::program();
    let words = [
        "record",
        "-F",
        "2000",
        "-d",
        "1s",
        "--",
        program.to_str().unwrap(),
        "workload",
    ];
    let child = uniprof(&words, folder);
    let start = Instant::now();
    // The recording itself has this name only until it is opened.
    let is_embedding = || {
        let entries = std::fs::read_dir(folder).unwrap().flatten();
        let mut names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.any(|name| name.ends_with(".part"))
    };
    while !(folder.join("run.uprof").exists() && is_embedding()) {
        assert!(start.elapsed() < Duration::from_secs(10), "it never embeds");
        std::thread::sleep(Duration::from_millis(1));
    }
    signal(&child, "TERM");
    let output = end_of(child);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("nothing was embedded: stopped by"), "{said}");
    assert_eq!(output.status.code(), Some(1));
    assert!(!is_embedding(), "half a file is left");
    let (code, said) = run(&["info", "run.uprof"], folder);
    assert_eq!(code, 0, "{said}");
}

/// A service manager may send its signal to one process alone.
#[test]
fn a_signal_ends_runs_and_their_command() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let work = "touch begun; i=0; while [ $i -lt 3000000 ]; do i=$((i+1)); done; touch done";
    let words = ["record", "--runs", "2", "--", "sh", "-c", work];
    let child = uniprof(&words, folder);
    kit::wait_until("a run", Duration::from_secs(60), || {
        folder.join("begun").exists()
    });
    signal(&child, "TERM");
    let output = end_of(child);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("SIGTERM in run 1 of 2"), "{said}");
    assert!(!folder.join("done").exists(), "the command ran to its end");
    let left = std::fs::read_dir(folder.join("runs")).unwrap().count();
    assert_eq!(left, 0);
}

#[test]
fn runs_have_a_folder_whose_name_may_begin_with_a_hyphen() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (code, said) = run(&["record", "--runs", "2", "-o", "-", "--", "true"], folder);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("name a folder with -o"), "{said}");
    assert_eq!(std::fs::read_dir(folder).unwrap().count(), 0);
    let busy = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
    let mut words = vec!["record", "--no-embed", "-F", "999", "--runs", "1"];
    words.extend(["-o=-runs", "--", "sh", "-c", busy]);
    let (code, said) = run(&words, folder);
    assert_eq!(code, 0, "{said}");
    assert!(folder.join("-runs/001.uprof").exists());
}

#[test]
fn the_commands_status_is_told_and_passed_on_if_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let busy = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; ";
    for (ending, asked, wanted, told) in [
        ("exit 7", true, 7, "status 7"),
        ("exit 7", false, 0, "status 7"),
        ("kill -9 $$", true, 137, "SIGKILL"),
        ("exit 0", true, 0, "ended"),
    ] {
        let script = format!("{busy}{ending}");
        let mut words = vec!["record", "--no-embed", "-F", "999"];
        words.extend(asked.then_some("--exit-status"));
        words.extend(["--", "sh", "-c", &script]);
        let (code, said) = run(&words, folder);
        assert_eq!(code, wanted, "{ending}: {said}");
        assert!(said.contains(told), "{said}");
    }
    let (code, said) = run(&["record", "--exit-status", "pid:1"], folder);
    assert_eq!(code, 2, "{said}");
}

#[test]
fn a_rule_about_a_function_that_is_not_there_fails_unless_allowed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let diff = |more: &[&str]| {
        let words = [&["diff", "--elf", IMAGE, RECORDING, RECORDING][..], more].concat();
        run(&words, folder)
    };
    let (code, said) = diff(&["--fail-if", "any>+5%"]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("any>+5% is kept"), "{said}");
    let misspelt = ["--fail-if", "any>+5%", "--fail-if", "mian>+5%"];
    let (code, said) = diff(&misspelt);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("called mian"), "{said}");
    // The other rules are reported even so.
    assert!(said.contains("any>+5% is kept"), "{said}");
    let (code, said) = diff(&[&misspelt[..], &["--allow-missing"]].concat());
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("called mian"), "{said}");
}

/// Serves each connection at `path`: writes what `next` returns, until it returns nothing.
fn serve(
    path: &Path,
    next: impl FnMut(&mut UnixStream) -> Option<Vec<u8>> + Send + Clone + 'static,
) {
    let listener = UnixListener::bind(path).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, mut next) = (stream.unwrap(), next.clone());
            std::thread::spawn(move || {
                while let Some(bytes) = next(&mut stream) {
                    if stream.write_all(&bytes).is_err() {
                        break;
                    }
                }
            });
        }
    });
}

fn is_left_in_time(folder: &Path, target: &str) {
    for words in [&["record", "-d", "1s", target][..], &["doctor", target]] {
        let start = Instant::now();
        let (code, said) = run(words, folder);
        assert_eq!(code, 2, "{words:?}: {said}");
        assert!(said.contains("did not answer"), "{words:?}: {said}");
        let passed = start.elapsed();
        assert!(passed < Duration::from_secs(10), "{words:?}: {passed:?}");
    }
}

#[test]
fn a_stub_that_is_never_done_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    // Acknowledges without end.
    serve(&folder.join("floods"), |_| Some(vec![b'+'; 4096]));
    is_left_in_time(folder, "gdb:./floods");
    // Answers each question just before the time limit.
    serve(&folder.join("slow"), |stream| {
        let mut asked = [0; 4096];
        let count = stream.read(&mut asked).ok().filter(|count| *count > 0)?;
        std::thread::sleep(Duration::from_millis(1500));
        let questions = asked[..count].iter().filter(|byte| **byte == b'$').count();
        Some(b"+$m1#9e".repeat(questions))
    });
    is_left_in_time(folder, "gdb:./slow");
}

#[test]
fn a_monitor_that_is_never_done_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut greeted = false;
    serve(&folder.join("events"), move |_| {
        if !std::mem::replace(&mut greeted, true) {
            return Some(b"{\"QMP\": {}}\n{\"return\": {}}\n".to_vec());
        }
        std::thread::sleep(Duration::from_millis(900));
        Some(b"{\"event\": \"STOP\"}\n".to_vec())
    });
    is_left_in_time(folder, "qemu:./events");
}

/// The recorder asks libvirt through a program, whose output is not trusted.
#[test]
fn a_virsh_that_is_never_done_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", folder.path().display());
    for (script, expected) in [
        ("exec sleep 60", "did not answer for libvirt:web in time"),
        ("exec yes", "has no end"),
        ("echo no JSON", "libvirt:web is no QMP monitor"),
        ("echo '{}'", "neither result nor error"),
        ("echo '{\"event\": 1}'", "answers with an event"),
        (
            "printf 'error: \\033]0;gone\\007\\nerror: no such domain\\n' >&2; exit 1",
            "gone\u{fffd}; no such domain",
        ),
    ] {
        let virsh = folder.path().join("virsh");
        std::fs::write(&virsh, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&virsh, std::fs::Permissions::from_mode(0o755)).unwrap();
        let start = Instant::now();
        let output = kit::uniprof()
            .args(["record", "-d", "1s", "libvirt:web"])
            .env("PATH", &path)
            .current_dir(&folder)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{script}: {said}");
        assert!(said.contains(expected), "{script}: {said}");
        assert!(!said.contains('\x1b'), "{script}: {said}");
        assert!(start.elapsed() < Duration::from_secs(15), "{script}");
    }
}
