//! pprof's gzipped protobuf (github.com/google/pprof, proto/profile.proto), with mappings,
//! build-ids, lines, inlined functions, and labels for vCPU or thread and recording.

pub(crate) mod message;

use crate::export::Request;
use crate::profile::Profile;
use crate::profile::filter::Filter;
use crate::profile::gather::{By, Options, Sampled, names};
use crate::profile::labels::{Label, LabelId};
use crate::profile::tree::{NodeId, ROOT};
use crate::recording::processes::{space_is, task_is, task_name};
use crate::recording::unit::Unit;
use crate::recording::{Recording, Region};
use crate::text::{hexadecimal, printable};
use flate2::{Compression, GzBuilder};
use message as pb;
use prost::Message;
use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{self, Write};
use uprof::{Task, WordMap};

/// Writes the file.
pub(crate) fn write(request: &Request<'_, '_>, out: &mut dyn Write) -> io::Result<Profile> {
    let mut counts: WordMap<(Origin, NodeId), u64> = WordMap::default();
    let mut take = |sampled: &Sampled, _: &Profile| {
        let origin = (sampled.recording, sampled.task, sampled.space);
        *counts.entry((origin, sampled.node)).or_default() += sampled.weight.amount;
    };
    let options = Options {
        by: By::Declared,
        ..request.placed()
    };
    let profile = request.gather(&options, Some(&mut take));
    let common = Common::of(request.recordings, &request.options.filter);
    let mut builder = Builder::new(request, &profile, &common);
    builder.head();
    builder.program();
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_unstable();
    // As a message of their own, samples take much more memory than as bytes.
    let mut samples = Vec::new();
    let mut labels: Option<(Origin, Vec<pb::Label>)> = None;
    for ((origin, node), count) in counts {
        let location_id = builder.stack(node);
        let known = labels.take().filter(|(of, _)| *of == origin);
        let (_, label) = labels.insert(known.unwrap_or_else(|| (origin, builder.labels(origin))));
        let sample = pb::Sample {
            location_id,
            value: vec![count as i64],
            label: label.clone(),
        };
        let one = pb::Profile {
            sample: vec![sample],
            ..pb::Profile::default()
        };
        one.encode(&mut samples)?;
    }
    let types = pb::Profile {
        sample_type: std::mem::take(&mut builder.made.sample_type),
        ..pb::Profile::default()
    };
    // The gzip header has no file name and no time, so that the same input gives the same bytes.
    let mut packed = GzBuilder::new().write(out, Compression::default());
    for part in [types.encode_to_vec(), samples, builder.made.encode_to_vec()] {
        packed.write_all(&part)?;
    }
    packed.finish()?;
    Ok(profile)
}

/// A profile of some stacks, without labels: for servers that make a series of each.
pub(crate) fn of_stacks(
    request: &Request<'_, '_>,
    profile: &Profile,
    common: &Common<'_>,
    stacks: &[(NodeId, u64)],
) -> pb::Profile {
    let mut builder = Builder::new(request, profile, common);
    builder.head();
    builder.program();
    for (node, count) in stacks {
        let location_id = builder.stack(*node);
        builder.made.sample.push(pb::Sample {
            location_id,
            value: vec![i64::try_from(*count).unwrap_or(i64::MAX)],
            label: Vec::new(),
        });
    }
    builder.made
}

/// What all files of the same recordings have in common.
pub(crate) struct Common<'a> {
    /// By path of an image.
    regions: HashMap<&'a str, (Region, &'a [u8])>,
    /// The path of the recorded program.
    program: Option<&'a str>,
    /// The recordings' names.
    names: Vec<String>,
    /// The start of the first recording (nanoseconds since 1970); 0 if it isn't known.
    start_realtime_ns: i64,
    /// The length of the longest recording (nanoseconds); 0 if none is timed.
    pub(crate) longest_ns: u64,
}

