//! Profiles that wait on disk: what is kept, what is refused, and what arrives although both ends are killed.

use crate::receiver::{Receiver, Reply, check, id_of};
use crate::{PUSH, accept, pack, push};
use kit::uniprof;
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
    let (code, said) = push(
        &away.url(PUSH),
        &with(&words, &["--spool-size", "1K", "--every", "100ms", &pack()]),
    );
    assert!(
        code == 2 && said.contains("is full") && said.contains("--spool-size"),
        "{said}"
    );
    assert_eq!(names(&spool), BTreeSet::from(["lock".to_owned()]));
    let (code, said) = push(
        &away.url(PUSH),
        &with(&words, &["--every", "500ms", &pack()]),
    );
    assert!(
        code == 1 && said.contains("wait in") && said.contains("uniprof push --spool"),
        "{said}"
    );
    let waiting = names(&spool);
    assert!(waiting.len() > 3, "{waiting:?}");
    // Once more: the same files.
    push(
        &away.url(PUSH),
        &with(&words, &["--every", "500ms", &pack()]),
    );
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
    // The folder, and the lock.
    assert_eq!(names(&spool).len(), 2);
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
