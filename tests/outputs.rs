//! Output files and recorded commands when a recording ends, or can't be written.

mod busy;

use busy::Busy;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use uprof::{Item, SliceReader};

fn record(file: &Path, words: &[&str]) -> (i32, String) {
    let mut command = kit::uniprof();
    let output = command
        .args(["record", "-o"])
        .arg(file)
        .args(words)
        .output();
    status_and_text(&output.unwrap())
}

fn status_and_text(output: &Output) -> (i32, String) {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code().unwrap(), said)
}

/// Number of samples of a recording that may lack its end, but nothing else.
fn sound_samples(file: &Path) -> u64 {
    let bytes = std::fs::read(file).unwrap();
    let mut samples = 0;
    for item in SliceReader::open(&bytes).unwrap().blocks() {
        if let Item::Block(block) = item {
            samples += u64::from(block.samples);
        }
    }
    let info = kit::uniprof().arg("info").arg(file).output();
    let info = String::from_utf8(info.unwrap().stdout).unwrap();
    assert!(info.contains("damage          none"), "{info}");
    samples
}

fn busy() -> (Busy, String) {
    let child = Command::new("bash")
        .args(["-c", "while :; do :; done"])
        .spawn();
    let busy = Busy(child.unwrap());
    let target = format!("pid:{}", busy.0.id());
    (busy, target)
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

#[test]
fn empty_recordings_replace_none() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.uprof");
    let (_busy, target) = busy();
    for _ in 0..2 {
        let (status, said) = record(&file, &["-F", "499", "-d", "1s", "--no-embed", &target]);
        assert_eq!(status, 0, "{said}");
    }
    let contents = || {
        ["run.uprof", "run.uprof.old"].map(|name| std::fs::read(folder.path().join(name)).unwrap())
    };
    let before = contents();
    for _ in 0..2 {
        let sleep = Command::new("sleep").arg("100").spawn().unwrap();
        let sleep = Busy(sleep);
        let (status, said) = record(
            &file,
            &["-F", "1", "-d", "100ms", &format!("pid:{}", sleep.0.id())],
        );
        assert_eq!(status, 1, "{said}");
        assert!(said.contains("as it was"), "{said}");
        assert!(contents() == before, "a recording is gone: {said}");
    }
    assert_eq!(names(folder.path()), ["run.uprof", "run.uprof.old"]);
    // A recording with samples replaces the file again, and leaves no other file behind.
    record(&file, &["-F", "499", "-d", "1s", "--no-embed", &target]);
    assert!(contents()[1] == before[0]);
    assert_eq!(names(folder.path()), ["run.uprof", "run.uprof.old"]);
}

/// As if another recorder had taken the path, and had ended by now.
#[test]
fn nothing_is_embedded_into_another_file_at_the_path() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.uprof");
    let (_busy, target) = busy();
    let mut command = kit::uniprof();
    command.args(["record", "-F", "499", "-d", "2s", "-o"]);
    command.arg(&file).arg(&target).stderr(Stdio::piped());
    let recorder = command.spawn().unwrap();
    kit::wait_until("the file", Duration::from_secs(10), || file.exists());
    std::fs::rename(&file, folder.path().join("moved.uprof")).unwrap();
    std::fs::write(&file, "another").unwrap();
    let (status, said) = status_and_text(&recorder.wait_with_output().unwrap());
    assert_eq!(status, 1, "{said}");
    assert!(said.contains("by now another file is at"), "{said}");
    assert!(!said.contains("Next:"), "{said}");
    assert_eq!(std::fs::read(&file).unwrap(), b"another");
    assert!(sound_samples(&folder.path().join("moved.uprof")) > 0);
}

/// A separate disk, unmounted on drop.
struct Disk(tempfile::TempDir);

