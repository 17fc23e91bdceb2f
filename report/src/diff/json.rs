//! The comparison as a JSON object, for scripts.

use super::Diff;
use super::verdict::{Change, DETECTABLE_AT};
use crate::text::json_writer::JsonWriter;
use serde_json::{Value, json};
use std::io::{self, Write};

/// Incremented when the meaning of a field changes.
const VERSION: u32 = 4;

/// Writes the object, with the same list as the table; call paths only with `paths`. Shares and changes are between 0
/// and 1.
///
/// # Errors
/// What `out` returns.
pub fn write(diff: &Diff, paths: bool, out: &mut dyn Write) -> io::Result<()> {
    let listed = || diff.listed(paths);
    let changes: Vec<Value> = listed().map(|change| value(diff, change)).collect();
    let detectable = DETECTABLE_AT.iter().zip(diff.verdicts.detectable);
    let detectable = detectable.map(|(share, change)| json!({"share": share, "change": change}));
    let series = &diff.series;
    let whole = json!({
        "format": "uniprof-diff",
        "version": VERSION,
        "a": diff.names[0],
        "b": diff.names[1],
        "unit": series.unit.name(),
        "samples": diff.accounts.each_ref().map(|account| account.counted),
        "warnings": diff.warnings,
        "certain": listed().filter(|change| change.certain).count(),
        "false_discovery_rate": diff.options.false_discoveries,
        "least_change": diff.options.least_change,
        "runs_measured": diff.verdicts.runs_measured,
        "in_turns": diff.series.in_turns,
        "detectable": detectable.collect::<Vec<Value>>(),
        "plans": diff.verdicts.plans.iter().map(|plan| json!({
            "share": plan.share,
            "slower": plan.slower,
            "recordings_a_side": plan.recordings,
        })).collect::<Vec<Value>>(),
        "changes": changes,
    });
    serde_json::to_writer_pretty(JsonWriter(out), &whole).map_err(io::Error::from)?;
    out.write_all(b"\n")
}

/// A change, as the list has it.
pub(crate) fn value(diff: &Diff, change: &Change) -> Value {
    let series = &diff.series;
    let item = &series.items[change.item];
    let function = &series.functions[item.function as usize];
    json!({
        "name": series.item_name(item),
        "module": function.module,
        "match": function.kind.name(),
        "of": item.counted.name(),
        "samples_a": (change.estimate.samples[0] * series.one).round(),
        "samples_b": (change.estimate.samples[1] * series.one).round(),
        "share_a": change.estimate.a,
        "share_b": change.estimate.b,
        "change": change.estimate.change(),
        "shift": change.estimate.shift,
        "interval": [change.interval.0, change.interval.1],
        "relative_interval": change.relative.map(|(low, high)| [low, high]),
        "interval_confidence": change.confidence,
        "p": change.estimate.p,
        "certain": change.certain,
        "pushed": change.pushed,
        "detectable": change.detectable,
    })
}
