//! The stack tree as parts that fold: who called whom, outermost first.

use super::{Page, shown, text};
use crate::profile::recursion;
use crate::profile::tree::{NodeId, ROOT, StackTree};
use crate::recording::account::share;
use crate::text::short;
use std::io::{self, Write};

/// Calls that a page lists.
const NODES_MAX: usize = 3000;
/// Levels of calls; browsers give up nesting at 512.
const LEVELS_MAX: usize = 200;
/// Deeper ones are not indented further: names would have no room left.
const INDENTED_MAX: usize = 24;
/// What has this share of all samples is unfolded at first.
const OPEN_SHARE: f64 = 0.1;

/// What is to be written next.
enum Step {
    Call {
        node: NodeId,
        level: usize,
        alone: bool,
    },
    End,
}

/// A tree on its way into the page.
struct Walk<'a> {
    page: &'a Page<'a>,
    tree: &'a StackTree,
    totals: Vec<u64>,
    children: Vec<Vec<NodeId>>,
    kept: Vec<bool>,
    levels: usize,
    /// A list instead of recursion: stacks may be as deep as the guest likes.
    steps: Vec<Step>,
    /// Branches left out because they are small, the largest of them in samples, and those that are
    /// left out because they are deep.
    small: usize,
    largest: u64,
    deep: usize,
}

/// Writes the tree.
pub(super) fn write(page: &Page<'_>, out: &mut dyn Write) -> io::Result<()> {
    let (heading, own, lead) = match page.calls.reverse {
        true => (
            "Callers",
            "",
            "Innermost functions first; below each, what called it.",
        ),
        false => (
            "Calls",
            "self",
            "Outermost functions first; below each, what it called.",
        ),
    };
    writeln!(
        out,
        "<section id=\"calls\">\n<h2>{heading}</h2>\n<p class=\"lead\">{lead} \
         <span class=\"control\"><button type=\"button\" id=\"unfold\">Unfold all</button> \
         <button type=\"button\" id=\"fold\">Fold all</button></span></p>\n\
         <div class=\"scroll tall\"><div class=\"tree\">\n\
         <p class=\"line head\"><b>function</b><span>total</span><span>{}</span>\
         <span>{own}</span></p>",
        page.profile.unit().what()
    )?;
    let form = page.calls;
    let tree = recursion::shown(&page.profile.tree, form.reverse, form.fold);
    let mut walk = Walk::new(page, &tree);
    walk.write(out)?;
    writeln!(out, "</div></div>")?;
    if let Some(left_out) = walk.left_out() {
        writeln!(out, "<p class=\"note\">{left_out}</p>")?;
    }
    writeln!(out, "</section>")
}

impl<'a> Walk<'a> {
    fn new(page: &'a Page<'a>, tree: &'a StackTree) -> Self {
        let totals = tree.totals();
        let mut walk = Walk {
            page,
            tree,
            children: tree.sorted_children(&totals, &page.profile.labels),
            kept: shown(&totals, page.calls.least_share, NODES_MAX),
            totals,
            levels: match page.calls.depth {
                0 => LEVELS_MAX,
                depth => depth.min(LEVELS_MAX),
            },
            steps: Vec::new(),
            small: 0,
            largest: 0,
            deep: 0,
        };
        walk.push_calls_of(ROOT, 0);
        walk
    }

    /// Plans the calls from `node`, which are at `level`; says whether there is any to show.
    fn push_calls_of(&mut self, node: NodeId, level: usize) -> bool {
        let list = &self.children[node as usize];
        let (shown, left_out): (Vec<NodeId>, Vec<NodeId>) =
            list.iter().partition(|child| self.kept[**child as usize]);
        let totals = left_out.iter().map(|child| self.totals[*child as usize]);
        self.largest = totals.max().unwrap_or(0).max(self.largest);
        self.small += left_out.len();
        if level >= self.levels {
            self.deep += shown.len();
            return false;
        }
        // A chain of only calls goes straight down.
        let alone = shown.len() == 1 && node != ROOT;
        let calls = shown.iter().rev().map(|node| Step::Call {
            node: *node,
            level,
            alone,
        });
        self.steps.extend(calls);
        !shown.is_empty()
    }

    fn write(&mut self, out: &mut dyn Write) -> io::Result<()> {
        while let Some(step) = self.steps.pop() {
            match step {
                Step::Call { node, level, alone } => self.write_call(node, level, alone, out)?,
                Step::End => writeln!(out, "</details>")?,
            }
        }
        Ok(())
    }

    fn write_call(
        &mut self,
        node: NodeId,
        level: usize,
        alone: bool,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let line = self.line(node);
        let straight = alone || level > INDENTED_MAX;
        let before = self.steps.len();
        self.steps.push(Step::End);
        if !self.push_calls_of(node, level + 1) {
            self.steps.truncate(before);
            let class = if straight { "line on" } else { "line" };
            return writeln!(out, "<p class=\"{class}\">{line}</p>");
        }
        let class = if straight { " class=\"on\"" } else { "" };
        let whole = self.totals[ROOT as usize] as f64;
        // A chain unfolds down to where it branches.
        let open = match alone || self.totals[node as usize] as f64 >= OPEN_SHARE * whole {
            true => " open=\"\"",
            false => "",
        };
        writeln!(
            out,
            "<details{class}{open}><summary class=\"line\">{line}</summary>"
        )
    }

    /// What the limits have kept out of the page.
    fn left_out(&self) -> Option<String> {
        let mut said = Vec::new();
        if self.small > 0 {
            let (small, largest) = (self.small, self.largest);
            let percent = share(largest, self.totals[ROOT as usize]);
            said.push(format!(
                "{small} branches of at most {} ({percent})",
                self.page.profile.unit().phrase(largest)
            ));
        }
        if self.deep > 0 {
            said.push(format!(
                "{} branches below level {}",
                self.deep, self.levels
            ));
        }
        let more = "<code>uniprof report --tree --min-share 0</code> shows all.";
        (!said.is_empty()).then(|| format!("Left out: {}. {more}", said.join(", ")))
    }

    fn line(&self, node: NodeId) -> String {
        let labels = &self.page.profile.labels;
        let label = self.tree.label(node);
        let total = self.totals[node as usize];
        let unit = self.page.profile.unit();
        let own = match self.tree.nodes()[node as usize].count {
            _ if self.page.calls.reverse => String::new(),
            0 => String::new(),
            own => unit.amount(own),
        };
        let module = match labels.module_suffix(label) {
            none if none.is_empty() => none,
            module => format!(" <i>{}</i>", text(module.trim().trim_matches(['[', ']']))),
        };
        let name = text(&short(labels.name(label)));
        format!(
            "<b><bdi>{name}</bdi>{module}</b><span>{}</span><span>{}</span><span>{own}</span>",
            share(total, self.totals[ROOT as usize]),
            unit.amount(total)
        )
    }
}
