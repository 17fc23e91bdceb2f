//! The rows of a block as every output counts them. Input: a block, and whoever knows which vCPUs were idle. Output:
//! rows with the state that holds; time, task and stack stand in the row, its unit and weight follow from it
//! ([`Unit::of`](super::Unit), [`Unit::weigh`](super::Unit)). Only what shows or copies a file's bytes reads rows
//! without this.

use uprof::{Fault, Row, Rows, SampleBlock, State};

/// Knows the states of samples better than their recorder did.
pub(crate) trait States {
    /// What the vCPU or thread of `row` was doing.
    fn state(&self, block: &SampleBlock, row: &Row<'_>) -> State;
}

/// Reads the rows of a block in order, each with the state that holds.
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
    /// The first fault of a column; no row follows.
    #[inline]
    pub(crate) fn next_row(&mut self) -> Result<Option<Row<'_>>, Fault> {
        let mut row = self.rows.next_row()?;
        if let Some(row) = &mut row {
            row.state = self.states.state(self.block, row);
        }
        Ok(row)
    }
}
