//! Redaction. Input: blocks of a recording. Output: new blocks with the fields that format-spec.md, section 14,
//! lists. Nothing else can get through: each record is built field by field, text is kept only where the list says
//! so, and blocks of unknown types are dropped.

use crate::recording::{Recording, first_word, last_part};
use crate::stacks::embedded::{Embedded, LineTable};
use crate::stacks::idle::Idle;
use crate::stacks::unwinders::{UnwindState, Unwinders};
use crate::work;
use std::collections::{HashMap, HashSet};
use std::io::{self, Write};
use uprof::cold::{
    End, Host, MappedFile, Mapping, Metadata, ModuleChange, ModuleEvent, Recorder, Sampling,
    SpaceChange, SpaceEvent, Target, TargetKind, TaskChange, TaskEvent,
};
use uprof::image::{ImageIdentity, Symbol};
use uprof::{Block, Details, Payload, Sample, SampleBlock, Span, SpanBlock, Writer};

/// Replaces removed text where a field must not be empty.
const GONE: &str = "[redacted]";
/// Bytes that Linux keeps of a thread's name. What is longer may be a command line.
const THREAD_NAME_BYTES: usize = 15;
/// Triggers of samples that are kept; other names may be private.
const TRIGGERS: [&str; 4] = ["cycles", "cpu-clock", "timer", "timer, ptrace"];
/// Totals of the end record that are kept.
const TOTALS: [&str; 23] = [
    "samples",
    "not_running",
    "cost_rounds",
    "cost_total_ns",
    "slowed_to_period_ns",
    "waits",
    "waits_told_with_a_later_stack",
    "waits_without_a_stack",
    "waits_begun_before_and_left_out",
    "waits_not_over_at_the_end",
    "threads_that_never_switched",
    "freezes",
    "round_trips",
    "rescues",
    "hypercalls",
    "memory_mapping_calls",
    "lines_skipped",
    "troubles",
    uprof::cold::PAUSED_BY_OTHERS_NS,
    uprof::cold::COUNTED_TIME_NS,
    uprof::cold::SAMPLED_TIME_NS,
    crate::recording::UNTIMED,
    crate::recording::SPANS_UNTIMED,
];
/// Origins of embedded tables that are kept.
const ORIGINS: [&str; 4] = ["kallsyms", "symtab", "import", super::ORIGIN];

/// Writes blocks without what may be private.
pub(super) struct Redactor<'a> {
    unwinders: &'a Unwinders<'a, 'a>,
    idle: &'a Idle<'a, 'a>,
    held: UnwindState,
    /// New paths by old ones.
    names: HashMap<String, String>,
    /// The target's old name: a task with this name was named by its command line.
    target: Target,
    stacks: u64,
    code: bool,
    unknown_blocks: u64,
}

