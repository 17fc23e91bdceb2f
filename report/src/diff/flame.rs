//! Differential flame graphs. The widths are those of one side, and the colours show what changed (red: grew,
//! blue: shrank). Both sides are drawn, because a function that is gone has no width in B, and a new one has
//! none in A.

use super::Diff;
use crate::views::flame::palette::Palette;
use crate::views::flame::{FlameOptions, draw, inferno_options};
use std::io::{self, Write};

/// The side that gives the widths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Widths {
    /// A, which shows what is gone.
    A,
    /// B, which shows what is new.
    B,
}

/// The meaning of inferno's colours of differences.
const KEY: &[(&str, &str)] = &[
    ("grew", "rgb(255,90,90)"),
    ("shrank", "rgb(90,90,255)"),
    ("as before", "rgb(250,250,250)"),
];

/// Draws the comparison. The other side is scaled to the same total.
///
/// # Errors
/// The errors of `out`.
pub fn write(
    diff: &Diff,
    widths: Widths,
    options: &FlameOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    let lines = lines(diff, widths);
    let mut drawing = inferno_options(options, &lines);
    drawing.count_name = diff.series.unit.width_name().to_owned();
    drawing.negate_differentials = widths == Widths::A;
    if lines.is_empty() {
        return crate::views::flame::write_nothing(options, &diff.warnings, out);
    }
    draw(
        drawing,
        Palette::with_key(KEY),
        lines.iter().map(String::as_str),
        out,
    )
}

fn lines(diff: &Diff, widths: Widths) -> Vec<String> {
    let series = &diff.series;
    let totals = [0, 1].map(|side| series.sides[side].total().max(1.0));
    let (wide, other) = match widths {
        Widths::A => (0, 1),
        Widths::B => (1, 0),
    };
    let scale = totals[wide] / totals[other];
    let unit = series.unit;
    let compared = series.ends.iter();
    let compared = compared.map(|ends| (ends[other] as f64 * scale).round() as u64);
    let compared = unit.widths(&compared.collect::<Vec<_>>());
    let widths = series.ends.iter().map(|ends| ends[wide]);
    let widths = unit.widths(&widths.collect::<Vec<_>>());
    let mut lines = Vec::new();
    for (number, (compared, width)) in compared.iter().zip(&widths).enumerate().skip(1) {
        if *compared == 0 && *width == 0 {
            continue;
        }
        let functions = series.tree.outwards(number as u32);
        let mut path: Vec<String> = functions
            .map(|function| series.functions[function as usize].name.replace(';', ":"))
            .collect();
        path.reverse();
        // inferno takes the second number as the width, and the first as the one to compare it with.
        lines.push(format!("{} {compared} {width}", path.join(";")));
    }
    lines.sort();
    lines
}
