//! Faults around the built program: readers that leave or come early, a recorder that is stopped, two
//! recorders at once. docs/reliability.md names these tests.
#![cfg(all(feature = "record", feature = "report"))]

use kit::{text, uniprof};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use uprof::cold::EndReason;
use uprof::{BlockType, DamageKind, Item, Payload, SliceReader, StreamReader};

/// A process that computes until it is killed.
struct Busy(Child);

impl Busy {
    fn new() -> Self {
        let script = ["-c", "while :; do :; done"];
        let child = Command::new("bash").args(script).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(100));
        Busy(child)
    }

    fn target(&self) -> String {
        format!("pid:{}", self.0.id())
    }

    /// Its processor time so far, in ticks: fields 14 and 15 of `/proc/PID/stat` (proc(5)).
    fn ticks(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id())).unwrap();
        let fields = stat.rsplit_once(')').unwrap().1.split_ascii_whitespace();
        let times = fields.skip(11).take(2);
        times.map(|time| time.parse::<u64>().unwrap()).sum()
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn record(busy: &Busy, output: &Path, time: &str) -> Command {
    let mut command = uniprof();
    command.args(["record", "-F", "499", "-d", time, "-o"]);
    command.arg(output).arg(busy.target());
    command
}

/// The content of a recording.
#[derive(Debug, Default)]
struct Contents {
    times_ns: Vec<u64>,
    damages: Vec<DamageKind>,
    end: Option<EndReason>,
}

fn read(bytes: &[u8]) -> Contents {
    let mut found = Contents::default();
    for item in SliceReader::open(bytes).unwrap().blocks() {
        let block = match item {
            Item::Block(block) => block,
            Item::Damage(damage) => {
                found.damages.push(damage.kind);
                continue;
            }
        };
        match block.payload().unwrap() {
            Payload::Samples(samples) => {
                let mut rows = samples.rows();
                while let Some(row) = rows.next_row().unwrap() {
                    found.times_ns.push(row.time_ns);
                }
            }
            Payload::End(end) => found.end = Some(end.reason),
            _ => {}
        }
    }
    found
}

/// As long as a busy machine may need.
const PATIENCE: Duration = Duration::from_secs(30);

#[test]
fn a_pipe_whose_reader_goes_away_ends_the_recording() {
    let busy = Busy::new();
    let mut command = record(&busy, Path::new("-"), "60s");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut recorder = command.spawn().unwrap();
    // Wait for a sample, because nothing was recorded before.
    let reader = StreamReader::open(recorder.stdout.take().unwrap()).unwrap();
    let has_samples = |item: std::io::Result<Item>| match item.unwrap() {
        Item::Block(block) => block.known_type() == Some(BlockType::Samples),
        _ => false,
    };
    assert!(reader.into_iter().any(has_samples));
    let began = Instant::now();
    let output = recorder.wait_with_output().unwrap();
    assert!(began.elapsed() < Duration::from_secs(20), "it goes on");
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains("Broken pipe"), "{said}");
}

/// ssh and some shells leave pipes in non-blocking mode, in which a write to a full pipe fails with "try
/// again".
#[test]
fn a_slow_reader_of_a_pipe_in_non_blocking_mode_gets_all() {
    let busy = Busy::new();
    let (mut near, mut far) = UnixStream::pair().unwrap();
    near.set_nonblocking(true).unwrap();
    // The pipe is filled before the first byte of the recording.
    let mut filled = 0;
    while let Ok(count) = near.write(&[0; 4096]) {
        filled += count;
    }
    let mut command = record(&busy, Path::new("-"), "3s");
    command.stdout(Stdio::from(OwnedFd::from(near)));
    let mut recorder = command.stderr(Stdio::piped()).spawn().unwrap();
    // The command holds this side's end of the socket.
    drop(command);
    std::thread::sleep(Duration::from_millis(500));
    let mut bytes = Vec::new();
    far.read_to_end(&mut bytes).unwrap();
    bytes.drain(..filled);
    let status = recorder.wait().unwrap().code();
    assert!(matches!(status, Some(0 | 1)), "{status:?}");
    let found = read(&bytes);
    assert!(found.damages.is_empty(), "{:?}", found.damages);
    assert_eq!(found.end, Some(EndReason::Duration));
    assert!(found.times_ns.len() > 50);
}

#[test]
fn a_recording_under_way_can_be_reported() {
    let busy = Busy::new();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.uprof");
    let mut command = record(&busy, &file, "5m");
    let mut recorder = command.stderr(Stdio::null()).spawn().unwrap();
    kit::wait_until("samples are written", PATIENCE, || {
        std::fs::metadata(&file).is_ok_and(|found| found.len() > 1500)
    });
    let mut most = 0;
    for round in 0..3 {
        for words in [&["info"][..], &["report", "--top"]] {
            let output = uniprof().args(words).arg(&file).output().unwrap();
            let said = text(&output.stdout) + &text(&output.stderr);
            // Status 1, because the recording is unfinished and reported as such.
            assert_eq!(output.status.code(), Some(1), "round {round}: {said}");
            assert!(!said.contains("panicked"), "{said}");
        }
        let bytes = std::fs::read(&file).unwrap();
        let found = read(&bytes);
        let unfinished = |kind: &DamageKind| *kind == DamageKind::Unfinished;
        assert!(found.damages.iter().all(unfinished), "{:?}", found.damages);
        assert!(found.times_ns.len() >= most);
        most = found.times_ns.len();
        std::thread::sleep(Duration::from_millis(300));
    }
    signal("INT", recorder.id());
    let status = recorder.wait().unwrap().code();
    assert!(matches!(status, Some(0 | 1)), "{status:?}");
    let found = read(&std::fs::read(&file).unwrap());
    assert!(found.damages.is_empty() && found.times_ns.len() > most);
}

