//! The calls of a trace, from the last to the first. Input: blocks of spans. Output: calls, each caller
//! before its callees. A file has calls in the order of their ends (format-spec.md, section 15.2), so that it
//! is enough to keep one stack for each task. The self time of a call is known once all its callees have been
//! visited.

use crate::recording::{BlockError, Recording, SpanBlockPlace};
use rayon::prelude::*;
use std::collections::BTreeMap;
use uprof::{SpanBlock, SpanRow, Task};

/// Number of blocks that are in memory at the same time.
const BATCH: usize = 8;

/// A visitor of calls.
pub(crate) trait Visit {
    /// What the visitor keeps of a call while its callees are visited.
    type Context;

    /// Enters a call, after its caller.
    fn enter(&mut self, call: &Call<'_>, caller: Option<&Self::Context>) -> Self::Context;

    /// Leaves the same call, after all its callees. `own_ns` is its self time, if that is known.
    fn leave(&mut self, context: Self::Context, own_ns: Option<u64>);
}

/// A call and its position in the recording.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call<'b> {
    /// Its row: times, task and result.
    pub row: SpanRow,
    /// Its block, which has its name.
    pub block: &'b SpanBlock,
    /// Offset of the block: names of one block have the same numbers.
    pub block_offset: u64,
    /// Number of the call in the recording, in the order of the file, from 1.
    pub number: u64,
}

struct OpenCall<K> {
    depth: u16,
    length_ns: Option<u64>,
    /// Total time of its callees so far (nanoseconds).
    calls_ns: u64,
    context: K,
}

/// Visits all calls of `recording`. Returns how many calls at least can't be read, and why.
pub(crate) fn walk<V: Visit>(recording: &Recording, visit: &mut V) -> (u64, Vec<String>) {
    let (mut lost, mut faults) = (0_u64, Vec::new());
    let mut open: BTreeMap<Task, Vec<OpenCall<V::Context>>> = BTreeMap::new();
    let mut after: Option<u64> = None;
    for batch in recording.span_blocks().rchunks(BATCH) {
        let read: Vec<_> = batch
            .par_iter()
            .map(|place| read(recording, place))
            .collect();
        for (place, read) in batch.iter().zip(read).rev() {
            let BlockRows { block, rows, fault } = match read {
                Ok(read) => read,
                Err(fault) => {
                    faults.push(fault.to_string());
                    lost = lost.saturating_add(1);
                    continue;
                }
            };
            faults.extend(fault);
            let before = block.before().unwrap_or(0);
            let end = before.saturating_add(rows.len() as u64);
            // Each block states the number of calls before it, so a gap between two blocks shows how many
            // are missing.
            let missing = after.map_or(0, |after: u64| after.saturating_sub(end));
            lost = lost.saturating_add(missing);
            after = Some(before);
            for (index, row) in rows.into_iter().enumerate().rev() {
                let stack = open.entry(row.task).or_default();
                // Backwards, a call that is not deeper comes after all callees of the open one.
                while let Some(done) = stack.pop_if(|open| open.depth >= row.depth) {
                    close(done, visit);
                }
                if let (Some(caller), Some(length_ns)) = (stack.last_mut(), row.length_ns) {
                    caller.calls_ns = caller.calls_ns.saturating_add(length_ns);
                }
                let call = Call {
                    row,
                    block: &block,
                    block_offset: place.offset,
                    number: before.saturating_add(index as u64 + 1),
                };
                let context = visit.enter(&call, stack.last().map(|caller| &caller.context));
                stack.push(OpenCall {
                    depth: row.depth,
                    length_ns: row.length_ns,
                    calls_ns: 0,
                    context,
                });
            }
        }
    }
    // The calls before the first block that could be read.
    lost = lost.saturating_add(after.unwrap_or(0));
    for stack in open.into_values() {
        stack.into_iter().rev().for_each(|done| close(done, visit));
    }
    (lost, faults)
}

fn close<V: Visit>(done: OpenCall<V::Context>, visit: &mut V) {
    let own_ns = done
        .length_ns
        .map(|length_ns| length_ns.saturating_sub(done.calls_ns));
    visit.leave(done.context, own_ns);
}

/// A block and its rows, up to the first that can't be decoded.
struct BlockRows {
    block: SpanBlock,
    rows: Vec<SpanRow>,
    fault: Option<String>,
}

fn read(recording: &Recording, place: &SpanBlockPlace) -> Result<BlockRows, BlockError> {
    let block = recording.spans(place)?;
    let mut rows = Vec::with_capacity(block.len());
    let mut next = block.rows();
    let fault = loop {
        match next.next_row() {
            Ok(Some(row)) => rows.push(row),
            Ok(None) => break None,
            Err(fault) => break Some(format!("the block at byte {}: {fault}", place.offset)),
        }
    };
    Ok(BlockRows { block, rows, fault })
}
