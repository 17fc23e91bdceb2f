//! `uniprof doctor` without a target and on processes. Tests on guests are in `tests/xen` and `tests/qemu`.

mod busy;

use busy::Busy;
use kit::text;
use std::process::{Command, Output, Stdio};

fn doctor(words: &[&str]) -> Output {
    let mut command = kit::uniprof();
    command.arg("doctor").args(words).output().unwrap()
}

impl Busy {
    fn new() -> Self {
        let mut shell = Command::new("sh");
        let shell = shell.args(["-c", "while :; do :; done"]);
        Busy(shell.stdout(Stdio::null()).spawn().unwrap())
    }
}

#[test]
fn a_machine_is_looked_at_for_all_kinds_of_guests() {
    let output = doctor(&[]);
    let said = text(&output.stdout);
    let (findings, advice) = said.split_once("\nTry: ").expect(&said);
    for part in [
        "processes: ",
        "(ptrace): ",
        "kernel functions have ",
        "QEMU",
        "Xen",
    ] {
        assert!(findings.contains(part), "no «{part}» in {said}");
    }
    let is_marked = |line: &str| ["ok    ", "poor  ", "-     "].contains(&&line[..6]);
    assert!(findings.lines().all(is_marked), "{said}");
    assert!(advice.contains("uniprof doctor TARGET"), "{said}");
    let poor = findings.contains("poor  ");
    assert_eq!(output.status.code(), Some(i32::from(poor)), "{said}");
}

#[test]
fn the_command_that_it_tries_records_the_process() {
    let busy = Busy::new();
    let target = format!("pid:{}", busy.0.id());
    let said = text(&doctor(&[&target]).stdout);
    for part in ["`sh`", "processes now: 1, threads: 1", "perf events"] {
        assert!(said.contains(part), "no «{part}» in {said}");
    }
    let command = said
        .lines()
        .find_map(|line| line.strip_prefix("Try: uniprof "));
    let command = command.expect(&said).replace("30s", "1s");
    let folder = tempfile::tempdir().unwrap();
    let output = kit::uniprof()
        .args(command.split(' '))
        .args(["-o", "run.uprof"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    let recorded = text(&output.stderr);
    assert!(output.status.success(), "{recorded}");
    assert!(folder.path().join("run.uprof").exists(), "{recorded}");
    // `doctor` opens the same events as `record`, so stacks are recorded as it predicted.
    let mut info = kit::uniprof();
    let info = info.arg("info").arg(folder.path().join("run.uprof"));
    let info = text(&info.output().unwrap().stdout);
    let stacks = |said: &str, start: &str| {
        let line = said.lines().find_map(|line| line.strip_prefix(start));
        line.expect(said).trim().to_owned()
    };
    assert_eq!(stacks(&said, "ok    stacks:"), stacks(&info, "stacks  "));
}

#[test]
fn processes_that_are_not_there_or_take_no_image() {
    let missing = format!("pid:{}", i32::MAX);
    let busy = Busy::new();
    let busy = format!("pid:{}", busy.0.id());
    for (words, part) in [
        (&[missing.as_str()][..], "no process"),
        (&["pid:x"], "process ids"),
        (&["name:no such name"], "no process is called"),
        (&["name:"], "names no process"),
        (&["cgroup:/no/such"], "no cgroup"),
        (&["--elf", "image", &busy], "is for guests"),
        (&["--elf", "image"], "<TARGET>"),
    ] {
        let output = doctor(words);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
        assert!(said.contains(part), "{words:?}: no «{part}» in {said}");
    }
}
