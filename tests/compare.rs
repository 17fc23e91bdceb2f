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
    let ended = run(&mut in_folder(folder.path(), &words));
    assert_eq!(ended.status, 2);
    assert!(
        ended.stderr.contains("name another one with -o"),
        "{}",
        ended.stderr
    );
    let ended = run(&mut in_folder(
        folder.path(),
        &[
            "record", "--runs", "2", "-o", "third", "--", "sh", "-c", "exit 3",
        ],
    ));
    assert_eq!(ended.status, 1, "{}", ended.stderr);
    assert!(
        ended
            .stderr
            .contains("run 1: its command ended with status 3"),
        "{}",
        ended.stderr
    );
}

/// What a terminal sends for Ctrl-C goes to all of its processes, and what `kill` sends to one.
#[test]
fn what_is_interrupted_leaves_no_part_of_a_run() {
    let folder = tempfile::tempdir().unwrap();
    let work = counting(100_000_000);
    let compare = |name| ["compare", "--warmup", "0", "-o", name, &work, &work];
    let record = [
        "record", "--runs", "2", "-o", "one", "--", "sh", "-c", &work,
    ];
    let cases: [(&[&str], &str, &str, &str); 3] = [
        (&compare("both"), "both/a", "-INT", "-"),
        (&compare("told"), "told/a", "-TERM", ""),
        (&record, "one", "-INT", "-"),
    ];
    for (words, runs, signal, group) in cases {
        let mut command = in_folder(folder.path(), words);
        let mut child = command.process_group(0).spawn().unwrap();
        let runs = folder.path().join(runs);
        kit::wait_until("a run", Duration::from_secs(60), || {
            runs.join("001.uprof").exists()
        });
        let receiver = format!("{group}{}", child.id());
        let killed = Command::new("kill")
            .args([signal, "--", &receiver])
            .status();
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
fn flags_that_would_do_nothing_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["before", "after"] {
        std::fs::create_dir(folder.path().join(name)).unwrap();
    }
    let corpus = |name: &str| kit::corpus(name).display().to_string();
    let (calls, trace) = (corpus("calls.uprof"), corpus("trace-graph.uprof"));
    let of_functions = "comparisons are of functions";
    let cases: [(&[&str], &str); 15] = [
        (&["compare", "before", "after", "-n", "5"], "-n is for runs"),
        (
            &["compare", "before", "after", "--detect", "2%"],
            "--detect is for runs",
        ),
        (
            &["compare", "before", "after", "--warmup", "1"],
            "--warmup is for runs",
        ),
        (
            &["compare", "before", "after", "--prepare", "sync"],
            "--prepare is for runs",
        ),
        (&["compare", "before", "after", "-i"], "-i is for runs"),
        (
            &["compare", "before", "after", "-F", "99"],
            "-F is for runs of commands, and these are folders",
        ),
        (
            &["compare", "before", "after", "-o", "kept"],
            "-o is for runs",
        ),
        (
            &["compare", "before", "nowhere"],
            "before is a folder, and nowhere is none",
        ),
        (
            &["compare", "true", "after"],
            "after is a folder, and true is none",
        ),
        (
            &["compare", "-o", "-", "true", "true"],
            "name a new folder with -o",
        ),
        (&["compare", "--by", "line", "true", "true"], of_functions),
        (&["diff", "--by", "line", &calls, &calls], of_functions),
        (&["trend", "--by", "line", &calls], of_functions),
        (
            &["diff", "--min-share", "1%", &trace, &trace],
            "--min-share is of shares of samples",
        ),
        (
            &["report", "--on-cpu", "--min-wait", "1ms", &calls],
            "cannot be used with",
        ),
    ];
    for (words, told) in cases {
        let ended = run(&mut in_folder(folder.path(), words));
        assert_eq!(ended.status, 2, "{words:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(told), "{words:?}: {}", ended.stderr);
    }
    let left = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, 2);
}

#[test]
fn a_recording_that_is_there_twice_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let side = folder.path().join("side");
    std::fs::create_dir(&side).unwrap();
    for name in ["001.uprof", "001.redacted.uprof"] {
        std::fs::copy(kit::corpus("calls.uprof"), side.join(name)).unwrap();
    }
    let both = "side/001.uprof,side/001.redacted.uprof";
    let cases: [&[&str]; 4] = [
        &["diff", both, "side/001.uprof"],
        &["diff", "side/001.uprof", both],
        &["compare", "side", "side"],
        &["report", "side/001.uprof", "side/001.redacted.uprof"],
    ];
    for words in cases {
        let ended = run(&mut in_folder(folder.path(), words));
        assert_eq!(ended.status, 2, "{words:?}: {}", ended.stderr);
        for told in ["001.uprof", "001.redacted.uprof", "has the identity of"] {
            assert!(ended.stderr.contains(told), "{words:?}: {}", ended.stderr);
        }
    }
    // One on each side is what equal sides are.
    let words = ["diff", "side/001.uprof", "side/001.redacted.uprof"];
    let ended = run(&mut in_folder(folder.path(), &words));
    assert_eq!(ended.status, 0, "{}", ended.stderr);
}