fn signal(name: &str, pid: u32) {
    let sent = Command::new("kill")
        .args(["-s", name, &pid.to_string()])
        .status();
    assert!(sent.unwrap().success());
}

/// The recorder is stopped for two of five seconds. The samples before and after are kept, and the end record
/// is regular.
#[test]
fn a_recorder_that_is_stopped_for_seconds_goes_on() {
    let busy = Busy::new();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.uprof");
    let mut command = record(&busy, &file, "5s");
    let mut recorder = command.stderr(Stdio::null()).spawn().unwrap();
    kit::wait_until("samples are written", PATIENCE, || {
        std::fs::metadata(&file).is_ok_and(|found| found.len() > 1500)
    });
    signal("STOP", recorder.id());
    let ticks = busy.ticks();
    std::thread::sleep(Duration::from_secs(2));
    assert!(
        busy.ticks() > ticks + 20,
        "the target stood still with its recorder"
    );
    signal("CONT", recorder.id());
    let status = recorder.wait().unwrap().code();
    assert!(matches!(status, Some(0 | 1)), "{status:?}");
    let found = read(&std::fs::read(&file).unwrap());
    assert!(found.damages.is_empty(), "{:?}", found.damages);
    assert_eq!(found.end, Some(EndReason::Duration));
    let (first, last) = (found.times_ns[0], found.times_ns[found.times_ns.len() - 1]);
    assert!(last - first > 3_500_000_000, "{} ns", last - first);
}

fn refusal(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    text(&output.stderr)
}

#[test]
fn two_recorders_share_a_process_by_perf_events_but_not_by_ptrace() {
    let busy = Busy::new();
    let folder = tempfile::tempdir().unwrap();
    let files = ["a", "b"].map(|name| folder.path().join(name));
    let recorders = files.each_ref().map(|file| {
        let mut command = record(&busy, file, "2s");
        command.stderr(Stdio::null()).spawn().unwrap()
    });
    for (mut recorder, file) in recorders.into_iter().zip(&files) {
        let status = recorder.wait().unwrap().code();
        assert!(matches!(status, Some(0 | 1)), "{status:?}");
        assert!(read(&std::fs::read(file).unwrap()).times_ns.len() > 20);
        let percent = kit::sampled_percent(file);
        assert!((70..=140).contains(&percent), "{percent} % of the time");
    }
    let mut first = record(&busy, &files[0], "4s");
    let mut first = first.arg("--ptrace").stderr(Stdio::null()).spawn().unwrap();
    kit::wait_until("the first has attached", PATIENCE, || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", busy.0.id())).unwrap();
        status
            .lines()
            .any(|line| line.starts_with("TracerPid:") && !line.ends_with("\t0"))
    });
    let second = record(&busy, &files[1], "1s")
        .arg("--ptrace")
        .output()
        .unwrap();
    let said = refusal(&second);
    assert!(said.contains(&busy.0.id().to_string()), "{said}");
    let status = first.wait().unwrap().code();
    assert!(matches!(status, Some(0 | 1)), "{status:?}");
    let ticks = busy.ticks();
    kit::wait_until("the target runs on", PATIENCE, || busy.ticks() > ticks);
}

/// The program with a limit on its address space, so that the rest of the machine isn't affected.
fn bounded(kib: u64) -> Command {
    let mut command = Command::new("bash");
    command.args(["-c", "ulimit -v $0; exec \"$@\"", &kib.to_string()]);
    command.arg(kit::program());
    command
}

#[test]
fn a_recorder_with_little_memory_records_or_says_why_not() {
    let starts = |kib: &u64| {
        let output = bounded(*kib).arg("--version").output().unwrap();
        output.status.success()
    };
    // With a lower limit, the program can't even be loaded.
    let least = (1..128).map(|number| number << 12).find(starts).unwrap();
    let busy = Busy::new();
    let folder = tempfile::tempdir().unwrap();
    for (kib, may_fail) in [(512 << 10, false), (least + (4 << 10), true)] {
        let file = folder.path().join(format!("{kib}"));
        let mut command = bounded(kib);
        command.args(["record", "--no-embed", "--stack=64K", "-d", "1s", "-o"]);
        let output = command.arg(&file).arg(busy.target()).output().unwrap();
        let said = text(&output.stderr);
        match output.status.code() {
            Some(0 | 1) => assert!(!read(&std::fs::read(&file).unwrap()).times_ns.is_empty()),
            _ => assert!(may_fail && said.contains("memory"), "{kib} KiB: {said}"),
        }
    }
    let ticks = busy.ticks();
    kit::wait_until("the target runs on", PATIENCE, || busy.ticks() > ticks);
}
