//! LLVM's sample profile as text (clang.llvm.org/docs/UsersManual.html, "Sample Profile Text Format"), for a compiler:
//! samples of each function by lines from its declaration, with what was inlined there below. It has samples, not
//! numbers of executions, so it never has more than they say: no count is guessed.

use crate::export::Request;
use crate::profile::Profile;
use crate::profile::gather::{By, Options};
use crate::profile::labels::{Label, LabelId};
use crate::profile::tree::ROOT;
use crate::recording::unit::Unit;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Lines from the declaration are written modulo this, as LLVM computes them.
const OFFSET_MASK: u32 = 0xffff;
/// Most functions inlined into one another; samples in more are left out.
const NESTED_MAX: usize = 256;

/// Writes the profile of all functions with lines.
pub(crate) fn write(request: &Request<'_, '_>, out: &mut dyn Write) -> io::Result<Profile> {
    let options = Options {
        by: By::Declared,
        // A compiler knows functions by the linker's names.
        demangle: false,
        inlines: true,
        ..request.placed()
    };
    let mut profile = request.gather(&options, None);
    if !matches!(profile.unit(), Unit::Samples | Unit::Sampled) {
        profile.warnings.push(
            "a compiler's profile is of samples on the processor: it has no place for times of waits and calls, and is \
             empty"
                .to_owned(),
        );
        return Ok(profile);
    }
    let mut made = Functions::default();
    for (node, counted) in profile.tree.nodes().iter().enumerate() {
        if counted.count > 0 {
            made.add(&profile, node as u32, counted.count);
        }
    }
    if made.functions.values().all(|function| function.total == 0) {
        profile.warnings.push(
            "the profile is empty, as no sampled function has lines that a compiler could use: build the program with \
             -g -fdebug-info-for-profiling, record it, and keep that build where it was or give it with --elf"
                .to_owned(),
        );
        return Ok(profile);
    }
    made.write(out)?;
    let unplaced = made.unplaced;
    if unplaced > 0 {
        let all = profile.account.counted.max(1) as f64;
        let percent = unplaced as f64 * 100.0 / all;
        profile.warnings.push(format!(
            "{percent:.1} % of the samples are not in the profile: the images have no lines for their functions (the \
             kernel, libraries, and code built without -g)"
        ));
    }
    Ok(profile)
}

/// Where in a function: lines from its declaration, and which part of the line.
type Place = (u32, u32);

#[derive(Debug, Default)]
struct Functions<'a> {
    functions: BTreeMap<&'a str, Function<'a>>,
    /// Samples that are in none.
    unplaced: u64,
}

/// A function, or what is inlined of it at one place.
#[derive(Debug, Default)]
struct Function<'a> {
    /// Samples in it and in what is inlined there.
    total: u64,
    /// Samples at its first instruction.
    head: u64,
    lines: BTreeMap<Place, Samples<'a>>,
    inlined: BTreeMap<Place, BTreeMap<&'a str, Function<'a>>>,
}

#[derive(Debug, Default)]
struct Samples<'a> {
    own: u64,
    /// Samples in what is called from there.
    called: BTreeMap<&'a str, u64>,
}

impl<'a> Functions<'a> {
    /// Adds `count` samples with the stack at `node`.
    fn add(&mut self, profile: &'a Profile, node: u32, count: u64) {
        let mut functions: Vec<LabelId> = Vec::new();
        // The name of the function that the frame calls; `None` for the innermost.
        let mut called: Option<Option<&'a str>> = None;
        let mut stack = profile.tree.outwards(node).peekable();
        while let Some(id) = stack.next() {
            functions.push(id);
            let label = profile.labels.get(id);
            let around = stack.peek().map(|around| profile.labels.get(*around));
            if label.inlined && around.is_some_and(|around| around.code() == label.code()) {
                continue;
            }
            let chain = Chain::of(profile, &functions);
            match (&chain, called) {
                (Some(chain), None) => self.sample(chain, count),
                (Some(chain), Some(Some(callee))) => self.call(chain, callee, count),
                (None, None) => self.unplaced = self.unplaced.saturating_add(count),
                (_, _) => {}
            }
            called = Some(chain.map(|chain| chain.outermost));
            functions.clear();
        }
        if node == ROOT {
            self.unplaced = self.unplaced.saturating_add(count);
        }
    }

    /// The innermost function of `chain`, after `count` samples are added to it and those around it.
    fn function(&mut self, chain: &Chain<'a>, count: u64) -> &mut Function<'a> {
        let mut at = self.functions.entry(chain.outermost).or_default();
        at.total = at.total.saturating_add(count);
        for (place, name) in &chain.inlined {
            let inlined = at.inlined.entry(*place).or_default();
            at = inlined.entry(name).or_default();
            at.total = at.total.saturating_add(count);
        }
        at
    }

    fn sample(&mut self, chain: &Chain<'a>, count: u64) {
        let function = self.function(chain, count);
        let samples = function.lines.entry(chain.place).or_default();
        samples.own = samples.own.saturating_add(count);
        if chain.is_start {
            function.head = function.head.saturating_add(count);
        }
    }

    fn call(&mut self, chain: &Chain<'a>, callee: &'a str, count: u64) {
        let function = self.function(chain, 0);
        let samples = function.lines.entry(chain.place).or_default();
        let called = samples.called.entry(callee).or_default();
        *called = called.saturating_add(count);
    }

    /// Writes those with samples, the hottest first.
    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut order: Vec<_> = self.functions.iter().collect();
        order.retain(|(_, function)| function.total > 0);
        // The sort is stable: equally hot ones stay in order of their names.
        order.sort_by_key(|(_, function)| Reverse(function.total));
        for (name, function) in order {
            writeln!(out, "{name}:{}:{}", function.total, function.head)?;
            function.write(out, 1)?;
        }
        Ok(())
    }
}

