//! A gathered profile: stacks with weights, labels, and the account of samples and losses. Views and exports
//! start from it.

pub(crate) mod filter;
pub(crate) mod labels;
pub(crate) mod tree;
pub(crate) mod found_by;
pub(crate) mod recursion;
pub(crate) mod advice;
pub mod calls;
pub mod vcpu_times;
pub(crate) mod losses;
pub mod exits;
pub(crate) mod exit_names;
pub mod slowest;
pub(crate) mod gather;
pub mod functions;
pub mod hot_functions;
pub mod load;
pub(crate) mod reduced;

pub use filter::Filter;
use found_by::FoundBy;
pub use gather::{By, Each, OnProgress, Options, Sampled, gather, gather_again};
pub use labels::{Label, LabelId, Labels, TextId};
pub use reduced::ReducedProfile;
pub use tree::{Node, NodeId, ROOT, StackTree};

use crate::recording::Recording;
use crate::recording::account::Account;
use crate::recording::survey::{Survey, survey};
use crate::recording::unit::Unit;
use crate::stacks::idle::IdlePlaces;
use std::collections::HashMap;

/// A gathered profile.
#[derive(Debug, Default)]
pub struct Profile {
    /// Stacks with their weights.
    pub tree: StackTree,
    /// How the frame of each stack was found.
    pub(crate) found: FoundBy,
    /// Off-CPU: the part of each stack's time that may belong to other waits. There were too many stacks to
    /// record, so their waits were recorded with this stack.
    pub(crate) pooled: HashMap<NodeId, u64>,
    /// Labels of the frames.
    pub labels: Labels,
    /// The account of samples and losses.
    pub account: Account,
    /// Calls of a trace, if the unit is time in calls.
    pub calls: calls::Calls,
    /// Wall time of vCPUs by place, if that is the unit.
    pub vcpu_times: vcpu_times::VcpuTimes,
    /// Exits of vCPUs, if the unit is their wall time.
    pub exits: exits::ExitTable,
    /// The slowest calls, as many as the options ask for.
    pub slowest: Vec<slowest::SlowCall>,
    /// What is known of each recording beside its stacks.
    pub of_recordings: Vec<OfRecording>,
    /// Warnings: images that were refused, blocks that can't be decoded.
    pub warnings: Vec<String>,
}

/// What is known of one recording beside its stacks.
#[derive(Debug, Default)]
pub struct OfRecording {
    /// Its samples and losses.
    pub account: Account,
    /// Addresses where the guest idled, although its recorder could not detect idleness.
    pub(crate) idle: IdlePlaces,
    /// The survey of the recording, if it was made along with the profile.
    pub(crate) survey: Option<Survey>,
}

impl OfRecording {
    /// The survey of `recording`, of which this is known.
    pub(crate) fn survey(&self, recording: &Recording) -> Survey {
        let made = || survey(recording, &self.idle.of(recording), &|_, _| ());
        self.survey.clone().unwrap_or_else(made)
    }
}

impl Profile {
    /// The unit of the tree's weights.
    pub fn unit(&self) -> Unit {
        self.account.unit
    }

    /// Begins the account of the next recording. Returns that of those before, for [`Profile::end_account`].
    fn begin_account(&mut self) -> Account {
        let next = Account {
            // What counts of all recordings has one limit.
            counted: self.account.counted,
            ..Account::new(self.unit())
        };
        std::mem::replace(&mut self.account, next)
    }

    /// Ends the account of a recording, and returns it. That of all is the one `before` with this one added.
    fn end_account(&mut self, before: Account) -> Account {
        self.account.counted -= before.counted;
        let account = std::mem::replace(&mut self.account, before);
        self.account.add(&account);
        account
    }
}