/// No change of nothing is certain, and no rule would be broken.
#[test]
fn a_side_without_a_sample_that_counts_is_refused() {
    let corpus = |name: &str| kit::corpus(name).display().to_string();
    let (calls, trace) = (corpus("calls.uprof"), corpus("trace-graph.uprof"));
    let cases: [(&[&str], &str); 3] = [
        (&["--thread", "nosuch", &calls, &calls], "A has no sample"),
        (&["--off-cpu", &calls, &calls], "record --off-cpu"),
        (&["--thread", "nosuch", &trace, &trace], "A has no call"),
    ];
    for (words, told) in cases {
        let words = [&["diff", "--fail-if", "any>+5%"], words].concat();
        let ended = run(&mut in_folder(Path::new("."), &words));
        assert_eq!(ended.status, 2, "{words:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(told), "{words:?}: {}", ended.stderr);
    }
}

/// A signal ends a run as well as an exit, and its times are known.
#[test]
fn runs_that_a_signal_ends_have_times() {
    let folder = tempfile::tempdir().unwrap();
    let work = format!("{}; kill -KILL $$", counting(50_000));
    let words = [
        "compare", "-i", "-n", "2", "--warmup", "0", "--json", &work, &work,
    ];
    let ended = run(&mut in_folder(folder.path(), &words));
    assert!(ended.status <= 1, "{}", ended.stderr);
    let found: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    let times = &found["times"];
    assert!(times["processor"]["ratio"].is_number(), "{times}");
    assert!(times["wall"]["ratio"].is_number(), "{times}");
}

#[test]
fn runs_without_a_sample_that_counts_are_refused_at_the_first_look() {
    let folder = tempfile::tempdir().unwrap();
    let work = counting(50_000);
    let words = [
        "compare",
        "--thread",
        "nosuch",
        "--detect",
        "0.001%",
        "--warmup",
        "0",
        "--prepare",
        "echo >> prepared",
        &work,
        &work,
    ];
    let ended = run(&mut in_folder(folder.path(), &words));
    assert_eq!(ended.status, 2, "{}", ended.stderr);
    assert!(ended.stderr.contains("A has no sample"), "{}", ended.stderr);
    let prepared = std::fs::read_to_string(folder.path().join("prepared")).unwrap();
    assert_eq!(prepared.lines().count(), 8);
}

#[test]
fn runs_record_their_waits_if_those_are_compared() {
    let folder = tempfile::tempdir().unwrap();
    let work = format!("{}; sleep 0.1", counting(50_000));
    let words = [
        "compare",
        "--off-cpu",
        "-n",
        "2",
        "--warmup",
        "0",
        "--json",
        &work,
        &work,
    ];
    let ended = run(&mut in_folder(folder.path(), &words));
    if ended
        .stderr
        .contains("perf events of switches are not allowed here")
    {
        eprintln!("skipped: {}", ended.stderr);
        return;
    }
    assert!(ended.status <= 1, "{}", ended.stderr);
    let found: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    // The shell waits while its child sleeps, in each of two runs.
    let waits_ns = found["samples"][0].as_u64().unwrap();
    assert_eq!(found["unit"], "nanoseconds");
    assert!(waits_ns >= 200_000_000, "{waits_ns}");
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
