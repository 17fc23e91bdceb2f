//! Folded stacks: `main;parse;read 17`, outermost frame first. `_[k]` marks a frame of the kernel and `_[i]`
//! an inlined one, as in this package's own export and in stackcollapse-perf.pl.

use super::{ImportError, Importer, InputFrame, Origin};
use std::io::BufRead;
use uprof::Stop;

pub(super) fn read(
    input: &mut dyn BufRead,
    importer: &mut Importer<'_>,
) -> Result<(), ImportError> {
    let mut line = String::new();
    while importer.next_line(input, &mut line)? {
        let split = line.trim_end().rsplit_once(' ');
        let parsed = split.and_then(|(stack, count)| Some((stack, count.parse::<u64>().ok()?)));
        let Some((stack, count)) = parsed.filter(|(stack, _)| !stack.is_empty()) else {
            importer.imported.skipped += u64::from(!line.trim().is_empty());
            continue;
        };
        let frames = stack
            .rsplit(';')
            .map(|name| match name.strip_suffix("_[k]") {
                Some(name) => InputFrame::Named("[kernel]", name, 0),
                None => InputFrame::Named("", name.strip_suffix("_[i]").unwrap_or(name), 0),
            });
        let frames: Vec<InputFrame<'_>> = frames.collect();
        let origin = Origin {
            time_ns: None,
            vcpu: 0,
            stop: Stop::Unsaid,
        };
        importer.stack(&frames, origin, count)?;
    }
    Ok(())
}
