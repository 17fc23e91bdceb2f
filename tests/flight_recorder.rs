//! `record --keep`: what its saves contain, and what is left when the disk is full or a mistake is made.
#![cfg(all(feature = "record", feature = "report"))]

mod busy;

use busy::Busy;
use kit::{text, uniprof};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A program that does little, then computes for 3 s, once, then does little, then nothing for 4 s, once; then it ends
/// itself by a signal. Each step is a function.
const PLANTED: &str = r#"
#include <signal.h>
#include <time.h>
#include <unistd.h>
volatile unsigned long sum;
static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}
__attribute__((noinline)) void compute(double seconds) {
    for (double end = now() + seconds; now() < end;)
        for (int i = 0; i < 20000; i++) sum += i;
}
__attribute__((noinline)) void stalls_once(void) { compute(3); sum++; }
__attribute__((noinline)) void does_little(double seconds) {
    for (double end = now() + seconds; now() < end;) {
        compute(0.0005);
        usleep(30000);
    }
}
int main(void) {
    does_little(4);
    stalls_once();
    does_little(4);
    sleep(4);
    does_little(1);
    raise(SIGSEGV);
}
"#;

fn build(folder: &Path) -> Option<PathBuf> {
    let flags = ["-O1", "-fno-omit-frame-pointer"];
    kit::build(&folder.join("planted"), PLANTED, &flags)
}

/// Starts a recorder that keeps a window, and waits until it does.
fn keep(file: &Path, flags: &[&str], target: &[&str]) -> Child {
    let mut record = uniprof();
    record
        .args(["record", "--keep", "30s", "-F", "499", "-o"])
        .arg(file);
    record.args(flags).args(target).stdout(Stdio::null());
    let log = std::fs::File::create(file.with_extension("log")).unwrap();
    let recorder = record.stderr(log).spawn().unwrap();
    let tables = kit::window_of(file).join("tables.uprof");
    kit::wait_until("a window", PATIENCE, || tables.exists());
    recorder
}

/// As long as a busy machine may need.
const PATIENCE: Duration = Duration::from_secs(60);

/// Samples of a recording with the function that stalls.
fn stalled(file: &Path) -> u64 {
    let folded = kit::run(uniprof().args(["export", "-f", "folded"]).arg(file));
    let stalled = folded
        .stdout
        .lines()
        .filter(|line| line.contains("stalls_once"));
    let count = |line: &str| line.rsplit_once(' ')?.1.parse::<u64>().ok();
    stalled.filter_map(count).sum()
}

fn info(file: &Path) -> String {
    let ended = kit::run(uniprof().arg("info").arg(file));
    // On a busy machine the kernel may have dropped samples.
    assert!(ended.status <= 1, "{}: {}", file.display(), ended.stderr);
    ended.stdout
}

fn signal(name: &str, pid: u32) {
    let sent = Command::new("kill").args([name, &pid.to_string()]).status();
    assert!(sent.unwrap().success());
}

/// How a save comes about: flags of its recorder, what is done about it, and how its reason begins.
enum By {
    Trigger(&'static str),
    Signal,
    Name,
}

/// The ways, by name.
const WAYS: [(&str, By); 6] = [
    ("busy", By::Trigger("busy>5% for 2s")),
    ("silent", By::Trigger("silent for 2s")),
    ("share", By::Trigger("share(stalls_once)>60% for 1s")),
    ("crash", By::Trigger("crash")),
    ("signal", By::Signal),
    ("name", By::Name),
];

/// By hand: `UNIPROF_STALLS=20`.
#[test]
fn a_stall_is_in_the_window_that_each_trigger_a_signal_or_a_command_saves() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = build(folder.path()) else {
        return;
    };
    let stalls = std::env::var("UNIPROF_STALLS").ok();
    let stalls: u32 = stalls.map_or(1, |stalls| stalls.parse().unwrap());
    let mut fewest = u64::MAX;
    for round in 0..stalls {
        // A name of its own, as other recorders may run.
        let unique = format!("{}-{round}", std::process::id());
        let file = |name: &str| folder.path().join(format!("{name}-{unique}.uprof"));
        record_in_all_ways(&program, &unique, file);
        fewest = WAYS.iter().fold(fewest, |fewest, (name, by)| {
            fewest.min(judge(name, by, &file(name)))
        });
    }
    println!("{stalls} of {stalls} in each way, with {fewest} samples of the stall or more");
}

