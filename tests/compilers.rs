//! Profiles for compilers: LLVM's own tool reads what is exported, and clang inlines by it what it wouldn't otherwise.

#![cfg(all(feature = "record", feature = "report"))]

use kit::{run, text, uniprof};
use std::path::Path;
use std::process::Command;

/// `large` is too large to be inlined, unless it is hot; `rare` is only called from what is inlined. It ends after half
/// a second of processor time.
const SOURCE: &str = r"#include <signal.h>
#include <stdint.h>
#include <sys/time.h>
#define MIX(n) do { if (x >> n & 1) x = x * 31 + n; else x ^= x >> 7; x += table[x & 63]; } while (0)
static uint64_t table[64];
static volatile sig_atomic_t ended;
static void end(int signal) { ended = 1; }
uint64_t large(uint64_t x) {
    MIX(1); MIX(2); MIX(3); MIX(5); MIX(7); MIX(11); MIX(13); MIX(17); MIX(19); MIX(23);
    MIX(29); MIX(31); MIX(37); MIX(41); MIX(43); MIX(47);
    return x;
}
static uint64_t rare(uint64_t x) {
    for (int i = 0; i < 9; i++)
        x = x * 31 + (x >> 3) + i;
    return x;
}
static uint64_t small(uint64_t x) {
    return x % 17 == 5 ? rare(x) : x * 3 + (x >> 11);
}
int main(int count, char **words) {
    uint64_t sum = 1;
    signal(SIGPROF, end);
    setitimer(ITIMER_PROF, &(struct itimerval){ .it_value = { .tv_usec = 500000 } }, 0);
    while (!ended) {
        sum = small(sum);
        sum += large(sum);
    }
    return sum & 1;
}
";

/// What LLVM's tool says of the profile.
const SHOWN: [&str; 2] = ["inlined callee: small", "inlined callee: rare"];

fn clang(folder: &Path, flags: &[&str]) -> (bool, String) {
    let mut clang = Command::new("clang");
    clang.args(["-O2", "-g", "-fdebug-info-for-profiling", "-Rpass=inline"]);
    let output = clang.args(flags).arg("program.c").current_dir(folder);
    let output = output.output().unwrap();
    (output.status.success(), text(&output.stderr))
}

fn inlines_large(said: &str) -> bool {
    said.contains("'large' inlined into 'main'")
}

#[test]
fn clang_inlines_what_the_samples_say_is_hot() {
    for tool in ["clang", "llvm-profdata"] {
        if Command::new(tool).arg("--help").output().is_err() {
            println!("skipped: no {tool} here (Debian's clang and llvm)");
            return;
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("program.c"), SOURCE).unwrap();
    let (is_built, said) = clang(folder, &["-o", "program"]);
    assert!(is_built && !inlines_large(&said), "{said}");

    let record = ["record", "-F", "1999", "-o", "run.uprof", "--", "./program"];
    let recorded = run(uniprof().args(record).current_dir(folder));
    assert!(recorded.status <= 1, "{}", recorded.stderr);
    let export = [
        "export",
        "-f",
        "llvm-profile",
        "-o",
        "run.prof",
        "run.uprof",
    ];
    let exported = run(uniprof().args(export).current_dir(folder));
    assert!(exported.status <= 1, "{}", exported.stderr);

    let mut show = Command::new("llvm-profdata");
    show.args(["show", "--sample", "run.prof"]);
    let shown = show.current_dir(folder).output().unwrap();
    let shown = text(&shown.stdout);
    assert!(shown.starts_with("Function: large: "), "{shown}");
    for part in SHOWN {
        assert!(shown.contains(part), "{part}: {shown}");
    }

    // clang 14 has the inference, but no flag of its own for it.
    let inference: [&[&str]; 2] = [
        &["-fsample-profile-use-profi"],
        &["-mllvm", "-sample-profile-use-profi"],
    ];
    let tries = inference.map(|flags| {
        let flags = [&["-fprofile-sample-use=run.prof", "-o", "again"], flags].concat();
        clang(folder, &flags)
    });
    let built = tries.iter().find(|(is_built, _)| *is_built);
    assert!(
        built.is_some_and(|(_, said)| inlines_large(said)),
        "{tries:?}"
    );
}

#[test]
fn a_profile_without_lines_is_empty_and_the_remedy_is_said() {
    let recording = kit::corpus("pack-stack.uprof");
    let export = ["export", "-f", "llvm-profile", "--no-search"];
    let empty = run(uniprof().args(export).arg(recording));
    assert_eq!(empty.status, 1, "{}", empty.stderr);
    assert_eq!(empty.stdout, "");
    assert!(
        empty.stderr.contains("-fdebug-info-for-profiling"),
        "{}",
        empty.stderr
    );
}
