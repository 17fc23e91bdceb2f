//! Redaction. Input: blocks of a recording. Output: new blocks with the fields that format-spec.md, section
//! 14, lists. Nothing else can get into them. Each record is built field by field (`records`). Each text is
//! made from the one that it replaces, by the rule for its role (`text`, `rules`). Blocks of unknown types
//! are dropped.

mod rules;
mod text;
mod records;

use super::BundledImage;
use super::output::{Output, RedactionSummary, write_image};
use crate::recording::Recording;
use crate::recording::rows::EffectiveRows;
use crate::stacks::embedded::Embedded;
use crate::stacks::idle::Idle;
use crate::stacks::unwinders::Unwinders;
use crate::work;
use std::collections::HashMap;
use std::io::{self, Write};
use text::{Text, Texts};
use uprof::cold::{End, Metadata, ModuleEvent, Target};
use uprof::{Block, ImagePart, Payload, SampleBlock, SpanBlock, Writer};

/// Writes blocks without private data.
pub(super) struct Redactor<'a, W: Write> {
    /// No other code has this writer, so nothing can get into the file without being redacted.
    writer: Writer<W>,
    unwinders: &'a Unwinders<'a, 'a>,
    idle: &'a Idle<'a, 'a>,
    texts: Texts,
    /// The target before redaction.
    target: Target,
    metadata: Metadata,
    stacks: u64,
    code: bool,
    monitor: bool,
    unknown_blocks: u64,
}

impl<'a, W: Write> Redactor<'a, W> {
    pub(super) fn new(
        recording: &Recording,
        unwinders: &'a Unwinders<'a, 'a>,
        idle: &'a Idle<'a, 'a>,
        writer: Writer<W>,
    ) -> Self {
        Redactor {
            writer,
            unwinders,
            idle,
            texts: Texts::default(),
            target: recording.metadata().target.clone(),
            metadata: Metadata::default(),
            stacks: 0,
            code: false,
            monitor: false,
            unknown_blocks: 0,
        }
    }

    fn samples(&mut self, block: &SampleBlock) -> io::Result<()> {
        let (mut chain, mut frames) = (Vec::new(), Vec::new());
        let mut held = self.unwinders.state();
        let mut rows = EffectiveRows::new(block, self.idle);
        while let Some(row) = rows.next_row().map_err(io::Error::other)? {
            chain.clear();
            chain.extend(block.chain(row.node));
            work::take(chain.len() as u64);
            let view = self.unwinders.view(&row);
            let unwound = self
                .unwinders
                .unwind(&mut held, &row, view, &chain, &mut frames);
            self.stacks += u64::from(row.stack.is_some());
            let chain = if unwound.is_some() { &frames } else { &chain };
            let sample = records::sample(&row, row.state, chain, unwound.unwrap_or(row.stop));
            self.writer.sample(&sample)?;
        }
        self.unwinders.keep(held);
        self.writer.flush()
    }

    fn spans(&mut self, block: &SpanBlock) -> io::Result<()> {
        // A gap before the block still shows how many were lost in it.
        self.writer.spans_before(block.before());
        // Each name is redacted once: a block may have a long name in each of its rows.
        let mut names = HashMap::new();
        let mut rows = block.rows();
        while let Some(row) = rows.next_row().map_err(io::Error::other)? {
            let what = records::called(row.kind);
            let name = names
                .entry((what, row.name))
                .or_insert_with(|| self.texts.keep(what, block.name(row.name)));
            self.writer.span(&records::span(&row, name))?;
        }
        self.writer.flush()
    }

    /// Writes the symbols in the sections of a part.
    fn symbols(&mut self, part: &ImagePart, now_ns: u64) -> io::Result<()> {
        let identity = records::identity(&mut self.texts, &part.identity);
        let names = part.symbols();
        let names: Vec<String> = names
            .map(|it| self.texts.keep(Text::Function, it.name))
            .collect();
        let symbols = part.symbols().zip(&names);
        let symbols = symbols.map(|(symbol, name)| records::symbol(&symbol, name));
        self.writer.symbols(&identity, symbols, now_ns)
    }

