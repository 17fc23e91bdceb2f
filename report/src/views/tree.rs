//! `--tree`: the call tree as indented text.

use super::{Content, Needs, Output, View};
use crate::profile::Profile;
use crate::profile::recursion::{self, Rounds};
use crate::profile::tree::{NodeId, ROOT, StackTree};
use crate::text::in_percent;
use crate::text::screen::{Notes, Screen, width};
use std::borrow::Cow;
use std::io::{self, Write};
use uprof::words::share;

/// The row of this view in the table of views.
pub(crate) const VIEW: View = View {
    name: "tree",
    about: "Who called whom, as text",
    output: Output::Text,
    needs: Needs::Counts,
    begin: |_| Box::new(write_view),
};

fn write_view(content: &Content<'_>, out: &mut dyn Write) -> io::Result<bool> {
    write(content.profile, content.tree_options(), out)?;
    Ok(true)
}

/// Options of the tree.
#[derive(Debug, Clone, Copy)]
pub struct TreeOptions {
    /// Least share of the samples, 0 to 1, that a line must have.
    pub least_share: f64,
    /// Most levels; 0 for all.
    pub depth: usize,
    /// Whether the tree is inverted: innermost frames first.
    pub reverse: bool,
    /// Whether to collapse recursion.
    pub fold: bool,
    /// Width and colours of the terminal.
    pub screen: Screen,
}

impl Default for TreeOptions {
    fn default() -> Self {
        TreeOptions {
            least_share: 0.005,
            depth: 0,
            reverse: false,
            fold: true,
            screen: Screen::default(),
        }
    }
}

/// Writes the tree.
///
/// # Errors
/// The errors of `out`.
pub fn write(profile: &Profile, options: TreeOptions, out: &mut dyn Write) -> io::Result<()> {
    options.screen.write_lines(&profile.account.lines(), out)?;
    writeln!(out)?;
    let calls = if options.reverse {
        Calls::of(Cow::Owned(profile.tree.reversed()), Own::Unsaid)
    } else {
        Calls::of(Cow::Borrowed(&profile.tree), Own::Ends)
    };
    write_calls(profile, calls, options, out)
}

/// The content of the column `self`.
#[derive(Debug)]
pub(super) enum Own {
    /// The count that ends at the node itself.
    Ends,
    /// No column: the tree begins with innermost functions.
    Unsaid,
    /// A number for each node, to be summed over its descendants.
    Of(Vec<u64>),
}

/// A tree to write, whose labels are those of a profile.
#[derive(Debug)]
pub(super) struct Calls<'t> {
    tree: Cow<'t, StackTree>,
    own: Own,
    rounds: Vec<Rounds>,
}

impl<'t> Calls<'t> {
    pub(crate) fn of(tree: Cow<'t, StackTree>, own: Own) -> Self {
        Calls {
            tree,
            own,
            rounds: Vec::new(),
        }
    }

    fn folded(self) -> Self {
        let folded = recursion::folded(&self.tree);
        let own = match self.own {
            Own::Of(counts) => {
                let mut sums = vec![0; folded.tree.nodes().len()];
                for (place, count) in folded.places.iter().zip(counts) {
                    sums[*place as usize] += count;
                }
                Own::Of(sums)
            }
            other => other,
        };
        Calls {
            tree: Cow::Owned(folded.tree),
            own,
            rounds: folded.rounds,
        }
    }

    /// The column `self` of each node, if there is one.
    fn own(&self) -> Option<Vec<u64>> {
        match &self.own {
            Own::Ends => Some(self.tree.nodes().iter().map(|node| node.count).collect()),
            Own::Unsaid => None,
            Own::Of(counts) => Some(self.tree.sums(counts.clone())),
        }
    }

    fn rounds(&self, node: NodeId) -> Rounds {
        self.rounds.get(node as usize).copied().unwrap_or_default()
    }
}

/// A line that is to be written.
struct Line {
    node: NodeId,
    depth: usize,
    /// Indentation of the line, and that of its children's lines.
    prefix: String,
    branch: &'static str,
}

/// Most columns of indentation: deeper lines are unreadable, and each costs its depth in blanks.
const INDENT_COLUMNS_MAX: usize = 240;
/// Columns that indentation leaves for the name.
const NAME_COLUMNS: usize = 24;

/// The lines to write, and the number of those left out.
struct Walk<'a> {
    profile: &'a Profile,
    calls: &'a Calls<'a>,
    totals: Vec<u64>,
    children: Vec<Vec<NodeId>>,
    least: u64,
    /// A list in place of recursion, because the guest determines how deep stacks are.
    lines: Vec<Line>,
    left_out: LeftOut,
    has_rounds: bool,
}

/// The number of branches that are not shown.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LeftOut {
    /// Those below the least share.
    pub small: usize,
    /// Those beyond the deepest level.
    pub deep: usize,
}

impl LeftOut {
    /// Says how many there are, if any.
    pub(super) fn write(
        self,
        least_share: f64,
        screen: Screen,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let below = format!("below {}%", in_percent(least_share));
        let why = match (self.small, self.deep) {
            (0, 0) => return Ok(()),
            (0, _) => "too deep".to_owned(),
            (_, 0) => below,
            _ => format!("{below} or too deep"),
        };
        let note = match self.small + self.deep {
            1 => format!("… 1 branch {why} is not shown"),
            all => format!("… {all} branches {why} are not shown"),
        };
        screen.write_prose("", &note, 2, out)
    }
}

