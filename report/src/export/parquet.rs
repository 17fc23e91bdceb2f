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
    let rows = SampleRows::of(recording, &uuid);
    let mut failed = None;
    // A sample may weigh nothing, so that the tree doesn't tell which stacks are used.
    let mut used = Vec::new();
    let mut take = |sampled: &Sampled, _: &Profile| {
        if failed.is_none() {
            let node = sampled.node as usize;
            used.resize(used.len().max(node + 1), false);
            used[node] = true;
            failed = rows.add(sampled, &mut samples).err();
        }
    };
    let profile = request.gather(&request.by_thread(), Some(&mut take));
    if let Some(error) = failed {
        return Err(error);
    }
    let used = write_stacks(&profile, &used, &uuid, &mut stacks)?;
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

/// The rows of samples, and what all of them share.
struct SampleRows<'a> {
    recording: &'a Recording,
    uuid: &'a str,
    version: Option<&'a str>,
    labels: String,
    start_ns: Option<i64>,
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
        }
    }

    fn add(&self, sampled: &Sampled, table: &mut Table) -> io::Result<()> {
        let recording = self.recording;
        let (task, space) = (sampled.task, sampled.space);
        // Names change, as a shell's does when it runs another program.
        let time_ns = recording.start_ns().saturating_add(sampled.since_ns);
        let thread = task_name(recording, task, time_ns);
        let process = name_at(recording, space, time_ns);
        let pid = pid_at(recording, space, time_ns);
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
            Cell::Text(&printable(&process)),
            Cell::Number(i64::from(task.vcpu)),
            Cell::Text(&printable(&thread)),
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

/// Writes the stacks of the nodes that are used. Returns which labels are in them.
fn write_stacks(
    profile: &Profile,
    nodes: &[bool],
    uuid: &str,
    table: &mut Table,
) -> io::Result<Vec<bool>> {
    let mut used = vec![false; profile.labels.len()];
    let mut frames = Vec::new();
    let nodes = profile.tree.nodes().iter().zip(nodes).enumerate();
    for (number, (node, _)) in nodes.filter(|(_, (_, is_used))| **is_used) {
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
    use crate::images::Library;
    use crate::profile::Options;
    use crate::stacks::Tables;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::{Row, RowAccessor};
    use std::fs::{self, File};
    use std::io::Write;
    use std::path::Path;
    use uprof::cold::{End, EndReason, Metadata, TargetKind, TaskChange, TaskEvent};
    use uprof::{Frame, Sample, Span, SpanKind, Task, Writer};

    struct Created(tempfile::TempDir);

    impl Folder for Created {
        fn create(&mut self, path: &Path) -> io::Result<Box<dyn Write + Send>> {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().unwrap())?;
            Ok(Box::new(File::create(path)?))
        }
    }

    /// The tables of what was written to `writer`, whose recording ends at `end_ns`.
    fn written(writer: Writer<Vec<u8>>, end_ns: u64) -> (Recording, Created) {
        let end = End {
            time_ns: end_ns,
            reason: EndReason::Duration,
            message: String::new(),
            totals: Vec::new(),
        };
        let recording = Recording::from_bytes("made", writer.finish(&end).unwrap()).unwrap();
        let mut created = Created(tempfile::tempdir().unwrap());
        let library = Library::default();
        let request = Request {
            recordings: &[&recording],
            tables: &Tables::of_builds(&library),
            options: &Options::default(),
            progress: &|_, _| {},
            marks: false,
            fold: false,
            identify: false,
        };
        write(&request, &mut created).unwrap();
        (recording, created)
    }

    /// What `of` takes of each row of a table.
    fn rows<T>(
        (recording, created): &(Recording, Created),
        table: &str,
        of: impl Fn(&Row) -> T,
    ) -> Vec<T> {
        let uuid = hexadecimal(&[7; 16]);
        let path = created.0.path().join(path(recording, table, &uuid));
        let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
        let rows = reader.get_row_iter(None).unwrap();
        rows.map(|row| of(&row.unwrap())).collect()
    }

    #[test]
    fn rows_have_the_names_of_their_time() {
        let mut metadata = Metadata::default();
        metadata.target.kind = TargetKind::Process;
        let mut writer = Writer::create(Vec::new(), [7; 16], &metadata, 1000).unwrap();
        let task = Task { space: 7, vcpu: 7 };
        let named = |time_ns, name: &str| TaskEvent {
            time_ns,
            task,
            what: TaskChange::Named(name.into()),
        };
        writer
            .tasks(&[named(1000, "sh"), named(2000, "xz")])
            .unwrap();
        for time_ns in [1500, 2500] {
            let frames = [Frame::exact(0x1000)];
            let sample = Sample::bare(time_ns, task, &frames);
            writer.sample(&sample).unwrap();
        }
        let names = |row: &Row| [7, 9].map(|column| row.get_string(column).unwrap().clone());
        let names = rows(&written(writer, 3000), "samples", names);
        assert_eq!(names, [["sh", "sh"], ["xz", "xz"]]);
    }

    #[test]
    fn each_row_has_its_stack_and_frames_whatever_it_weighs() {
        let mut writer = Writer::create(Vec::new(), [7; 16], &Metadata::default(), 0).unwrap();
        let task = Task { space: 7, vcpu: 7 };
        // The outer call has no time of its own.
        for (name, depth) in [("hash", 1), ("main", 0)] {
            let span = Span {
                name,
                task,
                cpu: None,
                start_ns: Some(0),
                length_ns: Some(1000),
                depth,
                complete: true,
                kind: SpanKind::Function,
                result: None,
            };
            writer.span(&span).unwrap();
        }
        let created = written(writer, 1000);
        let stack = |row: &Row| row.get_int(12).unwrap();
        let mut of_samples = rows(&created, "samples", stack);
        let stack = |row: &Row| row.get_int(1).unwrap();
        let of_stacks = rows(&created, "stacks", stack);
        of_samples.sort_unstable();
        assert_eq!((of_samples.len(), of_samples), (2, of_stacks));
        let function = |row: &Row| row.get_string(2).unwrap().clone();
        let mut functions = rows(&created, "frames", function);
        functions.sort();
        assert_eq!(functions, ["hash", "main"]);
    }

    #[test]
    fn services_are_names_of_folders_in_one_folder() {
        assert_eq!(partition("web-1.x_y"), "web-1.x_y");
        assert_eq!(partition("../a b=c"), "..%2Fa%20b%3Dc");
        assert_eq!(partition(""), NO_DATE);
        assert!(partition(&"é".repeat(1000)).len() < 255 - "service=".len());
    }
}
