//! Every instruction of real programs, single-stepped: at each, the unwinder must find the frames that
//! stepping shows. This covers every instruction of prologues, epilogues, tail calls and stubs of the linkage
//! table, at which samples and debuggers rarely stop.

#[path = "stepping/mod.rs"]
mod stepping;
mod stops;

use std::process::Command;
use stepping::stub::Stub;
use stepping::verdict::{Steps, step};
use stops::driver::{Program, program};
use uniprof_report::images::{Image, SymbolTable};
use uprof::Arch;

/// Number of steps of one program: enough for the code before `main` in a program without dynamic linking,
/// and for several rounds.
const STEPS: usize = 30_000;
/// The same through a gdb stub, from `main` on.
const STEPS_AARCH64: usize = 5_000;
/// The share of wrong steps in code without call frame information (assembly of the C library and of the
/// compiler's start files) that is too large to be excused.
const WITHOUT_RULE_MAX: f64 = 0.005;

const RUST_STATIC: &str = "-Ctarget-feature=+crt-static";
const RUST_FIXED: &str = "-Crelocation-model=static";

#[cfg(target_arch = "x86_64")]
const PROGRAMS: &[Program] = &[
    program("gcc-O0", "work.c", &["gcc", "-O0", "-static"]),
    program("gcc-O2", "work.c", &["gcc", "-O2", "-static"]),
    program(
        "gcc-O2-fp",
        "work.c",
        &["gcc", "-O2", "-fno-omit-frame-pointer", "-static"],
    ),
    // Its prologues save registers before they allocate the stack for them.
    program(
        "gcc-O2-k8",
        "work.c",
        &["gcc", "-O2", "-mtune=k8", "-static"],
    ),
    program(
        "gcc-Os-cet",
        "work.c",
        &["gcc", "-Os", "-fcf-protection=full", "-static"],
    ),
    program("g++-O2", "work.cpp", &["g++", "-O2", "-static"]),
    program("clang-O0", "work.c", &["clang", "-O0", "-static"]),
    program("clang-O2", "work.c", &["clang", "-O2", "-static"]),
    program(
        "clang-O2-fp",
        "work.c",
        &["clang", "-O2", "-fno-omit-frame-pointer", "-static"],
    ),
    program("clang-Os", "work.c", &["clang", "-Os", "-static"]),
    program(
        "rustc",
        "work.rs",
        &["rustc", "--edition=2024", RUST_STATIC, RUST_FIXED],
    ),
    program(
        "rustc-O",
        "work.rs",
        &["rustc", "--edition=2024", "-O", RUST_STATIC, RUST_FIXED],
    ),
    program(
        "rustc-O-fp",
        "work.rs",
        &[
            "rustc",
            "--edition=2024",
            "-O",
            "-Cforce-frame-pointers",
            RUST_STATIC,
            RUST_FIXED,
        ],
    ),
];

const TARGET: &str = "--target=aarch64-linux-gnu";

const PROGRAMS_AARCH64: &[Program] = &[
    program(
        "gcc-O0",
        "work.c",
        &["aarch64-linux-gnu-gcc", "-O0", "-static"],
    ),
    program(
        "gcc-O2",
        "work.c",
        &["aarch64-linux-gnu-gcc", "-O2", "-static"],
    ),
    program(
        "gcc-Os-nofp",
        "work.c",
        &[
            "aarch64-linux-gnu-gcc",
            "-Os",
            "-fomit-frame-pointer",
            "-static",
        ],
    ),
    program(
        "gcc-O2-pac",
        "work.c",
        &[
            "aarch64-linux-gnu-gcc",
            "-O2",
            "-mbranch-protection=standard",
            "-static",
        ],
    ),
    program("clang-O0", "work.c", &["clang", TARGET, "-O0", "-static"]),
    program("clang-O2", "work.c", &["clang", TARGET, "-O2", "-static"]),
    program(
        "clang-O2-nofp",
        "work.c",
        &["clang", TARGET, "-O2", "-fomit-frame-pointer", "-static"],
    ),
    program(
        "clang-Os-pac",
        "work.c",
        &[
            "clang",
            TARGET,
            "-Os",
            "-mbranch-protection=standard",
            "-static",
        ],
    ),
];

/// Why `tool` can't be used; `None` if it can.
fn missing(tool: &str) -> Option<String> {
    let error = Command::new(tool).arg("--version").output().err()?;
    Some(format!("{tool} does not run ({error})"))
}

/// The programs that can be built here. Prints which can't.
fn there(programs: &[Program]) -> impl Iterator<Item = &Program> {
    programs.iter().filter(|program| {
        let missing = missing(program.compiler[0]);
        if let Some(reason) = &missing {
            println!("{}: skipped: {reason}", program.name);
        }
        missing.is_none()
    })
}

/// Adds `name` to `failures` unless every step was right.
fn judge(name: &str, steps: &Steps, failures: &mut Vec<String>) {
    steps.print(name);
    let excused = steps.without_rule_steps() as f64 / steps.looked_at as f64;
    if steps.wrong_steps() > 0 || excused > WITHOUT_RULE_MAX || steps.looks.len() < 500 {
        failures.push(name.to_owned());
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn every_instruction_has_the_callers_that_stepping_knows() {
    use stepping::tracee::Tracee;
    if let Some(reason) = missing("gcc") {
        eprintln!("skipped: {reason}");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut failures = Vec::new();
    for program in there(PROGRAMS) {
        let path = program.build(folder.path());
        let steps = step(Arch::X86_64, &mut Tracee::start(&path, &[]), false, STEPS);
        judge(program.name, &steps, &mut failures);
    }
    // The dynamic linker and the C library of Debian.
    let list = std::path::Path::new("/bin/ls");
    let steps = step(
        Arch::X86_64,
        &mut Tracee::start(list, &["/"]),
        false,
        2 * STEPS,
    );
    judge("/bin/ls", &steps, &mut failures);
    assert!(
        failures.is_empty(),
        "wrong callers, or too few steps: {failures:?}"
    );
}

#[test]
fn every_instruction_of_aarch64_has_the_callers_that_stepping_knows() {
    if let Some(reason) = ["qemu-aarch64", "aarch64-linux-gnu-gcc"]
        .into_iter()
        .find_map(missing)
    {
        eprintln!("skipped: {reason}; apt-get install qemu-user gcc-aarch64-linux-gnu");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut failures = Vec::new();
    for program in there(PROGRAMS_AARCH64) {
        let path = program.build(folder.path());
        let symbols = SymbolTable::from_image(&Image::open(&path).unwrap());
        let main = symbols.address_of("main").expect("no main").0;
        let mut stub = Stub::start(&path, main);
        let steps = step(Arch::Aarch64, &mut stub, true, STEPS_AARCH64);
        judge(program.name, &steps, &mut failures);
    }
    assert!(
        failures.is_empty(),
        "wrong callers, or too few steps: {failures:?}"
    );
}
