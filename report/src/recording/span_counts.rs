//! Counts the spans of a recording, by what is known of them, and those that are lost: one pass over its span
//! blocks that looks up no names.

use crate::recording::{Recording, SpanBlockPlace};
use rayon::prelude::*;
use uprof::Fault;

/// Numbers of spans.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SpanCounts {
    /// Spans that were read.
    pub spans: u64,
    /// Spans whose end is missing.
    pub without_end: u64,
    /// Spans whose beginning is missing.
    pub without_beginning: u64,
    /// Spans that have a time.
    pub timed: u64,
    /// Spans known to be lost with blocks that are damaged or missing.
    pub lost: u64,
    /// Why some spans can't be read, in words.
    pub faults: Vec<String>,
}

/// What a block states: the number of spans in the blocks before it, and its own counts.
type BlockCounts = (Option<u64>, SpanCounts);

impl SpanCounts {
    /// Counts the spans of `recording`.
    pub(crate) fn of(recording: &Recording) -> SpanCounts {
        let places = recording.span_blocks();
        let all: Vec<BlockCounts> = places
            .par_iter()
            .map(|place| count(recording, place))
            .collect();
        let mut whole = SpanCounts::default();
        let mut expected = 0;
        for (before, counts) in all {
            let before = before.unwrap_or(expected);
            whole.lost = whole.lost.saturating_add(before.saturating_sub(expected));
            expected = before.saturating_add(counts.spans);
            whole.spans += counts.spans;
            whole.without_end += counts.without_end;
            whole.without_beginning += counts.without_beginning;
            whole.timed += counts.timed;
            whole.faults.extend(counts.faults);
        }
        whole
    }

    /// Whether some of the recording's spans can't be shown.
    pub fn are_incomplete(&self) -> bool {
        self.lost > 0 || !self.faults.is_empty()
    }
}

fn count(recording: &Recording, place: &SpanBlockPlace) -> BlockCounts {
    let mut counts = SpanCounts::default();
    let block = match recording.spans(place) {
        Ok(block) => block,
        Err(fault) => {
            counts.faults.push(fault.to_string());
            return (None, counts);
        }
    };
    let mut rows = block.rows();
    let mut counting = || -> Result<(), Fault> {
        while let Some(row) = rows.next_row()? {
            counts.spans += 1;
            counts.timed += u64::from(row.start_ns.is_some());
            if !row.complete {
                counts.without_end += u64::from(row.length_ns.is_none());
                counts.without_beginning += u64::from(row.length_ns.is_some());
            }
        }
        Ok(())
    };
    if let Err(fault) = counting() {
        let what = format!("the block at byte {}: {fault}", place.offset);
        counts.faults.push(what);
    }
    (block.before(), counts)
}
