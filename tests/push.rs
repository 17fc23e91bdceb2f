//! `push` against servers that accept, refuse, wait, redirect, hang up and vanish. What is accepted here has passed the
//! checks of Pyroscope's source (pkg/validation, pkg/distributor and pkg/ingester of version 2).

mod receiver;

use kit::{corpus, uniprof};
use receiver::{Received, Receiver, Reply, check, id_of};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

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
        import.args(["import", "-f", "folded", "-o", &path("run.uprof"), &path("stacks.txt")]);
        assert!(import.output().unwrap().status.success());
        let (status, said) = push(&server.url(PUSH), &[&path("run.uprof")]);
        assert_eq!(status, 0, "{said}");
        let received = server.take();
        let sums = received.iter().map(|one| check(&one.body).unwrap().sum);
        assert_eq!(sums.sum::<i64>(), 2 * stacks);
        assert_eq!(received.len(), profiles);
    }
}

/// Answers of servers, and words of the message that follows.
const REFUSALS: &[(u16, &str, &str, &[&str])] = &[
    (
        400,
        "application/json",
        r#"{"code":"invalid_argument","message":"profile with labels '{}' is outside of ingestion window (profile timestamp: 1, 2)"}"#,
        &["reject-older-than", "refuses"],
    ),
    (
        400,
        "application/json",
        r#"{"message":"profile series '{}' has 31 label names; limit 30"}"#,
        &["fewer labels"],
    ),
    (
        400,
        "application/json",
        r#"{"message":"profile with labels '{}' has label name too long: 'x'"}"#,
        &["shorter label"],
    ),
    (
        400,
        "application/json",
        r#"{"message":"profile with labels '{}' has label value too long: 'x'"}"#,
        &["shorter label"],
    ),
    (
        400,
        "application/json",
        r#"{"message":"profile with labels '{}' has duplicate label name: 'x'"}"#,
        &["without one of the two"],
    ),
    (
        400,
        "application/json",
        r#"{"message":"the profile with labels '{}' exceeds the size limit (max_profile_size_byte, actual: 5, limit: 4)"}"#,
        &["--every"],
    ),
    (
        400,
        "application/json",
        r#"{"message":"uncompressed profile payload size exceeds limit of 4.2 MB"}"#,
        &["--every"],
    ),
    (
        400,
        "application/json",
        r#"{"message":"the profile with labels '{}' exceeds the samples count limit (max_profile_stacktrace_samples, actual: 5, limit: 4)"}"#,
        &["--every"],
    ),
    (
        400,
        "application/json",
        r#"{"message":"invalid labels '{}' with error: invalid metric name"}"#,
        &["invalid metric name"],
    ),
    (
        413,
        "text/html",
        "<html>Request Entity Too Large</html>",
        &["413; push with a shorter --every"],
    ),
    (422, "text/plain", "odd\u{1b}[31m\nlines", &["422: odd"]),
    (
        429,
        "application/json",
        r#"{"code":"resource_exhausted","message":"Maximum active series limit exceeded (1/1)"}"#,
        &["fewer different values", "tried for 1 s", "--spool"],
    ),
    (500, "text/plain", "oh", &["500: oh; tried for 1 s"]),
    (503, "text/html", "<html>", &["503; tried for 1 s"]),
    (
        401,
        "text/plain",
        "no org id",
        &["401: no org id", "--header-file"],
    ),
    (403, "", "", &["403", "--header-file"]),
    (
        404,
        "text/plain",
        "404 page not found",
        &["check the URL", PUSH],
    ),
    (405, "", "", &["check the URL"]),
    (501, "", "", &["check the URL"]),
    (
        200,
        "text/html; charset=utf-8",
        "<html>Log in",
        &["answers with a page"],
    ),
];

#[test]
fn every_refusal_ends_with_what_to_do() {
    for (status, content_type, body, wanted) in REFUSALS {
        let server = Receiver::start(move |_| Reply::answer(*status, content_type, body));
        let (code, said) = push(&server.url(PUSH), &["--retry-for", "1s", &pack()]);
        assert_eq!(code, 2, "{status}: {said}");
        for wanted in *wanted {
            assert!(said.contains(wanted), "{status}: {wanted}: {said}");
        }
        assert!(!said.contains(['\u{1b}', '<']), "{said}");
        let is_repeated = server.take().len() > 1;
        assert_eq!(is_repeated, [429, 500, 503].contains(status), "{status}");
    }
}

