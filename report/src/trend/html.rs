//! The trend as a page for a browser: a line for each function, with its shares as a small chart.

use super::rows::{notes, relative};
use super::{FunctionTrend, Trend};
use crate::text::{percent, printable, short};
use crate::views::flame::escape;
use crate::views::html::shell::{self, text};
use std::fmt::Write as _;
use std::io::{self, Write};

/// Most functions in a page.
pub(super) const FUNCTIONS_MAX: usize = 500;
const WIDTH: f64 = 280.0;
const HEIGHT: f64 = 44.0;
const MARGIN: f64 = 3.0;

/// Writes the page.
///
/// # Errors
/// The errors of `out`.
pub fn write(trend: &Trend, title: &str, out: &mut dyn Write) -> io::Result<()> {
    let verdict = trend.verdict(&|name| printable(name).into_owned(), &str::to_owned);
    let is_incomplete = trend.points.iter().any(|point| point.is_incomplete);
    let about = trend.about(&str::to_owned);
    shell::write_start("trend", title, (&about, is_incomplete), out)?;
    for line in trend.warnings.iter().chain(&trend.legend()) {
        writeln!(out, "<p>{}</p>", escape(&printable(line)))?;
    }
    writeln!(out, "<h2>Recordings</h2>\n<ol>")?;
    for point in &trend.points {
        let (place, name) = (trend.place(point), &point.name);
        writeln!(
            out,
            "<li>{}: {}, {:.0} samples</li>",
            text(&place),
            text(name),
            point.samples
        )?;
    }
    writeln!(out, "</ol>")?;
    shell::write_header_end(out)?;
    writeln!(
        out,
        "<section id=\"changes\">\n<h2>{}</h2>\n<p class=\"lead\">Percent of the {}. A chart has a point for each \
         recording and a line for each level.</p>\n<div class=\"scroll tall\"><table>\n<thead><tr>\
         <th class=\"number\">Share</th><th class=\"number\">Interval</th><th>Changes</th><th>Shares</th>\
         <th class=\"function\">Function</th></tr></thead>\n<tbody>",
        text(&verdict),
        text(trend.unit.what())
    )?;
    for function in trend.functions.iter().take(FUNCTIONS_MAX) {
        write_row(trend, function, out)?;
    }
    writeln!(out, "</tbody></table></div>")?;
    if let Some(more @ 1..) = trend.functions.len().checked_sub(FUNCTIONS_MAX) {
        writeln!(
            out,
            "<p class=\"note\">{more} more functions are left out; <code>uniprof trend --rows 0</code> lists all.</p>"
        )?;
    }
    writeln!(out, "</section>")?;
    shell::write_end("trend", "", out)
}

fn write_row(trend: &Trend, function: &FunctionTrend, out: &mut dyn Write) -> io::Result<()> {
    let class = match function.changes.last() {
        Some(last) if last.after > last.before => "grew",
        Some(_) => "shrank",
        None => "open",
    };
    let changes = function.changes.iter().map(|change| {
        let since = trend.place(&trend.points[change.at]);
        format!("{} since {}", relative(change), text(&since))
    });
    let changes: Vec<String> = changes.collect();
    let (low, high) = function.interval;
    let name = text(&short(&function.name));
    writeln!(
        out,
        "<tr class=\"{class}\"><td class=\"number\">{}</td><td class=\"number interval\">{} to {}</td>\
         <td>{}</td><td>{}</td><td class=\"function\" title=\"{}\"><bdi>{name}</bdi> <i>{}</i></td></tr>",
        percent(function.share),
        percent(low),
        percent(high),
        changes.join("<br/>"),
        chart(function),
        text(&function.name),
        text(&notes(function)),
    )
}

/// The shares as points, and the levels as lines.
fn chart(function: &FunctionTrend) -> String {
    let shares = &function.shares;
    let low = shares.iter().copied().fold(f64::INFINITY, f64::min);
    let high = shares.iter().copied().fold(0.0, f64::max);
    let range = (high - low).max(f64::MIN_POSITIVE);
    let x = |at: f64| MARGIN + at / shares.len() as f64 * (WIDTH - 2.0 * MARGIN);
    let y = |share: f64| HEIGHT - MARGIN - (share - low) / range * (HEIGHT - 2.0 * MARGIN);
    let mut chart = format!(
        "<svg width=\"{WIDTH}\" height=\"{HEIGHT}\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
         aria-label=\"from {} to {} percent\"><g fill=\"currentColor\" fill-opacity=\"0.5\">",
        percent(low),
        percent(high)
    );
    for (at, share) in shares.iter().enumerate() {
        let (x, y) = (x(at as f64 + 0.5), y(*share));
        // Writing to a string can't fail.
        let _ = write!(chart, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"1.5\"/>");
    }
    chart += "</g><g stroke=\"currentColor\" stroke-width=\"1.5\">";
    let begins = function
        .changes
        .iter()
        .map(|change| (change.at, change.before));
    let levels = begins.chain([(shares.len(), function.share)]);
    let mut from = 0;
    for (end, share) in levels {
        let ([x1, x2], y) = ([from, end].map(|at| x(at as f64)), y(share));
        let _ = write!(
            chart,
            "<line x1=\"{x1:.1}\" x2=\"{x2:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>"
        );
        from = end;
    }
    chart + "</g></svg>"
}
