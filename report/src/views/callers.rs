//! `--callers FN`: the callers of a function, as a tree with the function at its root. For each line, the
//! column `self` has the samples that were in the function itself.

use super::tree::{Calls, Own, TreeOptions, write_calls};
use super::{Content, Needs, Output, View};
use crate::profile::Profile;
use crate::profile::labels::LabelId;
use crate::profile::tree::{NodeId, ROOT, StackTree};
use std::borrow::Cow;
use std::io::{self, Write};

/// The row of this view in the table of views.
pub(crate) const VIEW: View = View {
    name: "callers",
    about: "From where a function is called: its name, or a part of it",
    output: Output::Function,
    needs: Needs::Counts,
    begin: |_| Box::new(write_view),
};

fn write_view(content: &Content<'_>, out: &mut dyn Write) -> io::Result<bool> {
    let mut options = content.tree_options();
    options.reverse = false;
    write(content.profile, content.value.function(), options, out)
}

/// For each label, whether `wanted` selects it: the functions with exactly this name, or if there are none, all
/// that contain it. What stands for no code, such as a process, must have exactly the name, and then no function may.
pub(super) fn matching(profile: &Profile, wanted: &str) -> Vec<bool> {
    let labels = &profile.labels;
    let all = |made: bool, is_it: &dyn Fn(&str) -> bool| -> Option<Vec<bool>> {
        let numbers = 0..labels.len() as LabelId;
        let found = numbers.map(|id| labels.get(id).made == made && is_it(labels.name(id)));
        let found: Vec<bool> = found.collect();
        found.contains(&true).then_some(found)
    };
    let exact = all(false, &|name| name == wanted);
    let part = || all(false, &|name| name.contains(wanted));
    let found = exact
        .or_else(part)
        .or_else(|| all(true, &|name| name == wanted));
    found.unwrap_or_default()
}

/// Writes the tree of callers; `false` if no sample has the function.
///
/// # Errors
/// The errors of `out`.
pub fn write(
    profile: &Profile,
    function: &str,
    options: TreeOptions,
    out: &mut dyn Write,
) -> io::Result<bool> {
    let wanted = matching(profile, function);
    let is_wanted = |label: &LabelId| wanted.get(*label as usize) == Some(&true);
    let mut callers = StackTree::default();
    let mut own = vec![0];
    for (number, node) in profile.tree.nodes().iter().enumerate() {
        if node.count == 0 {
            continue;
        }
        // The path starts at the innermost call of the function, so that a recursive sample counts once.
        let path = profile.tree.outwards(number as NodeId);
        let from = path.skip_while(|label| !is_wanted(label));
        let end = from.fold(ROOT, |at, label| callers.child(at, label));
        own.resize(callers.nodes().len(), 0);
        if end != ROOT {
            callers.add(end, node.count);
        }
        if is_wanted(&node.label) {
            own[end as usize] += node.count;
        }
    }
    options.screen.write_lines(&profile.account.lines(), out)?;
    let found: u64 = callers.totals()[ROOT as usize];
    let share = uprof::words::share(found, profile.account.counted);
    let amount = profile.unit().amount(found);
    let found_in = format!(
        "{amount} of them ({share}) have {function} in their stack; by callers, in percent of these:"
    );
    options.screen.write_prose("", &found_in, 2, out)?;
    writeln!(out)?;
    let calls = Calls::of(Cow::Owned(callers), Own::Of(own));
    write_calls(profile, calls, options, out)?;
    Ok(found > 0)
}
