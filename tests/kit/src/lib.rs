//! Helpers of the program's tests: the built program, its output, and the corpus.
//!
//! [`commands`] makes a command line for every view, export and comparison, so that a test of all outputs
//! includes new ones without a change.

pub mod commands;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// The program as cargo built it for the tests.
#[must_use]
pub fn program() -> PathBuf {
    assert_cmd::cargo::cargo_bin("uniprof")
}

/// A command that runs it, without arguments yet.
#[must_use]
pub fn uniprof() -> Command {
    Command::new(program())
}

/// The folder of the workspace.
#[must_use]
pub fn root() -> &'static Path {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    // This package is tests/kit in that folder.
    folder.ancestors().nth(2).unwrap_or(folder)
}

/// A file of the corpus.
#[must_use]
pub fn corpus(name: &str) -> PathBuf {
    root().join("corpus").join(name)
}

/// Bytes that a program printed, as text.
#[must_use]
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The output of a program that has ended, and its exit status.
#[derive(Debug)]
pub struct Ended {
    /// Its exit status.
    pub status: i32,
    /// What it printed on standard output.
    pub stdout: String,
    /// What it printed on standard error.
    pub stderr: String,
}

/// Runs a command to its end.
///
/// # Panics
/// If it can't be started, or a signal ends it.
#[track_caller]
#[must_use]
pub fn run(command: &mut Command) -> Ended {
    let output = command.output();
    let Output {
        status,
        stdout,
        stderr,
    } = output.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let Some(status) = status.code() else {
        panic!("{command:?}: {status}: {}", text(&stderr));
    };
    Ended {
        status,
        stdout: text(&stdout),
        stderr: text(&stderr),
    }
}

/// Builds a program of C with gcc. Without gcc it says so and returns `None`.
///
/// # Panics
/// If the program can't be built.
#[track_caller]
#[must_use]
pub fn build(program: &Path, source: &str, flags: &[&str]) -> Option<PathBuf> {
    let file = program.with_extension("c");
    std::fs::write(&file, source).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let mut gcc = Command::new("gcc");
    let Ok(built) = gcc.args(flags).arg("-o").arg(program).arg(&file).status() else {
        eprintln!("skipped: there is no gcc to build a program with");
        return None;
    };
    assert!(built.success(), "{gcc:?}");
    Some(program.to_path_buf())
}

/// The folder of the window of `record --keep -o FILE`.
#[must_use]
pub fn window_of(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".keep");
    name.into()
}

/// Waits until something happens.
///
/// # Panics
/// If it doesn't happen in that time.
#[track_caller]
pub fn wait_until(what: &str, within: Duration, mut happens: impl FnMut() -> bool) {
    let began = Instant::now();
    while !happens() {
        assert!(began.elapsed() < within, "{what}: never");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The percentage of the target's processor time, as the kernel counted it, that the samples stand for.
///
/// # Panics
/// If nobody counted it.
#[track_caller]
#[must_use]
pub fn sampled_percent(file: &Path) -> u64 {
    let info = run(uniprof().arg("info").arg(file)).stdout;
    let line = info
        .lines()
        .find(|line| line.starts_with("processor time "));
    let percent = line.and_then(|line| line.strip_suffix("%)")?.rsplit_once('('));
    let percent = percent.and_then(|(_, percent)| percent.parse().ok());
    percent.unwrap_or_else(|| panic!("no processor time in: {info}"))
}
