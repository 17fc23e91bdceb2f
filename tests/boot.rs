//! `record --boot` with monitors that don't do what a monitor should, and that are shell scripts: a message, a status,
//! and nothing that is left stopped or traced. tests/qemu/run and tests/kvm/run have real ones.

use std::path::Path;
use std::process::Output;

/// The status and messages of a recorder that starts a shell's `script` as a monitor.
fn record(script: &str, more: &[&str]) -> (Output, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let mut record = kit::uniprof();
    record
        .args(["record", "--boot", "-o"])
        .arg(folder.path().join("it.uprof"))
        .args(more);
    record
        .args(["--", "sh", "-c", script, "sh"])
        .arg(folder.path());
    (record.output().unwrap(), folder)
}

/// Whether a process is stopped, traced, or gone.
fn is_held(pid: &str) -> bool {
    let status = std::fs::read_to_string(Path::new("/proc").join(pid).join("status"));
    let status = status.unwrap_or_default();
    let line = |name: &str| {
        let found = status.lines().find_map(|line| line.strip_prefix(name));
        found.unwrap_or_default().trim().to_owned()
    };
    line("State:").starts_with(['T', 't']) || !matches!(&*line("TracerPid:"), "0" | "")
}

#[test]
fn a_monitor_without_a_guest_is_told_so() {
    if !cfg!(target_arch = "x86_64") {
        println!("skipped: vCPUs under KVM are held on x86-64 alone");
        return;
    }
    for (script, said) in [
        (
            "exit 7",
            "ended with status 7 before a vCPU under KVM entered a guest",
        ),
        ("true", "`sh` ended before a vCPU"),
        ("kill -9 $$", "was killed by SIGKILL before a vCPU"),
        // Forks twice, and each of them does some work.
        (
            "(sh -c 'ls / >/dev/null; true' & wait); exit 3",
            "ended with status 3 before a vCPU",
        ),
    ] {
        let (output, folder) = record(script, &[]);
        let messages = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{script}: {messages}");
        assert!(messages.contains(said), "{script}: {messages}");
        assert!(!folder.path().join("it.uprof").exists(), "{script}");
    }
}

#[test]
fn what_a_monitor_without_a_guest_has_printed_is_passed_on() {
    if !cfg!(target_arch = "x86_64") {
        println!("skipped: vCPUs under KVM are held on x86-64 alone");
        return;
    }
    // More than a pipe holds by itself.
    let script = "seq 20000; exit 7";
    let (output, _folder) = record(script, &["--until-output", "20000"]);
    assert_eq!(output.status.code(), Some(2));
    let printed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(printed.lines().count(), 20_000);
    let domain = ["record", "--boot", "--until-output", "x", "web", "--", "xl"];
    let output = kit::uniprof().args(domain).output().unwrap();
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(messages.contains("a Xen domain's console"), "{messages}");
}

#[test]
fn what_a_script_leaves_behind_runs_on() {
    if !cfg!(target_arch = "x86_64") {
        println!("skipped: vCPUs under KVM are held on x86-64 alone");
        return;
    }
    // The recorder is killed while it waits for a vCPU.
    let folder = tempfile::tempdir().unwrap();
    let mut record = kit::uniprof();
    let script = "sleep 300 & echo $! >\"$1/pid\"; while :; do :; done";
    record
        .args(["record", "--boot", "-o"])
        .arg(folder.path().join("it.uprof"));
    record
        .args(["--", "sh", "-c", script, "sh"])
        .arg(folder.path());
    let mut recorder = record.spawn().unwrap();
    let mut pid = String::new();
    for _ in 0..2000 {
        pid = std::fs::read_to_string(folder.path().join("pid")).unwrap_or_default();
        if pid.ends_with('\n') {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let pid = pid.trim();
    assert!(!pid.is_empty(), "the script did not start");
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    let shell = parent.unwrap().trim().to_owned();
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    let is_free = (0..1000).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        !is_held(pid) && !is_held(&shell)
    });
    for process in [pid, &shell] {
        let _ = std::process::Command::new("kill")
            .args(["-9", process])
            .status();
    }
    assert!(is_free, "a process is still held");
}

#[test]
fn a_command_line_without_a_guest_is_refused() {
    for (arguments, said) in [
        (&["--boot", "pid:1"][..], "`pid:1` runs already"),
        (
            &["--boot", "pid:1", "--", "true"],
            "cannot be used with a command",
        ),
        (&["web", "--", "true"], "cannot be used with a command"),
        (&["--boot", "web", "mail"], "name one domain"),
        (&["--boot", "--follow", "web"], "leave out --follow"),
        (
            &["--boot", "web", "--", "sh", "-c", "exit 4"],
            "ended with status 4: nothing was recorded",
        ),
        (&["--boot"], "required"),
        (&["--boot", "--", "xl", "create"], "record --boot NAME"),
        (
            &["--boot", "--off-cpu", "--", "true"],
            "cannot be used with",
        ),
        (&["--until", "main", "--", "true"], "--boot"),
        (
            &["--boot", "--", "/nonexistent/qemu-system-x86_64"],
            "cannot run",
        ),
        (&["--boot", "--", "/nonexistent/monitor"], "no such program"),
    ] {
        let output = kit::uniprof()
            .arg("record")
            .args(arguments)
            .output()
            .unwrap();
        let messages = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {messages}");
        assert!(messages.contains(said), "{arguments:?}: {messages}");
    }
}
