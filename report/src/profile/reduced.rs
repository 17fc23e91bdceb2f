//! A profile whose frames have less detail: stacks that become equal are merged. It reduces instructions to
//! functions, for views that are shown beside one that needs instructions.

use crate::profile::Profile;
use crate::profile::found_by::FoundBy;
use crate::profile::labels::{Label, LabelId, Labels, TextId};
use crate::profile::tree::{NodeId, ROOT, StackTree};
use std::collections::HashMap;

/// Stacks with fewer labels, in the order of the profile.
#[derive(Debug)]
pub struct ReducedProfile {
    /// The reduced labels.
    pub(crate) labels: Labels,
    /// Their stacks, without counts.
    pub(crate) tree: StackTree,
    /// How the frames of these stacks were found.
    pub(crate) found: FoundBy,
    /// The reduced label of each label of the profile.
    label_of: Vec<LabelId>,
    /// The text here of each text of the profile, if it is used.
    text_of: Vec<Option<TextId>>,
    /// The node here of each node of the profile.
    node_of: Vec<NodeId>,
}

impl Default for ReducedProfile {
    fn default() -> Self {
        ReducedProfile {
            labels: Labels::new(),
            tree: StackTree::default(),
            found: FoundBy::default(),
            label_of: Vec::new(),
            text_of: Vec::new(),
            node_of: vec![ROOT],
        }
    }
}

impl ReducedProfile {
    /// Adds the stacks that the profile has gathered since the last call. `told` reduces a label, whose texts
    /// are the profile's.
    pub(crate) fn extend(&mut self, profile: &Profile, told: impl Fn(LabelId) -> Label) {
        let labels = &profile.labels;
        for id in self.label_of.len()..labels.len() {
            let label = told(id as LabelId);
            let mut text = |id: TextId| {
                if self.text_of.len() <= id as usize {
                    self.text_of.resize(id as usize + 1, None);
                }
                let known = &mut self.text_of[id as usize];
                *known.get_or_insert_with(|| self.labels.text_id(labels.text(id)))
            };
            let label = Label {
                name: text(label.name),
                module: text(label.module),
                file: text(label.file),
                ..label
            };
            self.label_of.push(self.labels.id(label));
        }
        for node in profile.tree.nodes().iter().skip(self.node_of.len()) {
            let label = self.label_of[node.label as usize];
            let here = self.tree.child(self.node_of[node.parent as usize], label);
            self.node_of.push(here);
        }
    }

    /// Adds the stacks that the profile has gathered since the last call, reduced to functions.
    pub fn extend_by_function(&mut self, profile: &Profile) {
        self.extend(profile, |id| function(profile.labels.get(id)));
    }

    /// The node here of a node of the profile.
    pub fn node(&self, node: NodeId) -> NodeId {
        self.node_of.get(node as usize).copied().unwrap_or(ROOT)
    }

    /// Copies how the frames of the profile's stacks were found.
    pub(crate) fn take_found(&mut self, profile: &Profile) {
        for (node, here) in self.node_of.iter().enumerate() {
            let bits = profile.found.bits(node as NodeId);
            self.found.add_bits(*here, bits);
        }
    }

    /// The profile in this detail. The account and everything else beside the stacks is moved from `profile`.
    pub fn into_profile(mut self, profile: &mut Profile) -> Profile {
        self.take_found(profile);
        for (number, node) in profile.tree.nodes().iter().enumerate() {
            self.tree.add(self.node_of[number], node.count);
        }
        let mut pooled = HashMap::new();
        for (node, amount) in std::mem::take(&mut profile.pooled) {
            *pooled.entry(self.node_of[node as usize]).or_insert(0) += amount;
        }
        Profile {
            tree: self.tree,
            found: self.found,
            labels: self.labels,
            pooled,
            account: std::mem::take(&mut profile.account),
            calls: std::mem::take(&mut profile.calls),
            vcpu_times: std::mem::take(&mut profile.vcpu_times),
            exits: std::mem::take(&mut profile.exits),
            slowest: std::mem::take(&mut profile.slowest),
            of_recordings: std::mem::take(&mut profile.of_recordings),
            warnings: std::mem::take(&mut profile.warnings),
        }
    }
}

/// Reduces a label to that of its function.
pub(crate) fn function(label: Label) -> Label {
    Label {
        file: 0,
        line: 0,
        start_line: 0,
        discriminator: 0,
        offset: 0,
        in_file: false,
        into_bytes: 0,
        is_return: false,
        ..label
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_of_instructions_become_stacks_of_functions() {
        let mut profile = Profile {
            labels: Labels::new(),
            ..Profile::default()
        };
        let mut label = |name: &str, offset| {
            let name = profile.labels.text_id(name);
            profile.labels.id(Label {
                name,
                offset,
                ..Label::default()
            })
        };
        let (main, one, other) = (label("main", 1), label("leaf", 2), label("leaf", 3));
        let outer = profile.tree.child(ROOT, main);
        let mut reduced = ReducedProfile::default();
        let first = profile.tree.child(outer, one);
        profile.tree.add(first, 3);
        profile.found.add(first, uprof::Found::Cfi);
        reduced.extend_by_function(&profile);
        let second = profile.tree.child(outer, other);
        profile.tree.add(second, 4);
        profile.found.add(second, uprof::Found::FramePointer);
        // Stacks that were gathered later are merged with the earlier ones.
        reduced.extend_by_function(&profile);
        assert_eq!(reduced.node(first), reduced.node(second));
        let node = reduced.node(first);
        let functions = reduced.into_profile(&mut profile);
        assert_eq!(functions.labels.len(), 2);
        assert_eq!(functions.tree.totals(), [7, 7, 7]);
        assert_eq!(functions.found.bits(node), 0b11);
    }
}