impl Function<'_> {
    fn write(&self, out: &mut dyn Write, level: usize) -> io::Result<()> {
        // A line of which only the calls are known has some count, but not 0.
        for (place, samples) in self.lines.iter().filter(|(_, samples)| samples.own > 0) {
            write!(out, "{:level$}{}: {}", "", placed(*place), samples.own)?;
            for (callee, count) in &samples.called {
                write!(out, " {callee}:{count}")?;
            }
            writeln!(out)?;
        }
        for (place, functions) in &self.inlined {
            for (name, function) in functions {
                let total = function.total;
                if total > 0 {
                    writeln!(out, "{:level$}{}: {name}:{total}", "", placed(*place))?;
                    function.write(out, level + 1)?;
                }
            }
        }
        Ok(())
    }
}

fn placed((offset, part): Place) -> String {
    match part {
        0 => offset.to_string(),
        part => format!("{offset}.{part}"),
    }
}

/// The functions at one address.
struct Chain<'a> {
    outermost: &'a str,
    /// What is inlined into it, and into that: where, and what.
    inlined: Vec<(Place, &'a str)>,
    /// Where in the innermost of them.
    place: Place,
    /// Whether it is the function's first instruction.
    is_start: bool,
}

impl<'a> Chain<'a> {
    /// Of labels, innermost first. `None` if a line or a name isn't known, or the function itself is hidden.
    fn of(profile: &'a Profile, functions: &[LabelId]) -> Option<Chain<'a>> {
        if functions.len() > NESTED_MAX {
            return None;
        }
        let mut outwards = functions.iter().rev();
        let mut around = profile.labels.get(*outwards.next()?);
        if around.inlined {
            return None;
        }
        let outermost = name(profile, around)?;
        let is_start = functions.len() == 1 && around.into_bytes == 0;
        let mut inlined = Vec::new();
        for id in outwards {
            let inner = profile.labels.get(*id);
            inlined.push((place(around)?, name(profile, inner)?));
            around = inner;
        }
        Some(Chain {
            outermost,
            inlined,
            place: place(around)?,
            is_start,
        })
    }
}

/// The name as the format can have it, without what the compiler adds to the names of parts and copies.
fn name(profile: &Profile, label: Label) -> Option<&str> {
    let name = profile.labels.text(label.name);
    let whole = [".llvm.", ".part.", ".cold"].iter();
    let end = whole.filter_map(|suffix| name.find(suffix)).min();
    let name = &name[..end.unwrap_or(name.len())];
    let is_plain = !name.starts_with(['#', '[', '!']) && !name.contains(char::is_whitespace);
    (!label.unknown && !name.is_empty() && is_plain).then_some(name)
}

fn place(label: Label) -> Option<Place> {
    if label.line == 0 || label.start_line == 0 {
        return None;
    }
    let offset = label.line.wrapping_sub(label.start_line) & OFFSET_MASK;
    Some((offset, base_discriminator(label.discriminator)))
}

/// What the front end numbered. LLVM writes further numbers of copies beside it: the first in 7 or 14 bits, whose
/// lowest says that it is absent.
fn base_discriminator(discriminator: u32) -> u32 {
    let absent = discriminator & 1 == 1;
    let field = discriminator >> 1;
    match field & 0x20 {
        _ if absent => 0,
        0 => field & 0x1f,
        _ => field >> 1 & 0xfe0 | field & 0x1f,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_the_packed_numbers_is_the_base() {
        // As LLVM packs a base of 5, of none and of 0x123, each with a copy's number behind it.
        for (packed, base) in [(0, 0), (5 << 1, 5), (1 | 3 << 2, 0)] {
            assert_eq!(base_discriminator(packed), base, "{packed:#x}");
        }
        let large = (0x123 & 0x1f | (0x123 & 0xfe0) << 1 | 0x20) << 1;
        assert_eq!(base_discriminator(large), 0x123);
        assert_eq!(base_discriminator(large | 7 << 15), 0x123);
    }

    #[test]
    fn chains_that_are_too_deep_are_left_out() {
        let mut profile = Profile::default();
        let name = profile.labels.text_id("f");
        let label = Label {
            name,
            line: 3,
            start_line: 1,
            ..Label::default()
        };
        let id = profile.labels.id(label);
        let most = vec![id; NESTED_MAX];
        assert!(Chain::of(&profile, &most).is_some());
        assert!(Chain::of(&profile, &[&most[..], &[id]].concat()).is_none());
    }

    #[test]
    fn what_is_inlined_into_a_hidden_function_is_not_the_callers() {
        let mut profile = Profile::default();
        let mut node = ROOT;
        for (name, offset, inlined) in [("caller", 0x10, false), ("inner", 0x20, true)] {
            let label = Label {
                name: profile.labels.text_id(name),
                line: 3,
                start_line: 1,
                offset,
                inlined,
                ..Label::default()
            };
            let id = profile.labels.id(label);
            node = profile.tree.child(node, id);
        }
        let mut made = Functions::default();
        made.add(&profile, node, 5);
        assert_eq!(made.unplaced, 5);
        assert!(made.functions.values().all(|one| one.total == 0));
    }
}
