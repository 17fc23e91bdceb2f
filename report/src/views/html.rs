//! `--html`: everything about a profile as one page that needs nothing but a browser. What was recorded, what the
//! numbers rest on and the tables stand in the file as they are read, for whoever has no script; the profile itself
//! stands beside them, packed, for the page's own. Nothing is ever loaded, and no script runs but that.

mod facts;
mod functions;
mod payload;
mod script;
mod tally;

pub use tally::Tally;

use super::flame::{FlameOptions, escape};
use super::{Drawn, Needs, Output, Shown, View, caption};
use crate::profile::Profile;
use crate::profile::gather::Sampled;
use crate::recording::Recording;
use crate::recording::survey::{Survey, survey};
use crate::recording::unit::Unit;
use crate::text::printable;
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

const STYLE: &str = concat!(
    include_str!("html/style/page.css"),
    include_str!("html/style/views.css")
);
/// SHA-256 of [`STYLE`] and of what [`script::write`] writes. Browsers apply and run what has these, and nothing else:
/// what a name might smuggle in stays dead. A test of the page says what they must be.
const STYLE_HASH: &str = "sha256-zHVZPR4sSAM+H8WwAcsRXYuMtAOp3TuMYGbUaKAfoZk=";
const SCRIPT_HASH: &str = "sha256-9lk3VrfivRpqkp/p0UvNOKwIJm9uPyjKnyMhhWj2HLs=";

/// Names are cut to so many columns: no box, cell or line has room for more.
const NAME_COLUMNS: usize = 240;

/// Writes the page.
///
/// # Errors
/// What `out` returns.
pub fn write(page: &Page<'_>, out: &mut dyn Write) -> io::Result<()> {
    let title = text(&page.drawing.title);
    write!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         style-src '{STYLE_HASH}'; script-src '{SCRIPT_HASH}'; base-uri 'none'; \
         form-action 'none'\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <meta name=\"referrer\" content=\"no-referrer\"/>\n\
         <title>{title} – uniprof</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
    )?;
    let counted = page.profile.account.counted;
    writeln!(
        out,
        "<header>\n<p class=\"kind\">uniprof report</p>\n<h1><bdi>{title}</bdi></h1>"
    )?;
    facts::write_summary(page, out)?;
    writeln!(out, "</header>")?;
    facts::write_account(page, out)?;
    if counted > 0 {
        payload::write(page, out)?;
        write_contents(out)?;
        writeln!(out, "<section id=\"views\" hidden=\"\"></section>")?;
        functions::write(page.profile, page.least_share, out)?;
        tally::write_threads(page, out)?;
    }
    facts::write_recordings(page, out)?;
    write!(
        out,
        "<footer><p>Made by <code>uniprof report --html</code>, version {}. The page holds \
         names, paths and counts, no memory of what was recorded, and loads nothing.</p></footer>\n<script>",
        env!("CARGO_PKG_VERSION")
    )?;
    script::write(out)?;
    writeln!(out, "</script>\n</body>\n</html>")
}

fn write_contents(out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "<nav>\n<a href=\"#views\" class=\"control\">Views</a>\n\
         <a href=\"#functions\" class=\"fixed\">Functions</a>\n<a href=\"#threads\">Threads</a>\n\
         <a href=\"#recording\">Recording</a>\n\
         <span class=\"control search\"><input type=\"search\" id=\"find\" maxlength=\"200\" \
         placeholder=\"Search functions\" aria-label=\"Search functions\"/>\
         <output id=\"matches\" for=\"find\"></output></span>\n</nav>"
    )
}

/// `name` as text of the page, cut to one line's worth.
fn text(name: &str) -> String {
    escape(&caption::cut(&printable(name), NAME_COLUMNS))
}