impl Disk {
    fn new(kib: u64) -> Option<Disk> {
        let disk = Disk(tempfile::tempdir().unwrap());
        let size = format!("size={kib}k");
        let mut mount = Command::new("mount");
        mount
            .args(["-t", "tmpfs", "-o", &size, "none"])
            .arg(disk.0.path());
        if !mount.stderr(Stdio::null()).status().unwrap().success() {
            eprintln!("skipped: no file system can be mounted here");
            return None;
        }
        Some(disk)
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("run.uprof")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_disk_is_told_once_and_leaves_what_is_sound() {
    // Room for several times what is written at once, which may be 64 KiB.
    let Some(disk) = Disk::new(256) else { return };
    let (_busy, target) = busy();
    let flags = ["-F", "4999", "-d", "20s", "--stack=16K", &target];
    let (status, said) = record(&disk.file(), &flags);
    assert_eq!(status, 1, "{said}");
    assert_eq!(said.matches("No space left").count(), 1, "{said}");
    for part in ["0 bytes", "damaged", "whole", "embedded"] {
        assert!(!said.contains(part), "«{part}» in: {said}");
    }
    let samples = sound_samples(&disk.file());
    assert!(samples > 0);
    assert!(
        said.contains(&format!("Recorded {samples} samples")),
        "{samples}: {said}"
    );
}

#[test]
fn a_disk_that_is_full_at_the_start_keeps_what_was_there() {
    let Some(disk) = Disk::new(64) else { return };
    std::fs::write(disk.file(), vec![7; 64 << 10]).unwrap();
    let (_busy, target) = busy();
    let (status, said) = record(&disk.file(), &["-d", "1s", &target]);
    assert_eq!(status, 2, "{said}");
    assert!(said.contains("No space left"), "{said}");
    assert_eq!(std::fs::read(disk.file()).unwrap(), vec![7; 64 << 10]);
    assert_eq!(names(disk.0.path()), ["run.uprof"]);
}

#[test]
fn tables_for_which_there_is_no_room_are_a_loss() {
    let (_busy, target) = busy();
    // Few samples: a file's length is not to depend on how often the program ran.
    let flags = ["-F", "97", "-d", "1s", &target];
    let elsewhere = tempfile::tempdir().unwrap();
    let file = elsewhere.path().join("run.uprof");
    record(&file, &[&flags[..], &["--no-embed"]].concat());
    // There is room for one and a half files, but embedding needs a second file beside the first.
    let bytes = std::fs::metadata(&file).unwrap().len();
    let Some(disk) = Disk::new((bytes * 3 / 2).div_ceil(4096) * 4) else {
        return;
    };
    let (status, said) = record(&disk.file(), &flags);
    assert_eq!(status, 1, "{said}");
    assert!(said.contains("nothing was embedded"), "{said}");
    assert!(said.contains("uniprof bundle"), "{said}");
    assert!(sound_samples(&disk.file()) > 5);
    let percent = kit::sampled_percent(&disk.file());
    assert!((70..=140).contains(&percent), "{percent} % of the time");
}

#[test]
fn a_command_that_outlives_its_recording_is_ended_or_not_and_that_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.uprof");
    let flags = ["-d", "300ms", "--no-embed"];
    // The command holds none of the recorder's pipes.
    let command = ["--", "sh", "-c", "exec sleep 77 >/dev/null 2>&1"];
    let (_, said) = record(&file, &[&flags[..], &command].concat());
    assert!(
        said.contains("`sh` still ran, and was ended by SIGTERM"),
        "{said}"
    );
    for way in [&["--keep-running"][..], &["--keep-running", "--ptrace"]] {
        let (_, said) = record(&file, &[&flags[..], way, &command].concat());
        let pid = said.split("`sh` runs on as process ").nth(1).expect(&said);
        let pid = pid.split('.').next().unwrap();
        // It may have to wait for a processor before it sleeps again.
        let sleeps = (0..500).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
            stat.unwrap().contains("(sleep) S")
        });
        let _ = Command::new("kill").arg(pid).status();
        assert!(sleeps, "{way:?}");
    }
    let mut help = kit::uniprof();
    let help = help.args(["record", "--help"]).output().unwrap();
    assert!(String::from_utf8_lossy(&help.stdout).contains("--keep-running"));
}

/// As root's /dev/stdout.
#[test]
fn a_link_to_standard_output_stays_and_the_file_behind_it_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("stdout");
    std::os::unix::fs::symlink("/proc/self/fd/1", &link).unwrap();
    let export = |output: &Path| {
        let mut command = kit::uniprof();
        command.args(["export", "-f", "folded", "--no-search", "-o"]);
        command.arg(output).arg(kit::corpus("calls-stack.uprof"));
        command
    };
    let expected = export(Path::new("-")).output().unwrap().stdout;
    assert!(!expected.is_empty());
    let path = folder.path().join("redirected");
    let mut file = std::fs::File::create(&path).unwrap();
    file.write_all(b"before\n").unwrap();
    let mut export = export(&link);
    let status = export.stdout(file).stderr(Stdio::null()).status();
    assert!(status.unwrap().success());
    let written = std::fs::read(&path).unwrap();
    assert_eq!(written, [&b"before\n"[..], &expected].concat());

    let (_busy, target) = busy();
    let file = std::fs::File::create(&path).unwrap();
    let mut record = kit::uniprof();
    record.args(["record", "-F", "499", "-d", "1s", "-o"]);
    record.arg(&link).arg(&target);
    let status = record.stdout(file).stderr(Stdio::null()).status();
    assert!(status.unwrap().code() < Some(2));
    assert!(sound_samples(&path) > 0);
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(names(folder.path()), ["redirected", "stdout"]);
}
