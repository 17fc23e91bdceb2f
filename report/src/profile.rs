//! A gathered profile: stacks with counts, labels, and the account of samples and losses. Views and exports start
//! from it.

pub(crate) mod filter;
pub(crate) mod labels;
pub(crate) mod tree;
pub(crate) mod found_by;
pub(crate) mod recursion;
pub(crate) mod advice;
pub mod calls;
pub mod slowest;
pub(crate) mod gather;
pub mod functions;
pub(crate) mod reduced;

pub use filter::Filter;
use found_by::FoundBy;
pub use gather::{By, Each, OnProgress, Options, Sampled, gather};
pub use labels::{Label, LabelId, Labels, TextId};
pub use reduced::Reduced;
pub use tree::{Node, NodeId, ROOT, StackTree};

use crate::recording::account::Account;
use crate::recording::unit::Unit;
use crate::stacks::idle::IdlePlaces;
use std::collections::{BTreeMap, HashMap};
use uprof::State;

/// A gathered profile.
#[derive(Debug, Default)]
pub struct Profile {
    /// Stacks with counts.
    pub tree: StackTree,
    /// How the frame of each stack was found.
    pub(crate) found: FoundBy,
    /// Off CPU: the part of each stack's time that other waits may have had, recorded with its stack as they were
    /// too many.
    pub(crate) pooled: HashMap<NodeId, u64>,
    /// Their labels.
    pub labels: Labels,
    /// Samples and losses.
    pub account: Account,
    /// Calls of a trace, where the unit is time in calls.
    pub calls: calls::Calls,
    /// The slowest of them, as many as were asked for.
    pub slowest: Vec<slowest::SlowCall>,
    /// What each recording has beside them.
    pub not_counted: Vec<NotCounted>,
    /// Warnings: images refused, blocks that can't be decoded.
    pub warnings: Vec<String>,
}

/// Samples of a recording that are not counted because of their state.
#[derive(Debug, Default)]
pub struct NotCounted {
    /// Their numbers.
    pub by_state: BTreeMap<State, u64>,
    /// Where the guest idled, though its recorder was not told.
    pub(crate) idle: IdlePlaces,
}

impl Profile {
    /// The unit of the tree's numbers.
    pub fn unit(&self) -> Unit {
        self.account.unit
    }
}
