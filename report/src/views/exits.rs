//! `--exits`: why vCPUs left the guest, which function caused it, and how long it took: by reason, by function, and by
//! both.

use super::vcpu_time::{hypervisor_of, unfocused_line};
use super::{Content, Needs, Output, View, write_left_out};
use crate::profile::Profile;
use crate::profile::exits::ExitSum;
use crate::profile::labels::LabelId;
use crate::text::rows_max;
use crate::text::screen::{Notes, Screen};
use std::collections::HashMap;
use std::hash::Hash;
use std::io::{self, Write};
use uprof::cold::Place;
use uprof::words::{duration, share};

/// The row of this view in the table of views.
pub(crate) const VIEW: View = View {
    name: "exits",
    about: "Exits of vCPUs by reason, by the guest's function, and by both: number, time, mean, p99 (of recordings \
            made with --host)",
    output: Output::Text,
    needs: Needs::VcpuTime,
    begin: |_| Box::new(write_view),
};

/// The function of exits whose address the hypervisor didn't say.
pub(crate) const NO_ADDRESS: &str = "(address not known)";
/// Columns to the left of the name.
const USED: usize = 9 + 1 + 8 + 6 * 10 + 1 + 6 + 2;

/// A row of a table: its name, and its exits.
struct Row {
    name: String,
    module: String,
    sum: ExitSum,
}

/// What the rows are compared with.
struct Whole {
    wall_ns: u64,
    seconds: f64,
    hypervisor: &'static str,
    screen: Screen,
    rows_max: usize,
}

fn write_view(content: &Content<'_>, out: &mut dyn Write) -> io::Result<bool> {
    let (profile, screen) = (content.profile, content.form.screen);
    let (wall_ns, _) = profile.vcpu_times.total();
    let whole = Whole {
        wall_ns,
        seconds: elapsed_ns(profile) as f64 / 1e9,
        hypervisor: hypervisor_of(content.recordings.iter()),
        screen,
        rows_max: rows_max(content.form.rows),
    };
    let exits = &profile.exits;
    let total = exits.total();
    let function = |label: Option<LabelId>| match label {
        Some(label) => (
            profile.labels.name(label).to_owned(),
            profile.labels.module_suffix(label),
        ),
        None => (NO_ADDRESS.to_owned(), String::new()),
    };
    let reasons = rows(exits.by_reason(), |reason| {
        (profile.labels.text(reason).to_owned(), String::new())
    });
    let functions = rows(exits.by_function(), function);
    for (what, rows) in [("reason", &reasons), ("function", &functions)] {
        if let Some(line) = whole.conclusion(what, rows) {
            screen.write_prose("", &line, 2, out)?;
        }
    }
    screen.write_lines(&profile.account.lines(), out)?;
    if let Some(line) = unfocused_line(profile) {
        screen.write_prose("", &line, 2, out)?;
    }
    if total.count == 0 {
        writeln!(out, "no exit was recorded in this time")?;
    }
    let line = if total.is_untimed() {
        "the times of exits are not known: only their number was recorded".to_owned()
    } else {
        format!(
            "numbers and times are estimates: of {} exits, the times of {} were taken ({})",
            total.count,
            total.seen,
            share(total.seen, total.count)
        )
    };
    if total.seen < total.count {
        screen.write_prose("", &line, 2, out)?;
    }
    let interrupted = &exits.interrupted;
    if interrupted.count > 0 {
        let line = format!(
            "interrupted by the recorder: {} times, {}; these exits are not in the tables",
            interrupted.count,
            duration(
                interrupted
                    .spent
                    .iter()
                    .fold(0, |sum: u64, ns| sum.saturating_add(*ns))
            )
        );
        screen.write_prose("", &line, 2, out)?;
    }
    if total.count == 0 {
        return Ok(true);
    }
    whole.write("reason", &reasons, out)?;
    drop(reasons);
    whole.write("function", &functions, out)?;
    drop(functions);
    let both = rows(
        exits.by_both.iter().map(|(key, sum)| (*key, sum.clone())),
        |(label, reason)| {
            let (name, module) = function(label);
            (format!("{name}: {}", profile.labels.text(reason)), module)
        },
    );
    whole.write("function and reason", &both, out)?;
    Ok(true)
}

