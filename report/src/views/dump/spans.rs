//! Lines of a span block (format-spec.md, section 10).

use super::forms::{known, put, quoted, task, yes_or_no};
use std::io::{self, Write};
use uprof::{Fault, SpanBlock};

/// Writes a line for each span. Returns the fault that ends the block, if there is one.
pub(super) fn write(block: &SpanBlock, out: &mut dyn Write) -> io::Result<Option<Fault>> {
    let mut rows = block.rows();
    let mut line = String::new();
    loop {
        let row = match rows.next_row() {
            Ok(Some(row)) => row,
            Ok(None) => return Ok(None),
            Err(fault) => return Ok(Some(fault)),
        };
        line.clear();
        put(
            &mut line,
            format_args!(
                "span task={} depth={} kind={} complete={} start={} length={} result={} cpu={} name={}",
                task(Some(row.task)),
                row.depth,
                row.kind.name(),
                yes_or_no(row.complete),
                known(row.start_ns),
                known(row.length_ns),
                known(row.result),
                known(row.cpu),
                quoted(block.name(row.name))
            ),
        );
        line.push('\n');
        out.write_all(line.as_bytes())?;
    }
}
