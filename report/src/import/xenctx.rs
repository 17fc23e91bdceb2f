//! The stacks that Xen's xenctx prints: `[<address>] name+0x27 <--` is the innermost frame. The address in
//! the stack precedes the lines of its callers. Registers and words of the stack are printed, too.

use super::{ImportError, Importer, InputFrame, Origin, split_offset};
use std::io::BufRead;
use uprof::Stop;

pub(super) fn read(
    input: &mut dyn BufRead,
    importer: &mut Importer<'_>,
) -> Result<(), ImportError> {
    let mut line = String::new();
    let mut stack: Vec<(u64, String)> = Vec::new();
    let mut vcpu = 0;
    while importer.next_line(input, &mut line)? {
        let number = line
            .trim()
            .strip_prefix("vcpu")
            .map(|rest| rest.trim_matches([':', ' ']));
        if let Some(number) = number.and_then(|number| number.parse::<u32>().ok()) {
            flush(&mut stack, vcpu, importer)?;
            vcpu = number;
            continue;
        }
        let Some((address, name)) = parse(&line) else {
            importer.imported.skipped += u64::from(line.contains("[<"));
            continue;
        };
        if line.trim_end().ends_with("<--") {
            flush(&mut stack, vcpu, importer)?;
        }
        stack.push((address, name.to_owned()));
    }
    flush(&mut stack, vcpu, importer)
}

fn flush(
    stack: &mut Vec<(u64, String)>,
    vcpu: u32,
    importer: &mut Importer<'_>,
) -> Result<(), ImportError> {
    if stack.is_empty() {
        return Ok(());
    }
    let frames = stack.iter().map(|(address, name)| match name.as_str() {
        "" => InputFrame::Address(*address),
        name => {
            let (name, offset) = split_offset(name);
            InputFrame::Named("", name, offset)
        }
    });
    let frames: Vec<InputFrame<'_>> = frames.collect();
    let origin = Origin {
        time_ns: None,
        vcpu,
        stop: Stop::Unsaid,
    };
    importer.stack(&frames, origin, 1)?;
    stack.clear();
    Ok(())
}

fn parse(line: &str) -> Option<(u64, &str)> {
    let (_, rest) = line.split_once("[<")?;
    let (digits, rest) = rest.split_once(">]")?;
    let address = u64::from_str_radix(digits.trim(), 16).ok()?;
    Some((address, rest.trim().trim_end_matches("<--").trim()))
}
