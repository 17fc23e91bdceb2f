//! How good the diff's statistics are on simulated recordings, whose truth is known: false alarms,
//! coverage of its intervals, power, and whether its plans hold.
//!
//! `cargo bench -p uniprof-report --bench diff` prints them with their limits, of 200 pairs of sides.
//! `benches/diff.py` does the like with real recordings.

mod simulated;

const PAIRS: u64 = 200;

fn main() {
    // `cargo test --benches` runs this too: one pair shows that it works.
    let is_bench = std::env::args().any(|flag| flag == "--bench");
    simulated::judge_all(if is_bench { PAIRS } else { 1 });
}

/// A part of a whole in percent.
fn share(part: u64, whole: u64) -> f64 {
    part as f64 * 100.0 / whole as f64
}
