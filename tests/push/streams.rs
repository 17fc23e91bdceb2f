//! `record --push` and `push -`: a recording that is pushed while it is made. What arrives is counted, sample by
//! sample, whatever becomes of the server, the recorder and the disk.

use crate::receiver::{Receiver, Reply, check};
use crate::{PUSH, accept, folded_sum, push};
use kit::{uniprof, wait_until};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A command that runs for some seconds, and a folder for its recording.
struct Recorded {
    folder: tempfile::TempDir,
}

impl Recorded {
    fn new() -> Recorded {
        Recorded {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn spool(&self) -> PathBuf {
        self.folder.path().join("spool")
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("run.uprof")
    }

    /// A loop that a report can name, where there is a compiler.
    fn named_loop(&self) -> Option<PathBuf> {
        let source = "#include <unistd.h>\nint burn_it(void){volatile int n=0;for(;;)n++;return n;}\n\
                      int main(){alarm(3);return burn_it();}\n";
        kit::build(&self.folder.path().join("named"), source, &["-O0"])
    }

    /// `uniprof record --push` of a loop that ends after `seconds`.
    fn command(&self, url: &str, words: &[&str], seconds: u32) -> Command {
        let mut command = uniprof();
        command
            .current_dir(self.folder.path())
            .args(["record", "--push", url, "--every", "1s", "-F", "499"])
            .args(["--label", "service=loop"])
            .args(words)
            .args(["--", "timeout", &seconds.to_string(), "sh", "-c"])
            .arg("while :; do :; done")
            .stdin(Stdio::null());
        command
    }

    /// The profiles that wait in the spool.
    fn waiting(&self) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(self.spool()) else {
            return Vec::new();
        };
        let paths = entries.map(|entry| entry.unwrap().path());
        paths
            .filter(|path| path.extension().is_some_and(|ending| ending == "pyroscope"))
            .collect()
    }
}

/// The sum of all samples that a server got, of which every profile is at a time of its own.
fn sum(server: &Receiver) -> i64 {
    let mut times: Vec<u64> = Vec::new();
    let mut sum = 0;
    for one in server.take() {
        assert_eq!(one.path, PUSH);
        let series = check(&one.body).unwrap();
        assert_eq!(series.labels["service_name"], "loop");
        times.push(series.time_ns);
        sum += series.sum;
    }
    times.sort_unstable();
    let gaps = times.windows(2).map(|pair| pair[1] - pair[0]);
    assert!(
        gaps.clone().all(|gap| gap > 0 && gap < 60_000_000_000),
        "{times:?}"
    );
    sum
}

/// The samples of a recording, or what the recorder says of them.
fn said_samples(said: &str) -> i64 {
    let (_, rest) = said.split_once("Recorded ").unwrap();
    rest.split(' ').next().unwrap().parse().unwrap()
}

#[test]
fn a_recording_is_pushed_while_it_is_made_and_every_sample_arrives() {
    for keeps in [false, true] {
        let recorded = Recorded::new();
        let server = Receiver::start(|_| accept());
        let words: &[&str] = if keeps { &["-o", "run.uprof"] } else { &[] };
        let output = recorded
            .command(&server.url(PUSH), words, 4)
            .output()
            .unwrap();
        let said = kit::text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{said}");
        let received = server.take();
        assert!(received.len() >= 3, "{}: {said}", received.len());
        let sums = received.iter().map(|one| check(&one.body).unwrap().sum);
        let arrived: i64 = sums.sum();
        assert_eq!(arrived, said_samples(&said), "{said}");
        assert_eq!(recorded.file().exists(), keeps);
        if keeps {
            let file = recorded.file().display().to_string();
            assert_eq!(folded_sum(&[&file]), arrived);
        }
        assert!(recorded.waiting().is_empty());
        assert!(
            said.contains(&format!(": {}", received.len())),
            "{} {said}",
            received.len()
        );
    }
}

#[test]
fn what_is_pushed_has_the_names_of_the_images_here() {
    let recorded = Recorded::new();
    let Some(program) = recorded.named_loop() else {
        println!("skipped: no C compiler");
        return;
    };
    let server = Receiver::start(|_| accept());
    let mut command = uniprof();
    let output = command
        .current_dir(recorded.folder.path())
        .args(["record", "--push", &server.url(PUSH), "--every", "1s", "--"])
        .arg(program)
        .output()
        .unwrap();
    let said = kit::text(&output.stderr);
    let received = server.take();
    assert!(received.len() >= 2, "{said}");
    for one in received {
        let strings = check(&one.body).unwrap().strings;
        assert!(strings.iter().any(|one| one == "burn_it"), "{strings:?}");
    }
}

#[test]
fn a_server_that_is_away_at_first_gets_everything_later() {
    // It may be away by itself, or a proxy says so.
    for status in [503, 404] {
        let recorded = Recorded::new();
        let is_there = Arc::new(AtomicBool::new(false));
        let there = is_there.clone();
        let server = Receiver::start(move |_| {
            if there.load(Ordering::Relaxed) {
                accept()
            } else {
                Reply::answer(status, "", "")
            }
        });
        let mut command = recorded.command(&server.url(PUSH), &["--retry-for", "60s"], 6);
        let running = command.stderr(Stdio::piped()).spawn().unwrap();
        wait_until("two profiles wait", Duration::from_secs(60), || {
            recorded.waiting().len() >= 2
        });
        server.take();
        is_there.store(true, Ordering::Relaxed);
        let output = running.wait_with_output().unwrap();
        let said = kit::text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{said}");
        assert!(said.contains("trying again"), "{said}");
        // One may have been refused between the two lines above.
        let mut arrived = 0;
        for one in server.take() {
            arrived += check(&one.body).unwrap().sum;
        }
        assert!(
            arrived >= said_samples(&said),
            "{arrived} of {}",
            said_samples(&said)
        );
        assert!(recorded.waiting().is_empty());
    }
}

#[test]
fn a_server_that_never_comes_costs_only_room_in_the_spool() {
    let recorded = Recorded::new();
    let away = Receiver::start(|_| Reply::answer(503, "", ""));
    let output = recorded
        .command(&away.url(PUSH), &["--retry-for", "1s"], 4)
        .output()
        .unwrap();
    let said = kit::text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let waiting = recorded.waiting().len();
    assert!(
        waiting >= 3 && said.contains(&format!("wait in spool: {waiting};")),
        "{waiting}: {said}"
    );
    let server = Receiver::start(|_| accept());
    let spool = recorded.spool().display().to_string();
    let (code, told) = push(&server.url(PUSH), &["--spool", &spool, "--all"]);
    assert_eq!(code, 0, "{told}");
    assert_eq!(sum(&server), said_samples(&said));
}

#[test]
fn a_killed_recorder_leaves_what_it_had_to_be_delivered() {
    let recorded = Recorded::new();
    let away = Receiver::start(|_| Reply::answer(503, "", ""));
    let messages = recorded.folder.path().join("messages");
    let mut command = recorded.command(&away.url(PUSH), &["--retry-for", "1s"], 20);
    let messages_to = fs::File::create(&messages).unwrap();
    let mut running = command.stderr(messages_to).spawn().unwrap();
    wait_until("two profiles wait", Duration::from_secs(60), || {
        recorded.waiting().len() >= 2
    });
    running.kill().unwrap();
    running.wait().unwrap();
    wait_until("what is left is kept", Duration::from_secs(60), || {
        let said = fs::read_to_string(&messages).unwrap();
        said.contains("was cut off") && said.contains("wait in spool")
    });
    let server = Receiver::start(|_| accept());
    let waiting = recorded.waiting().len();
    let spool = recorded.spool().display().to_string();
    let (code, told) = push(&server.url(PUSH), &["--spool", &spool, "--all"]);
    assert_eq!(code, 0, "{told}");
    assert!(sum(&server) > 100, "{told}");
    assert!(waiting >= 2, "{waiting}");
}

#[test]
fn a_full_spool_drops_the_oldest_profiles_of_this_recording_alone() {
    // What was refused stays there, too.
    for status in [503, 400] {
        let recorded = Recorded::new();
        let server = Receiver::start(move |_| Reply::answer(status, "", ""));
        fs::create_dir(recorded.spool()).unwrap();
        fs::set_permissions(
            recorded.spool(),
            std::os::unix::fs::PermissionsExt::from_mode(0o700),
        )
        .unwrap();
        let other = format!("{:020}-{:032x}.pyroscope", 1, 0);
        let other = recorded.spool().join(other);
        fs::write(&other, "of another recording").unwrap();
        let words = ["--retry-for", "1s", "--spool-size", "12K"];
        let output = recorded
            .command(&server.url(PUSH), &words, 8)
            .output()
            .unwrap();
        let said = kit::text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        for wanted in ["is full", "profiles dropped", "--spool-size"] {
            assert!(said.contains(wanted), "{wanted}: {said}");
        }
        assert!(!said.contains("did not take"), "{said}");
        assert_eq!(fs::read(&other).unwrap(), b"of another recording");
        let files = fs::read_dir(recorded.spool()).unwrap();
        let bytes = files.map(|file| file.unwrap().metadata().unwrap().len());
        let used: u64 = bytes.sum();
        assert!(used <= 12 << 10, "{used}");
    }
}

#[test]
fn a_stream_needs_a_spool_and_flags_need_each_other() {
    let recorded = Recorded::new();
    let server = Receiver::start(|_| accept());
    let url = server.url(PUSH);
    let ended = |command: &mut Command| {
        let output = command.stdin(Stdio::null()).output().unwrap();
        (output.status.code(), kit::text(&output.stderr))
    };
    let (code, said) = push(&url, &["-"]);
    assert!(code == 2 && said.contains("--spool"), "{said}");
    for (words, wanted) in [
        (&["--push", &url, "-o", "-"][..], "push --to URL"),
        (&["--push", "ftp://x"], "http://"),
        (&["--push", "http://a:b@c"], "--header-file"),
        (&["--push", &url, "--every", "1ms"], "at least 1s"),
        (&["--spool", "x"], "--push"),
        (&["--push", &url, "pid:1", "pid:2"], "each target"),
    ] {
        let mut command = uniprof();
        command.current_dir(recorded.folder.path()).arg("record");
        if !words.contains(&"pid:1") {
            command.args(["pid:1"]);
        }
        let (code, said) = ended(command.args(words));
        assert!(code == Some(2) && said.contains(wanted), "{words:?} {said}");
        assert!(!said.contains("a:b"), "{said}");
    }
    assert!(!Path::new(&recorded.file()).exists());
}

#[test]
fn a_recording_in_a_file_is_pushed_as_a_stream_with_every_sample() {
    let folder = tempfile::tempdir().unwrap();
    let spool = folder.path().join("spool");
    let server = Receiver::start(|_| accept());
    let mut command = uniprof();
    let output = command
        .args(["push", "--no-search", "--to", &server.url(PUSH)])
        .args(["--every", "1s", "--spool"])
        .arg(&spool)
        .arg("-")
        .stdin(fs::File::open(crate::pack()).unwrap())
        .output()
        .unwrap();
    let said = kit::text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let received = server.take();
    let sums = received.iter().map(|one| check(&one.body).unwrap().sum);
    assert_eq!(sums.sum::<i64>(), folded_sum(&[&crate::pack()]));
}