/// Writes the tree of `calls`, whose labels are those of `profile`.
pub(super) fn write_calls(
    profile: &Profile,
    mut calls: Calls<'_>,
    options: TreeOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    if options.fold {
        calls = calls.folded();
    }
    let totals = calls.tree.totals();
    let (whole, unit) = (totals[ROOT as usize], profile.unit());
    let mut walk = Walk {
        profile,
        children: calls.tree.sorted_children(&totals, &profile.labels),
        least: (options.least_share * whole as f64).ceil().max(1.0) as u64,
        calls: &calls,
        totals,
        lines: Vec::new(),
        left_out: LeftOut::default(),
        has_rounds: false,
    };
    let own = calls.own();
    let screen = options.screen;
    let (amounts, shares) = screen.number_columns(unit, whole);
    let own_heading = own.as_ref().map(|_| format!("  {:>amounts$}", "self"));
    let own_heading = own_heading.unwrap_or_default();
    let heading = format!("{:>amounts$} {:>shares$}{own_heading}  ", "total", "%");
    // The column at which functions without indentation begin.
    let column = heading.len();
    let indent_max = screen.columns.map_or(INDENT_COLUMNS_MAX, |columns| {
        columns
            .saturating_sub(column + NAME_COLUMNS)
            .clamp(8, INDENT_COLUMNS_MAX)
    });
    writeln!(out, "{heading}function")?;
    walk.push_children(ROOT, 0, "");
    while let Some(line) = walk.lines.pop() {
        let node = line.node as usize;
        let total = walk.totals[node];
        let share = format!("{:>shares$}", share(total, whole));
        let (share, total) = (screen.weighed(share, total, whole), unit.amount(total));
        let own = own.as_ref().map_or(String::new(), |own| {
            format!("  {:>amounts$}", unit.amount(own[node]))
        });
        let lead = format!("{}{}", line.prefix, line.branch);
        let name = walk.name(line.node, screen, column + width(&lead));
        writeln!(out, "{total:>amounts$} {share}{own}  {lead}{name}")?;
        // Deep lines are no longer indented, which leaves room for their names.
        let is_narrow = width(&line.prefix) < indent_max;
        let below = match line.branch {
            "" => line.prefix,
            "└ " if is_narrow => line.prefix + "  ",
            _ if is_narrow => line.prefix + "│ ",
            _ => line.prefix,
        };
        let depth = line.depth + 1;
        if options.depth == 0 || depth < options.depth {
            walk.push_children(line.node, depth, &below);
        } else {
            // Those of which a filter leaves nothing are no branches.
            let totals = &walk.totals;
            let below = walk.children[node].iter();
            let below = below
                .map(|child| totals[*child as usize])
                .filter(|total| *total > 0);
            let (deep, small): (Vec<u64>, Vec<u64>) = below.partition(|total| *total >= walk.least);
            walk.left_out.deep += deep.len();
            walk.left_out.small += small.len();
        }
    }
    walk.left_out.write(options.least_share, screen, out)?;
    if walk.has_rounds {
        let note = "↻ recursion, and its most rounds (--recursion whole shows each)";
        screen.write_prose("", note, 2, out)?;
    }
    Ok(())
}

impl Walk<'_> {
    /// The text of a line after its numbers.
    fn name(&mut self, node: NodeId, screen: Screen, used: usize) -> String {
        let labels = &self.profile.labels;
        let label = self.calls.tree.label(node);
        let module = labels.module_suffix(label);
        let Rounds { functions, most } = self.calls.rounds(node);
        let rounds = match functions {
            0 => String::new(),
            1 => format!("  ↻ {most}"),
            _ => format!("  ↻ {most} ({functions} functions)"),
        };
        self.has_rounds |= functions > 0;
        let notes = Notes {
            mark: "",
            module,
            more: rounds,
        };
        screen.name(labels.name(label), &notes, used)
    }

    fn push_children(&mut self, node: NodeId, depth: usize, prefix: &str) {
        let list = &self.children[node as usize];
        let totals = &self.totals;
        let shown = list
            .iter()
            .filter(|node| totals[**node as usize] >= self.least);
        let shown: Vec<NodeId> = shown.copied().collect();
        // Those of which a filter leaves nothing are no branches.
        self.left_out.small += list
            .iter()
            .filter(|node| totals[**node as usize] > 0)
            .count()
            - shown.len();
        let alone = shown.len() == 1;
        // The last child is pushed first, so that the first one is written next.
        for (index, node) in shown.iter().enumerate().rev() {
            // A node without siblings is not indented: there is no branch to draw.
            let branch = match (alone, index + 1 == shown.len()) {
                (true, _) => "",
                (_, true) => "└ ",
                _ => "├ ",
            };
            self.lines.push(Line {
                node: *node,
                depth,
                prefix: prefix.to_owned(),
                branch,
            });
        }
    }
}
