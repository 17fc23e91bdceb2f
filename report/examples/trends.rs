//! Writes simulated series with the changes that `trend` finds in them, a JSON object a line, for another program
//! to judge: `trends SERIES`. Of each number there is a series without a change, and one with a function that is 5
//! % slower from the recording `at` on; both with normal noise, and with tails.

#[path = "../tests/simulated_series/mod.rs"]
mod simulated_series;

use serde_json::json;
use simulated_series::{RECORDINGS, normal, series, step, tailed};
use std::io::{self, Write};
use uniprof_report::trend::FunctionTrend;

/// Draws noise with a standard deviation of about 1.
type Draw = fn(&mut fastrand::Rng) -> f64;

fn main() -> io::Result<()> {
    let count = std::env::args().nth(1).and_then(|text| text.parse().ok());
    let count: u64 = count.ok_or_else(|| io::Error::other("usage: trends SERIES"))?;
    let mut out = io::stdout().lock();
    let draws: [(&str, Draw); 2] = [("normal", normal), ("tails", tailed)];
    for (noise, draw) in draws {
        for (seed, slower) in (0..count).flat_map(|seed| [(seed, 0.0), (seed, 0.05)]) {
            let at = if slower > 0.0 { step(seed) } else { RECORDINGS };
            let trend = series(seed, draw, (at, slower));
            let function = |it: &FunctionTrend| {
                let changes = it.changes.iter().map(|change| change.at);
                json!({
                    "name": it.name,
                    "shares": it.shares,
                    "changes": changes.collect::<Vec<usize>>(),
                })
            };
            let functions: Vec<_> = trend.functions.iter().map(function).collect();
            let line =
                json!({"noise": noise, "at": at, "planted": slower > 0.0, "functions": functions});
            writeln!(out, "{line}")?;
        }
    }
    Ok(())
}
