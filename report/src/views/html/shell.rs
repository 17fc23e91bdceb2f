//! The frame of all pages: a policy that allows only the page's own style and script, by their hashes; a
//! title; and a line that names the program and its version.

use super::script;
use crate::text::printable;
use crate::views::caption;
use crate::views::flame::escape;
use std::io::{self, Write};

const STYLE: &str = concat!(
    include_str!("style/page.css"),
    include_str!("style/views.css"),
    include_str!("style/changes.css")
);
/// SHA-256 of [`STYLE`] and of the output of [`script::write`]. Browsers apply a style and run a script only
/// if it has one of these hashes, so that code smuggled in by a name doesn't run. A test of the page prints
/// the right hashes.
const STYLE_HASH: &str = "sha256-aJ+jTDcQN16PSJDfcW/rtaf5wOibnKAR04xLmXJUDpk=";
const SCRIPT_HASH: &str = "sha256-fgcsrqotBajpp58sTLfeD14ERGp8pQDknxSWBTnyyA0=";

/// Names are cut to this many columns, because no box, cell or line has room for more.
const NAME_COLUMNS: usize = 240;

/// Writes the start of a page. `kind` is the subcommand, and `first` is the line of the header that says what
/// was counted. Everything written between this call and [`write_search`] is folded until it is clicked;
/// without a script it is open.
///
/// # Errors
/// The errors of `out`.
pub(crate) fn write_start(
    kind: &str,
    title: &str,
    (first, is_incomplete): (&str, bool),
    out: &mut dyn Write,
) -> io::Result<()> {
    let title = text(title);
    let warning = if is_incomplete {
        "<b>Samples are missing</b> "
    } else {
        ""
    };
    writeln!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         style-src '{STYLE_HASH}'; script-src '{SCRIPT_HASH}'; base-uri 'none'; \
         form-action 'none'\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <meta name=\"referrer\" content=\"no-referrer\"/>\n\
         <title>{title} – uniprof</title>\n<style>{STYLE}</style>\n</head>\n<body>\n\
         <header>\n<p class=\"kind\">uniprof {kind}</p>\n<h1><bdi>{title}</bdi></h1>\n\
         <details id=\"about\" open=\"\"><summary>{warning}<span>{}</span> <em>Details</em></summary>\n\
         <div class=\"sheet\">",
        text(first)
    )
}

/// Ends the folded details and the header, of a page without a search field.
///
/// # Errors
/// The errors of `out`.
pub(crate) fn write_header_end(out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "</div></details>\n</header>")
}

/// Ends the folded details, and then the header with the page's search field.
///
/// # Errors
/// The errors of `out`.
pub(crate) fn write_search(out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "</div></details>\n<span class=\"control search\"><output id=\"matches\" for=\"find\"></output>\
         <input type=\"search\" id=\"find\" maxlength=\"200\" placeholder=\"Search functions ( / )\" \
         aria-label=\"Search functions\"/></span>\n</header>"
    )
}

/// Writes the end. `holds` says what the page contains in addition to names, paths and counts.
///
/// # Errors
/// The errors of `out`.
pub(crate) fn write_end(kind: &str, holds: &str, out: &mut dyn Write) -> io::Result<()> {
    write!(
        out,
        "<footer><p>Made by <code>uniprof {kind} --html</code>, version {}. The page holds \
         names, paths and counts{holds}, no memory of what was recorded, and loads nothing.</p></footer>\n<script>",
        env!("CARGO_PKG_VERSION")
    )?;
    script::write(out)?;
    writeln!(out, "</script>\n</body>\n</html>")
}

/// `name` as escaped text of the page, cut to one line.
pub(crate) fn text(name: &str) -> String {
    escape(&caption::cut(&printable(name), NAME_COLUMNS))
}
