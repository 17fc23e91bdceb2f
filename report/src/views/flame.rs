//! `--flame`: the stack tree as a flame graph. inferno draws it, with this package's colours.

pub(crate) mod palette;
mod boxes;

use crate::export::folded::{FoldedOptions, frame_names, named_lines};
use crate::profile::Profile;
use crate::profile::recursion::shown;
use crate::recording::unit::Unit;
use crate::views::{Content, Needs, Output, View, caption};
use inferno::flamegraph::{self, Direction};
use palette::{Kind, Palette};
use std::borrow::Cow;
use std::io::{self, Write};

/// The row of this view in the table of views.
pub(crate) const VIEW: View = View {
    name: "flame",
    about: "A flame graph as SVG; `-` is standard output [default: the recording's name with .svg]",
    output: Output::File {
        kind: "SVG",
        ending: "svg",
    },
    needs: Needs::Counts,
    begin: |_| Box::new(write_view),
};

fn write_view(content: &Content<'_>, out: &mut dyn Write) -> io::Result<bool> {
    write(content.profile, &content.flame_options(), out)?;
    Ok(true)
}

/// What to draw, and how.
#[derive(Debug, Clone)]
pub struct FlameOptions {
    /// Text above the picture.
    pub title: String,
    /// Text below the title.
    pub subtitle: String,
    /// Whether innermost frames are at the root.
    pub reverse: bool,
    /// Whether the root is at the top.
    pub icicle: bool,
    /// Least share of the samples, 0 to 1, that a box must have.
    pub least_share: f64,
    /// Whether to collapse recursion.
    pub fold: bool,
}

/// Draws `profile` as SVG.
///
/// # Errors
/// The errors of `out`, or an error if there is no sample to draw.
pub fn write(profile: &Profile, options: &FlameOptions, out: &mut dyn Write) -> io::Result<()> {
    let tree = shown(&profile.tree, options.reverse, options.fold);
    let names = frame_names(&profile.labels, FoldedOptions { marks: true });
    let lines = named_lines(&tree, &names, |counts| profile.unit().widths(counts)).lines;
    if lines.is_empty() {
        return write_nothing(options, &profile.account.lines(), out);
    }
    let mut drawing = inferno_options(options, &lines);
    drawing.count_name = profile.unit().width_name().to_owned();
    // The notes become an XML comment, which must not have two hyphens in a row (XML 1.0, section 2.5).
    let notes = profile.account.short_line(NOTES_LETTERS);
    drawing.notes = notes.replace("--", "\u{2013}");
    let kind = match profile.unit() {
        Unit::VcpuTime => Kind::of_place,
        Unit::Samples | Unit::Sampled | Unit::OffCpu | Unit::Calls => Kind::of,
    };
    let palette = Palette::of(&profile.labels, &names, kind);
    draw(drawing, palette, lines.iter().map(String::as_str), out)
}

/// Draws `lines` with inferno, and adds this package's names and colours.
pub(crate) fn draw<'l>(
    drawing: flamegraph::Options<'static>,
    mut palette: Palette,
    lines: impl Iterator<Item = &'l str>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut svg = Vec::new();
    let lines: Vec<_> = that_add_up(lines).collect();
    let (key, letter_width) = (palette.key(), drawing.font_width);
    let mut drawing: flamegraph::Options<'_> = drawing;
    drawing.palette_map = Some(&mut palette.colours);
    flamegraph::from_lines(&mut drawing, lines.iter().map(|line| &**line), &mut svg)?;
    let svg = String::from_utf8(svg).map_err(io::Error::other)?;
    let svg = boxes::finished(&svg, letter_width, &key)
        .ok_or_else(|| io::Error::other("inferno's drawing has another form than expected"))?;
    out.write_all(svg.as_bytes())
}

