//! `--brief`: one page of text for a script, an assistant or a message. What was recorded, the hottest functions and
//! paths with their lines, what the numbers are uncertain by, and which commands to run next. Its length is bounded.

use super::caption;
use super::{Content, Needs, Output, View};
use crate::profile::Profile;
use crate::profile::functions::{TopOptions, shown as rows};
use crate::profile::labels::{LabelId, TextId};
use crate::profile::tree::NodeId;
use crate::recording::unit::Unit;
use crate::text::printable;
use std::collections::{BTreeMap, HashSet};
use std::io::{self, Write};
use uprof::words::share;

/// The view.
pub(crate) const VIEW: View = View {
    name: "brief",
    about: "One page: the hottest functions and paths with their lines, what is uncertain, what to ask next",
    output: Output::Page,
    needs: Needs::Lines,
    begin: |_| Box::new(write_view),
};

/// Functions that are listed.
const FUNCTIONS: usize = 12;
/// Recordings that commands name.
const FILES: usize = 8;
/// Paths that are listed.
const PATHS: usize = 6;
/// Frames of a path.
const FRAMES: usize = 8;
/// Lines about what is lost or uncertain.
const DOUBTS: usize = 12;
/// Columns of a name, and of a sentence.
const NAME_COLUMNS: usize = 70;
const LINE_COLUMNS: usize = 240;
/// Columns of a doubt: room for the longest warning with its advice.
const DOUBT_COLUMNS: usize = 480;

fn write_view(content: &Content<'_>, out: &mut dyn Write) -> io::Result<bool> {
    let profile = content.profile;
    let subjects: Vec<&str> = content.recordings.iter().map(|one| one.subject()).collect();
    let lines = profile.account.lines();
    let (counted, doubts) = lines
        .split_first()
        .map_or(("", &[][..]), |(first, rest)| (first, rest));
    writeln!(
        out,
        "{}: {counted}",
        cut(&subjects.join(" + "), LINE_COLUMNS)
    )?;
    let hottest = write_functions(content, out)?;
    write_paths(content.places.unwrap_or(profile), out)?;
    writeln!(out, "\nWhat is uncertain")?;
    // Several recordings may have the same warning.
    let mut told = HashSet::new();
    let mut all: Vec<&String> = doubts.iter().chain(&profile.warnings).collect();
    all.retain(|doubt| told.insert(*doubt));
    for doubt in all.iter().take(DOUBTS) {
        writeln!(out, "  {}", cut(doubt, DOUBT_COLUMNS))?;
    }
    let more = all.len().saturating_sub(DOUBTS);
    if all.is_empty() {
        writeln!(out, "  nothing is known to be missing")?;
    } else if more > 0 {
        writeln!(out, "  … and {more} more (uniprof info)")?;
    }
    write_next(content, hottest, out)?;
    Ok(true)
}

/// Writes the hottest functions, and returns the first with a name.
fn write_functions<'p>(content: &Content<'p>, out: &mut dyn Write) -> io::Result<Option<&'p str>> {
    let profile = content.profile;
    let lines = hottest_lines(content.places.unwrap_or(profile));
    let shown = rows(
        profile,
        TopOptions {
            rows: FUNCTIONS,
            ..TopOptions::default()
        },
    );
    writeln!(out, "\nHottest functions: self, total, name, hottest line")?;
    let counted = profile.account.counted;
    let mut hottest = None;
    for row in &shown.rows {
        let [own, total] = [row.own, row.total].map(|part| share(part, counted));
        let labels = &profile.labels;
        let name = labels.name(row.label);
        let at = lines.get(&(name, labels.module_name(row.label)));
        let at = at.map_or(String::new(), |line| format!("  {line}"));
        let module = cut(&labels.module_suffix(row.label), NAME_COLUMNS);
        writeln!(
            out,
            "  {own:>6} {total:>6}  {}{module}{at}",
            cut(name, NAME_COLUMNS)
        )?;
        if !labels.get(row.label).unknown {
            hottest = hottest.or(Some(name));
        }
    }
    if shown.more > 0 {
        writeln!(
            out,
            "  … and {} more (uniprof report --top --rows 0)",
            shown.more
        )?;
    }
    Ok(hottest)
}

/// Name and image of a function.
type Function<'p> = (&'p str, &'p str);
/// Own samples by file and line.
type LineCounts = BTreeMap<(TextId, u32), u64>;

