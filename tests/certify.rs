//! `uniprof certify`: programs that are slowed down for real, and those that can't be.

#![cfg(all(feature = "record", feature = "report", target_arch = "x86_64"))]

use kit::{Ended, build, run, uniprof, wait_until};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Counts in `hot`, by as many threads in each of as many processes, and prints a sum that one wrong step would change.
const COUNTING: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static long rounds;
__attribute__((noinline)) unsigned long hot(unsigned long seed) {
    for (long i = 0; i < 1000; i++) seed = seed * 6364136223846793005ul + (seed >> 17);
    return seed;
}
static void *count(void *seed) {
    unsigned long sum = (unsigned long)seed;
    for (long i = 0; i < rounds; i++) sum = hot(sum);
    return (void *)sum;
}
int main(int argc, char **argv) {
    rounds = atol(argv[1]);
    int processes = atoi(argv[2]), threads = atoi(argv[3]);
    for (int process = 1; process < processes; process++)
        if (fork() == 0) _exit(count((void *)7) == 0);
    pthread_t all[8];
    for (int thread = 1; thread < threads; thread++)
        pthread_create(&all[thread], 0, count, (void *)(long)thread);
    unsigned long sum = (unsigned long)count((void *)42);
    for (int thread = 1; thread < threads; thread++) {
        void *other;
        pthread_join(all[thread], &other);
        sum += (unsigned long)other;
    }
    int status, failed = 0;
    while (wait(&status) > 0) failed |= status;
    printf("%lx %d\n", sum, failed);
    return 3;
}
"#;

fn certify(words: &[&str]) -> Ended {
    run(uniprof().arg("certify").args(words))
}

/// The program of the tests; `None`, with a message, where there is no compiler or no perf events.
fn counting(folder: &Path, flags: &[&str]) -> Option<PathBuf> {
    let can_not = |what: &Ended| what.stderr.contains("cannot open perf events");
    let ended = certify(&["--", "true"]);
    if can_not(&ended) {
        eprintln!("skipped: {}", ended.stderr.trim());
        return None;
    }
    let flags = [&["-O1", "-pthread"], flags].concat();
    build(&folder.join("counting"), COUNTING, &flags)
}

#[test]
fn what_is_planted_is_seen_and_disturbs_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = counting(folder.path(), &[]) else {
        return;
    };
    let program = program.to_str().unwrap();
    // Rounds, processes, threads.
    for [rounds, processes, threads] in [["1600000", "1", "1"], ["500000", "2", "2"]] {
        let words = [
            "--json",
            "--functions",
            "1",
            "--share",
            "20%",
            "--",
            program,
            rounds,
            processes,
            threads,
        ];
        let ended = certify(&words);
        // 1 of 20 intervals of 95 % has not the truth in it.
        assert!(ended.status <= 1, "{}", ended.stderr);
        let found: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
        let function = &found["functions"][0];
        assert_eq!(function["function"], "hot", "{found}");
        let number = |value: &serde_json::Value| value.as_f64().unwrap_or(f64::NAN);
        let planted = number(&function["planted_share"]);
        assert!((0.1..0.25).contains(&planted), "{found}");
        let [low, seen, high] =
            ["low", "seen_share", "high"].map(|name| number(&function["profile"][name]));
        let half = (high - low) / 2.0;
        assert!(
            half < 0.05 && (seen - planted).abs() < 2.0 * half,
            "{found}"
        );
        assert_eq!(found["right"], (low..=high).contains(&planted), "{found}");
        assert_eq!(i32::from(found["right"] != true), ended.status);
        // Each run printed the same sum, and ended with the same status.
        assert_eq!(found["warnings"].as_array().map(Vec::len), Some(0));
    }
}

#[test]
fn programs_that_can_not_be_certified_are_refused_with_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let Some(stripped) = counting(folder.path(), &["-s"]) else {
        return;
    };
    let stripped = stripped.to_str().unwrap();
    let mark = folder.path().join("mark");
    let other = format!(
        "[ -e {0} ] && exit 7; touch {0}; i=0; while [ $i -lt 500000 ]; do i=$((i+1)); done",
        mark.display()
    );
    let cases: [(&[&str], &str); 6] = [
        (&["--", "true"], "too few to certify"),
        (&["--", "/nowhere/at/all"], "no such program"),
        (&["--", "/etc/passwd"], "not executable"),
        (
            &["--", stripped, "1600000", "1", "1"],
            "no function with a name",
        ),
        (&["--", "sh", "-c", &other], "ended with status 7"),
        (&["--share", "0%", "--", "true"], "more than 0%"),
    ];
    for (words, told) in cases {
        let ended = certify(words);
        assert_eq!(ended.status, 2, "{words:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(told), "{words:?}: {}", ended.stderr);
        assert_eq!(ended.stdout, "", "{words:?}");
    }
}

#[test]
fn a_killed_certify_leaves_no_process() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = counting(folder.path(), &[]) else {
        return;
    };
    let running = || {
        let all = fs::read_dir("/proc").unwrap().flatten();
        all.filter(|entry| fs::read_link(entry.path().join("exe")).is_ok_and(|exe| exe == program))
            .count()
    };
    let mut certify = uniprof();
    certify
        .args(["certify", "--"])
        .arg(&program)
        .args(["1000000000", "2", "2"])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let started = |command: &mut Command| {
        let certify = command.spawn().unwrap();
        wait_until("both processes run", Duration::from_secs(60), || {
            running() == 2
        });
        certify
    };
    let gone = || {
        wait_until("its program is gone", Duration::from_secs(20), || {
            running() == 0
        });
    };
    let mut killed = started(&mut certify);
    killed.kill().unwrap();
    killed.wait().unwrap();
    gone();

    let mut ended = started(certify.stderr(Stdio::piped()));
    let pid = ended.id().to_string();
    assert!(Command::new("kill").arg(pid).status().unwrap().success());
    let mut said = String::new();
    std::io::Read::read_to_string(&mut ended.stderr.take().unwrap(), &mut said).unwrap();
    assert_eq!(ended.wait().unwrap().code(), Some(2), "{said}");
    assert!(said.contains("stopped by SIGTERM"), "{said}");
    gone();
}
