//! `--html`: everything about a profile as one page that needs only a browser. The file contains the
//! description of the recording, the account and the tables as plain HTML, which needs no script. The profile
//! itself is added in compressed form for the page's own script. The page loads nothing from elsewhere and
//! runs no other script.

mod script;
pub(crate) mod shell;
pub(crate) mod facts;
mod functions;
mod lapses;
pub(crate) mod payload;
mod code;
mod tally;
mod wall;

pub use tally::Tally;

use super::flame::FlameOptions;
use super::{Content, Needs, Output, Renderer, View};
use crate::images::library::Library;
use crate::profile::Profile;
use crate::profile::gather::Sampled;
use crate::recording::Recording;
use crate::recording::survey::Survey;
use crate::stacks::code::Codes;
use code::Code;
use facts::Basis;
use payload::SampleTables;
use serde_json::json;
use std::io::{self, Write};

/// The row of this view in the table of views.
pub(crate) const VIEW: View = View {
    name: "html",
    about: "All of it as one page for a browser, to send to someone else; `-` is standard output [default: the \
            recording's name with .html]",
    output: Output::File {
        kind: "HTML",
        ending: "html",
    },
    needs: Needs::Places,
    begin: |_| Box::new(Tally::default()),
};

impl Renderer for Tally {
    fn add(&mut self, _: &[Recording], sampled: &Sampled) {
        self.add(sampled);
    }

    fn write(&mut self, content: &Content<'_>, out: &mut dyn Write) -> io::Result<bool> {
        // If flags select samples, the page must not show those that they leave out.
        if !content.form.is_part && content.profile.unit().is_sampled() {
            self.add_idle(content.recordings, content.profile);
        }
        let nodes_of = content.places.unwrap_or(content.profile);
        self.bands = self.payload.bands(&content.form.phases, nodes_of);
        if let Some(code) = code_of(content) {
            self.payload.renumber(|node| code.reduced.node(node));
            self.code = Some(code);
        }
        let known = &content.profile.of_recordings;
        let surveyed = content.recordings.iter().zip(known);
        let surveyed = surveyed.map(|(one, known)| (one, known.survey(one)));
        let drawing = content.flame_options();
        let page = Page {
            recordings: &surveyed.collect::<Vec<_>>(),
            profile: content.profile,
            tally: self,
            chosen: content.form.chosen.clone(),
            is_part: content.form.is_part,
            drawing: &drawing,
            least_share: content.form.least_share.unwrap_or(0.0),
            identify: content.form.identify,
        };
        write(&page, out)?;
        Ok(true)
    }
}

/// The source and instructions of a profile that was gathered by instruction, if there are any.
fn code_of(content: &Content<'_>) -> Option<Code> {
    let places = content.places?;
    let recordings: Vec<&Recording> = content.recordings.iter().collect();
    let empty = Library::default();
    let codes = Codes::new(
        &recordings,
        content.library.unwrap_or(&empty),
        !content.form.mangled,
    );
    let code = Code::of(places, content.profile, &codes, &content.form.sources);
    Some(code)
}

/// The content of a page.
pub struct Page<'a> {
    /// The recordings, each with its survey.
    pub recordings: &'a [(&'a Recording, Survey)],
    /// Their samples.
    pub profile: &'a Profile,
    /// The same samples by time and by thread.
    pub tally: &'a Tally,
    /// The flags that selected samples and frames; empty if all are shown.
    pub chosen: String,
    /// Whether they leave out samples that count by default.
    pub is_part: bool,
    /// The title, and the initial form of the stacks.
    pub drawing: &'a FlameOptions,
    /// Least share of the samples, 0 to 1, of a function in the table.
    pub least_share: f64,
    /// Whether to show the command line, the host's name and folders.
    pub identify: bool,
}

/// Writes the page.
///
/// # Errors
/// The errors of `out`.
pub fn write(page: &Page<'_>, out: &mut dyn Write) -> io::Result<()> {
    let profile = page.profile;
    let counted = profile.account.counted;
    let basis = basis(page);
    shell::write_start("report", &page.drawing.title, basis.head(), out)?;
    facts::write_basis(&basis, out)?;
    facts::write_summary(page.recordings, page.identify, out)?;
    if counted > 0 {
        tally::write_threads(page, out)?;
    }
    facts::write_recordings(page.recordings.iter(), page.identify, out)?;
    shell::write_search(out)?;
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
        let code = page.tally.code.as_ref();
        let (tree, found, labels) = match code {
            Some(code) => (
                &code.reduced.tree,
                &code.reduced.found,
                &code.reduced.labels,
            ),
            None => (&profile.tree, &profile.found, &profile.labels),
        };
        let carried = SampleTables {
            recordings: &recordings,
            tree,
            found,
            labels,
            unit: profile.unit(),
            bands: &page.tally.bands,
            more: more
                .map(|(name, is)| (name.to_owned(), is))
                .into_iter()
                .collect(),
        };
        let is_carried = payload::write(&page.tally.payload, &carried, out)?;
        if let Some(value) = code
            .and_then(|code| code.value.as_ref())
            .filter(|_| is_carried)
        {
            payload::write_value("code", value, out)?;
        }
        writeln!(out, "<section id=\"views\" hidden=\"\"></section>")?;
        functions::write(profile, page.least_share, out)?;
    }
    wall::write(page, out)?;
    let has_code = page
        .tally
        .code
        .as_ref()
        .is_some_and(|code| code.value.is_some());
    let holds = if has_code {
        ", source and instructions"
    } else {
        ""
    };
    shell::write_end("report", holds, out)
}

fn basis(page: &Page<'_>) -> Basis {
    let account = &page.profile.account;
    let mut lines = account.lines();
    lines.extend(page.tally.code.iter().flat_map(|code| code.lines.clone()));
    if page.tally.idle_left_out > 0 {
        let left_out = page.tally.idle_left_out;
        lines.push(format!(
            "{left_out} samples that were not running are left out of the time line: the page has no room for more"
        ));
    }
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
