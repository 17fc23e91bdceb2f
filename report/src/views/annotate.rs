//! `--annotate FN`: the lines of a function's source, or its instructions where no line is known,
//! with the samples that were there.

use super::callers::matching;
use crate::gather::Profile;
use crate::labels::{LabelId, printable};
use crate::tree::NodeId;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::path::Path;

/// Where samples were: source file and line, or image and offset.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Spot {
    Line(String, u32),
    Instruction(String, u64, u64),
}

/// Lines shown around those with samples.
const AROUND: u32 = 3;
/// Most lines of a source file that are shown.
const LINES_MAX: usize = 2000;
/// No source file is larger (bytes).
const SOURCE_BYTES_MAX: u64 = 64 << 20;

/// Writes the annotated function of a profile gathered by [`By::Place`](crate::gather::By::Place);
/// `false` if no sample has it.
///
/// # Errors
/// What `out` returns.
pub fn write(profile: &Profile, function: &str, out: &mut dyn Write) -> io::Result<bool> {
    let wanted = matching(profile, function);
    let spots = count(profile, &wanted);
    for line in profile.account.lines() {
        writeln!(out, "{line}")?;
    }
    let own: u64 = spots.values().map(|count| count.0).sum();
    writeln!(out, "{own} samples in {function} itself\n")?;
    writeln!(out, "     self     total")?;
    let mut files: BTreeMap<&str, BTreeMap<u32, (u64, u64)>> = BTreeMap::new();
    for (spot, count) in &spots {
        if let Spot::Line(file, line) = spot {
            files.entry(file).or_default().insert(*line, *count);
        }
    }
    for (file, lines) in &files {
        write_file(file, lines, out)?;
    }
    let mut module_before = None;
    for (spot, (own, total)) in &spots {
        let Spot::Instruction(module, offset, into_bytes) = spot else {
            continue;
        };
        if module_before != Some(module) {
            writeln!(out, "                    instructions in {module}")?;
            module_before = Some(module);
        }
        let places = format!("{offset:#x}  +{into_bytes:#x}");
        writeln!(out, "{} {}  {places}", number(*own), number(*total))?;
    }
    Ok(!spots.is_empty())
}

fn number(count: u64) -> String {
    match count {
        0 => format!("{:>9}", ""),
        _ => format!("{count:>9}"),
    }
}

/// Own and total samples of each spot of the function.
fn count(profile: &Profile, wanted: &[bool]) -> BTreeMap<Spot, (u64, u64)> {
    let mut spots: BTreeMap<Spot, (u64, u64)> = BTreeMap::new();
    let leaves = profile.tree.nodes().iter().enumerate();
    for (number, node) in leaves.filter(|(_, node)| node.count > 0) {
        let mut seen = BTreeSet::new();
        for (depth, label) in profile.tree.outwards(number as NodeId).enumerate() {
            if wanted.get(label as usize) != Some(&true) {
                continue;
            }
            let spot = spot(profile, label);
            let count = spots.entry(spot.clone()).or_default();
            count.0 += if depth == 0 { node.count } else { 0 };
            if seen.insert(spot) {
                count.1 += node.count;
            }
        }
    }
    spots
}

fn spot(profile: &Profile, id: LabelId) -> Spot {
    let label = profile.labels.get(id);
    match (profile.labels.text(label.file), label.line) {
        ("", _) | (_, 0) => {
            let module = profile.labels.text(label.module).to_owned();
            Spot::Instruction(module, label.offset, label.into_bytes)
        }
        (file, line) => Spot::Line(file.to_owned(), line),
    }
}

fn write_file(
    file: &str,
    lines: &BTreeMap<u32, (u64, u64)>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let source = read_source(Path::new(file));
    let note = if source.is_none() {
        "  (not readable here)"
    } else {
        ""
    };
    writeln!(out, "                    {file}{note}")?;
    let source: Vec<&str> = source
        .as_deref()
        .map_or(Vec::new(), |text| text.lines().collect());
    let mut shown: BTreeSet<u32> = BTreeSet::new();
    for line in lines.keys() {
        match source.is_empty() {
            true => shown.extend([*line]),
            false => shown.extend(line.saturating_sub(AROUND).max(1)..=line.saturating_add(AROUND)),
        }
    }
    let mut before = None;
    for line in shown.into_iter().take(LINES_MAX) {
        let text = source
            .get((line as usize).wrapping_sub(1))
            .copied()
            .unwrap_or("");
        if !source.is_empty() && line as usize > source.len() && !lines.contains_key(&line) {
            continue;
        }
        if before.is_some_and(|before: u32| before + 1 != line) {
            writeln!(out, "                         …")?;
        }
        before = Some(line);
        let (own, total) = lines.get(&line).copied().unwrap_or_default();
        // A tab is no danger, and keeps its meaning at the start of a line.
        let text = printable(&text.replace('\t', "    ")).into_owned();
        writeln!(out, "{} {}  {line:>6}  {text}", number(own), number(total))?;
    }
    writeln!(out)
}

/// Endings of source files. The path comes from the recording or an image: without this, a stranger
/// could have any secret of this machine shown between the lines of a report.
const SOURCE_ENDINGS: [&str; 22] = [
    "c", "h", "cc", "cpp", "cxx", "hh", "hpp", "hxx", "inc", "s", "S", "asm", "rs", "ml", "mli",
    "go", "zig", "d", "f90", "py", "nim", "swift",
];

/// The text of a source file, if it is a file of a sane size on this machine.
fn read_source(path: &Path) -> Option<String> {
    let ending = path.extension()?.to_str()?;
    if !SOURCE_ENDINGS.contains(&ending) {
        return None;
    }
    let path = path.canonicalize().ok()?;
    if path.extension()?.to_str()? != ending {
        return None;
    }
    let found = std::fs::metadata(&path).ok()?;
    if !found.is_file() || found.len() > SOURCE_BYTES_MAX {
        return None;
    }
    let bytes = std::fs::read(&path).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