    /// What was removed, one line each.
    fn removed(&self) -> Vec<String> {
        let mut removed = vec![
            format!(
                "raw stack bytes of {} samples (their stacks were unwound first)",
                self.stacks
            ),
            "registers".to_owned(),
            "folders of images, source files and packages".to_owned(),
            "queries, values, quoted texts and user@host in names".to_owned(),
            "host name".to_owned(),
            "command lines, labels, most notes, names of guests and control groups, words of the end"
                .to_owned(),
            "devices and inodes of files".to_owned(),
        ];
        if self.code {
            removed.push("pieces of the guest's code".to_owned());
        }
        if self.monitor {
            removed.push("the recording of the guest's monitor".to_owned());
        }
        if self.unknown_blocks > 0 {
            removed.push(format!("{} blocks of unknown type", self.unknown_blocks));
        }
        removed
    }

    /// What remains that may identify someone, one line each.
    fn left(&self) -> Vec<String> {
        let (host, target) = (&self.metadata.host, &self.metadata.target);
        vec![
            format!("target: {}, id {}", target.name, target.id),
            format!(
                "host: {}, {} processors of type {}",
                host.system, host.processors, host.processor
            ),
            format!(
                "names of threads or vCPUs, {} bytes at most; times; addresses of code; build-ids",
                rules::THREAD_NAME_BYTES
            ),
            format!("names of images: {}", self.texts.images().join(", ")),
            "names of functions and source files, line numbers; names of system calls; the first \
             word of what a program called its work"
                .to_owned(),
        ]
    }
}

impl<W: Write> Output for Redactor<'_, W> {
    fn block(&mut self, block: &Block<'_>) -> io::Result<()> {
        let texts = &mut self.texts;
        match work::payload(block).map_err(io::Error::other)? {
            Payload::Metadata(old) => {
                self.metadata = records::metadata(texts, &old);
                self.writer.metadata(&self.metadata, block.first_ns)
            }
            Payload::Samples(samples) => self.samples(&samples),
            Payload::Spans(spans) => self.spans(&spans),
            Payload::Tasks(events) => {
                let events = events.iter();
                let events = events.map(|event| records::task(texts, &self.target, event));
                self.writer.tasks(&events.collect::<Vec<_>>())
            }
            Payload::Modules(events) => self.modules(&events),
            Payload::Clocks(pairs) => {
                let pairs: Vec<_> = pairs.iter().map(records::clocks).collect();
                self.writer.clocks(&pairs)
            }
            Payload::Losses(losses) => {
                let losses: Vec<_> = losses.iter().map(records::loss).collect();
                self.writer.losses(&losses)
            }
            Payload::Times(times) => {
                let times: Vec<_> = times.iter().map(records::time).collect();
                self.writer.times(&times)
            }
            Payload::VcpuTimes(times) => {
                let times: Vec<_> = times.iter().map(records::vcpu_time).collect();
                self.writer.vcpu_times(&times)
            }
            Payload::Exits(exits) => {
                let exits: Vec<_> = exits.iter().map(records::exits).collect();
                self.writer.exits(&exits)
            }
            Payload::Spaces(events) => {
                let events = events.iter().map(|event| records::space(texts, event));
                self.writer.spaces(&events.collect::<Vec<_>>())
            }
            Payload::Image(part) => self.symbols(&part, block.first_ns),
            Payload::Monitor(_) | Payload::Handled(_) => {
                self.monitor = true;
                Ok(())
            }
            // The content of memory is private. The mappings show what it was needed for.
            Payload::Code(_) => {
                self.code = true;
                Ok(())
            }
            // The end record is written last.
            Payload::End(_) => Ok(()),
            Payload::Unknown(_) => {
                self.unknown_blocks += 1;
                Ok(())
            }
        }
    }

    fn modules(&mut self, events: &[ModuleEvent]) -> io::Result<()> {
        let events = events.iter();
        let events = events.map(|event| records::module(&mut self.texts, event));
        self.writer.modules(&events.collect::<Vec<_>>())
    }

    fn image(&mut self, image: Embedded, now_ns: u64) -> io::Result<BundledImage> {
        let image = records::embedded(&mut self.texts, image);
        write_image(&mut self.writer, &image, now_ns)
    }

    fn finish(mut self, end: &End) -> io::Result<RedactionSummary> {
        let end = records::end(&mut self.texts, end);
        let (removed, left) = (self.removed(), self.left());
        self.writer.finish(&end)?;
        Ok(RedactionSummary { removed, left })
    }
}
