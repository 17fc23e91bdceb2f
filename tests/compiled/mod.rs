//! A program in C that is built and recorded, and whose stacks are checked.

use std::path::{Path, PathBuf};

/// Stacks, outermost function first, with the number of their samples.
pub type Counted = Vec<(String, u64)>;

/// Ends the program after a second of processor time, in which it has 499 samples, on a busy machine as on an idle one.
const END: &str = r#"
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>
__attribute__((constructor)) static void end_in_time(void) {
    signal(SIGPROF, _exit);
    setitimer(ITIMER_PROF, &(struct itimerval){ .it_value = { .tv_sec = 1 } }, 0);
}
"#;

/// Builds `source` with these frame options. Without gcc it says so and returns `None`.
pub fn build(folder: &Path, source: &str, frames: &str) -> Option<PathBuf> {
    let flags: Vec<&str> = ["-O2"].into_iter().chain(frames.split(' ')).collect();
    kit::build(&folder.join("program"), &[source, END].concat(), &flags)
}

/// Records the program into `run.uprof` until it ends. Returns the recorder's messages.
pub fn record(folder: &Path, flags: &[&str], program: &Path, words: &[&str]) -> String {
    let output = kit::uniprof()
        .args(["record", "-F", "499", "-d", "2m", "-o"])
        .arg(folder.join("run.uprof"))
        .args(flags)
        .arg("--")
        .arg(program)
        .args(words)
        .stdin(std::fs::File::open("/dev/zero").unwrap())
        .output()
        .unwrap();
    let said = kit::text(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{said}");
    said
}

/// The folded stacks of a recording.
pub fn folded(file: &Path, flags: &[&str]) -> Counted {
    let folded = kit::uniprof()
        .args(["export", "-f", "folded"])
        .args(flags)
        .arg(file)
        .output()
        .unwrap();
    let folded = String::from_utf8(folded.stdout).unwrap();
    let stack = |line: &str| {
        let (stack, count) = line.rsplit_once(' ')?;
        Some((stack.to_owned(), count.parse().ok()?))
    };
    folded.lines().filter_map(stack).collect()
}

/// Asserts that at least 98 of 100 samples with `within` have `wanted`.
#[track_caller]
pub fn nearly_all(stacks: &[(String, u64)], within: &str, wanted: &str) {
    let count = |part: &str| -> u64 {
        let stacks = stacks.iter().filter(|(stack, _)| stack.contains(part));
        stacks.map(|(_, count)| count).sum()
    };
    let (all, good) = (count(within), count(wanted));
    assert!(all >= 20, "only {all} samples have {within}: {stacks:#?}");
    assert!(good * 100 >= all * 98, "{good} of {all}: {stacks:#?}");
}
