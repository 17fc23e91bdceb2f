//! The comparison of calls as a JSON object, for scripts.

use super::{Blocks, CallChange, CallDiff, Measure};
use crate::text::json_writer::JsonWriter;
use serde_json::{Value, json};
use std::io::{self, Write};

/// Incremented when the meaning of a field changes.
const VERSION: u32 = 1;

/// Writes the object, with the same list as the table. Changes are parts of A's value, 0.5 is half as much
/// more: `change` is the whole, `apart` with its interval is what isn't `common`.
///
/// # Errors
/// What `out` returns.
pub fn write(diff: &CallDiff, out: &mut dyn Write) -> io::Result<()> {
    let verdicts = &diff.verdicts;
    let is_timed = diff.series.by == Blocks::Time;
    let [time, rate] = verdicts.common;
    let changes = verdicts.changes.iter();
    let whole = json!({
        "format": "uniprof-diff-calls",
        "version": VERSION,
        "a": diff.names[0],
        "b": diff.names[1],
        "blocks": if is_timed { "time" } else { "order" },
        "calls": diff.accounts.each_ref().map(|account| account.read),
        "nanoseconds": diff.accounts.each_ref().map(|account| account.counted),
        "seconds": is_timed.then(|| diff.accounts.each_ref().map(|account| account.seconds)),
        "warnings": diff.warnings,
        "certain": diff.certain(),
        "false_discovery_rate": diff.options.false_discoveries,
        "least_change": diff.options.least_change,
        "runs_measured": verdicts.runs_measured,
        "in_turns": diff.in_turns,
        "functions_with_too_few_calls": {"time_per_call": verdicts.too_few[0], "calls": verdicts.too_few[1]},
        "common": {"time_per_call": time, "calls": rate},
        "changes": changes.map(|change| value(diff, change)).collect::<Vec<Value>>(),
    });
    serde_json::to_writer_pretty(JsonWriter(out), &whole).map_err(io::Error::from)?;
    out.write_all(b"\n")
}

fn value(diff: &CallDiff, change: &CallChange) -> Value {
    let function = &diff.series.functions[change.function as usize];
    let (low, high) = change.interval();
    let unit = match (change.of, diff.series.by) {
        (Measure::Own | Measure::Total, _) => "nanoseconds a call",
        (Measure::Rate, Blocks::Time) => "calls a second",
        (Measure::Rate, Blocks::Order) => "calls of a thousand",
    };
    json!({
        "name": function.name,
        "match": function.kind.name(),
        "of": change.of.name(),
        "unit": unit,
        "a": change.values[0],
        "b": change.values[1],
        "calls_a": change.calls[0],
        "calls_b": change.calls[1],
        "share": change.share,
        "change": change.relative().is_finite().then(|| change.relative()),
        "apart": change.apart(),
        "interval": [low, high],
        "interval_confidence": change.confidence,
        "p": change.p,
        "certain": change.certain,
        "detectable": change.detectable,
    })
}
