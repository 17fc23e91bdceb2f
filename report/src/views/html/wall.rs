//! Where the wall time of vCPUs went, of recordings made with --host: a track for each vCPU, with a colour for each
//! place, and the table of `--time`. Both need no script; with it they are a tab.

use super::Page;
use super::shell::text;
use crate::profile::filter::Filter;
use crate::profile::gather::names;
use crate::profile::vcpu_times::{Spent, VcpuTimes, WallTime, in_proportion};
use crate::recording::Recording;
use crate::recording::processes::task_name;
use crate::views::flame::palette::key_of;
use crate::views::vcpu_time::headings;
use crate::work;
use std::io::{self, Write};
use uprof::cold::Place;
use uprof::words::{duration, share};

/// Most vCPUs that have a track.
const TRACKS_MAX: usize = 64;
/// Most columns of a track: intervals of equal length.
const COLUMNS_MAX: u64 = 240;
/// Shortest interval (nanoseconds): a recorder sums over 0.4 s.
const COLUMN_NS_MIN: u64 = 400_000_000;
/// Height of a track.
const HEIGHT: u64 = 100;

/// Writes the tracks and the table, if there is anything to show.
pub(super) fn write(page: &Page<'_>, out: &mut dyn Write) -> io::Result<()> {
    let recordings: Vec<&Recording> = page.recordings.iter().map(|(one, _)| *one).collect();
    let mut times = VcpuTimes::default();
    for (number, recording) in recordings.iter().enumerate() {
        times.add(number, recording, &Filter::default());
    }
    let is_recorded = recordings.iter().any(|one| !one.vcpu_times().is_empty());
    if !is_recorded || times.rows.is_empty() || page.is_part {
        return Ok(());
    }
    let files = names(&recordings);
    let name = |row: &WallTime| {
        let name = task_name(recordings[row.recording], row.task, u64::MAX);
        match recordings.len() {
            1 => name,
            _ => format!("{}: {name}", files[row.recording]),
        }
    };
    writeln!(
        out,
        "<section id=\"wall\">\n<h2>Wall time of vCPUs</h2>\n<p class=\"lead\">Each moment of a vCPU is in one place. \
         {}</p>",
        key()
    )?;
    for row in times.rows.iter().take(TRACKS_MAX) {
        write_track(recordings[row.recording], row, &name(row), out)?;
    }
    if let Some(more @ 1..) = times.rows.len().checked_sub(TRACKS_MAX) {
        writeln!(out, "<p class=\"note\">… and {more} more vCPUs.</p>")?;
    }
    writeln!(
        out,
        "<div class=\"scroll\"><table>\n<thead><tr><th>vCPU</th><th class=\"number\">Wall time</th>"
    )?;
    for heading in headings(page.recordings.iter().map(|(one, _)| *one)) {
        writeln!(out, "<th class=\"number\">{}</th>", text(&heading))?;
    }
    writeln!(out, "</tr></thead>\n<tbody>")?;
    for row in times.rows.iter().take(TRACKS_MAX) {
        write_row(&name(row), (row.wall_ns, &row.spent), out)?;
    }
    if times.rows.len() > 1 {
        let (wall_ns, spent) = times.total();
        write_row("all vCPUs", (wall_ns, &spent), out)?;
    }
    writeln!(out, "</tbody></table></div>\n</section>")
}

/// The colours and what they mean.
fn key() -> String {
    let entries = Place::ALL.iter().map(|place| {
        let (name, colour) = key_of(*place);
        format!(
            "<svg class=\"swatch\" viewBox=\"0 0 1 1\"><rect width=\"1\" height=\"1\" fill=\"{colour}\"/></svg>{name}"
        )
    });
    entries.collect::<Vec<_>>().join(" ")
}

fn write_row(name: &str, (wall_ns, spent): (u64, &Spent), out: &mut dyn Write) -> io::Result<()> {
    write!(
        out,
        "<tr><td><bdi>{}</bdi></td><td class=\"number\">{}</td>",
        text(name),
        duration(wall_ns)
    )?;
    for ns in spent {
        write!(out, "<td class=\"number\">{}</td>", share(*ns, wall_ns))?;
    }
    writeln!(out, "</tr>")
}

/// Writes the track of a vCPU: its wall time from the left to the right, in each column its places from the bottom up.
fn write_track(
    recording: &Recording,
    row: &WallTime,
    name: &str,
    out: &mut dyn Write,
) -> io::Result<()> {
    let length_ns = recording.end_ns().saturating_sub(recording.start_ns());
    let columns = (length_ns / COLUMN_NS_MIN).clamp(1, COLUMNS_MAX);
    let column_ns = length_ns.div_ceil(columns).max(1);
    let mut spent = vec![Spent::default(); columns as usize];
    for record in recording.vcpu_times() {
        if record.task.vcpu != row.task.vcpu || record.last_ns <= record.first_ns {
            continue;
        }
        let since = |ns: u64| ns.saturating_sub(recording.start_ns());
        let last = (since(record.last_ns - 1) / column_ns).min(columns - 1);
        let whole_ns = record.last_ns - record.first_ns;
        for column in since(record.first_ns) / column_ns..=last {
            let start_ns = recording.start_ns() + column * column_ns;
            let part_ns = record.last_ns.min(start_ns.saturating_add(column_ns));
            let part_ns = part_ns.saturating_sub(record.first_ns.max(start_ns));
            work::take(1);
            for (place, ns) in &record.spent {
                let sum = &mut spent[column as usize][usize::from(place.number())];
                *sum = sum.saturating_add(in_proportion(*ns, part_ns, whole_ns));
            }
        }
    }
    writeln!(
        out,
        "<h3><bdi>{}</bdi></h3>\n<svg class=\"wall\" viewBox=\"0 0 {columns} {HEIGHT}\" preserveAspectRatio=\"none\" \
         role=\"img\" aria-label=\"{} from {} to {}\">",
        text(name),
        text(name),
        duration(0),
        duration(length_ns)
    )?;
    for (column, spent) in spent.iter().enumerate() {
        write_column(column as u64, spent, column_ns, out)?;
    }
    writeln!(out, "</svg>")
}

fn write_column(column: u64, spent: &Spent, column_ns: u64, out: &mut dyn Write) -> io::Result<()> {
    let mut top = HEIGHT;
    for (place, ns) in Place::ALL.iter().zip(spent) {
        let high = in_proportion(HEIGHT, *ns, column_ns).min(top);
        if high > 0 {
            top -= high;
            let (_, fill) = key_of(*place);
            write!(
                out,
                "<rect x=\"{column}\" y=\"{top}\" width=\"1\" height=\"{high}\" fill=\"{fill}\"/>"
            )?;
        }
    }
    Ok(())
}