impl<'a> Common<'a> {
    /// Of files of all these recordings together, as far as `filter` selects their time.
    pub(crate) fn of(recordings: &'a [&'a Recording], filter: &Filter) -> Self {
        let timed = recordings.iter().filter(|one| one.is_timed());
        let lengths = timed.map(|one| {
            let window = filter.window(one);
            (window.end - window.start).min(one.end_ns() - one.start_ns())
        });
        let first = recordings.first();
        let start_realtime_ns = first.and_then(|one| {
            let window_ns = i64::try_from(filter.window(one).start).ok()?;
            one.start_realtime_ns()?.checked_add(window_ns)
        });
        Common {
            regions: first_regions(recordings),
            program: recordings.iter().find_map(|one| program_of(one)),
            names: names(recordings),
            start_realtime_ns: start_realtime_ns.unwrap_or(0),
            longest_ns: lengths.max().unwrap_or(0),
        }
    }
}

/// Recording, vCPU or thread, and address space of a sample.
type Origin = (usize, Task, u32);

/// Frames of one address: the function, and the functions inlined into it.
type Group = (u32, u64, bool, Vec<LabelId>);

struct Builder<'a, 'l> {
    request: &'a Request<'a, 'l>,
    profile: &'a Profile,
    common: &'a Common<'a>,
    made: pb::Profile,
    strings: HashMap<String, i64>,
    functions: HashMap<(i64, i64), u64>,
    locations: HashMap<Group, u64>,
    /// By node: the location that begins there, and the node of its caller.
    begun: WordMap<NodeId, (u64, NodeId)>,
    mappings: HashMap<&'a str, u64>,
}

/// The innermost group of the stack at `node`, with the functions inlined there, and the node of its caller.
fn group(profile: &Profile, node: NodeId) -> (Group, NodeId) {
    let tree = &profile.tree;
    let mut lines = Vec::new();
    let mut at = node;
    loop {
        let id = tree.label(at);
        let label = profile.labels.get(id);
        at = tree.nodes()[at as usize].parent;
        lines.push(id);
        // If the function itself is hidden, its inlined functions replace it.
        let (module, offset, is_return) = label.code();
        let around = (at != ROOT).then(|| profile.labels.get(tree.label(at)));
        if !label.inlined || around.is_none_or(|around| around.code() != label.code()) {
            return ((module, offset, is_return, lines), at);
        }
    }
}

impl<'a, 'l> Builder<'a, 'l> {
    fn new(request: &'a Request<'a, 'l>, profile: &'a Profile, common: &'a Common<'a>) -> Self {
        let mut builder = Builder {
            request,
            profile,
            common,
            made: pb::Profile::default(),
            strings: HashMap::new(),
            functions: HashMap::new(),
            locations: HashMap::new(),
            begun: WordMap::default(),
            mappings: HashMap::new(),
        };
        // The format requires that the first string is empty.
        builder.text("");
        builder
    }

    fn text(&mut self, text: &str) -> i64 {
        if let Some(&number) = self.strings.get(text) {
            return number;
        }
        let number = self.made.string_table.len() as i64;
        self.made.string_table.push(text.to_owned());
        self.strings.insert(text.to_owned(), number);
        number
    }

    fn head(&mut self) {
        let (kind, unit) = match self.profile.unit() {
            Unit::Samples => ("samples", "count"),
            Unit::Sampled => ("time", "nanoseconds"),
            Unit::OffCpu => ("off-cpu", "nanoseconds"),
            Unit::Calls => ("calls", "nanoseconds"),
            Unit::VcpuTime => ("vcpu-time", "nanoseconds"),
        };
        let (kind, unit) = (self.text(kind), self.text(unit));
        let samples = pb::ValueType { kind, unit };
        self.made.sample_type.push(samples);
        self.made.duration_nanos = self.common.longest_ns as i64;
        self.made.time_nanos = self.common.start_realtime_ns;
        let first = self.request.recordings.first();
        if self.profile.unit().is_time() {
            // Weights are exact nanoseconds, not multiples of a period.
            self.made.period_type = Some(samples);
            self.made.period = 1;
        } else if let Some(period) = first.and_then(|one| one.period_ns()) {
            let kind = self.text("cpu");
            let unit = self.text("nanoseconds");
            self.made.period_type = Some(pb::ValueType { kind, unit });
            self.made.period = period as i64;
        }
        for line in self.profile.account.lines() {
            let comment = self.text(&line);
            self.made.comment.push(comment);
        }
    }