impl<'a> Redactor<'a> {
    pub(super) fn new(
        recording: &Recording,
        unwinders: &'a Unwinders<'a, 'a>,
        idle: &'a Idle<'a, 'a>,
    ) -> Redactor<'a> {
        let mut names = HashMap::new();
        let mut taken = HashSet::new();
        for module in recording.spaces().modules() {
            let short = last_part(&module.path);
            let mut name = short.to_owned();
            // Two images with the same file name stay two images.
            let mut number = 1;
            while !names.contains_key(&module.path) && !taken.insert(name.clone()) {
                number += 1;
                name = format!("{short}#{number}");
            }
            names.entry(module.path.clone()).or_insert(name);
        }
        Redactor {
            unwinders,
            idle,
            held: UnwindState::new(),
            names,
            target: recording.metadata().target.clone(),
            stacks: 0,
            code: false,
            unknown_blocks: 0,
        }
    }

    /// Writes the part of `block` that may be kept.
    pub(super) fn write<W: Write>(
        &mut self,
        block: &Block<'_>,
        writer: &mut Writer<W>,
    ) -> io::Result<()> {
        match work::payload(block).map_err(io::Error::other)? {
            Payload::Metadata(metadata) => {
                writer.metadata(&self.metadata(&metadata), block.first_ns)
            }
            Payload::Samples(samples) => self.write_samples(&samples, writer),
            Payload::Spans(spans) => write_spans(&spans, writer),
            Payload::Tasks(events) => {
                let events: Vec<TaskEvent> =
                    events.into_iter().map(|event| self.task(event)).collect();
                writer.tasks(&events)
            }
            Payload::Modules(events) => {
                let events: Vec<ModuleEvent> =
                    events.into_iter().map(|event| self.module(event)).collect();
                writer.modules(&events)
            }
            Payload::Clocks(pairs) => writer.clocks(&pairs),
            Payload::Losses(losses) => writer.losses(&losses),
            Payload::Times(times) => writer.times(&times),
            Payload::Spaces(events) => {
                let events: Vec<SpaceEvent> = events.into_iter().map(space).collect();
                writer.spaces(&events)
            }
            Payload::Image(part) => {
                // Runtimes name generated code by the path of its source.
                let names: Vec<String> =
                    part.symbols().map(|it| without_folders(it.name)).collect();
                let symbols = part.symbols().zip(&names);
                let symbols = symbols.map(|(symbol, name)| Symbol { name, ..symbol });
                let identity = self.identity(part.identity.clone());
                writer.symbols(&identity, symbols, block.first_ns)
            }
            // The memory's content is private; the mappings say what it was needed for.
            Payload::Code(_) => {
                self.code = true;
                Ok(())
            }
            Payload::End(_) => Ok(()),
            Payload::Unknown(_) => {
                self.unknown_blocks += 1;
                Ok(())
            }
        }
    }

    fn write_samples<W: Write>(
        &mut self,
        block: &SampleBlock,
        writer: &mut Writer<W>,
    ) -> io::Result<()> {
        let (mut chain, mut frames) = (Vec::new(), Vec::new());
        let mut rows = block.rows();
        while let Some(row) = rows.next_row().map_err(io::Error::other)? {
            chain.clear();
            chain.extend(block.chain(row.node));
            work::take(chain.len() as u64);
            let view = self.unwinders.view(&row);
            let unwound = self
                .unwinders
                .unwind(&mut self.held, &row, view, &chain, &mut frames);
            self.stacks += u64::from(row.stack.is_some());
            let chain = if unwound.is_some() { &frames } else { &chain };
            writer.sample(&Sample {
                state: self.idle.state(block, &row),
                stop: unwound.unwrap_or(row.stop),
                details: kept(row.details),
                registers: None,
                stack: None,
                ..row.with_chain(chain)
            })?;
        }
        writer.flush()
    }

    pub(super) fn module(&self, event: ModuleEvent) -> ModuleEvent {
        let what = match event.what {
            ModuleChange::Mapped(mapping) => ModuleChange::Mapped(Mapping {
                path: self.name(&mapping.path),
                // Device and inode could identify the machine; only whether there was a file is kept.
                file: mapping.file.map(|file| MappedFile::anywhere(file.contents)),
                ..mapping
            }),
            ModuleChange::Cleared => ModuleChange::Cleared,
            ModuleChange::CopiedFrom(space) => ModuleChange::CopiedFrom(space),
        };
        ModuleEvent { what, ..event }
    }

    fn name(&self, path: &str) -> String {
        self.names
            .get(path)
            .cloned()
            .unwrap_or_else(|| last_part(path).to_owned())
    }

    /// `embedded` with the last part of each path, and without unwind rules: the stacks are already unwound.
    pub(super) fn embedded(&self, embedded: Embedded) -> Embedded {
        let mut lines = LineTable::default();
        embedded.lines.iter().for_each(|(address, mut found)| {
            for line in &mut found {
                line.file = line.file.as_deref().map(|path| last_part(path).to_owned());
            }
            lines.insert(address, &found);
        });
        Embedded {
            identity: self.identity(embedded.identity),
            lines,
            rules: Default::default(),
            ..embedded
        }
    }

    fn identity(&self, identity: ImageIdentity) -> ImageIdentity {
        let known = ORIGINS.contains(&identity.origin.as_str());
        ImageIdentity {
            path: self.name(&identity.path),
            origin: (if known {
                identity.origin.as_str()
            } else {
                GONE
            })
            .to_owned(),
            ..identity
        }
    }

    fn metadata(&self, metadata: &Metadata) -> Metadata {
        let (host, target, sampling) = (&metadata.host, &metadata.target, &metadata.sampling);
        let trigger = TRIGGERS
            .into_iter()
            .find(|known| *known == sampling.trigger);
        Metadata {
            recorder: Recorder {
                program: program_and_version(&metadata.recorder.program),
                command_line: vec![GONE.to_owned()],
            },
            host: Host {
                name: GONE.to_owned(),
                system: system_and_version(&host.system),
                processor: host.processor.clone(),
                processors: host.processors,
            },
            target: Target {
                name: subject(target).to_owned(),
                ..*target
            },
            sampling: Sampling {
                trigger: trigger.unwrap_or(GONE).to_owned(),
                ..*sampling
            },
            notes: Vec::new(),
            cost: metadata.cost,
        }
    }

    fn task(&self, event: TaskEvent) -> TaskEvent {
        let what = match event.what {
            TaskChange::Named(name) if name == self.target.name => {
                TaskChange::Named(subject(&self.target).to_owned())
            }
            TaskChange::Named(name) => TaskChange::Named(thread_name(&name).to_owned()),
            TaskChange::Ended => TaskChange::Ended,
        };
        TaskEvent { what, ..event }
    }

    /// The end record without its text, which names the command or the guest.
    pub(super) fn end(&self, end: &End) -> End {
        let totals = end.totals.iter();
        End {
            time_ns: end.time_ns,
            reason: end.reason,
            message: end.reason.name().to_owned(),
            totals: totals
                .filter(|(name, _)| TOTALS.contains(&name.as_str()))
                .cloned()
                .collect(),
        }
    }

    /// What was removed, a line each.
    pub(super) fn removed(&self) -> Vec<String> {
        let mut removed = vec![
            format!(
                "raw stack bytes of {} samples (their stacks were unwound first)",
                self.stacks
            ),
            "registers".to_owned(),
            "folders of images and source files".to_owned(),
            "host name".to_owned(),
            "command lines, notes, names of guests, words of the end".to_owned(),
        ];
        if self.code {
            removed.push("pieces of the guest's code".to_owned());
        }
        if self.unknown_blocks > 0 {
            removed.push(format!("{} blocks of unknown type", self.unknown_blocks));
        }
        removed
    }

    /// What is left that may identify someone, a line each.
    pub(super) fn left(&self, recording: &Recording) -> Vec<String> {
        let metadata = self.metadata(recording.metadata());
        let host = metadata.host;
        let mut names: Vec<&str> = self.names.values().map(String::as_str).collect();
        names.sort_unstable();
        vec![
            format!(
                "target: {}, id {}",
                metadata.target.name, metadata.target.id
            ),
            format!(
                "host: {}, {} processors of type {}",
                host.system, host.processors, host.processor
            ),
            format!(
                "names of threads or vCPUs, {THREAD_NAME_BYTES} bytes at most; times; \
                 addresses of code; build-ids"
            ),
            format!("names of images: {}", names.join(", ")),
            "names of functions and source files, line numbers".to_owned(),
        ]
    }
}