/// Records the planted program until it ends, by a recorder for each way.
fn record_in_all_ways(program: &Path, unique: &str, file: impl Fn(&str) -> PathBuf) {
    // The recorder of the crash starts the program; the others record the same process.
    let words = ["--save-when", "crash"];
    let command = ["--", program.to_str().unwrap()];
    let mut starter = keep(&file("crash"), &words, &command);
    let children = format!("/proc/{0}/task/{0}/children", starter.id());
    let mut pid = String::new();
    kit::wait_until("the program", PATIENCE, || {
        let children = std::fs::read_to_string(&children).unwrap_or_default();
        let name = |pid: &&str| std::fs::read_to_string(format!("/proc/{pid}/comm"));
        let planted = |pid: &&str| name(pid).is_ok_and(|name| name == "planted\n");
        pid = children
            .split_whitespace()
            .find(planted)
            .unwrap_or_default()
            .to_owned();
        !pid.is_empty()
    });
    let target = format!("pid:{pid}");
    let mut recorders: HashMap<&str, Child> = HashMap::new();
    for (name, by) in WAYS.iter().filter(|(name, _)| *name != "crash") {
        let flags = match by {
            By::Trigger(condition) => vec!["--save-when", condition],
            By::Signal | By::Name => vec![],
        };
        recorders.insert(name, keep(&file(name), &flags, &[&target]));
    }
    // When the share has been saved, the stall is under way; it is over a few seconds later.
    kit::wait_until("the stall", PATIENCE, || saved(&file("share")).exists());
    std::thread::sleep(Duration::from_secs(3));
    signal("-USR1", recorders["signal"].id());
    let asked = kit::run(uniprof().args(["save", &format!("name-{unique}")]));
    assert_eq!(asked.status, 0, "{}", asked.stderr);
    let path = saved(&file("name"));
    assert!(
        asked.stderr.contains(path.to_str().unwrap()),
        "{}",
        asked.stderr
    );
    starter.wait().unwrap();
    for recorder in recorders.values_mut() {
        recorder.wait().unwrap();
    }
}

/// The first window that was saved of a recording.
fn saved(file: &Path) -> PathBuf {
    let stem = file.file_stem().unwrap().to_str().unwrap();
    file.with_file_name(format!("{stem}-1.uprof"))
}

/// The number of samples of the stall in a save, which tells its reason.
fn judge(name: &str, by: &By, file: &Path) -> u64 {
    let log = std::fs::read_to_string(file.with_extension("log")).unwrap();
    assert!(saved(file).exists(), "{name}: {log}");
    let told = info(&saved(file));
    let why = match by {
        By::Trigger(condition) => condition,
        By::Signal => "SIGUSR1",
        By::Name => "uniprof save, process ",
    };
    let reason = told.lines().find(|line| line.starts_with("saved "));
    assert!(
        reason.is_some_and(|line| line.contains(why)),
        "{name}: {told}"
    );
    let stalled = stalled(&saved(file));
    println!(
        "{name}: {stalled} samples of the stall; {}",
        reason.unwrap()
    );
    assert!(
        stalled >= 10,
        "{name}: {stalled} samples of the stall: {log}"
    );
    // The last window is the file, and nothing else is left.
    assert!(!kit::window_of(file).exists(), "{name}: {log}");
    assert!(info(file).contains("the last window"));
    stalled
}

