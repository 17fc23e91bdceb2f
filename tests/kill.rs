//! A recorder that is killed leaves a file that can be opened and lacks at most its last second.
//!
//! This test has a file of its own, so that no other live test competes for the processors.

mod busy;

use busy::Busy;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};
use uprof::{Item, SliceReader};

/// The latest time in the sound blocks of a recording.
fn last_ns(path: &Path) -> u64 {
    let bytes = std::fs::read(path).unwrap();
    let recording = SliceReader::open(&bytes).unwrap();
    let blocks = recording.blocks().filter_map(|item| match item {
        Item::Block(block) => Some(block.last_ns),
        Item::Damage(_) => None,
    });
    blocks.max().unwrap_or(0)
}

#[test]
fn kill_9_fifty_times() {
    let busy = Busy::shell();
    let target = format!("pid:{}", busy.0.id());
    let folder = tempfile::tempdir().unwrap();
    let mut random = std::process::id();
    println!("seed {random}");
    let mut most_missing_ns = 0;
    for round in 0..50 {
        let file = folder.path().join(format!("{round}.uprof"));
        let mut record = kit::uniprof();
        record
            .args(["record", "-F", "997", "-o"])
            .arg(&file)
            .arg(&target);
        let mut recorder = record.stderr(Stdio::null()).spawn().unwrap();
        let began = Instant::now();
        while std::fs::metadata(&file).map_or(0, |known| known.len()) == 0 {
            assert!(
                began.elapsed() < Duration::from_secs(20),
                "nothing was written"
            );
            std::thread::sleep(Duration::from_millis(1));
        }
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        std::thread::sleep(Duration::from_millis(u64::from(random >> 16) % 1500));
        let killed_ns = monotonic_ns();
        recorder.kill().unwrap();
        recorder.wait().unwrap();
        let missing_ns = killed_ns.saturating_sub(last_ns(&file));
        most_missing_ns = most_missing_ns.max(missing_ns);
        assert!(
            missing_ns < 1_000_000_000,
            "round {round}: {missing_ns} ns are missing"
        );
        let info = kit::uniprof().arg("info").arg(&file).output().unwrap();
        assert_eq!(
            info.status.code(),
            Some(1),
            "the report says that the end is missing"
        );
    }
    println!("at most {} ms were missing", most_missing_ns / 1_000_000);
}

fn monotonic_ns() -> u64 {
    uniprof_record::monotonic_ns()
}