/// Writes the spans anew: of names what is kept of a symbol's, and what else format-spec.md names.
fn write_spans<W: Write>(block: &SpanBlock, writer: &mut Writer<W>) -> io::Result<()> {
    let names = 0..block.names_len() as u32;
    let names: Vec<String> = names
        .map(|name| without_folders(block.name(name)))
        .collect();
    let mut rows = block.rows();
    while let Some(row) = rows.next_row().map_err(io::Error::other)? {
        writer.span(&Span {
            name: names.get(row.name as usize).map_or("", |name| name),
            task: row.task,
            cpu: row.cpu,
            start_ns: row.start_ns,
            length_ns: row.length_ns,
            depth: row.depth,
            complete: row.complete,
            kind: row.kind,
            result: row.result,
        })?;
    }
    writer.flush()
}

/// The recorded program, without folders and arguments. A guest's name is private.
fn subject(target: &Target) -> &str {
    match target.kind {
        TargetKind::Process => last_part(first_word(&target.name)),
        _ => GONE,
    }
}

/// A name as the system keeps it. What is longer or begins with a path is a command line.
fn thread_name(name: &str) -> &str {
    let is_command = name.len() > THREAD_NAME_BYTES || name.starts_with(['/', '.', '~']);
    let name = if is_command {
        last_part(first_word(name))
    } else {
        name
    };
    let ends = name
        .char_indices()
        .map(|(at, letter)| at + letter.len_utf8());
    let end = ends.take_while(|end| *end <= THREAD_NAME_BYTES).last();
    &name[..end.unwrap_or(0)]
}

/// `uniprof 0.1.0` unchanged; any other text is dropped.
fn program_and_version(program: &str) -> String {
    let version = program.strip_prefix("uniprof ");
    match version.filter(|version| is_number(version)) {
        Some(_) => program.to_owned(),
        None => GONE.to_owned(),
    }
}

/// `Linux 6.1.0` of `Linux 6.1.0-17-acme`: the suffix may name who built the kernel.
fn system_and_version(system: &str) -> String {
    let version = system.strip_prefix("Linux ").unwrap_or("");
    let version = version.split(['-', '+', ' ', '_']).next().unwrap_or("");
    match is_number(version) {
        true => format!("Linux {version}"),
        false => GONE.to_owned(),
    }
}

fn is_number(version: &str) -> bool {
    !version.is_empty()
        && version
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'.')
}

/// `name` with the last part of each path in it.
fn without_folders(name: &str) -> String {
    let words = name.split(' ').map(|word| match word.contains('/') {
        true if !word.ends_with('/') => last_part(word),
        true => GONE,
        false => word,
    });
    words.collect::<Vec<_>>().join(" ")
}

fn space(event: SpaceEvent) -> SpaceEvent {
    let what = match event.what {
        SpaceChange::Named { pid, name } => SpaceChange::Named {
            pid,
            name: thread_name(&name).to_owned(),
        },
        seen @ SpaceChange::Seen => seen,
    };
    SpaceEvent { what, ..event }
}

/// Of a sample's attributes, those that format-spec.md lists; new ones must be added here.
fn kept(details: Details) -> Details {
    Details {
        cost_ns: details.cost_ns,
        late_ns: details.late_ns,
        root: details.root,
        cpu: details.cpu,
    }
}
