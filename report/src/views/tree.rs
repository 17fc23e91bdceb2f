//! `--tree`: who called whom, as an indented text.

use crate::account::share;
use crate::gather::Profile;
use crate::labels::short;
use crate::tree::{NodeId, ROOT, StackTree};
use std::io::{self, Write};

/// What to show.
#[derive(Debug, Clone, Copy)]
pub struct TreeOptions {
    /// Least share of the samples, 0 to 1, that a line must have.
    pub least_share: f64,
    /// Most levels; 0 for all.
    pub depth: usize,
    /// Innermost frames first: who called this?
    pub reverse: bool,
}

impl Default for TreeOptions {
    fn default() -> Self {
        TreeOptions {
            least_share: 0.005,
            depth: 0,
            reverse: false,
        }
    }
}

/// Writes the tree.
///
/// # Errors
/// What `out` returns.
pub fn write(profile: &Profile, options: TreeOptions, out: &mut dyn Write) -> io::Result<()> {
    for line in profile.account.lines() {
        writeln!(out, "{line}")?;
    }
    writeln!(out)?;
    match options.reverse {
        true => write_tree(profile, &profile.tree.reversed(), options, out),
        false => write_tree(profile, &profile.tree, options, out),
    }
}

/// One line to come.
struct Line {
    node: NodeId,
    depth: usize,
    /// What stands before the line, and before those of its children.
    prefix: String,
    branch: &'static str,
}

/// Deeper lines are not indented further: nobody follows them, and each costs its depth in spaces.
const INDENT_MAX: usize = 120;

/// Writes `tree`, whose labels are those of `profile`.
///
/// # Errors
/// What `out` returns.
pub fn write_tree(
    profile: &Profile,
    tree: &StackTree,
    options: TreeOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    let totals = tree.totals();
    let children = tree.sorted_children(&totals, &profile.labels);
    let (whole, unit) = (totals[ROOT as usize], profile.unit());
    let least = (options.least_share * whole as f64).ceil().max(1.0) as u64;
    writeln!(out, "    total        %       self  function")?;
    // A list instead of recursion: stacks may be as deep as the guest likes.
    let mut lines: Vec<Line> = Vec::new();
    let mut left_out = 0;
    push_children(
        &mut lines,
        &children[ROOT as usize],
        &totals,
        least,
        0,
        "",
        &mut left_out,
    );
    while let Some(line) = lines.pop() {
        let node = line.node as usize;
        let label = tree.label(line.node);
        let labels = &profile.labels;
        let module = labels.module_suffix(label);
        writeln!(
            out,
            "{:>9} {:>8}  {:>9}  {}{}{}{module}",
            unit.amount(totals[node]),
            share(totals[node], whole),
            unit.amount(tree.nodes()[node].count),
            line.prefix,
            line.branch,
            short(labels.name(label)),
        )?;
        let below = match (line.branch, line.depth >= INDENT_MAX) {
            (_, true) => line.prefix,
            ("", _) => line.prefix,
            ("└ ", _) => line.prefix + "  ",
            _ => line.prefix + "│ ",
        };
        let depth = line.depth + 1;
        if options.depth == 0 || depth < options.depth {
            let list = &children[node];
            push_children(
                &mut lines,
                list,
                &totals,
                least,
                depth,
                &below,
                &mut left_out,
            );
        } else {
            left_out += children[node].len();
        }
    }
    if left_out > 0 {
        let percent = options.least_share * 100.0;
        writeln!(
            out,
            "… {left_out} branches below {percent}% or too deep are not shown"
        )?;
    }
    Ok(())
}

fn push_children(
    lines: &mut Vec<Line>,
    list: &[NodeId],
    totals: &[u64],
    least: u64,
    depth: usize,
    prefix: &str,
    left_out: &mut usize,
) {
    let shown = list.iter().filter(|node| totals[**node as usize] >= least);
    let shown: Vec<NodeId> = shown.copied().collect();
    *left_out += list.len() - shown.len();
    let alone = shown.len() == 1;
    for (index, node) in shown.iter().enumerate().rev() {
        // A chain of only children goes straight down: no line to draw.
        let branch = match (depth, alone, index + 1 == shown.len()) {
            (0, ..) | (_, true, _) => "",
            (_, _, true) => "└ ",
            _ => "├ ",
        };
        lines.push(Line {
            node: *node,
            depth,
            prefix: prefix.to_owned(),
            branch,
        });
    }
}
