//! How good the diff's statistics are: false alarms, coverage of its intervals, and power.
//!
//! `cargo bench -p uniprof-report --bench diff` prints the three figures, with their limits, of 200
//! pairs of simulated recordings (`simulated`). With `UNIPROF_RECORDINGS=FOLDER` it prints them of 200
//! pairs put together from the real recordings `a*.uprof` and `b*.uprof` there (`resampled`);
//! `benches/diff.py` makes such recordings, and compares them as they are too.

mod random;
mod resampled;
mod simulated;

const PAIRS: u64 = 200;

fn main() {
    // `cargo test --benches` runs this too: one pair shows that it works.
    let is_bench = std::env::args().any(|flag| flag == "--bench");
    let pairs = if is_bench { PAIRS } else { 1 };
    match std::env::var_os("UNIPROF_RECORDINGS") {
        Some(folder) => resampled::judge_all(folder.as_ref(), pairs),
        None => simulated::judge_all(pairs),
    }
}

/// A part of a whole in percent.
fn share(part: u64, whole: u64) -> f64 {
    part as f64 * 100.0 / whole as f64
}
