//! `--annotate FN`: the lines of a function's source, or its instructions where no line is known
//! or they are asked for, with the samples that were there.

mod spots;
mod assembly;
mod source;

use super::callers::matching;
use crate::code::Codes;
use crate::gather::Profile;
use crate::unit::Unit;
use spots::{Spot, Spots};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Lines and instructions shown around those with samples.
const AROUND: u32 = 3;
/// Most lines of a source file, or instructions of a function, that are shown.
const LINES_MAX: usize = 2000;

/// Own and total samples of a line or an instruction.
type Counts = (u64, u64);

/// What to annotate.
#[derive(Debug)]
pub struct Annotation<'a, 'c> {
    /// A function's name, or a part of it.
    pub function: &'a str,
    /// Instructions even where source lines are known.
    pub assembly: bool,
    /// Whether to open the source files that images and recordings name.
    pub sources: bool,
    /// Where instructions are from.
    pub codes: &'a Codes<'c>,
}

/// Writes the annotated function of a profile gathered by [`By::Place`](crate::gather::By::Place);
/// `false` if no sample has it.
///
/// # Errors
/// What `out` returns.
pub fn write(
    profile: &Profile,
    what: &Annotation<'_, '_>,
    out: &mut dyn Write,
) -> io::Result<bool> {
    let wanted = matching(profile, what.function);
    let spots = Spots::of(profile, &wanted, what);
    let counts = spots.count(profile);
    for line in profile.account.lines() {
        writeln!(out, "{line}")?;
    }
    let own: u64 = counts.values().map(|count| count.0).sum();
    let unit = profile.unit();
    writeln!(out, "{} in {} itself", unit.phrase(own), what.function)?;
    for (module, why) in &spots.missing {
        writeln!(out, "no instructions of {}: {why}", module_name(module))?;
    }
    writeln!(out, "\n     self     total")?;
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
        source::write_file(file, what.sources, lines, unit, out)?;
    }
    for (listing, instructions) in &listed {
        let (module, listing) = &spots.listings[*listing];
        assembly::write_listing((module, listing), what, instructions, unit, out)?;
    }
    let mut module_before = None;
    for (spot, count) in &counts {
        let Spot::Offset(place, own_into_bytes) = spot else {
            continue;
        };
        if module_before != Some(place.module) {
            let module = module_name(place.module);
            writeln!(out, "                    instructions in {module}")?;
            module_before = Some(place.module);
        }
        let places = format!("{:#x}  +{own_into_bytes:#x}", place.offset);
        writeln!(out, "{}  {places}", columns(*count, unit))?;
    }
    Ok(!counts.is_empty())
}

fn module_name(path: &str) -> &str {
    match path {
        "" => "[unknown]",
        path => path,
    }
}

/// The columns of own and total samples; what has none has blanks.
fn columns((own, total): Counts, unit: Unit) -> String {
    let number = |count: u64| match count {
        0 => format!("{:>9}", ""),
        _ => format!("{:>9}", unit.amount(count)),
    };
    format!("{} {}", number(own), number(total))
}
