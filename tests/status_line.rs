//! The line on a terminal that shows how a recording goes, and when there is none.
#![cfg(all(feature = "record", feature = "report"))]

mod busy;

use busy::Busy;
use nix::pty::openpty;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};

/// All that is written to a terminal. A read error is its end.
fn read(terminal: OwnedFd) -> String {
    let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
    let mut terminal = File::from(terminal);
    while let Ok(length @ 1..) = terminal.read(&mut piece) {
        bytes.extend_from_slice(&piece[..length]);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// What a recorder with these arguments writes to its terminal, on which the target writes, too, if it `shares` it.
fn screen(flags: &[&str], target: Option<&mut Command>, shares: bool) -> String {
    let folder = tempfile::tempdir().unwrap();
    let pair = openpty(None, None).unwrap();
    let mut record = kit::uniprof();
    record.args(["record", "-d", "2s", "--no-embed", "-o"]);
    record.arg(folder.path().join("run.uprof"));
    let target = target.map(|command| {
        let terminal = || Stdio::from(pair.slave.try_clone().unwrap());
        let output = if shares { terminal() } else { Stdio::null() };
        let child = command.stdout(output).stderr(Stdio::null()).spawn();
        command.stdout(Stdio::null());
        Busy(child.unwrap())
    });
    record.args(flags);
    record.args(target.iter().map(|busy| format!("pid:{}", busy.0.id())));
    let mut recorder = record
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::from(pair.slave))
        .spawn()
        .unwrap();
    drop(record);
    let status = std::thread::spawn(move || {
        let status = recorder.wait();
        drop(target);
        status
    });
    let screen = read(pair.master);
    assert!(
        status
            .join()
            .unwrap()
            .unwrap()
            .code()
            .is_some_and(|code| code < 2),
        "{screen}"
    );
    screen
}

fn busy() -> Command {
    let mut bash = Command::new("bash");
    bash.args(["-c", "while :; do :; done"]);
    bash
}

#[test]
fn a_line_shows_how_it_goes_unless_the_program_writes_there() {
    let has_line = |screen: &str| screen.contains(" samples  ") && screen.contains(" lost  ");
    let alone = screen(&[], Some(&mut busy()), false);
    assert!(has_line(&alone), "{alone}");
    assert!(
        !alone.contains("pauses"),
        "perf events pause nobody: {alone}"
    );
    let paused = screen(&["--ptrace"], Some(&mut busy()), false);
    assert!(
        has_line(&paused) && paused.contains("99 % of pauses up to "),
        "{paused}"
    );
    let shared = screen(&[], Some(&mut busy()), true);
    assert!(!has_line(&shared), "{shared}");
    let command = screen(&["--", "bash", "-c", "while :; do :; done"], None, false);
    assert!(!has_line(&command), "{command}");
    let kept = screen(&["--keep", "1s"], Some(&mut busy()), false);
    assert!(has_line(&kept), "{kept}");
}
