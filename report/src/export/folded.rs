//! Folded stacks, one line each: frames from outermost to innermost with `;` between them, a space, and the
//! number of samples, or microseconds of time: of stacks that are shorter than one, some are left out, so that the sum
//! is right. If a trace has no durations at all, it is the number of calls.
//! flamegraph.pl, inferno and speedscope read this format.

use crate::export::Request;
use crate::profile::Profile;
use crate::profile::gather::{Each, Sampled};
use crate::profile::labels::{LabelId, Labels};
use crate::profile::recursion::folded;
use crate::profile::tree::{NodeId, ROOT, StackTree};
use crate::recording::unit::Unit;
use crate::recording::warnings::Warning;
use std::borrow::Cow;
use std::io::{self, Write};
use uprof::WordMap;

/// How frames are written.
#[derive(Debug, Clone, Copy, Default)]
pub struct FoldedOptions {
    /// Whether to add `_[k]` to kernel frames and `_[i]` to inlined ones.
    pub marks: bool,
}

/// Writes the stacks of a request.
pub(crate) fn write_request(request: &Request<'_, '_>, out: &mut dyn Write) -> io::Result<Profile> {
    let mut calls: WordMap<NodeId, u64> = WordMap::default();
    let mut take = |sampled: &Sampled, _: &Profile| {
        if sampled.unit == Unit::Calls {
            *calls.entry(sampled.node).or_default() += 1;
        }
    };
    let has_calls = request
        .recordings
        .iter()
        .any(|one| !one.span_blocks().is_empty());
    let each: Option<&mut Each<'_>> = if has_calls { Some(&mut take) } else { None };
    let mut profile = request.gather(request.options, each);
    let mut unit = profile.unit();
    if unit == Unit::Calls && profile.account.counted == 0 {
        // A bare number of calls is written like one of samples.
        unit = Unit::Samples;
        for (node, count) in calls {
            profile.tree.add(node, count);
        }
    }
    if request.fold {
        profile.tree = folded(&profile.tree).tree;
    }
    let options = FoldedOptions {
        marks: request.marks,
    };
    let names = frame_names(&profile.labels, options);
    let lines = named_lines(&profile.tree, &names, |counts| unit.folded(counts));
    if lines.left_out > 0 {
        let (left_out, all) = (lines.left_out, lines.left_out + lines.lines.len());
        let warning = Warning::ShortTimes { left_out, all };
        profile.warnings.push(warning.to_string());
    }
    put(&lines.lines, out)?;
    Ok(profile)
}

/// Writes all stacks, sorted.
///
/// # Errors
/// The errors of `out`.
pub fn write(profile: &Profile, options: FoldedOptions, out: &mut dyn Write) -> io::Result<()> {
    put(&lines(&profile.tree, profile, options), out)
}

fn put(lines: &[String], out: &mut dyn Write) -> io::Result<()> {
    for line in lines {
        out.write_all(line.as_bytes())?;
        out.write_all(b"\n")?;
    }
    Ok(())
}

/// All stacks of `tree`, whose labels are those of `profile`, sorted as bytes. Stacks with equal names but different
/// modules are merged.
pub(crate) fn lines(tree: &StackTree, profile: &Profile, options: FoldedOptions) -> Vec<String> {
    let unit = profile.unit();
    let names = frame_names(&profile.labels, options);
    named_lines(tree, &names, |counts| unit.folded(counts)).lines
}

/// Stacks as lines.
pub(crate) struct Lines {
    /// Stacks and their numbers, sorted.
    pub lines: Vec<String>,
    /// How many stacks are left out, as their number is 0.
    pub left_out: usize,
}

/// As [`lines`], with the names of the labels, by label number; the last argument has the numbers of all counts.
pub(crate) fn named_lines(
    tree: &StackTree,
    names: &[String],
    numbers: impl Fn(&[u64]) -> Vec<u64>,
) -> Lines {
    let leaves = tree.nodes().iter().enumerate();
    let leaves = leaves.filter(|(number, node)| *number != ROOT as usize && node.count > 0);
    let mut stacks: Vec<(String, u64)> = leaves
        .map(|(number, node)| (stack(tree, names, number as NodeId), node.count))
        .collect();
    stacks.sort();
    stacks.dedup_by(|later, kept| {
        let same = later.0 == kept.0;
        if same {
            kept.1 += later.1;
        }
        same
    });
    let counts: Vec<u64> = stacks.iter().map(|(_, count)| *count).collect();
    let all = stacks.len();
    let numbered = stacks.into_iter().zip(numbers(&counts));
    let lines = numbered.filter(|(_, number)| *number > 0);
    let lines = lines.map(|((mut line, _), number)| {
        line.push_str(&format!(" {number}"));
        line
    });
    let lines: Vec<String> = lines.collect();
    let left_out = all - lines.len();
    Lines { lines, left_out }
}

/// The labels' names in folded stacks, by label number.
pub(crate) fn frame_names(labels: &Labels, options: FoldedOptions) -> Vec<String> {
    let numbers = 0..labels.len() as LabelId;
    numbers
        .map(|label| frame_name(labels, label, options))
        .collect()
}

fn stack(tree: &StackTree, names: &[String], leaf: NodeId) -> String {
    let mut path: Vec<LabelId> = tree.outwards(leaf).collect();
    path.reverse();
    let mut line = String::new();
    for (index, label) in path.iter().enumerate() {
        if index > 0 {
            line.push(';');
        }
        line.push_str(names.get(*label as usize).map_or("", |name| name));
    }
    line
}

fn frame_name(labels: &Labels, label: LabelId, options: FoldedOptions) -> String {
    let found = labels.get(label);
    // A `;` would end the frame.
    let mut name = labels.name(label).replace(';', ":");
    if name.is_empty() {
        name.push_str("[unnamed]");
    }
    match (options.marks, found.kernel, found.inlined) {
        (true, true, _) => name.push_str("_[k]"),
        (true, false, true) => name.push_str("_[i]"),
        _ => {}
    }
    // What stands for a thread never ends a stack.
    if found.made {
        name
    } else {
        without_count(&name).into_owned()
    }
}

/// A frame whose last word is not taken for a number of samples: inferno and flamegraph.pl take two numbers at the end
/// of a line for a comparison, so `table 1` and `table 2` would become one frame.
pub(crate) fn without_count(name: &str) -> Cow<'_, str> {
    let is_number = |word: &str| {
        word.bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'.')
    };
    match name.rsplit_once(' ') {
        Some((before, word)) if is_number(word) => format!("{before}\u{a0}{word}").into(),
        _ => name.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_frame_ends_with_a_word_that_is_a_number() {
        for (name, kept) in [
            ("table 1", "table\u{a0}1"),
            ("wait 2.5", "wait\u{a0}2.5"),
            ("a 1 2", "a 1\u{a0}2"),
            ("table 1_[k]", "table 1_[k]"),
            ("operator new", "operator new"),
            ("main", "main"),
            ("7", "7"),
        ] {
            assert_eq!(without_count(name), kept);
        }
    }
}