#[test]
fn a_redirect_is_not_followed_and_credentials_stay_secret() {
    let folder = tempfile::tempdir().unwrap();
    let headers = folder.path().join("headers");
    fs::write(
        &headers,
        "# ours\nAuthorization: Bearer s3cret\nX-Scope-OrgID: us\n",
    )
    .unwrap();
    let elsewhere = Receiver::start(|_| accept());
    let to = elsewhere.url(PUSH);
    for status in [301, 302, 307, 308] {
        let to = to.clone();
        let server = Receiver::start(move |_| Reply::redirect(status, &to));
        let words = ["--header-file", headers.to_str().unwrap(), &pack()];
        let (code, said) = push(&server.url(PUSH), &words);
        assert_eq!(code, 2, "{said}");
        assert!(
            said.contains("redirects to http://") && said.contains("--to"),
            "{said}"
        );
        assert!(!said.contains("s3cret"), "{said}");
        let received = server.take();
        assert_eq!(received.len(), 1);
        assert_eq!(received[0].header("authorization"), "Bearer s3cret");
        assert_eq!(received[0].header("x-scope-orgid"), "us");
    }
    assert!(elsewhere.take().is_empty());
    for url in [
        "http://user:s3cret@localhost:1/",
        "localhost:4040",
        "http://localhost/elsewhere",
    ] {
        let (code, said) = push(url, &[&pack()]);
        assert!(code == 2 && !said.contains("s3cret"), "{said}");
        assert!(
            ["--header-file", "http://", "--format"]
                .iter()
                .any(|word| said.contains(word)),
            "{said}"
        );
    }
}

#[test]
fn a_server_that_comes_back_gets_everything_and_one_that_is_silent_ends_the_attempt() {
    let asked = AtomicU32::new(0);
    let server = Receiver::start(move |_| match asked.fetch_add(1, Ordering::Relaxed) {
        0 => Reply::answer(503, "", ""),
        1 => Reply::HangUp,
        _ => accept(),
    });
    let (code, said) = push(&server.url(PUSH), &["--retry-for", "60s", &pack()]);
    assert_eq!(code, 0, "{said}");
    assert!(
        said.contains("trying again") && said.contains("may count them twice"),
        "{said}"
    );
    let received = server.take();
    assert_eq!(received.len(), 3);
    assert!(received.iter().all(|one| one.body == received[0].body));

    let silent = Receiver::start(|_| Reply::Silence);
    let (code, said) = push(&silent.url(PUSH), &["--retry-for", "1s", &pack()]);
    assert!(code == 2 && said.contains("no answer within 1 s"), "{said}");
    let drop_by_drop = Receiver::start(|_| Reply::Drops);
    let (code, said) = push(&drop_by_drop.url(PUSH), &["--retry-for", "1s", &pack()]);
    assert!(code == 2 && said.contains("no answer within 1 s"), "{said}");
    let url = silent.url(PUSH);
    drop(silent);
    let (code, said) = push(&url, &["--retry-for", "1s", &pack()]);
    assert!(code == 2 && said.contains("can't be reached"), "{said}");
}

#[test]
fn success_can_be_a_refusal() {
    // A partial success that rejects one profile, with its reason; then one with a warning alone.
    let rejects = b"\x0a\x0c\x08\x01\x12\x08no frame";
    let warns = b"\x0a\x08\x12\x06caveat";
    let server = Receiver::start(move |_| Reply::bytes(200, "application/x-protobuf", rejects));
    let folder = tempfile::tempdir().unwrap();
    let spool = folder.path().join("spool");
    let words = ["--format", "otlp", &pack()];
    let (code, said) = push(&server.url(""), &words);
    assert!(
        code == 2 && said.contains("not the profile: no frame"),
        "{said}"
    );
    let received = server.take();
    assert_eq!(received[0].path, "/v1development/profiles");
    assert_eq!(received[0].header("content-type"), "application/x-protobuf");
    let spooled = ["--spool", spool.to_str().unwrap()];
    let (code, said) = push(&server.url(""), &[&spooled[..], &words].concat());
    assert!(code == 1 && said.contains(".otlp.refused"), "{said}");
    assert_eq!(
        names(&spool)
            .iter()
            .filter(|name| name.ends_with(".refused"))
            .count(),
        1
    );
    let server = Receiver::start(move |_| Reply::bytes(200, "application/x-protobuf", warns));
    let (code, said) = push(&server.url(""), &words);
    assert!(
        code == 0 && said.contains("warning") && said.contains("caveat"),
        "{said}"
    );
}

