//! A flight recorder that is killed leaves its window, which can be read and lacks at most its last second.
//!
//! This test has a file of its own, so that no other live test competes for the processors.
#![cfg(all(feature = "record", feature = "report"))]

mod busy;

use busy::Busy;
use kit::uniprof;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use uniprof_record::monotonic_ns;
use uprof::{BlockType, Item, SliceReader};

/// As long as a busy machine may need.
const PATIENCE: Duration = Duration::from_secs(60);

/// The latest time in the sound blocks of a recording.
fn last_ns(path: &Path) -> u64 {
    let bytes = std::fs::read(path).unwrap();
    let recording = SliceReader::open(&bytes).unwrap();
    let blocks = recording.blocks().filter_map(|item| match item {
        Item::Block(block) => Some(block),
        Item::Damage(_) => None,
    });
    let recorded = blocks.filter(|block| block.known_type() != Some(BlockType::End));
    recorded.map(|block| block.last_ns).max().unwrap_or(0)
}

/// A window of a second has two or three files of half a second, so that many kills hit their change. By hand:
/// `UNIPROF_KILLS=100`.
#[test]
fn a_recorder_that_is_killed_leaves_its_window_but_for_the_last_second() {
    let kills = std::env::var("UNIPROF_KILLS").ok();
    let kills: u32 = kills.map_or(6, |kills| kills.parse().unwrap());
    let busy = Busy::shell();
    let target = format!("pid:{}", busy.0.id());
    let folder = tempfile::tempdir().unwrap();
    let mut random = std::process::id();
    println!("seed {random}");
    let mut most_missing_ns = 0;
    for round in 0..kills {
        // The same file each time: the window of the recorder before is moved away.
        let file = folder.path().join("run.uprof");
        let mut record = uniprof();
        record
            .args(["record", "--keep", "1s", "-F", "997", "-o"])
            .arg(&file);
        let mut recorder = record.arg(&target).stderr(Stdio::null()).spawn().unwrap();
        let samples = || {
            let listed = std::fs::read_dir(kit::window_of(&file))
                .into_iter()
                .flatten()
                .flatten();
            listed
                .map(|entry| entry.metadata().map_or(0, |found| found.len()))
                .sum::<u64>()
        };
        let pid = recorder.id().to_string();
        let is_ours = || {
            std::fs::read_to_string(kit::window_of(&file).join("lock")).is_ok_and(|it| it == pid)
        };
        kit::wait_until("samples", PATIENCE, || is_ours() && samples() > 10_000);
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        std::thread::sleep(Duration::from_millis(u64::from(random >> 16) % 2500));
        let killed_ns = monotonic_ns();
        recorder.kill().unwrap();
        recorder.wait().unwrap();
        for entry in std::fs::read_dir(kit::window_of(&file)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|it| it == "uprof") {
                let opened = kit::run(uniprof().arg("info").arg(&path));
                assert_ne!(opened.status, 2, "{}: {}", path.display(), opened.stderr);
            }
        }
        let sound = folder.path().join("sound.uprof");
        let recovered = kit::run(
            uniprof()
                .arg("recover")
                .arg(kit::window_of(&file))
                .arg("-o")
                .arg(&sound),
        );
        assert_eq!(
            recovered.status, 1,
            "the end is missing: {}",
            recovered.stderr
        );
        let is_told = ["damage at 1 place,", "without an end record"];
        assert!(
            is_told.iter().any(|told| recovered.stderr.contains(told)),
            "{}",
            recovered.stderr
        );
        // What was recovered lacks its end still.
        let info = kit::run(uniprof().arg("info").arg(&sound));
        assert_eq!(info.status, 1, "{}", info.stderr);
        assert!(info.stdout.contains("bash"), "{}", info.stdout);
        let missing_ns = killed_ns.saturating_sub(last_ns(&sound));
        most_missing_ns = most_missing_ns.max(missing_ns);
        assert!(
            missing_ns < 1_000_000_000,
            "round {round}: {missing_ns} ns are missing"
        );
    }
    println!(
        "{kills} kills: at most {} ms were missing",
        most_missing_ns / 1_000_000
    );
}