#[test]
fn a_full_disk_fails_the_save_and_leaves_the_window() {
    let folder = tempfile::tempdir().unwrap();
    let script = r#"
        mkdir small && mount -t tmpfs -o size=600k tmpfs small && cd small || exit 77
        "$1" -q record --keep 4s -F 499 --frame-pointers -o full.uprof -- sh -c 'while :; do :; done' &
        trap 'kill $!' EXIT
        until [ -e full.uprof.keep/00000004.uprof ]; do sleep .05; done
        head -c 10M /dev/zero >fill 2>/dev/null
        "$1" save $! && exit 3
        [ -e full-1.uprof ] && exit 4
        "$1" recover full.uprof.keep -o /dev/null; [ $? -le 1 ] || exit 5 # 0 where the last segment had just ended
        sleep 1
        rm fill
        sleep 1
        "$1" save $! || exit 6
        "$1" info full-1.uprof
        kill $!
        wait $!; [ $? = 1 ] || exit 8
        trap - EXIT
        "$1" info full.uprof; [ $? = 1 ] || exit 7
    "#;
    let user = if nix::unistd::geteuid().is_root() {
        "-m"
    } else {
        "-rm"
    };
    let ended = Command::new("unshare")
        .args([user, "sh", "-c", script, "sh"])
        .arg(kit::program())
        .current_dir(folder.path())
        .output();
    let Ok(ended) = ended else {
        eprintln!("skipped: there is no unshare");
        return;
    };
    let said = text(&ended.stderr);
    if !ended.status.success() && (ended.status.code() == Some(77) || said.contains("unshare:")) {
        eprintln!("skipped: no file system can be mounted here: {said}");
        return;
    }
    assert_eq!(ended.status.code(), Some(0), "{said}");
    assert!(said.contains("the window is kept"), "{said}");
    assert!(said.contains("the window is written again"), "{said}");
    let shown = text(&ended.stdout);
    assert!(shown.contains("saved  "), "{shown}");
    assert!(shown.contains("the disk was full or failed"), "{shown}");
    assert!(said.contains("Lost: "), "{said}");
}

#[test]
fn two_recorders_of_one_file_and_other_mistakes_are_refused() {
    let busy = Busy(Command::new("sleep").arg("600").spawn().unwrap());
    let target = format!("pid:{}", busy.0.id());
    let folder = tempfile::tempdir().unwrap();
    let file = folder
        .path()
        .join(format!("one-{}.uprof", std::process::id()));
    let mut first = keep(&file, &[], &[&target]);
    let second = |flags: &[&str]| {
        let mut record = uniprof();
        record
            .arg("record")
            .args(flags)
            .arg("-o")
            .arg(&file)
            .arg(&target);
        let ended = kit::run(&mut record);
        assert_eq!(ended.status, 2, "{flags:?}: {}", ended.stderr);
        ended.stderr
    };
    let said = second(&["--keep", "60s"]);
    assert!(
        said.contains(&format!("process id {}", first.id())),
        "{said}"
    );
    let said = second(&["--keep", "60s", "--save-when", "tired"]);
    assert!(said.contains("busy>95% for 3s"), "{said}");
    let said = second(&["--save-when", "crash"]);
    assert!(said.contains("--keep"), "{said}");
    let said = second(&["--keep", "10ms"]);
    assert!(said.contains("1s to 24h"), "{said}");
    let nobody = kit::run(uniprof().args(["save", "nobody-has-this-name"]));
    assert_eq!(nobody.status, 2);
    assert!(
        nobody.stderr.contains(&first.id().to_string()),
        "{}",
        nobody.stderr
    );
    // The first one does not mind. Its target was idle, so there is nothing to keep at the end.
    let name = file.file_name().unwrap().to_str().unwrap();
    assert_eq!(kit::run(uniprof().args(["save", name])).status, 0);
    signal("-INT", first.id());
    first.wait().unwrap();
    assert!(!kit::window_of(&file).exists());
}

#[test]
fn a_last_window_without_a_sample_leaves_the_recording_before_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("idle.uprof");
    let program = "for ((end = SECONDS + 2; SECONDS < end; )); do :; done; sleep 100";
    let record = |flags: &[&str]| {
        let mut record = uniprof();
        record.args(["record", "-F", "499", "-o"]).arg(&file);
        kit::run(record.args(flags).args(["--", "bash", "-c", program]))
    };
    let before = record(&["-d", "1s"]);
    assert!(before.stderr.contains("Next: "), "{}", before.stderr);
    let bytes = std::fs::read(&file).unwrap();
    let said = record(&["--keep", "1s", "-d", "6s"]).stderr;
    assert!(said.contains("idle.uprof as it was"), "{said}");
    assert!(
        !said.contains("mbedded") && !said.contains("Next: "),
        "{said}"
    );
    assert!(std::fs::read(&file).unwrap() == bytes, "{said}");
}
