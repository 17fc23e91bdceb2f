//! Builds the programs of tests/gdb and stops them under gdb.

use super::Dump;
use std::path::{Path, PathBuf};
use std::process::Command;
use uprof::Arch;

/// How to build one of the programs.
pub struct Program {
    pub name: &'static str,
    pub source: &'static str,
    pub compiler: &'static [&'static str],
}

pub const fn program(
    name: &'static str,
    source: &'static str,
    compiler: &'static [&'static str],
) -> Program {
    Program {
        name,
        source,
        compiler,
    }
}

pub const PROGRAMS: &[Program] = &[
    program("c-O0", "work.c", &["gcc", "-O0", "-g"]),
    program("c-O2", "work.c", &["gcc", "-O2", "-g"]),
    program(
        "c-O2-fp",
        "work.c",
        &["gcc", "-O2", "-fno-omit-frame-pointer"],
    ),
    program(
        "c-O2-nofp",
        "work.c",
        &["gcc", "-O2", "-fomit-frame-pointer", "-no-pie"],
    ),
    program(
        "c-Os-cet",
        "work.c",
        &["gcc", "-Os", "-fcf-protection=full", "-mno-red-zone"],
    ),
    program("cpp-O0", "work.cpp", &["g++", "-O0", "-g"]),
    program("cpp-O2", "work.cpp", &["g++", "-O2", "-g"]),
    program("rust-debug", "work.rs", &["rustc", "--edition=2024", "-g"]),
    program("rust-O", "work.rs", &["rustc", "--edition=2024", "-O"]),
];

/// Why there can be no stops; `None` if there can.
pub fn missing() -> Option<String> {
    ["gdb", "gcc", "g++", "rustc"].into_iter().find_map(|tool| {
        let error = Command::new(tool).arg("--version").output().err()?;
        Some(format!(
            "{tool} does not run ({error}); apt-get install gdb g++"
        ))
    })
}

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/gdb")
}

impl Program {
    /// Builds the program in `folder` and stops it `stops` times.
    pub fn stop(&self, folder: &Path, stops: usize, seed: usize) -> Dump {
        // Names of Rust and C++ functions depend on the compiler, so these are only reached by stepping.
        let go_to = match self.source {
            "work.c" => "on_signal,work_leaf,formatted",
            _ => "",
        };
        let here = Target {
            remote: "",
            arch: Arch::X86_64,
        };
        run_gdb(&self.build(folder), go_to, &here, stops, seed)
    }

    pub fn build(&self, folder: &Path) -> PathBuf {
        let program = folder.join(self.name);
        let mut command = Command::new(self.compiler[0]);
        command.args(&self.compiler[1..]).arg("-o").arg(&program);
        run(command.arg(sources().join(self.source)));
        program
    }
}

/// Runs a tool to its end, which must be successful.
pub fn run(command: &mut Command) {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?} failed: {said}");
}

/// The target that gdb stops.
pub struct Target<'a> {
    /// The gdb stub of a guest, or empty for a program that gdb starts.
    pub remote: &'a str,
    pub arch: Arch,
}

/// Stops `program`, or the guest behind a gdb stub, under gdb.
pub fn run_gdb(program: &Path, go_to: &str, target: &Target, stops: usize, seed: usize) -> Dump {
    let out = program.with_extension("jsonl");
    // A breakpoint that is never reached must not hang the test.
    let log = Command::new("timeout")
        .args(["120", gdb_for(target.arch)])
        .args(["-nx", "-batch", "-x"])
        .arg(sources().join("stops.py"))
        .arg(program)
        .env("STOPS", stops.to_string())
        .env("SEED", seed.to_string())
        .env("GO_TO", go_to)
        .env("REMOTE", target.remote)
        .env("ARCH", target.arch.name())
        .env("OUT", &out)
        .output()
        .expect("cannot run gdb");
    let messages = String::from_utf8_lossy(&log.stderr).into_owned();
    Dump::read(&out).unwrap_or_else(|error| panic!("{error}; gdb said: {messages}"))
}

/// The name of the gdb that supports a processor.
pub fn gdb_for(arch: Arch) -> &'static str {
    match arch {
        Arch::X86_64 => "gdb",
        Arch::Aarch64 => "gdb-multiarch",
    }
}
