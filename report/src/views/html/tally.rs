//! Samples as they are gathered, one by one: stored for the page's script, and counted by vCPU or thread.

use super::Page;
use super::code::Code;
use super::payload::{Band, Payload};
use super::shell::text;
use crate::profile::Profile;
use crate::profile::gather::{Sampled, names};
use crate::recording::Recording;
use crate::recording::processes::task_name;
use crate::recording::unit::Unit;
use std::collections::BTreeMap;
use std::io::{self, Write};
use uprof::Task;
use uprof::words::share;

/// Counts by time and by thread.
#[derive(Debug, Default)]
pub struct Tally {
    /// Number of samples, by recording and thread.
    threads: BTreeMap<(usize, Task), u64>,
    /// Every sample, for the script.
    pub(super) payload: Payload,
    /// Source and instructions, if the stacks were gathered by instruction.
    pub(super) code: Option<Code>,
    /// The phases that were asked for.
    pub(super) bands: Vec<Band>,
    /// Number of samples that were not running for which there was no room.
    pub(super) idle_left_out: u64,
}

/// Most threads that a page lists.
const THREADS_MAX: usize = 200;

impl Tally {
    /// Adds one sample.
    pub fn add(&mut self, sampled: &Sampled) {
        self.payload.add(sampled);
        let thread = (sampled.recording, sampled.task);
        *self.threads.entry(thread).or_default() += sampled.weight.amount;
    }

    /// Adds the samples of vCPUs and threads that were not running, of all recordings, for the time line.
    pub fn add_idle(&mut self, recordings: &[Recording], profile: &Profile) {
        let counted = self.payload.states();
        let known = recordings.iter().zip(&profile.of_recordings);
        for (number, (recording, known)) in known.enumerate() {
            self.idle_left_out += self.payload.add_idle(number, recording, &counted, known);
        }
    }
}

/// Writes the number of samples of each vCPU or thread.
pub(super) fn write_threads(page: &Page<'_>, out: &mut dyn Write) -> io::Result<()> {
    let recordings: Vec<&Recording> = page.recordings.iter().map(|(one, _)| *one).collect();
    let files = names(&recordings);
    let threads = &page.tally.threads;
    let unit = page.profile.unit();
    let mut rows: Vec<((usize, Task), u64)> = threads.iter().map(|(k, n)| (*k, *n)).collect();
    rows.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
    writeln!(
        out,
        "<section id=\"threads\">\n<h2>vCPUs and threads</h2>\n<div class=\"scroll\"><table>\n\
         <thead><tr><th>Name</th><th class=\"number\">Number</th>\
         <th class=\"number\">{}</th><th class=\"number\">Share</th></tr></thead>\n<tbody>",
        match unit {
            Unit::Samples => "Samples",
            Unit::Sampled => "Time",
            Unit::OffCpu => "Off CPU",
            Unit::Calls => "In calls",
            Unit::VcpuTime => "Wall time",
        }
    )?;
    let counted = page.profile.account.counted;
    for ((recording, task), amount) in rows.iter().take(THREADS_MAX) {
        let mut name = recordings
            .get(*recording)
            .map_or_else(String::new, |one| task_name(one, *task, u64::MAX));
        if let (Some(file), true) = (files.get(*recording), files.len() > 1) {
            name = format!("{file}: {name}");
        }
        writeln!(
            out,
            "<tr><td><bdi>{}</bdi></td><td class=\"number\">{}</td>\
             <td class=\"number\">{}</td><td class=\"number\">{}</td></tr>",
            text(&name),
            task.vcpu,
            unit.amount(*amount),
            share(*amount, counted)
        )?;
    }
    writeln!(out, "</tbody></table></div>")?;
    if let Some(more @ 1..) = rows.len().checked_sub(THREADS_MAX) {
        writeln!(
            out,
            "<p class=\"note\">… and {more} more with {}.</p>",
            unit.fewer()
        )?;
    }
    writeln!(out, "</section>")
}
