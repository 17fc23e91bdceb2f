//! Parquet, for engines that query the recordings of many machines: three tables, described in docs/fleet.md. Input:
//! one recording. Output: one file of each table, in a folder of its day and its service. Never more than a row group
//! of samples is in memory.

mod table;

use crate::export::{Folder, Request};
use crate::profile::Profile;
use crate::profile::gather::Sampled;
use crate::profile::labels::LabelId;
use crate::profile::tree::NodeId;
use crate::recording::processes::{name_at, pid_at, task_name};
use crate::recording::{Recording, Unit};
use crate::text::calendar::calendar;
use crate::text::{hexadecimal, printable};
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use table::{Cell, Table};
use uprof::{Task, WordMap};

/// A row for each sample, in the order of the file.
const SAMPLES: &str = "message samples {
    REQUIRED BYTE_ARRAY recording (STRING);
    OPTIONAL INT64 time (TIMESTAMP(MICROS, true));
    OPTIONAL BYTE_ARRAY version (STRING);
    REQUIRED BYTE_ARRAY labels (STRING);
    REQUIRED BYTE_ARRAY unit (STRING);
    REQUIRED BYTE_ARRAY state (STRING);
    OPTIONAL INT64 pid;
    REQUIRED BYTE_ARRAY process (STRING);
    REQUIRED INT64 task;
    REQUIRED BYTE_ARRAY thread (STRING);
    REQUIRED INT64 weight;
    REQUIRED INT64 count;
    REQUIRED INT32 stack;
}";
/// A row for each distinct stack of a recording: numbers of its frames, outermost first.
const STACKS: &str = "message stacks {
    REQUIRED BYTE_ARRAY recording (STRING);
    REQUIRED INT32 stack;
    REQUIRED INT32 leaf;
    REQUIRED group frames (LIST) { REPEATED group list { REQUIRED INT32 element; } }
}";
/// A row for each distinct frame of a recording.
const FRAMES: &str = "message frames {
    REQUIRED BYTE_ARRAY recording (STRING);
    REQUIRED INT32 frame;
    REQUIRED BYTE_ARRAY function (STRING);
    REQUIRED BYTE_ARRAY module (STRING);
    OPTIONAL BYTE_ARRAY build_id (STRING);
    OPTIONAL BYTE_ARRAY file (STRING);
    OPTIONAL INT32 line;
    REQUIRED BOOLEAN kernel;
    REQUIRED BOOLEAN inlined;
    REQUIRED BOOLEAN named;
}";
/// Hive's name for the partition of rows that have no value.
const NO_DATE: &str = "__HIVE_DEFAULT_PARTITION__";
/// Longest name of a partition (bytes), so that a file system takes it.
const SERVICE_BYTES_MAX: usize = 200;

/// Writes the tables of one recording.
pub(crate) fn write(request: &Request<'_, '_>, folder: &mut dyn Folder) -> io::Result<Profile> {
    let [recording] = request.recordings else {
        return Err(io::Error::other("each recording has tables of its own"));
    };
    let uuid = recording.uuid().map(|uuid| hexadecimal(&uuid));
    let uuid = uuid.ok_or_else(|| {
        io::Error::other(
            "it has no identity, which names its tables; `uniprof recover` gives it one",
        )
    })?;
    let mut create = |table: &str, schema: &str, rising: &[&str]| {
        let file = folder.create(&path(recording, table, &uuid))?;
        Table::create(file, schema, rising)
    };
    // In the order in which they are made visible: no sample is ever without its stack.
    let mut frames = create("frames", FRAMES, &["frame"])?;
    let mut stacks = create("stacks", STACKS, &["stack"])?;
    let mut samples = create("samples", SAMPLES, &["time"])?;
    let mut rows = SampleRows::of(recording, &uuid);
    let mut failed = None;
    let mut take = |sampled: &Sampled, _: &Profile| {
        if failed.is_none() {
            failed = rows.add(sampled, &mut samples).err();
        }
    };
    let profile = request.gather(&request.by_thread(), Some(&mut take));
    if let Some(error) = failed {
        return Err(error);
    }
    let used = write_stacks(&profile, &uuid, &mut stacks)?;
    write_frames(recording, &profile, &used, &uuid, &mut frames)?;
    let account = profile.account.lines().join("\n");
    frames.finish(Vec::new())?;
    stacks.finish(Vec::new())?;
    samples.finish(vec![("uniprof.account", account)])?;
    Ok(profile)
}

/// `samples/date=2026-11-25/service=web/UUID.parquet`.
fn path(recording: &Recording, table: &str, uuid: &str) -> PathBuf {
    let day = recording.start_realtime_ns().map(calendar);
    let day = day.as_deref().and_then(|day| day.split(' ').next());
    let service = label(recording, "service").unwrap_or(recording.subject());
    [
        table,
        &format!("date={}", day.unwrap_or(NO_DATE)),
        &format!("service={}", partition(service)),
        &format!("{uuid}.parquet"),
    ]
    .iter()
    .collect()
}

fn label<'r>(recording: &'r Recording, key: &str) -> Option<&'r str> {
    let labels = &recording.metadata().labels;
    let found = labels.iter().find(|(known, _)| known == key);
    found.map(|(_, value)| value.as_str())
}

/// A value as Hive writes it into the name of a folder: `%2F` for a slash.
fn partition(value: &str) -> String {
    let mut name = String::new();
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || b"._-".contains(&byte) {
            name.push(char::from(byte));
        } else {
            name.push_str(&format!("%{byte:02X}"));
        }
        if name.len() > SERVICE_BYTES_MAX {
            break;
        }
    }
    if name.is_empty() {
        NO_DATE.to_owned()
    } else {
        name
    }
}

