//! Samples of each item by recording and block of time. The reference is either all samples, or those outside
//! some items.
//!
//! Shares sum to one: if one function takes more, all others have a smaller share although they do the same
//! work. Samples outside the functions that changed are a reference that doesn't change with them. The
//! normalisation of gene counts uses the same idea (Robinson and Oshlack, Genome Biology 11, 2010; with
//! changed items removed step by step: Kadota, Nishiyama and Shimizu, Algorithms for Molecular Biology 7,
//! 2012).

use super::series::{BLOCKS, Series};
use std::collections::BTreeSet;

/// One recording's samples.
#[derive(Debug, Clone)]
pub(super) struct Run {
    /// Samples of the reference, by block.
    pub totals: Vec<f64>,
    /// For each item, its samples, by block.
    pub items: Vec<Vec<f64>>,
}

/// All recordings of both sides.
#[derive(Debug)]
pub(super) struct Tally {
    pub sides: [Vec<Run>; 2],
}

/// Which samples of an item are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// All its samples.
    Item,
    /// Only those outside the excluded items, like the reference.
    Outside,
}

impl Tally {
    /// Counts the samples. Those in an item of `apart` don't belong to the reference.
    pub(crate) fn new(series: &Series, apart: &BTreeSet<usize>, scope: Scope) -> Tally {
        let is_outside: Vec<bool> = series
            .stacks
            .iter()
            .map(|items| !items.iter().any(|item| apart.contains(item)))
            .collect();
        let sides = series.sides.each_ref().map(|side| {
            let runs = side.recordings.iter().map(|counts| {
                let mut run = Run {
                    totals: vec![0.0; BLOCKS],
                    items: vec![vec![0.0; BLOCKS]; series.items.len()],
                };
                for cell in &counts.cells {
                    let outside = is_outside[cell.stack];
                    if outside {
                        run.totals[cell.block] += cell.count;
                    }
                    if outside || scope == Scope::Item {
                        for item in &series.stacks[cell.stack] {
                            run.items[*item][cell.block] += cell.count;
                        }
                    }
                }
                run
            });
            runs.collect()
        });
        Tally { sides }
    }

    /// Number of samples of the reference on a side.
    pub(crate) fn total(&self, side: usize) -> f64 {
        self.sides[side].iter().map(Run::total).sum()
    }

    /// Number of samples of an item on a side.
    pub(crate) fn count(&self, side: usize, item: usize) -> f64 {
        self.sides[side].iter().map(|run| run.count(item)).sum()
    }

    /// An item's share of both sides' samples.
    pub(crate) fn share(&self, item: usize) -> f64 {
        let whole = self.total(0) + self.total(1);
        (self.count(0, item) + self.count(1, item)) / whole.max(1.0)
    }
}

impl Run {
    /// Number of samples of the reference.
    pub(crate) fn total(&self) -> f64 {
        self.totals.iter().sum()
    }

    /// Number of samples of an item.
    pub(crate) fn count(&self, item: usize) -> f64 {
        self.items[item].iter().sum()
    }
}
