//! The table of functions. The page's script can sort and filter it.

use super::shell::text;
use crate::profile::Profile;
use crate::profile::functions::{TopRow, rows};
use crate::recording::unit::Unit;
use crate::text::short;
use std::cmp::Reverse;
use std::io::{self, Write};
use uprof::words::share;

/// Most functions in the table.
const ROWS_MAX: usize = 1000;
/// Most functions on paper: page.css hides the later ones when the page is printed.
const ROWS_PRINTED: usize = 60;

/// Writes the functions that have at least `least_share` of the samples in their stacks.
pub(super) fn write(profile: &Profile, least_share: f64, out: &mut dyn Write) -> io::Result<()> {
    let all = rows(profile);
    let least = (least_share * profile.account.counted as f64).ceil() as u64;
    // Ordered by total samples: a function that calls everything may have no self samples.
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.retain(|row| all[*row].total >= least);
    order.sort_by_key(|row| (Reverse(all[*row].total), *row));
    order.truncate(ROWS_MAX);
    order.sort_unstable();
    let shown: Vec<&TopRow> = order.iter().map(|row| &all[*row]).collect();
    let unit = profile.unit();
    let what = unit.what();
    writeln!(
        out,
        "<section id=\"functions\">\n<h2>Functions</h2>\n\
         <p class=\"lead\"><b>Self</b>: {what} in the function itself. <b>Total</b>: that \
         in what it called, too.</p>\n<div class=\"scroll tall\"><table id=\"top\">\n<thead><tr>\
         <th class=\"number\" data-key=\"self\" aria-sort=\"descending\">Self</th>\
         <th class=\"number\">Self %</th><th class=\"number\" data-key=\"total\">Total</th>\
         <th class=\"number\">Total %</th><th class=\"bar\"></th>\
         <th class=\"function\" data-key=\"function\">Function</th>\
         <th class=\"module\" data-key=\"module\">Module</th></tr></thead>\n<tbody>"
    )?;
    for row in &shown {
        write_row(profile, row, out)?;
    }
    writeln!(out, "</tbody></table></div>")?;
    let left_out = all.len() - shown.len();
    if left_out > 0 {
        writeln!(
            out,
            "<p class=\"note\">{left_out} more functions with {} are left out; \
             <code>uniprof report --top --rows 0</code> lists all {}.</p>",
            unit.fewer(),
            all.len()
        )?;
    }
    if shown.len() > ROWS_PRINTED {
        let note = format!("Printed are the first {ROWS_PRINTED} rows.");
        writeln!(out, "<p class=\"note print\">{note}</p>")?;
    }
    writeln!(out, "</section>")
}

fn write_row(profile: &Profile, row: &TopRow, out: &mut dyn Write) -> io::Result<()> {
    let (labels, counted) = (&profile.labels, profile.account.counted);
    let name = labels.name(row.label);
    let shown = text(&short(name));
    // If the table shortens a name, the whole name is added, so that it can be seen and searched.
    let whole = match text(name) {
        whole if whole == shown => String::new(),
        whole => format!(" title=\"{whole}\""),
    };
    let mark = if labels.get(row.label).inlined {
        " <i>inlined</i>"
    } else {
        ""
    };
    let unit = profile.unit();
    // The number that the script sorts by, where the text of a cell is not a number.
    let sorted = |amount: u64| match unit {
        Unit::Samples => String::new(),
        Unit::Sampled | Unit::OffCpu | Unit::Calls | Unit::VcpuTime => {
            format!(" data-sort=\"{amount}\"")
        }
    };
    let percent = |part: u64| part as f64 * 100.0 / counted.max(1) as f64;
    writeln!(
        out,
        "<tr><td class=\"number\"{}>{}</td><td class=\"number\">{}</td>\
         <td class=\"number\"{}>{}</td><td class=\"number\">{}</td>\
         <td class=\"bar\"><svg viewBox=\"0 0 100 8\" preserveAspectRatio=\"none\" \
         aria-hidden=\"true\"><rect class=\"total\" width=\"{:.2}\" height=\"8\"/>\
         <rect class=\"self\" width=\"{:.2}\" height=\"8\"/></svg></td>\
         <td class=\"function\"{whole}><bdi>{shown}</bdi>{mark}</td>\
         <td class=\"module\">{}</td></tr>",
        sorted(row.own),
        unit.amount(row.own),
        share(row.own, counted),
        sorted(row.total),
        unit.amount(row.total),
        share(row.total, counted),
        percent(row.total),
        percent(row.own),
        text(labels.module_name(row.label).trim_matches(['[', ']'])),
    )
}
