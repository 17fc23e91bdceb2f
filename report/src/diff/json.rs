//! The comparison as a JSON object, for scripts.

use super::listing::ListingSource;
use super::sentence::verdict;
use super::times::{TimeRatio, Times};
use super::verdict::{Change, DETECTABLE_AT};
use super::{Comparison, Diff};
use crate::text::json_writer::JsonWriter;
use serde_json::{Value, json};
use std::io::{self, Write};

/// Incremented when the meaning of a field changes.
const VERSION: u32 = 6;

/// A comparison that can be written as JSON.
pub trait JsonSource {
    /// Its fields in addition to those of all comparisons. Call paths are included only if `paths` is set.
    fn fields(&self, paths: bool) -> Value;
}

/// Writes the object, with the same list of changes as the table. Call paths are included only if `paths` is
/// set.
///
/// # Errors
/// The errors of `out`.
pub fn write<S, V>(of: &Comparison<S, V>, paths: bool, out: &mut dyn Write) -> io::Result<()>
where
    Comparison<S, V>: JsonSource + ListingSource,
{
    let mut whole = of.fields(paths);
    let changes = whole["changes"].as_array().into_iter().flatten();
    let certain = changes.filter(|change| change["certain"] == true).count();
    for (name, value) in [
        ("verdict", json!(verdict(&of.listing(paths)))),
        ("times", json!(of.times.map(times))),
        ("a", json!(of.names[0])),
        ("b", json!(of.names[1])),
        ("warnings", json!(of.warnings)),
        ("certain", json!(certain)),
        ("false_discovery_rate", json!(of.options.false_discoveries)),
        ("least_change", json!(of.options.least_change)),
    ] {
        whole[name] = value;
    }
    serde_json::to_writer_pretty(JsonWriter(out), &whole).map_err(io::Error::from)?;
    out.write_all(b"\n")
}

/// Seconds of a run, and B's as a part of A's.
fn times(times: Times) -> Value {
    let value = |ratio: TimeRatio| {
        json!({
            "seconds": ratio.seconds,
            "ratio": ratio.ratio,
            "interval": [ratio.interval.0, ratio.interval.1],
            "interval_confidence": ratio.confidence,
            "certain": ratio.is_certain(),
        })
    };
    json!({"wall": times.wall.map(value), "processor": times.processor.map(value)})
}

/// Shares and changes are between 0 and 1. An end of an interval that is null is open.
impl JsonSource for Diff {
    fn fields(&self, paths: bool) -> Value {
        let verdicts = &self.verdicts;
        let detectable = DETECTABLE_AT.iter().zip(verdicts.detectable);
        let detectable =
            detectable.map(|(share, change)| json!({"share": share, "change": change}));
        let changes = self.listed(paths).map(|change| value(self, change));
        json!({
            "format": "uniprof-diff",
            "version": VERSION,
            "unit": self.series.unit.name(),
            "samples": self.accounts.each_ref().map(|account| account.counted),
            "runs_measured": verdicts.runs_measured,
            "detectable": detectable.collect::<Vec<Value>>(),
            "plans": verdicts.plans.iter().map(|plan| json!({
                "share": plan.share,
                "slower": plan.slower,
                "recordings_a_side": plan.recordings,
            })).collect::<Vec<Value>>(),
            "changes": changes.collect::<Vec<Value>>(),
        })
    }
}

/// A change of the list.
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
