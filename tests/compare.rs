//! `uniprof compare` and `record --runs`: live commands, one of which does twice the work, and runs that can't be
//! compared.

#![cfg(all(feature = "record", feature = "report"))]

use kit::{run, uniprof};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

fn in_folder(folder: &Path, words: &[&str]) -> Command {
    let mut command = uniprof();
    command.args(words).current_dir(folder);
    command
}

/// A shell that counts.
fn counting(rounds: u32) -> String {
    format!("i=0; while [ $i -lt {rounds} ]; do i=$((i+1)); done; echo done")
}

#[test]
fn twice_the_work_is_certain_and_its_time_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (counting(150_000), counting(300_000));
    let words = [
        "compare", "-n", "10", "--warmup", "0", "--json", "-o", "kept", &a, &b,
    ];
    let ended = run(&mut in_folder(folder.path(), &words));
    assert!(ended.status <= 1, "{}", ended.stderr);
    let found: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    // On some machines single runs differ by half.
    let runs = found["a"].as_array().unwrap().len();
    assert!((2..=10).contains(&runs), "{runs}");
    let time = &found["times"]["processor"];
    let ratio = time["ratio"].as_f64().unwrap();
    assert!((1.5..2.7).contains(&ratio), "{time}");
    assert_eq!(time["certain"], true, "{time}");
    let verdict = found["verdict"].as_str().unwrap();
    assert!(
        verdict.starts_with("B takes ") && verdict.contains(&format!("After {runs} runs of each")),
        "{verdict}"
    );
    // The recordings are kept, and say the same again.
    let ended = run(&mut in_folder(
        folder.path(),
        &["compare", "kept/a", "kept/b"],
    ));
    assert!(
        ended.stdout.starts_with("B takes "),
        "{}{}",
        ended.stdout,
        ended.stderr
    );
}

#[test]
fn runs_that_can_not_be_compared_are_refused_with_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let cases: [(&[&str], &str); 7] = [
        (
            &["--", "false", "--vs", "true"],
            "`false` ended with status 1",
        ),
        (&["true", "true"], "too few to compare"),
        (&["--", "true"], "two commands are compared"),
        (
            &["--", "true", "--vs", "true", "--vs", "true"],
            "--vs stands once",
        ),
        (&["--", "/nowhere", "--vs", "true"], "/nowhere"),
        (&["a.uprof", "b.uprof"], "uniprof diff compares recordings"),
        (&["sleep 20 & true", "true"], "left a process behind"),
    ];
    for (words, told) in cases {
        let ended = run(&mut in_folder(
            folder.path(),
            &[&["compare"], words].concat(),
        ));
        assert_eq!(ended.status, 2, "{words:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(told), "{words:?}: {}", ended.stderr);
    }
    let left = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, 0);
}

#[test]
fn runs_are_recorded_into_a_folder_and_compared() {
    let folder = tempfile::tempdir().unwrap();
    let work = counting(100_000);
    for side in ["before", "after"] {
        let words = [
            "record", "-q", "-F", "499", "--runs", "2", "-o", side, "--", "sh", "-c", &work,
        ];
        let ended = run(&mut in_folder(folder.path(), &words));
        assert_eq!(ended.status, 0, "{}", ended.stderr);
        assert!(folder.path().join(side).join("002.uprof").exists());
    }
    let ended = run(&mut in_folder(
        folder.path(),
        &["compare", "--explain", "before", "after"],
    ));
    assert!(ended.status <= 1, "{}", ended.stderr);
    for part in ["B takes ", "were not made in turns", "Asked about "] {
        assert!(ended.stdout.contains(part), "no {part}: {}", ended.stdout);
    }
    // What is in a folder is not overwritten.
    let words = ["record", "--runs", "2", "-o", "before", "--", "true"];
    assert_eq!(run(&mut in_folder(folder.path(), &words)).status, 2);
    let ended = run(&mut in_folder(
        folder.path(),
        &[
            "record", "--runs", "2", "-o", "third", "--", "sh", "-c", "exit 3",
        ],
    ));
    assert_eq!(ended.status, 1, "{}", ended.stderr);
    assert!(
        ended.stderr.contains("run 1 ended with status 3"),
        "{}",
        ended.stderr
    );
}

/// What a terminal sends for Ctrl-C goes to all of its processes.
#[test]
fn what_is_interrupted_leaves_no_part_of_a_run() {
    let folder = tempfile::tempdir().unwrap();
    let work = counting(100_000_000);
    let cases: [(&[&str], &str); 2] = [
        (
            &["compare", "--warmup", "0", "-o", "both", &work, &work],
            "both/a",
        ),
        (
            &[
                "record", "--runs", "2", "-o", "one", "--", "sh", "-c", &work,
            ],
            "one",
        ),
    ];
    for (words, runs) in cases {
        let mut command = in_folder(folder.path(), words);
        let mut child = command.process_group(0).spawn().unwrap();
        let runs = folder.path().join(runs);
        kit::wait_until("a run", Duration::from_secs(60), || {
            runs.join("001.uprof").exists()
        });
        let group = format!("-{}", child.id());
        let killed = Command::new("kill").args(["-INT", "--", &group]).status();
        assert!(killed.unwrap().success());
        assert_eq!(child.wait().unwrap().code(), Some(2), "{words:?}");
        let left = std::fs::read_dir(&runs).unwrap().count();
        assert_eq!(left, 0, "{words:?}");
    }
    // Only the folders of both sides.
    assert_eq!(
        std::fs::read_dir(folder.path().join("both"))
            .unwrap()
            .count(),
        2
    );
}

/// A rule is judged although `head` has seen enough of the table.
#[test]
fn a_rule_holds_where_the_reader_of_the_table_has_left() {
    let side = |name: &str| kit::root().join("corpus").join(name).display().to_string();
    let (a, b) = (side("calls.uprof"), side("calls.uprof"));
    let program = kit::program().display().to_string();
    // The pipe has no reader from the start.
    let script = format!(
        "exec 3>&1; {{ sleep 0.3; '{program}' diff '{a}' '{b}' --fail-if 'nobody>+1%' 2>&3; \
         echo \"status $?\" >&3; }} | true"
    );
    let mut shell = Command::new("bash");
    let ended = run(shell.args(["-c", &script]));
    assert!(ended.stdout.contains("nobody"), "{}", ended.stdout);
    assert!(ended.stdout.contains("status 2"), "{}", ended.stdout);
}

#[test]
fn a_folder_with_too_many_recordings_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for number in 0..1001 {
        std::fs::write(folder.path().join(format!("{number}.uprof")), "").unwrap();
    }
    let ended = run(&mut in_folder(folder.path(), &["compare", ".", "."]));
    assert_eq!(ended.status, 2, "{}", ended.stderr);
    assert!(ended.stderr.contains("at most 1000"), "{}", ended.stderr);
}
