//! Compares the frames of the unwinder with those of gdb, which is independent. Real programs are stopped at
//! random instructions, including prologues, epilogues, libc's assembly and signal handlers. gdb writes
//! registers, stack bytes and its own backtrace, and the unwinder gets the same registers and bytes.
//!
//! `UNIPROF_GDB_STOPS` sets the number of stops per program.

mod stops;

use std::collections::BTreeMap;
use stops::Stopped;
use stops::compare::{Verdict, compare};
use stops::driver::{PROGRAMS, missing};
use stops::oracle::Oracle;
use uniprof_report::unwind::Cache;

/// The least share of stops at which every frame is the same.
const AGREE_MIN: f64 = 0.995;

/// Why framehop differs from gdb where the unwinder agrees with gdb: what framehop can't do.
fn why_the_oracle_differs(stop: &Stopped, theirs: &[u64]) -> &'static str {
    let same = theirs.iter().zip(&stop.frames);
    let same = same.take_while(|(ours, gdb)| **ours == gdb.pc).count();
    let at = same.saturating_sub(1);
    match stop.frames.get(at) {
        Some(frame) if frame.is_signal => "at a signal frame, whose registers it doesn't restore",
        Some(_) if stop.frames[..=at].iter().any(|frame| frame.is_signal) => "above a signal frame",
        Some(_) if theirs.len() > stop.frames.len() => "beyond the root, by frame pointer",
        _ => "elsewhere",
    }
}

#[test]
fn frames_equal_gdbs_on_real_programs() {
    if let Some(reason) = missing() {
        eprintln!("skipped: {reason}");
        return;
    }
    let stops = std::env::var("UNIPROF_GDB_STOPS")
        .ok()
        .and_then(|text| text.parse().ok());
    let stops = stops.unwrap_or(600);
    let folder = tempfile::tempdir().unwrap();
    let mut failures = Vec::new();
    for (seed, program) in PROGRAMS.iter().enumerate() {
        let dump = program.stop(folder.path(), stops, seed);
        let name = program.name;
        let unwinder = dump.unwinder();
        let mut cache = Cache::new();
        let mut ends: BTreeMap<&str, usize> = BTreeMap::new();
        let mut differences = Vec::new();
        let mut oracle = Oracle::new(&dump.modules);
        let mut oracle_differs: BTreeMap<&str, usize> = BTreeMap::new();
        for stop in &dump.stops {
            match compare(&unwinder, &mut cache, stop, false) {
                Verdict::Same(end) => *ends.entry(end.name()).or_default() += 1,
                Verdict::Differs(at, text) => differences.push(format!("frame {at}: {text}")),
            }
        }
        for stop in &dump.stops {
            let mut theirs = Vec::new();
            oracle.unwind(&stop.registers, &stop.memory(), &mut theirs);
            if !theirs.iter().eq(stop.frames.iter().map(|frame| &frame.pc)) {
                *oracle_differs
                    .entry(why_the_oracle_differs(stop, &theirs))
                    .or_default() += 1;
            }
        }
        println!("{name}: framehop differs from gdb: {oracle_differs:?}");
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
            failures.push(name);
        }
    }
    assert!(
        failures.is_empty(),
        "less than {AGREE_MIN} agree: {failures:?}"
    );
}