    /// Adds the program's mapping before all others: pprof takes the first one as the main binary.
    fn program(&mut self) {
        if let Some(path) = self.common.program {
            self.mapping(path);
        }
    }

    /// What is said of all samples of one origin.
    fn labels(&mut self, (recording, task, space): Origin) -> Vec<pb::Label> {
        let source = self.request.recordings[recording];
        let name = task_name(source, task, u64::MAX);
        let mut labels = vec![
            self.text_label("thread", &printable(&name)),
            self.number_label(task_is(source), i64::from(task.vcpu)),
        ];
        if task.space != 0 {
            labels.push(self.number_label(space_is(source), i64::from(task.space)));
        }
        if space != task.space {
            let process = crate::recording::processes::name_at(source, space, u64::MAX);
            labels.push(self.text_label("process", &printable(&process)));
        }
        if self.request.recordings.len() > 1 {
            let name = printable(&self.common.names[recording]).into_owned();
            labels.push(self.text_label("recording", &name));
        }
        labels
    }

    /// The locations of a stack, innermost first.
    fn stack(&mut self, node: NodeId) -> Vec<u64> {
        let mut stack = Vec::new();
        let mut at = node;
        while at != ROOT {
            let (location, caller) = match self.begun.get(&at) {
                Some(known) => *known,
                None => {
                    let (group, caller) = group(self.profile, at);
                    let new = (self.location(group), caller);
                    self.begun.insert(at, new);
                    new
                }
            };
            stack.push(location);
            at = caller;
        }
        stack
    }

    fn text_label(&mut self, key: &str, text: &str) -> pb::Label {
        let text = drawable(text);
        pb::Label {
            key: self.text(key),
            str: self.text(&text),
            num: 0,
        }
    }

    fn number_label(&mut self, key: &str, num: i64) -> pb::Label {
        pb::Label {
            key: self.text(key),
            str: 0,
            num,
        }
    }

    fn location(&mut self, group: Group) -> u64 {
        if let Some(&number) = self.locations.get(&group) {
            return number;
        }
        let (module, offset, is_return, labels) = &group;
        let mapping_id = self.mapping(self.profile.labels.text(*module));
        let mut lines = Vec::new();
        for id in labels {
            let label = self.profile.labels.get(*id);
            let function_id = self.function(*id, label);
            lines.push(pb::Line {
                function_id,
                line: i64::from(label.line),
            });
        }
        let number = self.made.location.len() as u64 + 1;
        // Numbers begin at 1; 0 means that there is no mapping.
        let mapping = mapping_id.checked_sub(1);
        let mapping = mapping.and_then(|index| self.made.mapping.get(index as usize));
        let own = offset.wrapping_add(u64::from(*is_return));
        // Labels have offsets in their file, but pprof needs mapped addresses.
        let in_file = self.profile.labels.get(labels[0]).in_file;
        let address = match mapping {
            Some(mapping) if in_file => own
                .wrapping_sub(mapping.file_offset)
                .wrapping_add(mapping.memory_start),
            _ => own,
        };
        self.made.location.push(pb::Location {
            id: number,
            mapping_id,
            address,
            line: lines,
        });
        self.locations.insert(group, number);
        number
    }

    fn function(&mut self, id: LabelId, label: Label) -> u64 {
        let name = self.text(self.profile.labels.name(id));
        let file = self.text(self.profile.labels.text(label.file));
        let next = self.made.function.len() as u64 + 1;
        let number = *self.functions.entry((name, file)).or_insert(next);
        if number == next {
            self.made.function.push(pb::Function {
                id: number,
                name,
                // If the system name were equal to the name, pprof would demangle it and drop the text in
                // angle brackets.
                system_name: 0,
                filename: file,
                start_line: 0,
            });
        }
        // Not every address in the function need have its start line.
        let function = self.made.function.get_mut(number as usize - 1);
        if let Some(function) = function.filter(|function| function.start_line == 0) {
            function.start_line = i64::from(label.start_line);
        }
        number
    }

