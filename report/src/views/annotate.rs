//! `--annotate FN`: the source lines of a function with their samples; or its instructions, if no line is
//! known or if they are requested.

pub(super) mod source;
pub(super) mod assembly;
pub(super) mod spots;

use super::callers::matching;
use super::{Content, Needs, Output, View};
use crate::images::library::Library;
use crate::profile::Profile;
use crate::recording::Recording;
use crate::recording::unit::Unit;
use crate::source_files::SourceFiles;
use crate::stacks::code::Codes;
use crate::text::screen::Screen;
use spots::{Spot, Spots};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// The row of this view in the table of views.
pub(crate) const VIEW: View = View {
    name: "annotate",
    about: "The lines of a function with their samples, its instructions where no line is known: its name, or a \
            part of it",
    output: Output::Function,
    needs: Needs::Instructions,
    begin: |_| Box::new(write_view),
};

fn write_view(content: &Content<'_>, out: &mut dyn Write) -> io::Result<bool> {
    let recordings: Vec<&Recording> = content.recordings.iter().collect();
    let empty = Library::default();
    let library = content.library.unwrap_or(&empty);
    let what = Annotation {
        function: content.value.function(),
        assembly: content.form.assembly,
        sources: &content.form.sources,
        codes: &Codes::new(&recordings, library, !content.form.mangled),
        screen: content.form.screen,
    };
    write(content.profile, &what, out)
}

/// Number of lines or instructions that are shown around those with samples.
const AROUND: u32 = 3;
/// Most lines of a source file, or instructions of a function, that are shown.
const LINES_MAX: usize = 2000;

/// Most functions whose code is read for one report.
const FUNCTIONS_MAX: usize = 64;

/// Self and total samples of a line or an instruction.
type Counts = (u64, u64);

/// What to annotate, and how.
#[derive(Debug)]
pub struct Annotation<'a, 'c> {
    /// A function's name, or a part of it.
    pub function: &'a str,
    /// Whether to show instructions even if source lines are known.
    pub assembly: bool,
    /// The source files that may be shown.
    pub sources: &'a SourceFiles,
    /// Reads the instructions.
    pub codes: &'a Codes<'c>,
    /// Width and colours of the terminal.
    pub screen: Screen,
}

/// Writes the annotated function of a profile gathered by [`By::Place`](crate::profile::gather::By::Place);
/// `false` if no sample has it.
///
/// # Errors
/// The errors of `out`.
pub fn write(
    profile: &Profile,
    what: &Annotation<'_, '_>,
    out: &mut dyn Write,
) -> io::Result<bool> {
    let wanted = matching(profile, what.function);
    let spots = Spots::of(profile, &wanted, what.codes, what.assembly, FUNCTIONS_MAX);
    let counts = spots.count(profile);
    let screen = what.screen;
    screen.write_lines(&profile.account.lines(), out)?;
    let own: u64 = counts.values().map(|count| count.0).sum();
    let unit = profile.unit();
    let found = format!("{} in {} itself", unit.phrase(own), what.function);
    screen.write_prose("", &found, 2, out)?;
    for (module, why) in &spots.missing {
        let note = format!("no instructions of {}: {why}", module_name(module));
        screen.write_prose("", &note, 2, out)?;
    }
    let amounts = screen.number_columns(unit, profile.account.counted).0;
    let form = Form {
        unit,
        screen,
        own,
        amounts,
    };
    writeln!(out, "\n{:>amounts$} {:>amounts$}", "self", "total")?;
    let mut files: BTreeMap<&str, BTreeMap<u32, Counts>> = BTreeMap::new();
    let mut listed: BTreeMap<usize, BTreeMap<usize, Counts>> = BTreeMap::new();
    for (spot, count) in &counts {
        match spot {
            Spot::Line(file, line) => {
                files.entry(file).or_default().insert(*line, *count);
            }
            Spot::Instruction(listing, index) => {
                listed.entry(*listing).or_default().insert(*index, *count);
            }
            Spot::Offset(..) => {}
        }
    }
    for (file, lines) in &files {
        source::write_file(file, what.sources, lines, form, out)?;
    }
    for (listing, instructions) in &listed {
        let (module, listing) = &spots.listings[*listing];
        assembly::write_listing((module, listing), what, instructions, form, out)?;
    }
    let mut module_before = None;
    for (spot, count) in &counts {
        let Spot::Offset(place, own_into_bytes) = spot else {
            continue;
        };
        if module_before != Some(place.module) {
            let module = module_name(place.module);
            form.write_heading(&format!("instructions in {module}"), out)?;
            module_before = Some(place.module);
        }
        let places = format!("{:#x}  +{own_into_bytes:#x}", place.offset);
        form.write_row(*count, &places, out)?;
    }
    Ok(!counts.is_empty())
}

pub(super) fn module_name(path: &str) -> &str {
    match path {
        "" => "[unknown]",
        path => path,
    }
}

/// The layout of lines.
#[derive(Debug, Clone, Copy)]
struct Form {
    unit: Unit,
    screen: Screen,
    /// The function's self samples: each line shows its share of them.
    own: u64,
    /// Width of the numbers (columns).
    amounts: usize,
}

impl Form {
    /// Column at which lines and instructions begin; headings begin one column to the left.
    fn column(self) -> usize {
        2 * self.amounts + 3
    }

    /// Writes the heading of the lines below.
    fn write_heading(self, text: &str, out: &mut dyn Write) -> io::Result<()> {
        let column = self.column() - 1;
        writeln!(out, "{:column$}{}", "", self.screen.ends(text, column))
    }

    /// Writes a line without samples.
    fn write_between(self, text: &str, out: &mut dyn Write) -> io::Result<()> {
        let column = self.column();
        writeln!(out, "{:column$}{}", "", self.screen.start(text, column))
    }

    /// Writes a line or an instruction, with blanks instead of numbers if it has no samples.
    fn write_row(self, (own, total): Counts, text: &str, out: &mut dyn Write) -> io::Result<()> {
        let amounts = self.amounts;
        let number = |count: u64| match count {
            0 => " ".repeat(amounts),
            _ => format!("{:>amounts$}", self.unit.amount(count)),
        };
        let weighed = self.screen.weighed(number(own), own, self.own);
        let (total, text) = (number(total), self.screen.start(text, self.column()));
        writeln!(out, "{weighed} {total}  {text}")
    }
}
