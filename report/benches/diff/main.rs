//! How good the diff's statistics are on simulated recordings, whose truth is known: false alarms,
//! coverage of its intervals, power, and whether its plans hold; of samples, and of calls.
//!
//! `cargo bench -p uniprof-report --bench diff` prints them with their limits, of 200 pairs of sides; with `-- calls`,
//! those of calls alone, and with `-- looks` those of looks after every run, of 2,000 comparisons of equal sides and
//! 200 with a planted change. `benches/diff.py` does the like with real recordings.

mod calls;
#[path = "../../tests/drawn_runs/mod.rs"]
mod drawn_runs;
mod sequential;
mod simulated;

const PAIRS: u64 = 200;

fn main() {
    // `cargo test --benches` runs this too: one pair shows that it works.
    let has = |wanted: &str| std::env::args().any(|flag| flag == wanted);
    let pairs = if has("--bench") { PAIRS } else { 1 };
    if has("looks") {
        return sequential::judge_all(pairs * 10, pairs);
    }
    if !has("calls") {
        simulated::judge_all(pairs);
        sequential::judge_all(pairs, pairs);
    }
    calls::judge_all(pairs);
}

/// A part of a whole in percent.
fn share(part: u64, whole: u64) -> f64 {
    part as f64 * 100.0 / whole as f64
}