/// The rows of samples, and the names that many of them share.
struct SampleRows<'a> {
    recording: &'a Recording,
    uuid: &'a str,
    version: Option<&'a str>,
    labels: String,
    start_ns: Option<i64>,
    threads: HashMap<Task, String>,
    processes: WordMap<u32, (Option<u32>, String)>,
}

impl<'a> SampleRows<'a> {
    fn of(recording: &'a Recording, uuid: &'a str) -> Self {
        let labels = recording.metadata().labels.iter();
        let labels = labels.map(|(key, value)| (key.clone(), Value::from(value.as_str())));
        let start_ns = recording.start_realtime_ns();
        SampleRows {
            recording,
            uuid,
            version: label(recording, "version"),
            labels: Value::Object(labels.collect::<Map<_, _>>()).to_string(),
            start_ns: start_ns.filter(|_| recording.is_timed()),
            threads: HashMap::new(),
            processes: WordMap::default(),
        }
    }

    fn add(&mut self, sampled: &Sampled, table: &mut Table) -> io::Result<()> {
        let recording = self.recording;
        let (task, space) = (sampled.task, sampled.space);
        let thread = self.threads.entry(task).or_insert_with(|| {
            let name = task_name(recording, task, u64::MAX);
            printable(&name).into_owned()
        });
        let (pid, process) = self.processes.entry(space).or_insert_with(|| {
            let name = name_at(recording, space, u64::MAX);
            let pid = pid_at(recording, space, u64::MAX);
            (pid, printable(&name).into_owned())
        });
        let time_us = self.start_ns.map(|start_ns| {
            let since_ns = i64::try_from(sampled.since_ns).unwrap_or(i64::MAX);
            start_ns.saturating_add(since_ns) / 1000
        });
        table.row(&[
            Cell::Text(self.uuid),
            Cell::number(time_us),
            Cell::text(self.version),
            Cell::Text(&self.labels),
            Cell::Text(unit(sampled.unit)),
            Cell::Text(sampled.state.name()),
            Cell::number(pid.map(i64::from)),
            Cell::Text(process),
            Cell::Number(i64::from(task.vcpu)),
            Cell::Text(thread),
            Cell::Number(i64::try_from(sampled.weight.amount).unwrap_or(i64::MAX)),
            Cell::Number(i64::try_from(sampled.weight.count).unwrap_or(i64::MAX)),
            Cell::Number(i64::from(sampled.node)),
        ])
    }
}

/// The unit of the weights, by a name that says what they are.
fn unit(unit: Unit) -> &'static str {
    match unit {
        Unit::Samples => "samples",
        Unit::Sampled => "ns of samples",
        Unit::OffCpu => "ns off CPU",
        Unit::Calls => "ns in calls",
        Unit::VcpuTime => "ns of vCPUs",
    }
}

/// Writes the stacks that samples have. Returns which labels are in them.
fn write_stacks(profile: &Profile, uuid: &str, table: &mut Table) -> io::Result<Vec<bool>> {
    let mut used = vec![false; profile.labels.len()];
    let mut frames = Vec::new();
    let nodes = profile.tree.nodes().iter().enumerate();
    for (number, node) in nodes.filter(|(_, node)| node.count > 0) {
        frames.clear();
        for label in profile.tree.outwards(number as NodeId) {
            frames.push(label as i32);
            used[label as usize] = true;
        }
        frames.reverse();
        table.row(&[
            Cell::Text(uuid),
            Cell::Number(number as i64),
            Cell::Number(i64::from(node.label)),
            Cell::List(&frames),
        ])?;
    }
    Ok(used)
}

/// Writes the frames that are used.
fn write_frames(
    recording: &Recording,
    profile: &Profile,
    used: &[bool],
    uuid: &str,
    table: &mut Table,
) -> io::Result<()> {
    let modules = recording.spaces().modules().iter();
    // A path that had files of several builds has none.
    let mut build_ids: HashMap<&str, Option<String>> = HashMap::new();
    for module in modules.filter(|module| !module.build_id.is_empty()) {
        let build_id = hexadecimal(&module.build_id);
        build_ids
            .entry(&module.path)
            .and_modify(|known| *known = known.take().filter(|known| *known == build_id))
            .or_insert(Some(build_id.clone()));
    }
    let labels = &profile.labels;
    for id in (0..labels.len()).filter(|id| used[*id]) {
        let label = labels.get(id as LabelId);
        let path = labels.text(label.module);
        let file = Some(labels.text(label.file)).filter(|file| !file.is_empty());
        table.row(&[
            Cell::Text(uuid),
            Cell::Number(id as i64),
            Cell::Text(labels.name(id as LabelId)),
            Cell::Text(labels.module_name(id as LabelId)),
            Cell::text(build_ids.get(path).and_then(Option::as_deref)),
            Cell::text(file),
            Cell::number((label.line > 0).then_some(i64::from(label.line))),
            Cell::Flag(label.kernel),
            Cell::Flag(label.inlined),
            Cell::Flag(!label.unknown),
        ])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_are_names_of_folders_in_one_folder() {
        assert_eq!(partition("web-1.x_y"), "web-1.x_y");
        assert_eq!(partition("../a b=c"), "..%2Fa%20b%3Dc");
        assert_eq!(partition(""), NO_DATE);
        assert!(partition(&"é".repeat(1000)).len() < 255 - "service=".len());
    }
}