/// The `lines`, with counts that are limited so that their sum doesn't overflow, as inferno assumes. An
/// untrusted file may claim any times.
fn that_add_up<'l>(lines: impl Iterator<Item = &'l str>) -> impl Iterator<Item = Cow<'l, str>> {
    let mut room = i64::MAX as u64;
    lines.map(move |line| {
        let parts = line.rsplit_once(' ');
        let Some((stack, count)) =
            parts.and_then(|(stack, count)| Some((stack, count.parse::<u64>().ok()?)))
        else {
            return Cow::Borrowed(line);
        };
        let fits = count.min(room);
        room -= fits;
        if fits == count {
            Cow::Borrowed(line)
        } else {
            Cow::Owned(format!("{stack} {fits}"))
        }
    })
}

/// Most letters of the notes in the file.
const NOTES_LETTERS: usize = 4000;
/// Width of the picture, unless a window is wider (pixels).
const WIDTH: u64 = 1200;
/// Width of the buttons on each side of the title (pixels).
const BUTTON_WIDTH: u64 = 110;

/// inferno's options for `lines`.
pub(crate) fn inferno_options(
    options: &FlameOptions,
    lines: &[String],
) -> flamegraph::Options<'static> {
    let mut drawing = flamegraph::Options::default();
    let title_size = drawing.font_size as u64 + 5;
    let title_columns = caption::columns(WIDTH - 2 * BUTTON_WIDTH, title_size);
    drawing.title = caption::cut(&options.title, title_columns);
    let subtitle = caption::cut(
        &options.subtitle,
        caption::columns(WIDTH, drawing.font_size as u64),
    );
    drawing.subtitle = (!subtitle.is_empty()).then_some(subtitle);
    // Colours by name, so that equal input gives equal pictures.
    drawing.deterministic = true;
    drawing.min_width = (options.least_share * 100.0).max(0.01);
    drawing.direction = if options.icicle {
        Direction::Inverted
    } else {
        Direction::Straight
    };
    drawing.font_width = caption::COLUMN;
    // inferno assumes that all letters of a monospaced font are as wide as an M, but letters that the font
    // lacks come from another font. inferno then has to measure the texts as in a proportional font.
    if lines.iter().any(|line| line.contains(is_beyond_cyrillic)) {
        drawing.font_type = "sans-serif".to_owned();
        drawing.font_width = 1.0;
    }
    drawing
}

/// Whether monospaced fonts often lack this letter.
fn is_beyond_cyrillic(letter: char) -> bool {
    letter > '\u{52f}'
}

/// Writes a picture that says that it is empty, which is clearer than a missing file.
pub(crate) fn write_nothing(
    options: &FlameOptions,
    why: &[String],
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut texts = vec![options.title.clone(), "no sample to draw".to_owned()];
    texts.extend(why.iter().cloned());
    let lines = caption::lines(&texts, caption::columns(WIDTH - 20, 16));
    let height = 40 + 20 * lines.len();
    writeln!(out, "<?xml version=\"1.0\" standalone=\"no\"?>")?;
    writeln!(
        out,
        "<svg version=\"1.1\" xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" \
         height=\"{height}\" font-family=\"monospace\" font-size=\"16\">\n\
         <style>@media (prefers-color-scheme: dark) {{ rect {{ fill:#1b1d22 }} text {{ fill:#e6e6e6 }} }}</style>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>"
    )?;
    for (number, line) in lines.iter().enumerate() {
        let (y, text) = (30 + 20 * number, escape(line));
        writeln!(out, "<text x=\"10\" y=\"{y}\">{text}</text>")?;
    }
    writeln!(out, "</svg>")
}

/// `text`, escaped for an XML element or a quoted attribute.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_whose_sum_is_no_number_are_drawn_as_far_as_they_go() {
        let most = i64::MAX as u64;
        let lines = [
            format!("a;b {}", most - 10),
            "a 7".into(),
            "c 9".into(),
            format!("d {}", u64::MAX),
        ];
        let cut: Vec<_> = that_add_up(lines.iter().map(String::as_str)).collect();
        assert_eq!(cut[..2], [lines[0].as_str(), "a 7"]);
        assert_eq!(cut[2..], ["c 3", "d 0"]);
        let mut drawing = flamegraph::Options::default();
        drawing.flame_chart = true;
        let mut svg = Vec::new();
        let palette = Palette::default();
        draw(drawing, palette, lines.iter().map(String::as_str), &mut svg).unwrap();
        assert!(svg.starts_with(b"<?xml"));
    }
}
