//! `--slowest N`: the calls of a trace that took longest, each with the tree of its callees.

use super::calls::{task_of, where_is};
use super::tree::LeftOut;
use super::{Content, Needs, Output, View};
use crate::profile::Profile;
use crate::profile::slowest::SlowCall;
use crate::profile::tree::{NodeId, ROOT};
use crate::text::screen::{Notes, Screen};
use std::io::{self, Write};
use uprof::words::{duration, share};

/// The row of this view in the table of views.
pub(crate) const VIEW: View = View {
    name: "slowest",
    about: "The slowest calls of a trace, so many of them (of the functions that --focus names), with what each called",
    output: Output::Count,
    needs: Needs::Calls,
    begin: |_| Box::new(write_view),
};

/// Default least share of a call that a line must have.
const LEAST_SHARE: f64 = 0.01;
/// Most lines for each call.
const LINES_MAX: usize = 40;

fn write_view(content: &Content<'_>, out: &mut dyn Write) -> io::Result<bool> {
    let (profile, screen) = (content.profile, content.form.screen);
    screen.write_lines(&profile.account.lines(), out)?;
    let (recordings, files) = content.named_recordings();
    let most = content.value.count().unwrap_or(usize::MAX);
    for (rank, slow) in profile.slowest.iter().enumerate().take(most) {
        let place = where_is(&slow.placed, &|task| task_of(&recordings, &files, task));
        let length = duration(slow.placed.length_ns);
        let line = format!("{}. {length}, {place}", rank + 1);
        writeln!(out)?;
        screen.write_prose("", &line, 2, out)?;
        writeln!(
            out,
            "{:>9} {:>6} {:>9} {:>7}  function",
            "total", "%", "self", "calls"
        )?;
        write_tree(content, profile, slow, screen, out)?;
    }
    if profile.slowest.is_empty() {
        let none = "no call counts whose end was seen";
        screen.write_prose("", none, 2, out)?;
    }
    Ok(true)
}

fn write_tree(
    content: &Content<'_>,
    profile: &Profile,
    slow: &SlowCall,
    screen: Screen,
    out: &mut dyn Write,
) -> io::Result<()> {
    let totals = slow.tree.totals();
    let whole = totals.first().copied().unwrap_or(0);
    let share_least = content.form.least_share.unwrap_or(LEAST_SHARE);
    let least = (share_least * whole as f64).ceil() as u64;
    let children = slow.tree.sorted_children(&totals, &profile.labels);
    let mut next: Vec<(NodeId, usize)> = children[ROOT as usize]
        .iter()
        .map(|node| (*node, 0))
        .collect();
    let (mut lines, mut left_out) = (0, LeftOut::default());
    while let Some((node, level)) = next.pop() {
        let at = node as usize;
        let is_too_deep = content.form.depth > 0 && level >= content.form.depth;
        if totals[at] < least {
            left_out.small += 1;
            continue;
        }
        if is_too_deep {
            left_out.deep += 1;
            continue;
        }
        if lines == LINES_MAX {
            return writeln!(
                out,
                "… and more (--min-share and --depth choose what is shown)"
            );
        }
        lines += 1;
        let notes = Notes::default();
        let indent = 2 * level.min(40);
        let name = screen.name(
            profile.labels.name(slow.tree.label(node)),
            &notes,
            37 + indent,
        );
        let part = format!("{:>6}", share(totals[at], whole));
        writeln!(
            out,
            "{:>9} {} {:>9} {:>7}  {:indent$}{name}",
            duration(totals[at]),
            screen.weighed(part, totals[at], whole),
            duration(slow.tree.nodes()[at].count),
            slow.counts.get(at).copied().unwrap_or(0),
            ""
        )?;
        next.extend(children[at].iter().rev().map(|child| (*child, level + 1)));
    }
    left_out.write(share_least, screen, out)
}