/// The names of the files in a spool.
fn names(spool: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(spool).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

#[test]
fn a_spool_keeps_what_is_not_delivered_and_takes_no_more_than_it_may() {
    let folder = tempfile::tempdir().unwrap();
    let spool = folder.path().join("new/spool");
    let words = ["--spool", spool.to_str().unwrap(), "--retry-for", "1s"];
    let away = Receiver::start(|_| Reply::answer(503, "", ""));
    let with = |more: &[&str]| [&words[..], more].concat();
    let (code, said) = push(
        &away.url(PUSH),
        &with(&["--spool-size", "1K", "--every", "100ms", &pack()]),
    );
    assert!(
        code == 2 && said.contains("is full") && said.contains("--spool-size"),
        "{said}"
    );
    assert_eq!(names(&spool), BTreeSet::from(["lock".to_owned()]));
    let (code, said) = push(&away.url(PUSH), &with(&["--every", "500ms", &pack()]));
    assert!(
        code == 1 && said.contains("wait in") && said.contains("uniprof push --spool"),
        "{said}"
    );
    let waiting = names(&spool);
    assert!(waiting.len() > 3, "{waiting:?}");
    // Once more: the same files.
    push(&away.url(PUSH), &with(&["--every", "500ms", &pack()]));
    assert_eq!(names(&spool), waiting);
    // Wrong credentials and another format lose nothing.
    let refuses = Receiver::start(|_| Reply::answer(401, "", ""));
    let (code, said) = push(&refuses.url(PUSH), &words);
    assert!(code == 2 && said.contains("--header-file"), "{said}");
    let accepts = Receiver::start(|_| accept());
    assert_eq!(push(&accepts.url("/v1/profiles"), &words).0, 0);
    assert_eq!(names(&spool), waiting);
    let (code, said) = push(&accepts.url(PUSH), &words);
    assert!(
        code == 0 && said.contains(&format!(": {}", waiting.len() - 1)),
        "{said}"
    );
    assert_eq!(names(&spool), BTreeSet::from(["lock".to_owned()]));
    assert_eq!(accepts.take().len(), waiting.len() - 1);

    let open = folder.path().join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let (code, said) = push(
        &accepts.url(PUSH),
        &["--spool", open.to_str().unwrap(), &pack()],
    );
    assert!(code == 2 && said.contains("of your own"), "{said}");
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

/// Numbers drawn from a seed.
struct Random(u32);

impl Random {
    fn below(&mut self, limit: u32) -> u32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.0 >> 8) % limit.max(1)
    }
}

#[test]
fn every_profile_in_the_spool_arrives_although_both_ends_are_killed_a_hundred_times() {
    let seed = std::process::id();
    println!("seed {seed}");
    let folder = tempfile::tempdir().unwrap();
    let spool = folder.path().join("spool");
    let words = [
        "--spool",
        spool.to_str().unwrap(),
        "--every",
        "150ms",
        "--retry-for",
        "60s",
    ];
    // Ids are noted before the answer, as a server does that is killed in between.
    let noted = Arc::new(Mutex::new(BTreeSet::new()));
    let is_failing = Arc::new(AtomicBool::new(true));
    let cuts = Arc::new(AtomicU32::new(0));
    let random = Mutex::new(Random(seed));
    let (notes, failing, counted) = (noted.clone(), is_failing.clone(), cuts.clone());
    let server = Receiver::start(move |received| {
        let drawn = random.lock().unwrap().below(4);
        if drawn == 0 && failing.load(Ordering::Relaxed) {
            counted.fetch_add(1, Ordering::Relaxed);
            return Reply::HangUp;
        }
        check(&received.body).unwrap();
        notes.lock().unwrap().insert(id_of(&received.body));
        if drawn == 1 && failing.load(Ordering::Relaxed) {
            counted.fetch_add(1, Ordering::Relaxed);
            return Reply::HangUp;
        }
        accept()
    });
    let url = server.url(PUSH);
    let mut random = Random(!seed);
    let (mut seen, mut kills) = (BTreeSet::new(), 0);
    let mut whole = Duration::from_millis(400);
    while kills < 50 || cuts.load(Ordering::Relaxed) < 50 {
        let mut command = uniprof();
        command
            .args(["push", "-q", "--no-search", "--to", &url])
            .args(words)
            .arg(pack());
        let mut running = command.stderr(std::process::Stdio::null()).spawn().unwrap();
        let began = Instant::now();
        let limit = Duration::from_micros(u64::from(random.below(whole.as_micros() as u32)));
        while running.try_wait().unwrap().is_none() && began.elapsed() < limit {
            thread::sleep(Duration::from_millis(2));
        }
        if running.try_wait().unwrap().is_none() {
            running.kill().unwrap();
            kills += 1;
            whole += whole / 20;
        } else {
            whole = began.elapsed();
        }
        running.wait().unwrap();
        let there = if spool.exists() {
            names(&spool)
        } else {
            BTreeSet::new()
        };
        for name in there.iter().filter(|name| name.ends_with(".pyroscope")) {
            let Ok(body) = fs::read(spool.join(name)) else {
                continue;
            };
            check(&body).unwrap();
            seen.insert(id_of(&body));
        }
    }
    is_failing.store(false, Ordering::Relaxed);
    let (code, said) = push(&url, &words[..2]);
    assert_eq!(code, 0, "{said}");
    assert!(
        names(&spool)
            .iter()
            .all(|name| !name.ends_with(".pyroscope"))
    );
    let noted = noted.lock().unwrap();
    assert!(
        seen.len() > 5 && seen.is_subset(&noted),
        "{} {}",
        seen.len(),
        noted.len()
    );
    println!(
        "{kills} kills of push, {} of the receiver, {} profiles",
        cuts.load(Ordering::Relaxed),
        seen.len()
    );
}
