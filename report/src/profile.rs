//! A gathered profile: stacks with counts, what they are called, and what they rest on. Views and exports
//! begin with one.

pub mod filter;
pub mod labels;
pub mod tree;
pub mod recursion;
pub mod advice;
pub mod gather;
pub mod functions;

use crate::recording::account::Account;
use crate::recording::unit::Unit;
use labels::Labels;
use tree::StackTree;

/// What was gathered.
#[derive(Debug, Default)]
pub struct Profile {
    /// Stacks with counts.
    pub tree: StackTree,
    /// Their labels.
    pub labels: Labels,
    /// What the counts rest on.
    pub account: Account,
    /// Things to tell the user: images refused, blocks that can't be decoded.
    pub warnings: Vec<String>,
}

impl Profile {
    /// What the numbers of the tree are.
    pub fn unit(&self) -> Unit {
        self.account.unit
    }
}
