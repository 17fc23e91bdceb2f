//! Programs whose names are in other files: a debug file that is named, and one that the image names.

mod compiled;

use compiled::{folded, nearly_all, record};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const SOURCE: &str = r#"
#include <stdint.h>
#define PLAIN __attribute__((noinline, noclone))
static volatile uint64_t sink;
PLAIN static uint64_t leaf(uint64_t n) { for (int i = 0; i < 2000; i++) n ^= n << 13, n ^= n >> 7; return n; }
PLAIN static uint64_t outer(uint64_t n) { return leaf(n) + 2; }
int main(void) { for (;;) sink += outer(sink); }
"#;

fn objcopy(words: &[&str], files: &[&Path]) {
    let mut command = Command::new("objcopy");
    let done = command.args(words).args(files).status().unwrap();
    assert!(done.success(), "{command:?}");
}

/// The program without names, and its debug file.
fn split(folder: &Path) -> Option<[PathBuf; 2]> {
    let program = compiled::build(folder, SOURCE, "-g -fomit-frame-pointer")?;
    let debug = folder.join("program.debug");
    objcopy(&["--only-keep-debug"], &[&program, &debug]);
    objcopy(&["--strip-all"], &[&program]);
    Some([program, debug])
}

#[test]
fn a_debug_file_that_is_named_gives_names_and_takes_no_callers() {
    let folder = tempfile::tempdir().unwrap();
    let Some([program, debug]) = split(folder.path()) else {
        return;
    };
    let run = folder.path().join("run.uprof");
    let elf = format!("--elf={}", debug.display());
    let below = format!("--image-path={}", folder.path().join("named").display());
    for embed in [&[][..], &["--no-embed"]] {
        record(folder.path(), embed, &program, &[]);
        let stacks = folded(&run, &[]);
        assert!(!stacks.iter().any(|(stack, _)| stack.contains("leaf")));
        nearly_all(&folded(&run, &[&elf]), "leaf", "main;outer;leaf");
    }
    // Where the program is gone, its headers and rules are in the recording.
    record(folder.path(), &[], &program, &[]);
    fs::remove_file(&program).unwrap();
    nearly_all(&folded(&run, &[&elf]), "leaf", "main;outer;leaf");
    let text = String::from_utf8(
        Command::new("readelf")
            .arg("-n")
            .arg(&debug)
            .output()
            .unwrap()
            .stdout,
    );
    let text = text.unwrap();
    let id = text
        .split("Build ID: ")
        .nth(1)
        .and_then(|rest| rest.split_whitespace().next());
    let (first, rest) = id.unwrap().split_at(2);
    let named = folder.path().join("named/.build-id").join(first);
    fs::create_dir_all(&named).unwrap();
    fs::rename(&debug, named.join(format!("{rest}.debug"))).unwrap();
    nearly_all(&folded(&run, &[&below]), "leaf", "main;outer;leaf");
}

#[test]
fn a_recording_has_the_names_of_the_debug_file_that_its_image_names() {
    let folder = tempfile::tempdir().unwrap();
    let Some([program, debug]) = split(folder.path()) else {
        return;
    };
    let link = format!("--add-gnu-debuglink={}", debug.display());
    objcopy(&[&link], &[&program]);
    record(folder.path(), &[], &program, &[]);
    for file in [program, debug] {
        fs::remove_file(file).unwrap();
    }
    let stacks = folded(&folder.path().join("run.uprof"), &[]);
    nearly_all(&stacks, "leaf", "main;outer;leaf");
}

#[test]
fn an_image_of_another_program_or_build_is_refused_with_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compiled::build(folder.path(), SOURCE, "-Wl,--build-id") else {
        return;
    };
    record(folder.path(), &[], &program, &[]);
    let other = folder.path().join("other");
    fs::create_dir(&other).unwrap();
    let build = compiled::build(&other, SOURCE, "-O1 -Wl,--build-id").unwrap();
    let stranger = folder.path().join("stranger");
    fs::copy(&build, &stranger).unwrap();
    let said = |elf: &Path| {
        let mut report = kit::uniprof();
        report.args(["report", "--elf"]).arg(elf);
        let output = report.arg(folder.path().join("run.uprof")).output();
        kit::text(&output.unwrap().stderr)
    };
    assert_eq!(said(&program).matches("not used").count(), 0);
    let of_stranger = "stranger is not used: no image of its name or build-id was mapped";
    assert_eq!(said(&stranger).matches(of_stranger).count(), 1);
    let of_build = said(&build);
    assert_eq!(of_build.matches("not used").count(), 1, "{of_build}");
    assert!(of_build.contains("is not used: its build-id is "));
    // Without names in the recording, the reason is a warning.
    record(folder.path(), &["--no-embed"], &program, &[]);
    fs::remove_file(&program).unwrap();
    let of_build = said(&build);
    assert_eq!(of_build.matches("not used").count(), 1, "{of_build}");
}
