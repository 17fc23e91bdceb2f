//! Redaction: blocks of a recording go in, and come out without what may be private: raw memory,
//! registers, paths, command lines, host and user names. Nothing is passed on that isn't known:
//! blocks of types that this version doesn't know are dropped.

use super::needs::chain_of;
use crate::embedded::{Embedded, LineTable};
use crate::recording::Recording;
use crate::unwinders::{Held, Unwinders};
use std::collections::{HashMap, HashSet};
use std::io::{self, Write};
use uprof::cold::{Metadata, ModuleChange, ModuleEvent, TaskChange, TaskEvent};
use uprof::{Block, Payload, Sample, SampleBlock, Writer};

/// Stands for what was taken out where something has to stand.
const GONE: &str = "[redacted]";

/// Writes blocks without what may be private.
pub(super) struct Redactor<'a> {
    unwinders: &'a Unwinders<'a, 'a>,
    held: Held,
    /// What each path became.
    names: HashMap<String, String>,
    stacks: u64,
    unknown_blocks: u64,
}

impl<'a> Redactor<'a> {
    pub(super) fn new(recording: &Recording, unwinders: &'a Unwinders<'a, 'a>) -> Redactor<'a> {
        let mut names = HashMap::new();
        let mut taken = HashSet::new();
        for module in recording.spaces().modules() {
            let short = last_part(&module.path);
            let mut name = short.to_owned();
            // Two images of one name stay two images.
            let mut number = 1;
            while !names.contains_key(&module.path) && !taken.insert(name.clone()) {
                number += 1;
                name = format!("{short}#{number}");
            }
            names.entry(module.path.clone()).or_insert(name);
        }
        Redactor {
            unwinders,
            held: Held::new(),
            names,
            stacks: 0,
            unknown_blocks: 0,
        }
    }

    /// Writes what may be kept of `block`.
    pub(super) fn write<W: Write>(
        &mut self,
        block: &Block<'_>,
        writer: &mut Writer<W>,
    ) -> io::Result<()> {
        match block.payload().map_err(io::Error::other)? {
            Payload::Metadata(metadata) => writer.metadata(&redacted(metadata), block.first_ns),
            Payload::Samples(samples) => self.write_samples(&samples, writer),
            Payload::Tasks(events) => {
                let events: Vec<TaskEvent> = events.into_iter().map(renamed).collect();
                writer.tasks(&events)
            }
            Payload::Modules(events) => {
                let events: Vec<ModuleEvent> =
                    events.into_iter().map(|event| self.module(event)).collect();
                writer.modules(&events)
            }
            Payload::Clocks(pairs) => writer.clocks(&pairs),
            Payload::Losses(losses) => writer.losses(&losses),
            Payload::Spans(spans) => writer.spans(&spans),
            Payload::Image(mut part) => {
                part.identity.path = self.name(&part.identity.path);
                part.others.clear();
                writer.image_part(&part, block.first_ns)
            }
            Payload::End(_) | Payload::Index(_) => Ok(()),
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
            chain_of(block, row.node, &mut chain);
            let unwound = self
                .unwinders
                .unwind(&mut self.held, &row, &chain, &mut frames);
            self.stacks += u64::from(row.stack.is_some());
            writer.sample(&Sample {
                time_ns: row.time_ns,
                task: row.task,
                state: row.state,
                chain: if unwound.is_some() { &frames } else { &chain },
                stop: unwound.unwrap_or(row.stop),
                cost_ns: row.cost_ns,
                late_ns: row.late_ns,
                registers: None,
                stack: None,
            })?;
        }
        writer.flush()
    }

    fn module(&self, event: ModuleEvent) -> ModuleEvent {
        let what = match event.what {
            ModuleChange::Mapped(mut mapping) => {
                mapping.path = self.name(&mapping.path);
                ModuleChange::Mapped(mapping)
            }
            other => other,
        };
        ModuleEvent { what, ..event }
    }

    fn name(&self, path: &str) -> String {
        self.names
            .get(path)
            .cloned()
            .unwrap_or_else(|| last_part(path).to_owned())
    }

    /// `embedded` with the last parts of its paths only, and without rules: the stacks are unwound.
    pub(super) fn embedded(&self, embedded: Embedded) -> Embedded {
        let mut lines = LineTable::default();
        embedded.lines.iter().for_each(|(address, mut found)| {
            for line in &mut found {
                line.file = line.file.as_deref().map(|path| last_part(path).to_owned());
            }
            lines.insert(address, &found);
        });
        let mut identity = embedded.identity;
        identity.path = self.name(&identity.path);
        Embedded {
            identity,
            lines,
            rules: Default::default(),
            ..embedded
        }
    }

    /// What was taken out, a line each.
    pub(super) fn removed(&self) -> Vec<String> {
        let mut removed = vec![
            format!(
                "raw stack bytes of {} samples (their stacks were unwound first)",
                self.stacks
            ),
            "registers".to_owned(),
            "folders of images and source files".to_owned(),
            "host name".to_owned(),
            "command lines and notes".to_owned(),
        ];
        if self.unknown_blocks > 0 {
            removed.push(format!("{} blocks of unknown type", self.unknown_blocks));
        }
        removed
    }

    /// What is left that may tell something, a line each.
    pub(super) fn left(&self, recording: &Recording) -> Vec<String> {
        let metadata = redacted(recording.metadata().clone());
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
            "names of threads or vCPUs; times; addresses of code; build-ids".to_owned(),
            format!("names of images: {}", names.join(", ")),
            "names of functions and source files, line numbers".to_owned(),
        ]
    }
}

fn redacted(mut metadata: Metadata) -> Metadata {
    metadata.recorder.program = last_part(&metadata.recorder.program).to_owned();
    metadata.recorder.command_line = vec![GONE.to_owned()];
    metadata.host.name = GONE.to_owned();
    metadata.target.name = last_part(first_word(&metadata.target.name)).to_owned();
    metadata.notes.clear();
    metadata
}

/// A task that is named by the path of its program gets the program's name.
fn renamed(mut event: TaskEvent) -> TaskEvent {
    if let TaskChange::Named(name) = &mut event.what
        && name.starts_with(['/', '.', '~'])
    {
        *name = last_part(first_word(name)).to_owned();
    }
    event
}

/// A target may be named by its command line.
fn first_word(text: &str) -> &str {
    text.split(' ').next().unwrap_or("")
}

/// The last part of a path, on whichever system it was made.
fn last_part(path: &str) -> &str {
    path.rsplit(['/', '\\']).next().unwrap_or("")
}
