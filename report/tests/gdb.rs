//! Our frames against gdb's, an independent truth: real programs are stopped at random
//! instructions (prologues, epilogues, libc's assembly and signal handlers included), gdb writes
//! down registers, stack bytes and its own backtrace, and we unwind the same registers and bytes.
//!
//! `UNIPROF_GDB_STOPS` sets the number of stops per program.

mod dump;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use dump::{Dump, Stopped};
use uniprof_report::unwind::{Cache, Options, Unwinder};
use uprof::FrameKind;

/// The share of stops at which every frame must be the same.
const AGREE_MIN: f64 = 0.995;

const PROGRAMS: &[(&str, &str, &[&str])] = &[
    ("c-O0", "work.c", &["gcc", "-O0", "-g"]),
    ("c-O2", "work.c", &["gcc", "-O2", "-g"]),
    (
        "c-O2-fp",
        "work.c",
        &["gcc", "-O2", "-fno-omit-frame-pointer"],
    ),
    (
        "c-O2-nofp",
        "work.c",
        &["gcc", "-O2", "-fomit-frame-pointer", "-no-pie"],
    ),
    (
        "c-Os-cet",
        "work.c",
        &["gcc", "-Os", "-fcf-protection=full", "-mno-red-zone"],
    ),
    ("cpp-O0", "work.cpp", &["g++", "-O0", "-g"]),
    ("cpp-O2", "work.cpp", &["g++", "-O2", "-g"]),
    ("rust-debug", "work.rs", &["rustc", "--edition=2024", "-g"]),
    ("rust-O", "work.rs", &["rustc", "--edition=2024", "-O"]),
];

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/gdb")
}

fn build(folder: &Path, name: &str, source: &str, compiler: &[&str]) -> PathBuf {
    let program = folder.join(name);
    let status = Command::new(compiler[0])
        .args(&compiler[1..])
        .arg("-o")
        .arg(&program)
        .arg(sources().join(source))
        .status()
        .unwrap_or_else(|error| panic!("cannot run {}: {error}", compiler[0]));
    assert!(status.success(), "{} does not build {source}", compiler[0]);
    program
}

fn stop_under_gdb(program: &Path, go_to: &str, stops: usize, seed: usize) -> Dump {
    let out = program.with_extension("jsonl");
    let log = Command::new("gdb")
        .arg("-nx")
        .arg("-batch")
        .arg("-x")
        .arg(sources().join("stops.py"))
        .arg(program)
        .env("STOPS", stops.to_string())
        .env("SEED", seed.to_string())
        .env("GO_TO", go_to)
        .env("OUT", &out)
        .output()
        .expect("cannot run gdb");
    let messages = String::from_utf8_lossy(&log.stderr).into_owned();
    Dump::read(&out).unwrap_or_else(|error| panic!("{error}; gdb said: {messages}"))
}

/// What one stop came to.
enum Verdict {
    Same(uprof::Stop),
    /// The number of the first frame that differs, counted from the innermost.
    Differs(usize, String),
}

fn compare(unwinder: &Unwinder, cache: &mut Cache, stop: &Stopped) -> Verdict {
    let mut frames = Vec::new();
    let memory = stop.memory();
    let options = Options::default();
    let end = unwinder.unwind(cache, &stop.registers, &memory, options, &mut frames);
    let ours: Vec<u64> = frames.iter().map(|frame| frame.address).collect();
    if ours == stop.frames.iter().map(|frame| frame.pc).collect::<Vec<_>>() {
        // gdb calls a frame a signal's; the one above it must then be an interrupted one.
        for (index, frame) in stop.frames.iter().enumerate() {
            let above = frames.get(index + 1).map(|above| above.kind);
            let wanted = match frame.is_signal {
                true => FrameKind::Exact,
                false => FrameKind::Return,
            };
            if above.is_some_and(|above| above != wanted) {
                return Verdict::Differs(index + 1, "kind of address".to_owned());
            }
        }
        return Verdict::Same(end);
    }
    let pairs = ours.iter().zip(&stop.frames);
    let at = pairs
        .take_while(|(ours, theirs)| **ours == theirs.pc)
        .count();
    let name = |index: usize| stop.frames.get(index).map_or("(end)", |frame| &frame.name);
    let below = stop
        .frames
        .get(at.wrapping_sub(1))
        .map_or(0, |frame| frame.pc);
    let text = format!(
        "above {} ({below:#x}) gdb has {} and we {:x?}; {}",
        name(at.wrapping_sub(1)),
        name(at),
        frames
            .get(at)
            .map(|frame| (frame.address, frame.found.name())),
        end.name(),
    );
    Verdict::Differs(at, text)
}

#[test]
fn frames_equal_gdbs_on_real_programs() {
    if Command::new("gdb").arg("--version").output().is_err() {
        eprintln!("skipped: there is no gdb to compare with (apt-get install gdb)");
        return;
    }
    let stops = std::env::var("UNIPROF_GDB_STOPS")
        .ok()
        .and_then(|text| text.parse().ok());
    let stops = stops.unwrap_or(600);
    let folder = tempfile::tempdir().unwrap();
    let mut failures = Vec::new();
    for (seed, (name, source, compiler)) in PROGRAMS.iter().enumerate() {
        // Rust's and C++'s names depend on the compiler; theirs are reached by stepping alone.
        let go_to = if source.ends_with(".c") {
            "on_signal,work_leaf,formatted"
        } else {
            ""
        };
        let program = build(folder.path(), name, source, compiler);
        let dump = stop_under_gdb(&program, go_to, stops, seed);
        let unwinder = dump.unwinder();
        let mut cache = Cache::new();
        let mut ends: BTreeMap<&str, usize> = BTreeMap::new();
        let mut differences = Vec::new();
        for stop in &dump.stops {
            match compare(&unwinder, &mut cache, stop) {
                Verdict::Same(end) => *ends.entry(end.name()).or_default() += 1,
                Verdict::Differs(at, text) => differences.push(format!("frame {at}: {text}")),
            }
        }
        let frames: usize = dump.stops.iter().map(|stop| stop.frames.len()).sum();
        let signals = dump.stops.iter().filter(|stop| stop.is_in_signal()).count();
        let share = 1.0 - differences.len() as f64 / dump.stops.len() as f64;
        println!(
            "{name}: {} stops (seed {seed}), {frames} frames, {signals} stops in signal handlers, \
             {:.2} % agree; ends {ends:?}",
            dump.stops.len(),
            share * 100.0,
        );
        for difference in &differences {
            println!("    {difference}");
        }
        assert!(dump.stops.len() >= 500.min(stops), "{name}: too few stops");
        if share < AGREE_MIN {
            failures.push(*name);
        }
    }
    assert!(
        failures.is_empty(),
        "less than {AGREE_MIN} agree: {failures:?}"
    );
}
