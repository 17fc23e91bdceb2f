//! The comparison as a page for a browser: the page of `report --html` with two sides. The page has the
//! verdicts as text, and again as data, which the page's script attaches to boxes and rows. The script makes
//! no verdicts of its own.

mod changes;

use super::json::value;
use super::listing::ListingSource;
use super::sentence::verdict;
use super::series::Quantity;
use super::table::{advice, sides};
use super::{Change, Diff};
use crate::profile::found_by::FoundBy;
use crate::profile::gather::Sampled;
use crate::profile::labels::{Label, Labels};
use crate::profile::tree::ROOT;
use crate::recording::{Recording, last_part};
use crate::views::html::facts::{self, Basis, RecordingSurvey};
use crate::views::html::payload::{self, Payload, SampleTables};
use crate::views::html::shell;
use serde_json::{Map, Value, json};
use std::io::{self, Write};

/// Samples, one by one, as [`diff`](super::diff) gathers them, for the page's script.
#[derive(Debug, Default)]
pub struct Samples {
    payload: Payload,
}

impl Samples {
    /// Adds one sample.
    pub fn add(&mut self, sampled: &Sampled) {
        self.payload.add(sampled);
    }
}

/// Options of the page.
#[derive(Debug, Clone, Default)]
pub struct PageOptions {
    /// Whether to list call paths.
    pub paths: bool,
    /// The flags that selected samples and frames; empty if all are shown.
    pub chosen: String,
}

/// Writes the page of a comparison. `recordings` are those of A and of B; `samples` has every sample.
///
/// # Errors
/// The errors of `out`.
pub fn write(
    diff: &Diff,
    recordings: [&[&Recording]; 2],
    mut samples: Samples,
    options: &PageOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    let all = recordings.concat();
    if options.chosen.is_empty() && diff.series.unit.is_sampled() {
        let counted = samples.payload.states();
        let known = all.iter().zip(&diff.series.of_recordings);
        for (number, (one, known)) in known.enumerate() {
            let payload = &mut samples.payload;
            payload.add_idle(number, one, &counted, known);
        }
    }
    let joined = &diff.series.joined;
    samples
        .payload
        .renumber(|node| joined.get(&node).copied().unwrap_or(ROOT));
    let mut known = diff.series.of_recordings.iter();
    let surveyed = recordings.map(|side| {
        let side = side.iter().zip(known.by_ref());
        let side = side.map(|(one, known)| (*one, known.survey(one)));
        side.collect::<Vec<RecordingSurvey<'_>>>()
    });
    let identify = diff.options.identify;
    let title = recordings.map(|side| {
        let names: Vec<&str> = side.iter().map(|one| last_part(one.name())).collect();
        names.join(" + ")
    });
    let title = title.join(" → ");
    let basis = basis(diff, &all, options);
    let unit = diff.series.unit;
    let [a, b] = diff.accounts.each_ref();
    let counted = [a, b].map(|account| unit.phrase(account.counted));
    let counted = format!("A: {}; B: {}", counted[0], counted[1]);
    shell::write_start("diff", &title, (&counted, basis.is_incomplete), out)?;
    facts::write_basis(&basis, out)?;
    for (letter, side) in ["A", "B"].into_iter().zip(&surveyed) {
        writeln!(out, "<h2>{letter}</h2>")?;
        facts::write_summary(side, identify, out)?;
    }
    facts::write_recordings(surveyed.iter().flatten(), identify, out)?;
    shell::write_search(out)?;
    let listed: Vec<&Change> = diff.listed(options.paths).collect();
    if diff.accounts.iter().any(|account| account.counted > 0) {
        let carried = SampleTables {
            recordings: &all,
            tree: &diff.series.tree,
            found: &FoundBy::default(),
            labels: &labels(diff),
            bands: &[],
            unit: diff.series.unit,
            more: about(diff, recordings, &title),
        };
        payload::write(&samples.payload, &carried, out)?;
        payload::write_value("verdicts", &verdicts(diff, &listed), out)?;
        writeln!(out, "<section id=\"views\" hidden=\"\"></section>")?;
    }
    let verdict = verdict(&diff.listing(options.paths));
    changes::write(diff, &verdict, &listed, out)?;
    shell::write_end("diff", "", out)
}

fn basis(diff: &Diff, all: &[&Recording], options: &PageOptions) -> Basis {
    let mut lines = vec![verdict(&diff.listing(options.paths))];
    lines.extend(advice(diff));
    for (letter, names, account) in sides(&diff.names, &diff.accounts) {
        let told = names.iter().cloned().chain(account.lines());
        lines.extend(told.map(|line| format!("{letter}: {line}")));
        if account.counted == 0 {
            lines.push(format!("{letter}: no sample to show"));
        }
    }
    if !options.chosen.is_empty() {
        lines.push(format!("chosen by {}", options.chosen));
    }
    let damages = all.iter().flat_map(|one| facts::damages(one));
    Basis {
        is_incomplete: diff.accounts.iter().any(|account| account.is_incomplete()),
        lines,
        warnings: diff.warnings.iter().cloned().chain(damages).collect(),
    }
}

/// The functions of both sides as labels. The number of a label is that of its function.
fn labels(diff: &Diff) -> Labels {
    let mut labels = Labels::new();
    for (number, function) in diff.series.functions.iter().enumerate() {
        let label = Label {
            name: labels.text_id(&function.name),
            module: labels.text_id(&function.module),
            // Makes labels different if they have the same name in the same image.
            offset: number as u64,
            made: function.made,
            ..Label::default()
        };
        labels.id(label);
    }
    labels
}

/// The fields that describe the sides for the script.
fn about(diff: &Diff, recordings: [&[&Recording]; 2], title: &str) -> Map<String, Value> {
    let sides = recordings.iter().zip(&diff.accounts);
    let sides = sides.map(|(side, account)| {
        let lengths = side
            .iter()
            .map(|one| one.end_ns().saturating_sub(one.start_ns()));
        json!({
            "recordings": side.len(),
            "counted": account.counted,
            "length_ns": lengths.max().unwrap_or(0),
        })
    });
    let fields = [
        ("sides", sides.collect()),
        ("title", json!(title)),
        ("opening", json!({})),
    ];
    fields
        .into_iter()
        .map(|(name, is)| (name.to_owned(), is))
        .collect()
}

/// The changes as in `--json`, each with the number of its function, and a path with the numbers of all its
/// functions.
fn verdicts(diff: &Diff, listed: &[&Change]) -> Value {
    let series = &diff.series;
    let changes = listed.iter().map(|change| {
        let item = &series.items[change.item];
        let mut path: Vec<u32> = match item.counted {
            Quantity::Path => series.tree.outwards(item.node).collect(),
            Quantity::Own | Quantity::Total => Vec::new(),
        };
        path.reverse();
        let place = json!({"function": item.function, "path": path});
        let mut told = value(diff, change);
        if let (Value::Object(told), Value::Object(place)) = (&mut told, place) {
            told.extend(place);
        }
        told
    });
    json!({"changes": changes.collect::<Vec<_>>()})
}
