//! `--html`: everything about a profile as one page that needs nothing but a browser. What was recorded, what the
//! numbers rest on and the tables stand in the file as they are read, for whoever has no script; the profile itself
//! stands beside them, packed, for the page's own. Nothing is ever loaded, and no script runs but that.

mod script;
pub(crate) mod shell;
pub(crate) mod facts;
mod functions;
mod lapses;
pub(crate) mod payload;
mod tally;

pub use tally::Tally;

use super::flame::FlameOptions;
use super::{Drawn, Needs, Output, Shown, View};
use crate::profile::Profile;
use crate::profile::gather::Sampled;
use crate::recording::Recording;
use crate::recording::survey::{Survey, survey};
use crate::recording::unit::Unit;
use facts::Basis;
use payload::Carried;
use serde_json::json;
use std::io::{self, Write};

/// The view.
pub(crate) const VIEW: View = View {
    name: "html",
    about: "All of it as one page for a browser, to send to someone else; `-` is standard output [default: the \
            recording's name with .html]",
    output: Output::File {
        kind: "HTML",
        ending: "html",
    },
    needs: Needs::Samples,
    begin: |_| Box::new(Tally::default()),
};

impl Drawn for Tally {
    fn add(&mut self, _: &[Recording], sampled: &Sampled) {
        self.add(sampled);
    }

    fn write(&mut self, shown: &Shown<'_>, out: &mut dyn Write) -> io::Result<bool> {
        // Where flags choose, what they leave out is not shown.
        if shown.form.chosen.is_empty() && shown.profile.unit() == Unit::Samples {
            self.add_idle(shown.recordings);
        }
        let surveyed = shown.recordings.iter();
        let surveyed = surveyed.map(|one| (one, survey(one, &|_, _| ())));
        let drawing = shown.flame_options();
        let page = Page {
            recordings: &surveyed.collect::<Vec<_>>(),
            profile: shown.profile,
            tally: self,
            chosen: shown.form.chosen.clone(),
            drawing: &drawing,
            least_share: shown.form.least_share.unwrap_or(0.0),
            identify: shown.form.identify,
        };
        write(&page, out)?;
        Ok(true)
    }
}

/// What a page is made of.
pub struct Page<'a> {
    /// The recordings, each with what one pass over it found.
    pub recordings: &'a [(&'a Recording, Survey)],
    /// Their samples.
    pub profile: &'a Profile,
    /// The same samples by time and by thread.
    pub tally: &'a Tally,
    /// The flags that chose samples and frames; empty where all are shown.
    pub chosen: String,
    /// The title, and how stacks are shown at first.
    pub drawing: &'a FlameOptions,
    /// Least share of the samples, 0 to 1, of a function in the table.
    pub least_share: f64,
    /// Whether to tell the command line, the host's name and folders.
    pub identify: bool,
}

/// Writes the page.
///
/// # Errors
/// What `out` returns.
pub fn write(page: &Page<'_>, out: &mut dyn Write) -> io::Result<()> {
    let profile = page.profile;
    let counted = profile.account.counted;
    shell::write_start("report", &page.drawing.title, out)?;
    facts::write_summary(page.recordings, page.identify, out)?;
    writeln!(out, "</header>")?;
    facts::write_basis(&basis(page), out)?;
    if counted > 0 {
        let recordings: Vec<&Recording> = page.recordings.iter().map(|(one, _)| *one).collect();
        let more = [
            ("counted", json!(counted)),
            ("title", json!(page.drawing.title)),
            (
                "opening",
                json!({"invert": page.drawing.reverse, "fold": page.drawing.fold}),
            ),
        ];
        let carried = Carried {
            recordings: &recordings,
            tree: &profile.tree,
            found: &profile.found,
            labels: &profile.labels,
            unit: profile.unit(),
            more: more
                .map(|(name, is)| (name.to_owned(), is))
                .into_iter()
                .collect(),
        };
        payload::write(&page.tally.payload, &carried, out)?;
        shell::write_contents(PARTS, out)?;
        writeln!(out, "<section id=\"views\" hidden=\"\"></section>")?;
        functions::write(profile, page.least_share, out)?;
        tally::write_threads(page, out)?;
    }
    facts::write_recordings(page.recordings.iter(), page.identify, out)?;
    shell::write_end("report", out)
}

/// The parts of the page: id, name, class of the link.
const PARTS: &[(&str, &str, &str)] = &[
    ("views", "Views", "control"),
    ("functions", "Functions", "fixed"),
    ("threads", "Threads", ""),
    ("recording", "Recording", ""),
];

fn basis(page: &Page<'_>) -> Basis {
    let account = &page.profile.account;
    let mut lines = account.lines();
    if !page.chosen.is_empty() {
        lines.push(format!("chosen by {}", page.chosen));
    }
    if account.counted == 0 {
        lines.push("no sample to show".to_owned());
    }
    let damages = page.recordings.iter();
    let damages = damages.flat_map(|(recording, _)| facts::damages(recording));
    Basis {
        is_incomplete: account.is_incomplete(),
        lines,
        warnings: page
            .profile
            .warnings
            .iter()
            .cloned()
            .chain(damages)
            .collect(),
    }
}
