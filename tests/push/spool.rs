//! Profiles that wait on disk: what is kept, what is refused, and what arrives although both ends are killed.

use crate::receiver::{Receiver, Reply, check, id_of};
use crate::{PUSH, accept, pack, push};
use kit::{uniprof, wait_until};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

fn with<'a>(words: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
    [words, more].concat()
}

/// The names of the files in a spool, but those of locks.
fn names(spool: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(spool).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !name.ends_with("lock"))
        .collect()
}

#[test]
fn a_spool_keeps_what_is_not_delivered_and_takes_no_more_than_it_may() {
    let folder = tempfile::tempdir().unwrap();
    let spool = folder.path().join("new/spool");
    let words = ["--spool", spool.to_str().unwrap(), "--retry-for", "1s"];
    let away = Receiver::start(|_| Reply::answer(503, "", ""));
    let (code, said) = push(
        &away.url(PUSH),
        &with(&words, &["--spool-size", "1K", "--every", "100ms", &pack()]),
    );
    assert!(
        code == 2 && said.contains("is full") && said.contains("--spool-size"),
        "{said}"
    );
    assert!(names(&spool).is_empty());
    let (code, said) = push(
        &away.url(PUSH),
        &with(&words, &["--every", "500ms", &pack()]),
    );
    assert!(
        code == 1 && said.contains("wait in") && said.contains("uniprof push --spool"),
        "{said}"
    );
    let waiting = names(&spool);
    assert!(waiting.len() > 2, "{waiting:?}");
    // Once more: the same files.
    push(
        &away.url(PUSH),
        &with(&words, &["--every", "500ms", &pack()]),
    );
    assert_eq!(names(&spool), waiting);
    // Wrong credentials and another format lose nothing.
    let refuses = Receiver::start(|_| Reply::answer(401, "", ""));
    let (code, said) = push(&refuses.url(PUSH), &with(&words, &["--all"]));
    assert!(code == 2 && said.contains("--header-file"), "{said}");
    let accepts = Receiver::start(|_| accept());
    let all = with(&words, &["--all"]);
    assert_eq!(push(&accepts.url("/v1/profiles"), &all).0, 0);
    assert_eq!(names(&spool), waiting);
    let (code, said) = push(&accepts.url(PUSH), &all);
    assert!(
        code == 0 && said.contains(&format!(": {}", waiting.len())),
        "{said}"
    );
    assert!(names(&spool).is_empty());
    assert_eq!(accepts.take().len(), waiting.len());

    let open = folder.path().join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let (code, said) = push(
        &accepts.url(PUSH),
        &["--spool", open.to_str().unwrap(), &pack()],
    );
    assert!(code == 2 && said.contains("of your own"), "{said}");
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&spool, &link).unwrap();
    let (code, said) = push(
        &accepts.url(PUSH),
        &["--spool", link.to_str().unwrap(), &pack()],
    );
    assert!(code == 2 && said.contains("no link"), "{said}");
    assert!(names(&spool).is_empty());
}

#[test]
fn what_cannot_be_removed_is_delivered_once_and_holds_up_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let spool = folder.path().join("spool");
    let (there, is_blocked) = (spool.clone(), AtomicBool::new(false));
    let server = Receiver::start(move |_| {
        if !is_blocked.swap(true, Ordering::Relaxed) {
            // Not even root can remove a folder as a file. The first name is sent first.
            let first = there.join(names(&there).first().unwrap());
            fs::remove_file(&first).unwrap();
            fs::create_dir(&first).unwrap();
        }
        accept()
    });
    let words = ["--spool", spool.to_str().unwrap(), "--every", "500ms"];
    let (code, said) = push(&server.url(PUSH), &with(&words, &[&pack()]));
    assert!(code == 2 && said.contains("can't be removed"), "{said}");
    let received = server.take();
    let ids: BTreeSet<String> = received.iter().map(|one| id_of(&one.body)).collect();
    assert!(received.len() > 2 && ids.len() == received.len());
    // The folder.
    assert_eq!(names(&spool).len(), 1);
}