/// By function: its line with the most own samples.
fn hottest_lines(places: &Profile) -> BTreeMap<Function<'_>, String> {
    let labels = &places.labels;
    let mut counts: BTreeMap<Function<'_>, LineCounts> = BTreeMap::new();
    for node in places.tree.nodes().iter().filter(|node| node.count > 0) {
        // Samples without a frame end at the root, which has no label.
        let Some(label) = known(places, node.label).map(|label| labels.get(label)) else {
            continue;
        };
        let function = (labels.name(node.label), labels.module_name(node.label));
        let lines = counts.entry(function).or_default();
        *lines.entry((label.file, label.line)).or_default() += node.count;
    }
    let hottest = counts.into_iter().filter_map(|(function, lines)| {
        let lines = lines.into_iter().filter(|((_, line), _)| *line > 0);
        let ((file, line), _) = lines.max_by_key(|(line, count)| (*count, *line))?;
        let file = file_name(labels.text(file));
        Some((function, format!("{}:{line}", cut(file, NAME_COLUMNS))))
    });
    hottest.collect()
}

/// `text` in one line of so many columns, without control characters.
fn cut(text: &str, columns_max: usize) -> String {
    caption::cut(&printable(text), columns_max)
}

fn known(profile: &Profile, label: LabelId) -> Option<LabelId> {
    ((label as usize) < profile.labels.len()).then_some(label)
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Writes the stacks with the most samples, innermost frame first.
fn write_paths(places: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let labels = &places.labels;
    // Instructions of one line are one place.
    let mut paths: BTreeMap<Vec<(&str, u32)>, (u64, NodeId)> = BTreeMap::new();
    for (number, node) in places.tree.nodes().iter().enumerate() {
        if node.count == 0 || known(places, node.label).is_none() {
            continue;
        }
        let number = number as NodeId;
        let frames = places.tree.outwards(number).take(FRAMES);
        let frames = frames.map(|label| (labels.name(label), labels.get(label).line));
        let path = paths.entry(frames.collect()).or_insert((0, number));
        path.0 += node.count;
    }
    let mut paths: Vec<(u64, NodeId)> = paths.into_values().collect();
    paths.sort_unstable_by_key(|&(count, node)| (std::cmp::Reverse(count), node));
    let all = places.tree.totals()[0];
    writeln!(out, "\nHottest paths, innermost first")?;
    for (count, node) in paths.into_iter().take(PATHS) {
        write!(out, "  {:>6}  ", share(count, all))?;
        let mut frames = places.tree.outwards(node);
        for (number, label) in frames.by_ref().take(FRAMES).enumerate() {
            let before = if number > 0 { " < " } else { "" };
            let found = labels.get(label);
            write!(out, "{before}{}", cut(labels.name(label), NAME_COLUMNS))?;
            if found.line > 0 {
                write!(
                    out,
                    " ({}:{})",
                    cut(file_name(labels.text(found.file)), NAME_COLUMNS),
                    found.line
                )?;
            }
        }
        match frames.count() {
            0 => writeln!(out)?,
            more => writeln!(out, " < {more} more")?,
        }
    }
    Ok(())
}

/// Writes the commands that show more.
fn write_next(content: &Content<'_>, hottest: Option<&str>, out: &mut dyn Write) -> io::Result<()> {
    let files = content.recordings.iter();
    let files: Option<Vec<String>> = files.map(|one| quoted(file_name(one.name()))).collect();
    let files = files.filter(|files| !files.is_empty() && files.len() <= FILES);
    let files = files.unwrap_or_else(|| vec!["run.uprof".to_owned()]);
    // Without what selected the samples, the commands would show others.
    let chosen = &content.form.chosen;
    let what = match chosen.as_str() {
        "" => files.join(" "),
        chosen => format!("{chosen} {}", files.join(" ")),
    };
    let mut next = Vec::new();
    if !chosen.contains(char::is_control) {
        let function = hottest.and_then(quoted);
        if let Some(function) = &function {
            let command = format!("report --callers {function} {what}");
            next.push((command, "from where it is called"));
        }
        // A trace has no instructions.
        if let (Some(function), false) = (&function, content.profile.unit() == Unit::Calls) {
            let command = format!("report --annotate {function} {what}");
            next.push((command, "its source or instructions"));
        }
        next.push((format!("report --tree {what}"), "all calls"));
        next.push((format!("report --html {what}"), "a page to look around in"));
    }
    if chosen.is_empty() {
        let command = format!("diff OTHER.uprof {}", files.join(","));
        next.push((command, "what changed"));
    }
    let columns = next
        .iter()
        .map(|(command, _)| command.len())
        .max()
        .unwrap_or(0);
    writeln!(out, "\nWhat to ask next")?;
    for (command, what) in next {
        writeln!(out, "  uniprof {command:columns$}  {what}")?;
    }
    Ok(())
}

/// `word` as a shell takes it; `None` if it is too long or can't be one word.
fn quoted(word: &str) -> Option<String> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_-./:+@".contains(letter);
    let is_whole = cut(word, NAME_COLUMNS) == word;
    if word.is_empty() || !is_whole || word.contains(['\'', '\n']) {
        return None;
    }
    if word.chars().all(is_plain) && !word.starts_with('-') {
        return Some(word.to_owned());
    }
    Some(format!("'{word}'"))
}