    /// The mapping of a module at its first address; 0 for code without a module.
    fn mapping(&mut self, path: &'a str) -> u64 {
        if let Some(&number) = self.mappings.get(path) {
            return number;
        }
        let Some((region, build_id)) = self.common.regions.get(path).copied() else {
            return 0;
        };
        let number = self.made.mapping.len() as u64 + 1;
        let mapping = pb::Mapping {
            id: number,
            memory_start: region.start,
            memory_limit: region.end,
            file_offset: region.file_offset,
            filename: self.text(&drawable(path)),
            build_id: self.text(&hexadecimal(build_id)),
            has_functions: true,
            has_filenames: true,
            has_line_numbers: true,
            has_inline_frames: true,
        };
        self.made.mapping.push(mapping);
        self.mappings.insert(path, number);
        number
    }
}

/// By path of an image: the first mapping in the first recording that has one, and the build-id. Of several builds at
/// a path in a recording it is the first.
fn first_regions<'a>(recordings: &'a [&'a Recording]) -> HashMap<&'a str, (Region, &'a [u8])> {
    let mut found = HashMap::new();
    for recording in recordings {
        let spaces = recording.spaces();
        let modules = spaces.modules();
        let mut builds: HashMap<&str, usize> = HashMap::new();
        for (number, module) in modules.iter().enumerate() {
            builds.entry(&module.path).or_insert(number);
        }
        for (_, region) in spaces.regions() {
            let number = region.module as usize;
            let module = &modules[number];
            let path = module.path.as_str();
            if builds.get(path) == Some(&number) {
                let first = (region, &module.build_id[..]);
                found.entry(path).or_insert(first);
            }
        }
    }
    found
}

/// `text` for the graphs that pprof draws with Graphviz. pprof quotes names of functions but not labels and
/// file names, so a quotation mark in those would break the graph.
fn drawable(text: &str) -> Cow<'_, str> {
    if text.contains(['"', '\\']) {
        Cow::Owned(text.replace('"', "'").replace('\\', "_"))
    } else {
        Cow::Borrowed(text)
    }
}

/// The path of the recorded program: from the target's name, or the image at the lowest address of the
/// target's process. `None` if there are several programs, or only the kernel is known.
fn program_of(recording: &Recording) -> Option<&str> {
    let spaces = recording.spaces();
    let target = &recording.metadata().target;
    let mut files = Vec::new();
    for (space, region) in spaces.regions() {
        let module = &spaces.modules()[region.module as usize];
        // Names in brackets are not files.
        if !module.path.starts_with('[') {
            files.push((space, module));
        }
    }
    let subject = recording.subject();
    let mut named = files.iter();
    let named = named.find(|(_, module)| module.short_name() == subject);
    let own = || {
        files
            .iter()
            .find(|(space, _)| u64::from(*space) == target.id)
    };
    Some(&named.or_else(own)?.1.path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_inlined_into_a_hidden_function_is_no_part_of_its_caller() {
        let mut profile = Profile::default();
        let mut nodes = vec![ROOT];
        // `kept` and what is inlined there are at one place; `lost` is inlined into what is hidden.
        for (offset, inlined) in [(0x10, false), (0x10, true), (0x20, true)] {
            let label = Label {
                offset,
                inlined,
                ..Label::default()
            };
            let id = profile.labels.id(label);
            nodes.push(profile.tree.child(nodes[nodes.len() - 1], id));
        }
        let (lost, caller) = group(&profile, nodes[3]);
        assert_eq!((lost.1, lost.3.len(), caller), (0x20, 1, nodes[2]));
        let (kept, caller) = group(&profile, caller);
        assert_eq!((kept.1, kept.3.len(), caller), (0x10, 2, ROOT));
    }
}
