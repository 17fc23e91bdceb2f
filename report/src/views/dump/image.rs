//! Lines of one part of an image: all its sections, entry by entry. As in the file, texts, expressions and
//! rules are written once and referred to by number, so that the size of a dump is linear in that of the
//! file.

use super::forms::{quoted, yes_or_no};
use crate::text::{hexadecimal, printable};
use std::io::{self, Write};
use uprof::Block;
use uprof::image::{
    Cfa, CfaKind, ImagePart, Inlined, Lines, Place, Rule, RuleSet, Rules, Save, Section,
};

/// Writes the lines of `part`, which is in `block`. Returns `true` if it was intact.
pub(super) fn write(block: &Block<'_>, part: &ImagePart, out: &mut dyn Write) -> io::Result<bool> {
    let identity = &part.identity;
    writeln!(
        out,
        "image path={} build_id={} machine={} load_bias={:x} origin={}",
        quoted(&identity.path),
        hexadecimal(&identity.build_id),
        identity.arch.name(),
        identity.load_bias,
        quoted(&identity.origin)
    )?;
    for symbol in part.symbols() {
        let (address, size, name) = (symbol.address, symbol.size_bytes, quoted(symbol.name));
        writeln!(out, "symbol address={address:x} size={size} name={name}")?;
    }
    let mut is_sound = true;
    for section in part.sections() {
        // The section is read twice rather than buffered: it has either all its lines or none.
        let checked = section.and_then(|section| section.check().map(|()| section));
        match checked {
            Ok(section) => write_section(section, out)?,
            Err(fault) => {
                is_sound = false;
                writeln!(out, "error {}", printable(&block.error(fault).to_string()))?;
            }
        }
    }
    Ok(is_sound)
}

/// Writes the lines of a section. It has been checked, so no entry is an error.
fn write_section(section: Section<'_>, out: &mut dyn Write) -> io::Result<()> {
    match section {
        Section::Segments(segments) => segments.flatten().try_for_each(|segment| {
            writeln!(
                out,
                "segment address={:x} file_offset={:x} file_bytes={} memory_bytes={} code={}",
                segment.address,
                segment.file_offset,
                segment.file_bytes,
                segment.memory_bytes,
                yes_or_no(segment.has_code)
            )
        }),
        Section::Lines(lines) => write_lines(lines, out),
        Section::Rules(rules) => write_rules(rules, out),
        Section::Callers(callers) => callers.flatten().try_for_each(|one| {
            let (callee, function, next, caller) = (one.callee, one.function, one.next, one.caller);
            writeln!(
                out,
                "caller callee={callee:x} function={function:x} next={next:x} address={caller:x}"
            )
        }),
        Section::File(bytes) => {
            let (size, crc) = (bytes.len(), crc32fast::hash(bytes));
            writeln!(out, "file contents={size}:{crc:08x}")
        }
    }
}

fn write_lines(lines: Lines<'_>, out: &mut dyn Write) -> io::Result<()> {
    for (number, text) in (1..).zip(lines.texts.flatten()) {
        writeln!(out, "text number={number} text={}", quoted(text))?;
    }
    for row in lines.rows.flatten() {
        let function = |one: &Inlined| format!("{}/{}:{}", one.function, one.file, one.line);
        let functions = listed(row.functions.iter().map(function));
        writeln!(out, "line address={:x} functions={functions}", row.address)?;
    }
    Ok(())
}

fn write_rules(mut rules: Rules<'_>, out: &mut dyn Write) -> io::Result<()> {
    for (number, expression) in rules.set.expressions().enumerate() {
        let bytes = hexadecimal(expression);
        writeln!(out, "expression number={number} bytes={bytes}")?;
    }
    for (number, rule) in rules.set.rules().iter().enumerate() {
        write_rule(number, rule, &rules.set, out)?;
    }
    for row in rules.rows.by_ref().flatten() {
        let (start, end, rule) = (row.start, row.end, row.rule);
        writeln!(out, "unwind start={start:x} end={end:x} rule={rule}")?;
    }
    if let Ok(Some(returns)) = rules.returns() {
        let (_, count) = returns.size_hint();
        writeln!(out, "returns count={}", count.unwrap_or(0))?;
        for address in returns.flatten() {
            writeln!(out, "return address={address:x}")?;
        }
    }
    Ok(())
}

fn write_rule(number: usize, rule: &Rule, set: &RuleSet, out: &mut dyn Write) -> io::Result<()> {
    let cfa = match rule.cfa {
        Cfa::Register {
            register,
            offset_bytes,
        } => format!("{}:{register}:{offset_bytes}", CfaKind::Register.name()),
        Cfa::Expression(number) => format!("{}:{number}", CfaKind::Expression.name()),
    };
    let save = |save: &Save| match (save.register, save.place.encoded()) {
        (register, (kind, _)) if save.place == Place::Lost => format!("{register}:{}", kind.name()),
        (register, (kind, number)) => format!("{register}:{}:{number}", kind.name()),
    };
    let saves = listed(set.saves(rule).iter().map(save));
    let (trap, register) = (yes_or_no(rule.is_trap), rule.return_register);
    writeln!(
        out,
        "rule number={number} cfa={cfa} trap={trap} return={register} saves={saves}"
    )
}

/// The values separated by commas; `-` if there are none.
fn listed(values: impl Iterator<Item = String>) -> String {
    let values: Vec<String> = values.collect();
    if values.is_empty() {
        "-".to_owned()
    } else {
        values.join(",")
    }
}
