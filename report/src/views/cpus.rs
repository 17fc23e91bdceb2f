//! `--cpus`: the functions on which each vCPU or thread of a trace spent its time, as a page of bars whose
//! functions can be switched on and off. The page has no script: its style hides what is switched off and
//! moves the bars together. It loads nothing from elsewhere.

use super::calls::{sorted, task_of};
use super::flame::escape;
use super::{Content, Needs, Output, View, caption};
use crate::profile::Profile;
use crate::profile::calls::TaskOf;
use crate::profile::labels::LabelId;
use crate::recording::unit::Unit;
use std::collections::BTreeMap;
use std::io::{self, Write};
use uprof::words::{duration, share};

/// The row of this view in the table of views.
pub(crate) const VIEW: View = View {
    name: "cpus",
    about: "What each vCPU or thread of a trace spent where: a page of bars whose functions can be switched on and off \
            [default: the recording's name with .cpus.html]",
    output: Output::File {
        kind: "HTML",
        ending: "cpus.html",
    },
    needs: Needs::Calls,
    begin: |_| Box::new(write_view),
};

const STYLE: &str = include_str!("cpus/page.css");
/// SHA-256 of [`STYLE`]: browsers apply the style only if it has this hash, and run no script. A test prints
/// the right hash.
const STYLE_HASH: &str = "sha256-Qz/dD367DnWtqp58sPB5pn6t0vuSCoScwwAdzGp6CIM=";

/// Functions with a colour and a switch of their own; the others share one. The style has the same number.
const FUNCTIONS_MAX: usize = 24;
/// Most vCPUs and threads with a bar.
const TASKS_MAX: usize = 256;
/// Names are cut to this many columns.
const NAME_COLUMNS: usize = 120;

/// The bars of a page.
struct Bars<'p> {
    profile: &'p Profile,
    /// Functions with a switch, by rank.
    functions: Vec<LabelId>,
    ranks: BTreeMap<LabelId, usize>,
    /// The time that the busiest task's bar stands for.
    whole_ns: u64,
}

fn write_view(content: &Content<'_>, out: &mut dyn Write) -> io::Result<bool> {
    let profile = content.profile;
    let functions: Vec<LabelId> = sorted(profile)
        .into_iter()
        .filter(|(_, calls)| calls.own_ns > 0)
        .map(|(label, _)| label)
        .take(FUNCTIONS_MAX)
        .collect();
    let ranks = functions.iter().enumerate();
    let sums = profile.calls.tasks.values().map(sum);
    let bars = Bars {
        profile,
        ranks: ranks.map(|(rank, label)| (*label, rank)).collect(),
        functions,
        whole_ns: sums.max().unwrap_or(0).max(1),
    };
    let title = text(&content.flame_options().title);
    write!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         style-src '{STYLE_HASH}'; base-uri 'none'; form-action 'none'\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <meta name=\"referrer\" content=\"no-referrer\"/>\n\
         <title>{title} – uniprof</title>\n<style>{STYLE}</style>\n</head>\n<body>\n\
         <h1><bdi>{title}</bdi></h1>\n"
    )?;
    for line in profile.account.lines() {
        writeln!(out, "<p class=\"lead\">{}</p>", text(&line))?;
    }
    bars.write_switches(out)?;
    let (recordings, files) = content.named_recordings();
    bars.write_bars(&|task| task_of(&recordings, &files, task), out)?;
    writeln!(out, "</body>\n</html>")?;
    Ok(true)
}

fn sum(functions: &BTreeMap<LabelId, u64>) -> u64 {
    functions
        .values()
        .fold(0, |sum, ns| sum.saturating_add(*ns))
}

fn text(name: &str) -> String {
    escape(&caption::cut(name, NAME_COLUMNS))
}

impl Bars<'_> {
    /// The name of a function, or the text for those without a switch.
    fn name(&self, rank: usize) -> String {
        match self.functions.get(rank) {
            Some(label) => text(self.profile.labels.name(*label)),
            None => "other functions".to_owned(),
        }
    }

    /// Time by rank; the last element is the sum of all other functions.
    fn by_rank(&self, functions: &BTreeMap<LabelId, u64>) -> Vec<u64> {
        let mut by_rank = vec![0_u64; FUNCTIONS_MAX + 1];
        for (label, own_ns) in functions {
            let rank = self.ranks.get(label).copied().unwrap_or(FUNCTIONS_MAX);
            by_rank[rank] = by_rank[rank].saturating_add(*own_ns);
        }
        by_rank
    }

    fn write_switches(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut all = [0_u64; FUNCTIONS_MAX + 1];
        for functions in self.profile.calls.tasks.values() {
            for (sum, own_ns) in all.iter_mut().zip(self.by_rank(functions)) {
                *sum = sum.saturating_add(own_ns);
            }
        }
        for (rank, own_ns) in all.iter().enumerate().filter(|(_, own_ns)| **own_ns > 0) {
            writeln!(
                out,
                "<input type=\"checkbox\" id=\"f{rank}\" checked=\"checked\" autocomplete=\"off\"/>&#8288;\
                 <label for=\"f{rank}\">\
                 <svg class=\"f{rank}\" aria-hidden=\"true\"><rect width=\"100%\" height=\"100%\"/></svg>\
                 <bdi>{}</bdi> {}</label>",
                self.name(rank),
                duration(*own_ns)
            )?;
        }
        Ok(())
    }

    fn write_bars(&self, task: &dyn Fn(TaskOf) -> String, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "<main class=\"bars\">")?;
        let tasks = &self.profile.calls.tasks;
        for (of, functions) in tasks.iter().take(TASKS_MAX) {
            let whole = sum(functions);
            writeln!(
                out,
                "<h2><bdi>{}</bdi>: {}</h2>\n<div class=\"bar\">",
                text(&task(*of)),
                Unit::Calls.phrase(whole)
            )?;
            let by_rank = self.by_rank(functions);
            for (rank, own_ns) in by_rank
                .iter()
                .enumerate()
                .filter(|(_, own_ns)| **own_ns > 0)
            {
                let width = *own_ns as f64 * 100.0 / self.whole_ns as f64;
                write!(
                    out,
                    "<svg class=\"f{rank}\" width=\"{width:.4}%\"><title>{}: {} ({})</title>\
                     <rect width=\"100%\" height=\"100%\"/></svg>",
                    self.name(rank),
                    duration(*own_ns),
                    share(*own_ns, whole)
                )?;
            }
            writeln!(out, "</div>")?;
        }
        if let Some(more @ 1..) = tasks.len().checked_sub(TASKS_MAX) {
            writeln!(
                out,
                "<p class=\"lead\">… and {more} more vCPUs or threads</p>"
            )?;
        }
        writeln!(out, "</main>")
    }
}
