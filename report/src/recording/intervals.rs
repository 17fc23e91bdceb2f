//! A stream as recordings of some seconds each. Input: its blocks, as they come. Output: whole recordings, one after
//! the other, each with all names so far. Every block of samples is in one of them, unless more wait than may: then the
//! oldest are dropped, and their samples counted.

use super::kept_blocks::{
    KeptBlocks, LASTING_BYTES_MAX, Need, PASSING_BYTES_MAX, is_of_its_time, recording,
};
use std::collections::VecDeque;
use std::io;
use uprof::cold::{End, EndReason};
use uprof::{Block, DamageKind, Item, Payload};

/// An interval ends early when its samples take this many bytes, as they are stored.
const INTERVAL_BYTES_MAX: u64 = 16 << 20;

/// The recording of an interval.
#[derive(Debug)]
pub struct Interval {
    /// From when to when it is, by the clock of the stream (nanoseconds).
    pub times_ns: [u64; 2],
    /// The number of its samples.
    pub samples: u64,
    /// The file.
    pub bytes: Vec<u8>,
}

/// The blocks of an interval.
#[derive(Debug, Default)]
struct Part {
    first_ns: u64,
    last_ns: u64,
    kept: KeptBlocks,
}

impl Part {
    fn samples(&self) -> u64 {
        let samples = self.kept.blocks.iter().map(|block| block.samples);
        samples.map(u64::from).sum()
    }
}

/// A stream that is cut into intervals.
#[derive(Debug)]
pub struct Intervals {
    uuid: [u8; 16],
    length_ns: u64,
    metadata: Option<Block<'static>>,
    lasting: KeptBlocks,
    /// The interval that grows.
    open: Part,
    /// Those that are complete.
    waiting: VecDeque<Part>,
    waiting_bytes: u64,
    latest_ns: u64,
    end: Option<End>,
    damaged: u64,
    samples: u64,
    dropped_samples: u64,
}

impl Intervals {
    /// Intervals of the recording `uuid`, each of about `length_ns`.
    pub fn new(uuid: [u8; 16], length_ns: u64) -> Intervals {
        Intervals {
            uuid,
            length_ns,
            metadata: None,
            lasting: KeptBlocks::default(),
            open: Part::default(),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            latest_ns: 0,
            end: None,
            damaged: 0,
            samples: 0,
            dropped_samples: 0,
        }
    }

    /// Adds the next item of the stream.
    pub fn add(&mut self, item: Item<'static>) {
        let block = match item {
            Item::Block(block) => block,
            Item::Damage(damage) => {
                self.damaged += u64::from(damage.kind != DamageKind::Unfinished);
                return;
            }
        };
        if is_of_its_time(&block) {
            self.latest_ns = self.latest_ns.max(block.last_ns);
        }
        match Need::of(&block) {
            Need::Metadata => self.metadata = Some(block),
            Need::End => {
                if let Ok(Payload::End(end)) = block.payload() {
                    self.end = Some(end);
                }
            }
            Need::Lasting => self.lasting.push(block, LASTING_BYTES_MAX),
            Need::Passing => self.add_passing(block),
        }
    }

    fn add_passing(&mut self, block: Block<'static>) {
        self.samples += u64::from(block.samples);
        if self.open.kept.blocks.is_empty() {
            // Not from the end of the last one: nothing may have run for hours.
            self.open.first_ns = self.open.last_ns.max(block.first_ns);
        }
        self.open.last_ns = self.open.last_ns.max(block.last_ns);
        self.open.kept.push(block, u64::MAX);
        let passed_ns = self.open.last_ns.saturating_sub(self.open.first_ns);
        if passed_ns >= self.length_ns || self.open.kept.bytes >= INTERVAL_BYTES_MAX {
            self.cut();
        }
    }

    /// Ends the interval that grows, if anything is in it.
    pub fn cut(&mut self) {
        if self.open.kept.blocks.is_empty() {
            return;
        }
        let next = Part {
            last_ns: self.open.last_ns,
            ..Part::default()
        };
        let part = std::mem::replace(&mut self.open, next);
        self.waiting_bytes += part.kept.bytes;
        self.waiting.push_back(part);
    }

    /// Whether as much waits as may.
    pub fn is_full(&self) -> bool {
        self.waiting_bytes + self.open.kept.bytes >= PASSING_BYTES_MAX
    }

    /// Drops the oldest complete interval.
    pub fn drop_oldest(&mut self) {
        if let Some(part) = self.waiting.pop_front() {
            self.waiting_bytes -= part.kept.bytes;
            self.dropped_samples += part.samples();
        }
    }

    /// The recording of the oldest complete interval, which is then forgotten.
    ///
    /// # Errors
    /// Memory for compressing is missing.
    pub fn take(&mut self) -> io::Result<Option<Interval>> {
        let Some(part) = self.waiting.pop_front() else {
            return Ok(None);
        };
        self.waiting_bytes -= part.kept.bytes;
        let blocks = || part.kept.blocks.iter();
        let first_ns = blocks().filter(|block| block.samples > 0);
        let first_ns = first_ns.map(|block| block.first_ns).min();
        let first_ns = first_ns.map_or(part.first_ns, |first_ns| first_ns.min(part.first_ns));
        let read_bytes: u64 = blocks()
            .chain(&self.lasting.blocks)
            .map(Block::file_bytes)
            .sum();
        crate::mapped::add_read(read_bytes);
        let end = End {
            time_ns: part.last_ns,
            reason: EndReason::Stopped,
            message: "the recording went on: this is the end of an interval".to_owned(),
            totals: Vec::new(),
        };
        let bytes = recording(
            self.uuid,
            (self.metadata.as_ref(), first_ns),
            self.lasting.blocks.iter().chain(blocks()),
            &[],
            &end,
        )?;
        Ok(Some(Interval {
            times_ns: [first_ns, part.last_ns],
            samples: part.samples(),
            bytes,
        }))
    }

    /// Whether a complete interval waits.
    pub fn has_one(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The end record, if the stream has reached it.
    pub fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// Number of damaged parts of the stream so far.
    pub fn damaged(&self) -> u64 {
        self.damaged
    }

    /// Number of samples so far, and how many of them were dropped.
    pub fn samples(&self) -> (u64, u64) {
        (self.samples, self.dropped_samples)
    }

    /// Whether names had to be dropped because they are too many.
    pub fn lacks_names(&self) -> bool {
        self.lasting.dropped > 0
    }
}
