//! The trend as a JSON object, for scripts. Shares and changes are between 0 and 1; an end of an interval that is null
//! is open.

use super::rows::notes;
use super::{Change, FunctionTrend, Trend};
use crate::text::json_writer::JsonWriter;
use serde_json::{Value, json};
use std::io::{self, Write};

/// Incremented when the meaning of a field changes.
const VERSION: u32 = 2;

/// Writes the object.
///
/// # Errors
/// The errors of `out`.
pub fn write(trend: &Trend, out: &mut dyn Write) -> io::Result<()> {
    let points = trend.points.iter().map(|point| {
        json!({
            "name": point.name,
            "started_ns_since_1970": point.start_realtime_ns,
            "label": point.label,
            "samples": point.samples,
            "incomplete": point.is_incomplete,
        })
    });
    let whole = json!({
        "format": "uniprof-trend",
        "version": VERSION,
        "verdict": trend.verdict(&|name| format!("`{name}`"), &str::to_owned),
        "unit": trend.unit.name(),
        "changes": trend.changes(),
        "recordings": points.collect::<Vec<Value>>(),
        "functions": trend.functions.iter().map(|it| function(trend, it)).collect::<Vec<Value>>(),
        "inflation": trend.inflation,
        "false_discovery_rate": trend.options.false_discoveries,
        "least_change": trend.options.least_change,
        "warnings": trend.warnings,
    });
    serde_json::to_writer_pretty(JsonWriter(out), &whole).map_err(io::Error::from)?;
    out.write_all(b"\n")
}

fn function(trend: &Trend, function: &FunctionTrend) -> Value {
    json!({
        "name": function.name,
        "module": function.module,
        "notes": notes(function),
        "share": function.share,
        "interval": [function.interval.0, function.interval.1],
        "interval_confidence": trend.options.confidence,
        "changes": function.changes.iter().map(|it| change(trend, it)).collect::<Vec<Value>>(),
        "pushed": function.pushed,
        "p": function.p,
        "shares": function.shares,
    })
}

fn change(trend: &Trend, change: &Change) -> Value {
    json!({
        "at": change.at,
        "since": trend.place(&trend.points[change.at]),
        "recording": trend.points[change.at].name,
        "share_before": change.before,
        "share_after": change.after,
        "interval_after": [change.after_interval.0, change.after_interval.1],
        "change": change.after - change.before,
        "interval": [change.interval.0, change.interval.1],
        "relative_interval": change.relative.map(|(low, high)| [low, high]),
    })
}
