//! The flame graph and the heat map as parts of the page. inferno's boxes are taken, and its script
//! is not: it wants a document of its own, and in a sandboxed frame may not ask what to search.

use super::{NAME_COLUMNS, Page, shown};
use crate::export::folded::{self, FoldedOptions};
use crate::profile::Profile;
use crate::profile::recursion;
use crate::profile::tree::{ROOT, StackTree};
use crate::recording::unit::Unit;
use crate::views::caption;
use crate::views::flame::{FlameOptions, inferno_options};
use inferno::flamegraph;
use std::io::{self, Write};

/// Boxes of the flame graph of a page.
const BOXES_MAX: usize = 4000;
/// What inferno leaves free for titles above and below the boxes: pixels, for its default font.
const ABOVE: [u64; 2] = [36, 52];
const BELOW: [u64; 2] = [34, 22];

/// Writes the flame graph.
pub(super) fn write_flame(page: &Page<'_>, out: &mut dyn Write) -> io::Result<()> {
    let order = match (page.drawing.icicle, page.drawing.reverse) {
        (true, true) => "innermost functions at the top, their callers below them",
        (true, false) => "outermost functions at the top, what they called below them",
        (false, true) => "innermost functions at the bottom, their callers above them",
        (false, false) => "outermost functions at the bottom, what they called above them",
    };
    let unit = page.profile.unit();
    let what = unit.what();
    writeln!(
        out,
        "<section id=\"flame-graph\">\n<h2>Flame graph</h2>\n<p class=\"lead\">A box is as wide as \
         its share of the {what}: {order}. <span class=\"control\">Click on a box to widen it. \
         <button type=\"button\" id=\"whole\" disabled=\"\">Show all</button></span></p>"
    )?;
    let form = page.drawing;
    let tree = recursion::shown(&page.profile.tree, form.reverse, form.fold);
    let totals = tree.totals();
    let kept = shown(&totals, page.drawing.least_share, BOXES_MAX);
    let (svg, drawn) = draw(page.profile, &pruned(&tree, &kept), page.drawing)?;
    let side = usize::from(page.drawing.icicle);
    let picture = Picture::of(&svg).ok_or_else(|| {
        io::Error::other("the flame graph's drawing has another form than expected")
    })?;
    let (above, height) = (ABOVE[side], picture.height - ABOVE[side] - BELOW[side]);
    writeln!(
        out,
        "<div class=\"scroll\"><svg id=\"flame\" viewBox=\"0 0 1180 {height}\" role=\"img\" \
         aria-label=\"Flame graph\" data-total=\"{}\"><svg id=\"frames\" y=\"-{above}\" \
         overflow=\"visible\">{}</svg></svg></div>\n<p id=\"detail\" class=\"control\"></p>",
        drawn, picture.boxes
    )?;
    let left_out = || totals.iter().zip(&kept).filter(|(_, kept)| !**kept);
    let most = left_out().map(|(total, _)| *total).max().unwrap_or(0);
    if most > 0 {
        writeln!(
            out,
            "<p class=\"note\">{} boxes of at most {} are left out; \
             <code>uniprof report --flame</code> draws more.</p>",
            left_out().count(),
            unit.phrase(most)
        )?;
    }
    writeln!(out, "</section>")
}

/// The samples of what isn't `kept` stay with its caller, as free room above it, or with the root.
fn pruned(tree: &StackTree, kept: &[bool]) -> StackTree {
    let mut small = StackTree::default();
    let mut places = vec![ROOT; tree.nodes().len()];
    // Callers stand before what they called.
    for (number, node) in tree.nodes().iter().enumerate().skip(1) {
        let parent = places[node.parent as usize];
        places[number] = match kept[number] {
            true => small.child(parent, node.label),
            false => parent,
        };
        small.add(places[number], node.count);
    }
    small
}

/// The drawing, and how wide it is in what boxes are measured in.
fn draw(profile: &Profile, tree: &StackTree, options: &FlameOptions) -> io::Result<(String, u64)> {
    let unit = profile.unit();
    let mut names = folded::frame_names(&profile.labels, FoldedOptions { marks: true });
    names.iter_mut().for_each(|name| *name = cut(name));
    let mut lines = folded::named_lines(tree, &names, unit);
    // Whole stacks that are too rare have their room too, or shares would be wrong.
    let rare = tree.nodes()[ROOT as usize].count;
    if rare > 0 {
        lines.push(format!("[left out] {}", unit.width(rare)));
    }
    let widths = lines.iter().filter_map(|line| line.rsplit_once(' '));
    let drawn = widths.filter_map(|(_, width)| width.parse::<u64>().ok());
    let drawn = drawn.sum();
    let untitled = FlameOptions {
        title: String::new(),
        subtitle: String::new(),
        ..options.clone()
    };
    let mut drawing = inferno_options(&untitled, &lines);
    drawing.no_javascript = true;
    drawing.count_name = unit.width_name().to_owned();
    let mut svg = Vec::new();
    let lines = lines.iter().map(String::as_str);
    flamegraph::from_lines(&mut drawing, lines, &mut svg)?;
    Ok((String::from_utf8(svg).map_err(io::Error::other)?, drawn))
}

/// A name with its mark, which tells its colour.
fn cut(name: &str) -> String {
    let marks = ["_[k]", "_[i]"];
    let mark = marks.into_iter().find(|mark| name.ends_with(mark));
    let mark = mark.unwrap_or_default();
    caption::cut(&name[..name.len() - mark.len()], NAME_COLUMNS) + mark
}

/// What is taken from inferno's drawing.
#[derive(Debug, PartialEq)]
struct Picture<'a> {
    /// One group for each box.
    boxes: &'a str,
    /// Of the whole drawing, in pixels.
    height: u64,
}

impl<'a> Picture<'a> {
    fn of(svg: &'a str) -> Option<Self> {
        // No name can have these: it would be escaped.
        let (head, rest) = svg.split_once("<svg id=\"frames\"")?;
        let boxes = rest.split_once('>')?.1.strip_suffix("</svg></svg>")?;
        let (_, height) = head.split_once(" height=\"")?;
        let height = height.split_once('"')?.0.parse().ok()?;
        (height > 100).then_some(Picture { boxes, height })
    }
}

/// Writes the heat map.
pub(super) fn write_heatmap(page: &Page<'_>, out: &mut dyn Write) -> io::Result<()> {
    let mut svg = Vec::new();
    page.tally.heatmap.write("", &[], &mut svg)?;
    let svg = String::from_utf8(svg).map_err(io::Error::other)?;
    let start = svg.find("<svg ").unwrap_or(0);
    let heading = match page.profile.unit() {
        Unit::Samples => "When the samples fell",
        Unit::OffCpu => "When threads waited",
        Unit::Calls => "When calls were made",
    };
    writeln!(
        out,
        "<section id=\"time\">\n<h2>{heading}</h2>\n<p class=\"lead\">Gaps are pauses, \
         stripes are what comes back each second.</p>\n\
         <div class=\"scroll heat\">{}</div>\n</section>",
        &svg[start..]
    )
}
