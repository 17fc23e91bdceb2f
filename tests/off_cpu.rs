//! Off-CPU time of real threads: recorded by the built program, and compared with the threads' own clocks.

use kit::{text, uniprof};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Records `command` with these flags. If perf events of switches are not allowed, it says why and returns
/// `None`.
fn record(file: &Path, flags: &[&str], command: &[&str]) -> Option<Output> {
    let mut recorder = uniprof();
    recorder
        .args(["record", "--off-cpu", "--no-embed", "-o"])
        .arg(file);
    let output = recorder
        .args(flags)
        .arg("--")
        .args(command)
        .output()
        .unwrap();
    let said = text(&output.stderr);
    if said.contains("perf events of switches are not allowed here") {
        eprintln!("skipped: {said}");
        return None;
    }
    // So many names at once may be too many for the recorder. Waits, however, may be lost only together with
    // samples that a busy machine drops.
    let has_lost = said.contains("waits of unknown length") && !said.contains("dropped: ");
    let is_whole = output.status.success() || !has_lost;
    assert!(
        is_whole && output.status.code() < Some(2),
        "{:?} said: {said}",
        output.status
    );
    Some(output)
}

#[test]
fn a_window_tells_how_many_samples_and_waits_it_has() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.uprof");
    let program = ["sh", "-c", "sleep 0.1; sleep 0.1"];
    let Some(output) = record(&file, &["--keep", "10s"], &program) else {
        return;
    };
    let said = text(&output.stderr);
    assert!(said.contains(" samples and waits are in "), "{said}");
}

/// The stacks of the waits, with their time in microseconds.
fn folded(file: &Path) -> String {
    let mut export = uniprof();
    export
        .args(["export", "-f", "folded", "--off-cpu", "--by-thread"])
        .arg(file);
    let output = export.output().unwrap();
    assert!(output.status.code() < Some(2), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// The off-CPU time of stacks with this frame (nanoseconds).
fn waited_ns(file: &Path, frame: &str) -> u64 {
    let stacks = folded(file);
    let found = stacks.lines().filter_map(|line| {
        let (stack, time_us) = line.rsplit_once(' ')?;
        let has = stack.split(';').any(|one| one == frame);
        has.then(|| time_us.parse::<u64>().unwrap() * 1000)
    });
    found.sum()
}

fn close(found_ns: u64, truth_ns: u64, what: &str) {
    let gap = found_ns.abs_diff(truth_ns) as f64 / truth_ns as f64;
    assert!(
        gap < 0.03,
        "{what}: {found_ns} ns are told, its own clock says {truth_ns} ns"
    );
}

/// Builds the program whose waits are known.
fn program(folder: &Path) -> PathBuf {
    let path = folder.join("waits");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/off_cpu/waits.c");
    let mut compiler = Command::new("cc");
    compiler.args([
        "-O1",
        "-g",
        "-fno-omit-frame-pointer",
        "-fno-optimize-sibling-calls",
    ]);
    let made = compiler
        .args(["-pthread", "-o"])
        .arg(&path)
        .arg(source)
        .status()
        .unwrap();
    assert!(made.success());
    path
}

#[test]
fn waits_are_as_long_as_their_threads_own_clocks_say() {
    let folder = tempfile::tempdir().unwrap();
    let (program, file) = (program(folder.path()), folder.path().join("few.uprof"));
    let Some(output) = record(&file, &["--stack"], &[program.to_str().unwrap(), "few"]) else {
        return;
    };
    for line in text(&output.stdout).lines() {
        let (function, truth_ns) = line.split_once(' ').unwrap();
        close(
            waited_ns(&file, function),
            truth_ns.parse().unwrap(),
            function,
        );
    }
    let report = uniprof()
        .args(["report", "--off-cpu"])
        .arg(&file)
        .output()
        .unwrap();
    let report = text(&report.stdout);
    assert!(report.contains(" s off CPU in "), "{report}");
    assert!(!report.contains("__schedule"), "{report}");
}

/// Each thread has the time of its own waits, and none of the other's.
#[test]
fn waits_of_less_than_a_millisecond_are_their_own_functions() {
    let folder = tempfile::tempdir().unwrap();
    let (program, file) = (program(folder.path()), folder.path().join("short.uprof"));
    let Some(output) = record(&file, &[], &[program.to_str().unwrap(), "short"]) else {
        return;
    };
    // The program's clock includes the switches themselves, a few microseconds for each wait, and whatever
    // else ran meanwhile.
    for line in text(&output.stdout).lines() {
        let (function, truth_ns) = line.split_once(' ').unwrap();
        let (found_ns, truth_ns) = (waited_ns(&file, function), truth_ns.parse().unwrap());
        assert!(
            found_ns <= truth_ns && found_ns > truth_ns / 100 * 75,
            "{function}: {found_ns} ns are told, its own clock says {truth_ns} ns; recorded: {}; its stacks: {}",
            text(&output.stderr),
            folded(&file)
        );
    }
    let report = uniprof().args(["report", "--off-cpu"]).arg(&file).output();
    let report = text(&report.unwrap().stdout);
    assert!(!report.contains("others'"), "{report}");
}

#[test]
fn two_thousand_threads_that_wait_and_end() {
    let folder = tempfile::tempdir().unwrap();
    let (program, file) = (program(folder.path()), folder.path().join("many.uprof"));
    let Some(output) = record(&file, &[], &[program.to_str().unwrap(), "many", "2000"]) else {
        return;
    };
    let said = text(&output.stdout);
    let truth_ns = said.trim().strip_prefix("naps ").unwrap().parse().unwrap();
    let found_ns = waited_ns(&file, "naps");
    // Either all of the time is recorded, or less and this is reported; never more.
    match text(&output.stderr).contains("dropped: ") {
        true => assert!(
            found_ns < truth_ns / 100 * 103,
            "{found_ns} of {truth_ns} ns"
        ),
        false => close(found_ns, truth_ns, "naps"),
    }
}

#[test]
fn a_thread_that_is_killed_while_it_waits_waited_until_then() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("killed.uprof");
    let command = ["timeout", "-s", "KILL", "0.5", "sleep", "100"];
    let mut recorder = uniprof();
    recorder
        .args(["record", "--off-cpu", "--no-embed", "-o"])
        .arg(&file)
        .arg("--");
    let said = text(&recorder.args(command).output().unwrap().stderr);
    if said.contains("perf events of switches are not allowed here") {
        eprintln!("skipped: {said}");
        return;
    }
    let slept_ns = waited_ns(&file, "sleep");
    assert!(
        (450_000_000..900_000_000).contains(&slept_ns),
        "{slept_ns} ns: {said}"
    );
}

#[test]
fn a_thread_that_still_waits_has_the_time_up_to_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("unfinished.uprof");
    let Some(output) = record(&file, &["-d", "700ms"], &["sleep", "100"]) else {
        return;
    };
    let said = text(&output.stderr);
    assert!(said.contains("1 waits not over at the end"), "{said}");
    let slept_ns = waited_ns(&file, "sleep");
    assert!(
        (500_000_000..1_500_000_000).contains(&slept_ns),
        "{slept_ns} ns"
    );
}

#[test]
fn time_off_cpu_is_of_processes_with_perf_events() {
    let mut recorder = uniprof();
    recorder.args(["record", "--off-cpu", "--ptrace", "--", "true"]);
    assert_eq!(recorder.output().unwrap().status.code(), Some(2));
}
