//! `push` against servers that accept, refuse, wait, redirect, hang up and vanish. What is accepted here has passed the
//! checks of Pyroscope's source (pkg/validation, pkg/distributor and pkg/ingester of version 2).

mod receiver;
mod refusals;
mod spool;
mod streams;

use kit::{corpus, uniprof};
use receiver::{Received, Receiver, Reply, check, id_of};
use std::collections::BTreeSet;
use std::fs;

const PUSH: &str = "/push.v1.PusherService/Push";

/// Pushes to `url` with some words: exit status, and what was said.
fn push(url: &str, words: &[&str]) -> (i32, String) {
    let output = uniprof()
        .args(["push", "--no-search", "--to", url])
        .args(words)
        .output()
        .unwrap();
    (output.status.code().unwrap(), kit::text(&output.stderr))
}

fn pack() -> String {
    corpus("pack-stack.uprof").display().to_string()
}

/// The sum of all samples as folded stacks have it.
fn folded_sum(words: &[&str]) -> i64 {
    let mut command = uniprof();
    let output = command
        .args(["export", "-f", "folded", "--no-search"])
        .args(words)
        .output()
        .unwrap();
    let text = kit::text(&output.stdout);
    let counts = text.lines().map(|line| line.rsplit(' ').next().unwrap());
    counts.map(|count| count.parse::<i64>().unwrap()).sum()
}

fn accept() -> Reply {
    Reply::answer(200, "application/proto", "")
}

#[test]
fn what_is_pushed_passes_the_checks_of_pyroscope_and_has_every_sample() {
    let server = Receiver::start(|_| accept());
    for (file, slice, kind) in [
        ("pack-stack.uprof", "15s", "process_cpu"),
        ("pack-stack.uprof", "100ms", "process_cpu"),
        ("off-cpu.uprof", "15s", "off_cpu"),
    ] {
        let path = corpus(file).display().to_string();
        let mut words = vec!["--every", slice, &path];
        let is_off_cpu = kind == "off_cpu";
        if is_off_cpu {
            words.push("--off-cpu");
        }
        let (status, said) = push(
            &server.url(""),
            &["--format", "pyroscope"]
                .iter()
                .chain(&words)
                .copied()
                .collect::<Vec<_>>(),
        );
        assert!(status <= 1, "{said}");
        let received = server.take();
        let mut sums = Vec::new();
        let mut times = BTreeSet::new();
        for one in &received {
            assert_eq!(
                (one.path.as_str(), one.header("content-type")),
                (PUSH, "application/proto")
            );
            let series = check(&one.body).unwrap();
            assert_eq!(series.labels["__name__"], kind);
            assert!(["pack", "waits"].contains(&series.labels["service_name"].as_str()));
            assert!(
                times.insert(series.time_ns),
                "two profiles at one time are counted once"
            );
            sums.push(series.sum);
        }
        assert_eq!(received.len() > 5, slice == "100ms");
        let sum: i64 = sums.iter().sum();
        if is_off_cpu {
            // Folded stacks have microseconds, rounded.
            let expected = folded_sum(&["--off-cpu", &path]) * 1000;
            assert!((sum - expected).abs() < 100_000, "{sum} {expected}");
        } else {
            assert_eq!(sum, folded_sum(&[&path]));
        }
        // The same ids again: a server that knows them counts nothing twice.
        let ids = |received: &[Received]| {
            received
                .iter()
                .map(|one| id_of(&one.body))
                .collect::<BTreeSet<_>>()
        };
        let (before, _) = (ids(&received), push(&server.url(PUSH), &words));
        assert_eq!(ids(&server.take()), before);
        assert_eq!(before.len(), received.len());
    }
}

#[test]
fn labels_are_names_that_every_version_takes() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("stacks.txt");
    fs::write(&text, "main;work 3\n").unwrap();
    let file = folder.path().join("run.uprof");
    let labels = [
        "service=web",
        "k8s.pod-name=a b",
        "__name__=x",
        "1st=ü",
        "k8s_pod/name=other",
    ];
    let mut import = uniprof();
    import
        .args(["import", "-f", "folded", "-o"])
        .arg(&file)
        .arg(&text);
    for label in labels {
        import.args(["--label", label]);
    }
    assert!(import.output().unwrap().status.success());
    let server = Receiver::start(|_| accept());
    let (status, said) = push(&server.url(PUSH), &[file.to_str().unwrap()]);
    assert_eq!(status, 0, "{said}");
    let series = check(&server.take()[0].body).unwrap();
    assert_eq!(series.sum, 3);
    let labels: Vec<(&str, &str)> = series
        .labels
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect();
    assert_eq!(
        labels,
        [
            ("__name__", "process_cpu"),
            ("k8s_pod_name", "a b"),
            ("label_1st", "ü"),
            ("label___name__", "x"),
            ("service_name", "web"),
        ]
    );
}

#[test]
fn slices_of_many_stacks_become_several_profiles() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let server = Receiver::start(|_| accept());
    let long = "x".repeat(2000);
    for (stacks, name, profiles) in [(9000, "f", 2), (1200, long.as_str(), 4)] {
        let lines = (0..stacks).map(|number| format!("main;{name}{number} 2\n"));
        fs::write(path("stacks.txt"), lines.collect::<String>()).unwrap();
        let mut import = uniprof();
        import.args([
            "import",
            "-f",
            "folded",
            "-o",
            &path("run.uprof"),
            &path("stacks.txt"),
        ]);
        assert!(import.output().unwrap().status.success());
        let (status, said) = push(&server.url(PUSH), &[&path("run.uprof")]);
        assert_eq!(status, 0, "{said}");
        let received = server.take();
        let sums = received.iter().map(|one| check(&one.body).unwrap().sum);
        assert_eq!(sums.sum::<i64>(), 2 * stacks);
        assert_eq!(received.len(), profiles);
    }
}

#[test]
fn a_recording_that_cannot_be_pushed_costs_only_itself() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    fs::copy(corpus("pack-stack.uprof"), path("copy.uprof")).unwrap();
    fs::write(path("text.uprof"), "no recording").unwrap();
    let server = Receiver::start(|_| accept());
    let words = [
        &path("text.uprof"),
        &pack(),
        &path("copy.uprof"),
        &path("none.uprof"),
    ];
    let (code, said) = push(&server.url(PUSH), &words.map(String::as_str));
    assert_eq!(code, 1, "{said}");
    for wanted in ["text.uprof", "has the identity of", "none.uprof"] {
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
    assert_eq!(server.take().len(), 1);
}

#[test]
fn a_recording_with_nothing_to_push_is_told_in_its_unit() {
    let calls = corpus("calls.uprof").display().to_string();
    let server = Receiver::start(|_| accept());
    let (status, said) = push(&server.url(PUSH), &["--off-cpu", &calls]);
    assert_eq!(status, 1, "{said}");
    assert!(said.contains("has no time off CPU to push"), "{said}");
}
