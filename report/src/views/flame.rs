//! `--flame`: the stack tree as a flame graph, drawn by inferno. Kernel frames are orange, inlined
//! ones aqua, the rest green to yellow by their name, the same in every run.

use crate::export::folded;
use crate::gather::Profile;
use crate::tree::StackTree;
use inferno::flamegraph::color::{MultiPalette, Palette};
use inferno::flamegraph::{self, Direction};
use std::io::{self, Write};

/// What to draw.
#[derive(Debug, Clone)]
pub struct FlameOptions {
    /// Above the picture.
    pub title: String,
    /// Below the title.
    pub subtitle: String,
    /// Innermost frames at the bottom.
    pub reverse: bool,
    /// Outermost frames at the top.
    pub icicle: bool,
    /// Least share of the samples, 0 to 1, that a box must have.
    pub least_share: f64,
}

/// Draws `profile` as SVG.
///
/// # Errors
/// What `out` returns, or that there is no sample to draw.
pub fn write(profile: &Profile, options: &FlameOptions, out: &mut dyn Write) -> io::Result<()> {
    match options.reverse {
        true => write_tree(profile, &profile.tree.reversed(), options, out),
        false => write_tree(profile, &profile.tree, options, out),
    }
}

fn write_tree(
    profile: &Profile,
    tree: &StackTree,
    options: &FlameOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    let marked = folded::FoldedOptions { marks: true };
    let lines = folded::lines(tree, &profile.labels, marked);
    if lines.is_empty() {
        return write_nothing(options, &profile.account.lines(), out);
    }
    let mut drawing = inferno_options(options);
    // They become an XML comment, which two hyphens would end (XML 1.0, section 2.5).
    let notes = profile.account.short_line(NOTES_LETTERS);
    drawing.notes = notes.replace("--", "\u{2013}");
    let lines = lines.iter().map(String::as_str);
    flamegraph::from_lines(&mut drawing, lines, out)
}

/// The notes are a comment in the file.
const NOTES_LETTERS: usize = 4000;

pub(crate) fn inferno_options(options: &FlameOptions) -> flamegraph::Options<'static> {
    let mut drawing = flamegraph::Options::default();
    drawing.title = options.title.clone();
    drawing.subtitle = (!options.subtitle.is_empty()).then(|| options.subtitle.clone());
    drawing.colors = Palette::Multi(MultiPalette::Java);
    // Colours by name: the same picture from the same input.
    drawing.deterministic = true;
    drawing.min_width = (options.least_share * 100.0).max(0.01);
    drawing.direction = match options.icicle {
        true => Direction::Inverted,
        false => Direction::Straight,
    };
    // DejaVu Sans Mono is wider than the default allows for; texts would leave their boxes.
    drawing.font_width = 0.62;
    drawing
}

/// A picture that says that there is nothing in it: a missing file would say less.
pub(crate) fn write_nothing(
    options: &FlameOptions,
    why: &[String],
    out: &mut dyn Write,
) -> io::Result<()> {
    writeln!(out, "<?xml version=\"1.0\" standalone=\"no\"?>")?;
    let size = "width=\"1200\" height=\"120\"";
    writeln!(
        out,
        "<svg version=\"1.1\" xmlns=\"http://www.w3.org/2000/svg\" {size}>"
    )?;
    let mut lines = vec![options.title.clone(), "no sample to draw".to_owned()];
    lines.extend(why.iter().cloned());
    for (number, line) in lines.iter().enumerate() {
        let y = 20 + 18 * number;
        let text = escape(line);
        writeln!(
            out,
            "<text x=\"10\" y=\"{y}\" font-family=\"monospace\">{text}</text>"
        )?;
    }
    writeln!(out, "</svg>")
}

/// `text` inside an XML element or a quoted attribute.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            _ => escaped.push(letter),
        }
    }
    escaped
}
