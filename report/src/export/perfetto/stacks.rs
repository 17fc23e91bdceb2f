//! Stacks as Perfetto's trace format interns them: images, functions, frames and stacks, each written once.

use super::message as pb;
use crate::profile::Profile;
use crate::profile::labels::{LabelId, TextId};
use crate::profile::tree::NodeId;
use std::collections::BTreeSet;

/// The numbers that have been written. They are the numbers of the profile's tables plus one, because 0 means
/// none.
#[derive(Default)]
pub(super) struct Stacks {
    told: BTreeSet<NodeId>,
    frames: BTreeSet<LabelId>,
    modules: BTreeSet<TextId>,
    /// Number of path components that have been written.
    parts: u64,
}

impl Stacks {
    /// The number of a stack. Whatever hasn't been written of it yet is added to `data`.
    pub(super) fn number(
        &mut self,
        profile: &Profile,
        node: NodeId,
        data: &mut pb::InternedData,
    ) -> u64 {
        let iid = u64::from(node) + 1;
        if !self.told.insert(node) {
            return iid;
        }
        let mut frame_ids: Vec<u64> = profile
            .tree
            .outwards(node)
            .map(|label| self.frame(profile, label, data))
            .collect();
        frame_ids.reverse();
        data.callstacks.push(pb::Callstack {
            iid: Some(iid),
            frame_ids,
        });
        iid
    }

    fn frame(&mut self, profile: &Profile, id: LabelId, data: &mut pb::InternedData) -> u64 {
        let iid = u64::from(id) + 1;
        if self.frames.insert(id) {
            let module = profile.labels.get(id).module;
            let mapping_id = self.mapping(module, profile.labels.text(module), data);
            data.function_names.push(name(iid, profile.labels.name(id)));
            data.frames.push(pb::Frame {
                iid: Some(iid),
                function_name_id: Some(iid),
                mapping_id: Some(mapping_id),
            });
        }
        iid
    }

    /// The number of an image. Code without an image gets one without a name, because readers drop frames
    /// that have none.
    fn mapping(&mut self, module: TextId, path: &str, data: &mut pb::InternedData) -> u64 {
        let iid = u64::from(module) + 1;
        if self.modules.insert(module) {
            let mut path_string_ids = Vec::new();
            for part in path.split('/').filter(|part| !part.is_empty()) {
                self.parts += 1;
                data.mapping_paths.push(name(self.parts, part));
                path_string_ids.push(self.parts);
            }
            data.mappings.push(pb::Mapping {
                iid: Some(iid),
                path_string_ids,
            });
        }
        iid
    }
}

/// A text with its number.
pub(super) fn name(iid: u64, text: &str) -> pb::Name {
    pb::Name {
        iid: Some(iid),
        text: Some(text.to_owned()),
    }
}
