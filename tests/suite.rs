//! The steps of tests/run: how each one ends, whatever its command does.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Runs a script of steps for at most a minute and a half. Returns its output and exit status.
fn script(steps: &str) -> (String, Option<i32>) {
    let folder = tempfile::tempdir().unwrap();
    let printed = folder.path().join("printed");
    let file = fs::File::create(&printed).unwrap();
    let script = format!(
        "set -uo pipefail; out={}; . tests/steps; {steps}\nwait; printf '%s\\n' \"${{results[@]}}\"; exit $failed",
        folder.path().display()
    );
    let mut bash = Command::new("bash")
        .args(["-c", &script])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stdin(Stdio::null())
        .stdout(file.try_clone().unwrap())
        .stderr(file)
        .spawn()
        .unwrap();
    let end = Instant::now() + Duration::from_secs(90);
    let status = loop {
        match bash.try_wait().unwrap() {
            Some(status) => break status.code(),
            None if Instant::now() > end => {
                bash.kill().unwrap();
                bash.wait().unwrap();
                break None;
            }
            None => std::thread::sleep(Duration::from_millis(50)),
        }
    };
    (fs::read_to_string(&printed).unwrap(), status)
}

/// Whether a process with this command line exists.
fn is_there(command: &str) -> bool {
    let command = command.replace(' ', "\0") + "\0";
    Path::new("/proc").read_dir().unwrap().any(|entry| {
        fs::read(entry.unwrap().path().join("cmdline"))
            .is_ok_and(|found| found == command.as_bytes())
    })
}

/// A number of seconds that no other test sleeps.
fn long(part: u32) -> String {
    format!("sleep {}.{part}", 1000 + std::process::id())
}

#[test]
fn what_a_step_leaves_behind_ends_with_it() {
    let (own, other) = (long(1), long(2));
    // Both processes hold the pipe for the step's output; one of them is in a session of its own.
    let (said, status) = script(&format!(
        "step leaves sh -c '{own} & setsid {other} & echo done; exit 3'\nstep next true"
    ));
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("left behind, and ended: "), "{said}");
    assert!(said.contains("leaves (exit status 3)"), "{said}");
    assert!(!is_there(&own) && !is_there(&other), "{said}");
}

#[test]
fn a_step_that_does_not_end_is_ended_with_all_that_it_started() {
    let (own, other) = (long(3), long(4));
    let (said, status) = script(&format!(
        "limit=2 step hangs sh -c 'trap \"\" TERM; setsid {other} & {own}; {own}'\nstep next true"
    ));
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("no end within 2 s"), "{said}");
    assert!(said.contains("hangs (exit status 124)"), "{said}");
    assert!(said.lines().last().unwrap().starts_with("passed"), "{said}");
    assert!(!is_there(&own) && !is_there(&other), "{said}");
}

#[test]
fn a_step_beside_others_ends_as_they_do() {
    let own = long(5);
    let (said, status) = script(&format!(
        "limit=2 ahead first sh -c '{own} & setsid {own}'\nahead second echo second\n\
         step one begun first true\nstep two begun second true"
    ));
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("one (exit status 124)"), "{said}");
    assert!(said.lines().last().unwrap().starts_with("passed"), "{said}");
    assert!(!is_there(&own), "{said}");
}

#[test]
fn a_step_ends_with_its_commands_status() {
    let (said, status) = script(
        "step good true\nstep bad false\nstep absent ./nowhere\nstep lacking sh -c 'echo no tool; exit 77'\n\
         step killed sh -c 'kill -9 $$'",
    );
    assert_eq!(status, Some(1), "{said}");
    let rows: Vec<&str> = said.lines().rev().take(5).collect();
    let wanted = [
        ("FAILED", "killed (exit status 137)"),
        ("skipped", "lacking: no tool"),
        ("FAILED", "absent (exit status 127)"),
        ("FAILED", "bad (exit status 1)"),
        ("passed", "good"),
    ];
    for (row, (verdict, end)) in rows.iter().zip(wanted) {
        assert!(row.starts_with(verdict) && row.ends_with(end), "{said}");
    }
}
