//! File systems and control groups that fail while the recorder uses them. The tests use real ones, and most
//! need root.

use kit::{text, uniprof};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Whether this runs as root. If not, prints why the test is skipped.
fn is_root() -> bool {
    let is_root = nix::unistd::geteuid().is_root();
    if !is_root {
        eprintln!("skipped: mounting and control groups take root");
    }
    is_root
}

/// A process that is killed on drop.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A mount point that is unmounted on drop.
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// A program that computes without end.
fn program(folder: &Path) -> PathBuf {
    let (source, path) = (folder.join("burns.c"), folder.join("burns"));
    let code = "volatile long x;
        __attribute__((noinline)) void burns(void) { for (int i = 0; i < 1000000; i++) x += i; }
        int main(void) { for (;;) burns(); }";
    std::fs::write(&source, code).unwrap();
    let mut compiler = Command::new("cc");
    let compiler = compiler.args(["-O1", "-fno-omit-frame-pointer", "-o"]);
    assert!(compiler.arg(&path).arg(&source).status().unwrap().success());
    path
}

/// The output of a recorder that ends within a time that is long enough for a busy machine, but not for one
/// that hangs.
fn ends(recorder: Child) -> Output {
    let (sender, receiver) = std::sync::mpsc::channel();
    let id = recorder.id();
    std::thread::spawn(move || sender.send(recorder.wait_with_output()));
    let output = receiver.recv_timeout(Duration::from_secs(120));
    let _ = output
        .is_err()
        .then(|| Command::new("kill").args(["-9", &id.to_string()]).status());
    output.expect("the recorder hangs").unwrap()
}

/// The server of a program's file system stops answering, and then ends. A request for the program waits for
/// a limited time, and only a name is lost.
#[test]
fn a_file_system_that_gives_no_answer_costs_no_recording() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let place = Mounted(folder.join("mounted"));
    std::fs::create_dir(&place.0).unwrap();
    let quiet = folder.join("quiet");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/surroundings/silent.py");
    let mut server = Command::new("python3");
    let server = server.arg(script).arg(program(folder)).arg(&place.0);
    let server = server
        .arg(&quiet)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut server = Killed(server.spawn().unwrap());
    let mut said = String::new();
    let out = server.0.stdout.take().unwrap();
    BufReader::new(out).read_line(&mut said).unwrap();
    if said != "mounted\n" {
        eprintln!("skipped: there is no FUSE here");
        return;
    }
    let running = Killed(Command::new(place.0.join("program")).spawn().unwrap());
    // The pages of the program are in memory once it runs.
    std::thread::sleep(Duration::from_millis(300));
    std::fs::write(&quiet, "").unwrap();
    let file = folder.join("run.uprof");
    let mut recorder = uniprof();
    let recorder = recorder.args(["record", "-d", "1s", "-o"]).arg(&file);
    let recorder = recorder.arg(format!("pid:{}", running.0.id()));
    let recorder = recorder.stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(3));
    drop(server);
    let output = ends(recorder);
    let said = text(&output.stderr);
    assert!(output.status.code() < Some(2), "{said}");
    assert!(said.contains("Recorded "), "{said}");
    let report = uniprof().args(["report", "--top"]).arg(&file).output();
    let report = text(&report.unwrap().stdout);
    assert!(report.contains("  program+0x"), "{report}");
}

#[test]
fn a_read_only_file_system_is_told_before_the_program_runs() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let place = Mounted(folder.path().join("mounted"));
    std::fs::create_dir(&place.0).unwrap();
    let mut mount = Command::new("mount");
    let mount = mount
        .args(["-t", "tmpfs", "-o", "ro", "none"])
        .arg(&place.0);
    if !mount.status().unwrap().success() {
        eprintln!("skipped: nothing can be mounted here");
        return;
    }
    let ran = folder.path().join("ran");
    let output = uniprof()
        .args(["record", "-o"])
        .arg(place.0.join("run.uprof"))
        .args(["--", "touch"])
        .arg(&ran)
        .output();
    let output = output.unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("run.uprof: Read-only file system"), "{said}");
    assert!(!ran.exists(), "it ran: {said}");
}

/// A hierarchy of control groups for this test only, and a group in it.
fn control_group() -> Option<PathBuf> {
    let roots = ["/sys/fs/cgroup", "/sys/fs/cgroup/cpu"].map(Path::new);
    let root = roots.iter().find(|root| root.join("cgroup.procs").exists());
    let group = root?.join(format!("uniprof-vanishes-{}", std::process::id()));
    std::fs::create_dir(&group).ok()?;
    Some(group)
}

#[test]
fn a_control_group_that_vanishes_ends_its_recording() {
    if !is_root() {
        return;
    }
    let Some(group) = control_group() else {
        eprintln!("skipped: no control groups can be made here");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let burns = Killed(Command::new(program(folder.path())).spawn().unwrap());
    std::fs::write(group.join("cgroup.procs"), burns.0.id().to_string()).unwrap();
    let file = folder.path().join("run.uprof");
    let mut recorder = uniprof();
    let recorder = recorder.args(["record", "-d", "60s", "-o"]).arg(&file);
    let name = group.file_name().unwrap().to_str().unwrap();
    let recorder = recorder.arg(format!("cgroup:/{name}"));
    let recorder = recorder.stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(2));
    drop(burns);
    // Wait until the group's last process is gone.
    let began = Instant::now();
    while std::fs::remove_dir(&group).is_err() {
        assert!(began.elapsed() < Duration::from_secs(30), "{group:?} stays");
        std::thread::sleep(Duration::from_millis(10));
    }
    let output = ends(recorder);
    let said = text(&output.stderr);
    assert!(output.status.code() < Some(2), "{said}");
    assert!(said.contains("was removed"), "{said}");
    assert!(began.elapsed() < Duration::from_secs(50), "{said}");
    let report = uniprof().args(["report", "--top"]).arg(&file).output();
    let report = text(&report.unwrap().stdout);
    assert!(report.contains(" burns"), "{report}");
}
