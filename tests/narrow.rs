//! 32-bit programs, which run beside others on x86-64: their functions have names, and their frame pointers
//! are followed.
#![cfg(all(feature = "record", feature = "report", target_arch = "x86_64"))]

use std::path::Path;
use std::process::Command;

const SOURCE: &str = r#"
#include <time.h>
static volatile unsigned long sink;
__attribute__((noinline)) void leaf(void) { for (unsigned long i = 0; i < 100000; i++) sink += i; }
__attribute__((noinline)) void middle(void) { leaf(); sink++; }
__attribute__((noinline)) void outer(void) { middle(); sink++; }
int main(void)
{
    struct timespec begun, now;
    clock_gettime(CLOCK_MONOTONIC, &begun);
    do {
        outer();
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (now.tv_sec - begun.tv_sec < 3);
}
"#;

/// Builds a 32-bit program. If that isn't possible, it says so and returns `None`.
fn build(folder: &Path, flags: &[&str]) -> Option<()> {
    std::fs::write(folder.join("program.c"), SOURCE).unwrap();
    let built = Command::new("gcc")
        .args(["-m32", "-O0", "-o", "program", "program.c"])
        .args(flags)
        .current_dir(folder)
        .output();
    let done = built.is_ok_and(|built| built.status.success());
    if !done {
        eprintln!("skipped: gcc builds no programs of 32 bits here; Debian has gcc-12-multilib");
    }
    done.then_some(())
}

fn uniprof(folder: &Path, words: &[&str]) -> (String, String) {
    let output = kit::uniprof()
        .args(words)
        .current_dir(folder)
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let said = text(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{said}");
    (text(&output.stdout), said)
}

/// Samples with these functions in a row, outermost first, and all samples.
fn counted(folded: &str, row: &str) -> (u64, u64) {
    let count = |line: &str| {
        line.rsplit(' ')
            .next()
            .and_then(|it| it.parse::<u64>().ok())
    };
    let lines = || folded.lines();
    let with = lines().filter(|line| line.contains(row));
    (
        with.filter_map(count).sum(),
        lines().filter_map(count).sum(),
    )
}

#[test]
fn programs_of_32_bits_have_names_and_callers() {
    for flags in [&[][..], &["-Wl,--build-id=none"], &["-no-pie"]] {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let Some(()) = build(folder, flags) else {
            return;
        };
        for kept in ["", "--no-embed"] {
            let record = ["record", "-F", "199", "-d", "10s"];
            let words = record.iter().chain([&kept]).filter(|it| !it.is_empty());
            let words: Vec<&str> = words.copied().chain(["--", "./program"]).collect();
            let (_, said) = uniprof(folder, &words);
            let (folded, warned) = uniprof(folder, &["export", "-f", "folded", "run.uprof"]);
            let (whole, all) = counted(&folded, "main;outer;middle;leaf");
            assert!(
                all >= 20 && whole * 10 > all * 8,
                "{flags:?} {kept}: {whole} of {all}\n{folded}{said}{warned}"
            );
        }
    }
}

#[test]
fn an_image_of_32_bits_is_taken_by_hand_and_its_code_is_not_shown_as_of_64() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let Some(()) = build(folder, &[]) else {
        return;
    };
    let record = ["record", "-F", "199", "-d", "1s", "--no-embed"];
    uniprof(folder, &[&record[..], &["--", "./program"]].concat());
    std::fs::rename(folder.join("program"), folder.join("moved")).unwrap();
    let report = ["report", "run.uprof", "--elf", "moved"];
    let (table, said) = uniprof(folder, &report);
    assert!(table.contains("leaf  [program]"), "{table}{said}");
    let annotate = [
        "report",
        "run.uprof",
        "--elf",
        "moved",
        "--annotate",
        "leaf",
    ];
    let (code, said) = uniprof(folder, &annotate);
    assert!(
        format!("{code}{said}").contains("code of 32 bits is named, but not shown"),
        "{code}{said}"
    );
}
