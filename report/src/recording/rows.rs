//! The rows of a block as every output counts them. Input: a block, and the vCPUs that were idle. Output:
//! rows with the effective state. Time, task and stack are in the row; its unit and weight follow from it
//! ([`Unit::of`](super::Unit), [`Unit::weigh`](super::Unit)). Only code that shows or copies a file's bytes
//! reads rows without this module.

use uprof::{Fault, Row, Rows, SampleBlock, State};

/// Knows the states of samples better than their recorder could.
pub(crate) trait States {
    /// The state of the vCPU or thread of `row`.
    fn state(&self, block: &SampleBlock, row: &Row<'_>) -> State;
}

/// Reads the rows of a block in order, each with its effective state.
pub(crate) struct EffectiveRows<'a, S> {
    block: &'a SampleBlock,
    rows: Rows<'a>,
    states: &'a S,
}

impl<'a, S: States> EffectiveRows<'a, S> {
    /// The rows of `block`.
    pub(crate) fn new(block: &'a SampleBlock, states: &'a S) -> Self {
        EffectiveRows {
            block,
            rows: block.rows(),
            states,
        }
    }

    /// The next row, or `None` after the last.
    ///
    /// # Errors
    /// The first fault of a column. No row follows it.
    #[inline]
    pub(crate) fn next_row(&mut self) -> Result<Option<Row<'_>>, Fault> {
        let mut row = self.rows.next_row()?;
        if let Some(row) = &mut row {
            row.state = self.states.state(self.block, row);
        }
        Ok(row)
    }
}