#[test]
fn what_waits_for_one_server_or_tenant_is_not_sent_to_another_and_holds_up_none() {
    let folder = tempfile::tempdir().unwrap();
    let spool = folder.path().join("spool");
    let headers = folder.path().join("headers");
    fs::write(&headers, "X-Scope-OrgID: a\n").unwrap();
    let words = ["--spool", spool.to_str().unwrap(), "--every", "500ms"];
    let server = Receiver::start(|received| match received.header("x-scope-orgid") {
        "a" => Reply::answer(503, "", ""),
        _ => accept(),
    });
    let mut command = uniprof();
    command
        .args(["push", "-q", "--no-search", "--to", &server.url(PUSH)])
        .arg("--header-file")
        .arg(&headers)
        .args(words)
        .arg(pack());
    let mut waits = command.stderr(std::process::Stdio::null()).spawn().unwrap();
    wait_until("all wait", Duration::from_secs(60), || {
        !server.take().is_empty()
    });
    let waiting = names(&spool);
    assert!(waiting.len() > 2, "{waiting:?}");
    // The same recording, for another tenant and for another server.
    let other = Receiver::start(|_| accept());
    for server in [&server, &other] {
        let (code, said) = push(&server.url(PUSH), &with(&words, &[&pack()]));
        assert_eq!(code, 0, "{said}");
        let received = server.take();
        let mut received = received.iter().map(|one| one.header("x-scope-orgid"));
        assert!(received.any(str::is_empty));
        assert_eq!(names(&spool), waiting);
    }
    waits.kill().unwrap();
    waits.wait().unwrap();
    // Without recordings, what is for another server waits on, unless it is asked for.
    let refused = format!("{:020}-{:032x}.0123456789abcdef.pyroscope.refused", 1, 2);
    fs::write(spool.join(&refused), "of another server").unwrap();
    let (code, said) = push(&other.url(PUSH), &words);
    let others = format!("for other servers: {}; --all", waiting.len());
    assert!(code == 0 && said.contains(&others), "{said}");
    assert!(other.take().is_empty());
    fs::remove_file(spool.join(&refused)).unwrap();
    let (code, said) = push(&other.url(PUSH), &with(&words, &["--all"]));
    assert_eq!(code, 0, "{said}");
    assert_eq!(other.take().len(), waiting.len());
    assert!(names(&spool).is_empty());
}

#[test]
fn a_profile_that_a_server_never_takes_holds_up_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let spool = folder.path().join("spool");
    let first = Mutex::new(None);
    let server = Receiver::start(move |received| {
        let id = id_of(&received.body);
        let mut first = first.lock().unwrap();
        if *first.get_or_insert_with(|| id.clone()) == id {
            Reply::answer(500, "text/plain", "oh")
        } else {
            accept()
        }
    });
    let words = ["--spool", spool.to_str().unwrap(), "--retry-for", "5s"];
    let (code, said) = push(
        &server.url(PUSH),
        &with(&words, &["--every", "500ms", &pack()]),
    );
    assert!(code == 1 && said.contains("500: oh"), "{said}");
    assert_eq!(said.matches("trying again").count(), 1, "{said}");
    let ids: BTreeSet<String> = server.take().iter().map(|one| id_of(&one.body)).collect();
    assert!(ids.len() > 2, "{ids:?}");
    let delivered = format!("delivered to {}: {}", server.url(PUSH), ids.len() - 1);
    assert!(said.contains(&delivered), "{said}");
    assert_eq!(names(&spool).len(), 1, "{said}");
}

#[test]
fn a_profile_that_a_server_wants_after_the_time_is_up_holds_up_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let spool = folder.path().join("spool");
    let first = Arc::new(Mutex::new(None));
    let kept = first.clone();
    let server = Receiver::start(move |received| {
        let id = id_of(&received.body);
        let mut first = kept.lock().unwrap();
        if *first.get_or_insert_with(|| id.clone()) == id {
            Reply::Answer {
                status: 503,
                headers: "Retry-After: 3600\r\n".to_owned(),
                body: Vec::new(),
            }
        } else {
            accept()
        }
    });
    let words = ["--spool", spool.to_str().unwrap(), "--retry-for", "60s"];
    let (code, said) = push(
        &server.url(PUSH),
        &with(&words, &["--every", "500ms", &pack()]),
    );
    assert_eq!(code, 1, "{said}");
    let ids: Vec<String> = server.take().iter().map(|one| id_of(&one.body)).collect();
    let different: BTreeSet<&String> = ids.iter().collect();
    assert!(
        ids.len() > 2 && different.len() == ids.len(),
        "each is sent once: {ids:?}"
    );
    assert_eq!(names(&spool).len(), 1, "{said}");
}

#[test]
fn nothing_is_touched_that_no_spool_has_named() {
    let folder = tempfile::tempdir().unwrap();
    let spool = folder.path().join("spool");
    fs::create_dir(&spool).unwrap();
    fs::set_permissions(&spool, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let of_others = ["run.uprof.77.part", "2026-11-25.pyroscope"];
    let left_behind = format!("{:020}-{:032x}.pyroscope.77.part", 1, 2);
    for name in of_others.iter().chain([&left_behind.as_str()]) {
        fs::write(spool.join(name), "of others").unwrap();
    }
    let server = Receiver::start(|_| accept());
    let words = ["--spool", spool.to_str().unwrap()];
    let (code, said) = push(&server.url(PUSH), &with(&words, &[&pack()]));
    assert_eq!(code, 0, "{said}");
    let (code, said) = push(&server.url(PUSH), &words);
    assert_eq!(code, 0, "{said}");
    assert_eq!(server.take().len(), 1);
    let left = BTreeSet::from(of_others.map(str::to_owned));
    assert_eq!(names(&spool), left);
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
    let (code, said) = push(&server.url(""), &with(&spooled, &words));
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