/// The time in which the vCPUs ran: of each recording, that of the vCPU that was there longest.
fn elapsed_ns(profile: &Profile) -> u64 {
    let mut longest: HashMap<usize, u64> = HashMap::new();
    for row in &profile.vcpu_times.rows {
        let longest = longest.entry(row.recording).or_default();
        *longest = row.wall_ns.max(*longest);
    }
    longest
        .values()
        .fold(0, |sum: u64, ns| sum.saturating_add(*ns))
}

/// Rows in order of the time in which exits were handled, then by number and name.
fn rows<K: Copy + Eq + Hash>(
    sums: impl IntoIterator<Item = (K, ExitSum)>,
    name: impl Fn(K) -> (String, String),
) -> Vec<Row> {
    let rows = sums.into_iter().map(|(key, sum)| {
        let (name, module) = name(key);
        Row { name, module, sum }
    });
    let mut rows: Vec<Row> = rows.collect();
    rows.sort_by(|a, b| {
        let key = |row: &Row| (row.sum.handled_ns(), row.sum.total_ns(), row.sum.count);
        let names = || (&a.name, &a.module).cmp(&(&b.name, &b.module));
        key(b).cmp(&key(a)).then_with(names)
    });
    rows
}

impl Whole {
    /// The row that costs most, in a sentence.
    fn conclusion(&self, what: &str, rows: &[Row]) -> Option<String> {
        let row = rows.first().filter(|row| row.sum.handled_ns() > 0)?;
        Some(format!(
            "costliest {what}: {}, {} of the wall time ({} in {}, {} in the monitor, {} exits)",
            row.name,
            share(row.sum.handled_ns(), self.wall_ns),
            duration(row.sum.at(Place::Hypervisor)),
            self.hypervisor,
            duration(row.sum.at(Place::Monitor)),
            row.sum.count
        ))
    }

    fn write(&self, what: &str, rows: &[Row], out: &mut dyn Write) -> io::Result<()> {
        let in_hypervisor = format!("in {}", self.hypervisor);
        writeln!(
            out,
            "\n{:>9} {:>8} {:>9} {in_hypervisor:>9} {:>9} {:>9} {:>6} {:>9} {:>9}  {what}",
            "exits", "a second", "handled", "monitor", "other", "%", "mean", "p99"
        )?;
        for row in rows.iter().take(self.rows_max) {
            let notes = Notes {
                module: row.module.clone(),
                ..Notes::default()
            };
            let name = self.screen.name(&row.name, &notes, USED);
            writeln!(out, "{}  {name}", self.columns(&row.sum))?;
        }
        write_left_out(rows.len(), self.rows_max, out)
    }

    fn columns(&self, sum: &ExitSum) -> String {
        let time = |ns: Option<u64>| ns.map_or("-".to_owned(), duration);
        let known = |ns: u64| time((!sum.is_untimed()).then_some(ns));
        let rate = if self.seconds > 0.0 {
            format!("{:.1}", sum.count as f64 / self.seconds)
        } else {
            "-".to_owned()
        };
        let handled_ns = sum.handled_ns();
        let whole_ns = if sum.is_untimed() { 0 } else { self.wall_ns };
        let part = format!("{:>6}", share(handled_ns, whole_ns));
        format!(
            "{:>9} {rate:>8} {:>9} {:>9} {:>9} {:>9} {} {:>9} {:>9}",
            sum.count,
            known(handled_ns),
            known(sum.at(Place::Hypervisor)),
            known(sum.at(Place::Monitor)),
            known(sum.total_ns().saturating_sub(handled_ns)),
            self.screen.weighed(part, handled_ns, self.wall_ns),
            time(sum.mean_ns()),
            time(sum.percentile_ns(0.99)),
        )
    }
}
