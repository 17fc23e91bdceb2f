//! Writes a recording, block by block, without seeking back.
//!
//! Input: samples and cold records. Output: bytes on any [`Write`], the same for a pipe and a file.

mod compress;

use self::compress::Compressor;
use crate::block::{Block, encoding_of};
use crate::cold::{
    self, ClockPair, Code, End, Exits, HandledExit, Loss, Metadata, ModuleEvent, ProcessTime,
    SpaceEvent, TaskEvent, VcpuTime,
};
use crate::image::{ImageIdentity, ImagePart, Symbol};
use crate::layout::{
    BlockHeader, BlockType, Codec, ENCODING_RECORDS, FLAG_CRITICAL, MAX_PAYLOAD_BYTES,
    MAX_RECORDS_BYTES, Preamble,
};
use crate::samples::{BlockBuilder, Sample};
use crate::spans::{Span, SpanBuilder};
use serde::Serialize;
use std::io::{self, Write};
use zerocopy::IntoBytes;

/// Writes one recording.
///
/// After a failed call the recording consists of whole blocks, perhaps followed by part of one, which readers skip.
pub struct Writer<W: Write> {
    out: W,
    /// Kept until it is written together with the first block, so that a file never has one without the other.
    preamble: Option<Preamble>,
    written_bytes: u64,
    written_samples: u64,
    sequence: u32,
    samples_before: u64,
    block: BlockBuilder,
    spans: SpanBuilder,
    compressor: Compressor,
    payload: Vec<u8>,
    /// Whether the payload has raw stacks.
    has_stacks: bool,
    /// Lengths of the payload's parts, for the compressor.
    parts: Vec<usize>,
    /// Room for a header, followed by the payload as stored; it only grows.
    frame: Vec<u8>,
}

/// The fields of a block's header other than lengths and checksums.
struct Label {
    block_type: BlockType,
    samples: u32,
    first_ns: u64,
    last_ns: u64,
}

/// Smallest payload that is worth a zstd frame.
const LEAST_COMPRESSED_BYTES: usize = 64;

/// Declares the methods that write records. A row has the types of the records and of their block, and the fields of a
/// record's first and last time.
macro_rules! records {
    ($($(#[$doc:meta])* $name:ident: $record:ty => $block:ident, $first_ns:ident, $last_ns:ident;)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Errors
            /// Those of the output.
            pub fn $name(&mut self, records: &[$record]) -> io::Result<()> {
                let times = |record: &$record| (record.$first_ns, record.$last_ns);
                self.records(BlockType::$block, records, times)
            }
        )*
    };
}

impl<W: Write> Writer<W> {
    /// Starts a recording: the preamble and the metadata are written at once, in one write.
    ///
    /// `uuid` should be random; it names the recording in diffs and bug reports.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn create(out: W, uuid: [u8; 16], metadata: &Metadata, now_ns: u64) -> io::Result<Self> {
        let mut writer = Writer::without_metadata(out, uuid)?;
        writer.metadata(metadata, now_ns)?;
        Ok(writer)
    }

    /// Starts a recording whose blocks, metadata first, are copied from another by [`Writer::copy`].
    ///
    /// # Errors
    /// Those of `out`.
    pub fn without_metadata(out: W, uuid: [u8; 16]) -> io::Result<Self> {
        Ok(Writer {
            out,
            preamble: Some(Preamble::new(uuid)),
            written_bytes: Preamble::BYTES as u64,
            written_samples: 0,
            sequence: 0,
            samples_before: 0,
            block: BlockBuilder::default(),
            spans: SpanBuilder::default(),
            compressor: Compressor::new()?,
            payload: Vec::new(),
            has_stacks: false,
            parts: Vec::new(),
            frame: Vec::new(),
        })
    }

    /// Writes facts about the recording, as the first block.
    ///
    /// # Errors
    /// Those of the output.
    pub fn metadata(&mut self, metadata: &Metadata, now_ns: u64) -> io::Result<()> {
        self.payload.clear();
        metadata.put(&mut self.payload).map_err(io::Error::other)?;
        self.emit(Label::new(BlockType::Metadata, now_ns, now_ns))
    }

    /// Adds a sample. It reaches the file when its block is full or at the next [`Writer::flush`].
    ///
    /// # Errors
    /// Those of the output, if the block was full.
    pub fn sample(&mut self, sample: &Sample<'_>) -> io::Result<()> {
        self.block.push(sample);
        if self.block.is_full() {
            self.emit_samples()?;
        }
        Ok(())
    }

    /// Adds a span. The spans of a task must come in the order of their ends. It reaches the file when its block is
    /// full or at the next [`Writer::flush`].
    ///
    /// # Errors
    /// Those of the output, if the block was full.
    pub fn span(&mut self, span: &Span<&str>) -> io::Result<()> {
        self.spans.push(span);
        if self.spans.is_full() {
            self.emit_spans()?;
        }
        Ok(())
    }

    /// Sets the number of spans that the recording had before the next ones, if some of another recording are copied;
    /// `None`, if unknown, leaves it unchanged.
    pub fn spans_before(&mut self, before: Option<u64>) {
        self.spans.before = before.unwrap_or(self.spans.before);
    }

    /// Writes out the samples and spans gathered so far, as a block each. Call it at least once a second.
    ///
    /// # Errors
    /// Those of the output.
    pub fn flush(&mut self) -> io::Result<()> {
        self.emit_samples()?;
        self.emit_spans()?;
        self.out.flush()
    }

    records! {
        /// Writes starts, names and ends of vCPUs or threads.
        tasks: TaskEvent => Tasks, time_ns, time_ns;
        /// Writes changes of address spaces.
        modules: ModuleEvent => Modules, time_ns, time_ns;
        /// Writes clock readings.
        clocks: ClockPair => Clocks, monotonic_ns, monotonic_ns;
        /// Writes losses.
        losses: Loss => Losses, first_ns, last_ns;
        /// Writes processor time that the kernel counted.
        times: ProcessTime => Times, first_ns, last_ns;
        /// Writes wall time of vCPUs.
        vcpu_times: VcpuTime => VcpuTimes, first_ns, last_ns;
        /// Writes exits of vCPUs.
        exits: Exits => Exits, first_ns, last_ns;
        /// Writes what vCPUs' threads handled when they were sampled in the monitor's recording.
        handled: HandledExit => Handled, time_ns, time_ns;
        /// Writes code of a guest.
        code: Code => Code, time_ns, time_ns;
        /// Writes facts about address spaces of a guest.
        spaces: SpaceEvent => Spaces, time_ns, time_ns;
    }

    /// Writes the next bytes of a recording of the guest's monitor, in as many blocks as needed.
    ///
    /// # Errors
    /// Those of the output.
    pub fn monitor(&mut self, bytes: &[u8], now_ns: u64) -> io::Result<()> {
        for bytes in bytes.chunks(MAX_PAYLOAD_BYTES) {
            self.payload.clear();
            self.payload.extend_from_slice(bytes);
            self.emit(Label::new(BlockType::Monitor, now_ns, now_ns))?;
        }
        Ok(())
    }

    /// Writes symbols of an image, in as many parts as needed. They should be in order of address. A symbol that isn't
    /// begins a new part.
    ///
    /// # Errors
    /// Those of the output, or a single name is longer than a block may be.
    pub fn symbols<'a>(
        &mut self,
        identity: &ImageIdentity,
        symbols: impl IntoIterator<Item = Symbol<'a>>,
        now_ns: u64,
    ) -> io::Result<()> {
        let mut part = ImagePart::new(identity.clone());
        for symbol in symbols {
            if !part.push(symbol) {
                self.image_part(&part, now_ns)?;
                part = ImagePart::new(identity.clone());
                part.push(symbol);
            }
        }
        self.image_part(&part, now_ns)
    }

    /// Writes one part of an image's tables.
    ///
    /// # Errors
    /// Those of the output, or the part is longer than a block may be.
    pub fn image_part(&mut self, part: &ImagePart, now_ns: u64) -> io::Result<()> {
        self.payload.clear();
        part.put(&mut self.payload);
        self.emit(Label::new(BlockType::Image, now_ns, now_ns))
    }

    /// Writes the remaining samples and the end record, and returns the output.
    ///
    /// # Errors
    /// Those of the output.
    pub fn finish(mut self, end: &End) -> io::Result<W> {
        self.emit_samples()?;
        self.emit_spans()?;
        self.records(BlockType::End, std::slice::from_ref(end), |end| {
            (end.time_ns, end.time_ns)
        })?;
        self.out.flush()?;
        Ok(self.out)
    }

    /// Bytes written so far, all of them in whole blocks after a call that succeeded.
    pub fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    /// Samples in those blocks.
    pub fn written_samples(&self) -> u64 {
        self.written_samples
    }

    fn records<T: Serialize>(
        &mut self,
        block_type: BlockType,
        records: &[T],
        time_ns: impl Fn(&T) -> (u64, u64),
    ) -> io::Result<()> {
        if records.is_empty() {
            return Ok(());
        }
        self.payload.clear();
        cold::put(&mut self.payload, &records).map_err(io::Error::other)?;
        if self.payload.len() > MAX_RECORDS_BYTES && records.len() > 1 {
            let (head, tail) = records.split_at(records.len() / 2);
            let time_ns: &dyn Fn(&T) -> (u64, u64) = &time_ns;
            self.records(block_type, head, time_ns)?;
            return self.records(block_type, tail, time_ns);
        }
        let times = || records.iter().map(&time_ns);
        let first_ns = times().map(|(first_ns, _)| first_ns).min();
        let last_ns = times().map(|(_, last_ns)| last_ns).max();
        self.emit(Label::new(
            block_type,
            first_ns.unwrap_or(0),
            last_ns.unwrap_or(0),
        ))
    }

    fn emit_samples(&mut self) -> io::Result<()> {
        if self.block.rows() == 0 {
            return Ok(());
        }
        let (first_ns, last_ns) = self.block.time_range_ns();
        self.payload.clear();
        self.block.payload(&mut self.payload, &mut self.parts);
        let samples = self.block.rows() as u32;
        self.has_stacks = self.block.has_stacks();
        self.block.clear();
        self.emit(Label {
            samples,
            ..Label::new(BlockType::Samples, first_ns, last_ns)
        })
    }

    fn emit_spans(&mut self) -> io::Result<()> {
        if self.spans.is_empty() {
            return Ok(());
        }
        let (first_ns, last_ns) = self.spans.time_range_ns();
        self.payload.clear();
        self.spans.payload(&mut self.payload, &mut self.parts);
        self.spans.clear();
        self.emit(Label::new(BlockType::Spans, first_ns, last_ns))
    }

    /// Compresses and writes `self.payload` as one block.
    fn emit(&mut self, label: Label) -> io::Result<()> {
        let raw_bytes = self.payload.len();
        let most = match encoding_of(label.block_type) {
            ENCODING_RECORDS => MAX_RECORDS_BYTES,
            _ => MAX_PAYLOAD_BYTES,
        };
        if raw_bytes > most {
            let name = label.block_type.name();
            return Err(io::Error::other(format!(
                "cannot write a {name} block of {raw_bytes} bytes: the format allows {most}"
            )));
        }
        let (codec, stored_bytes) = self.compress(label.block_type)?;
        let critical = matches!(label.block_type, BlockType::Metadata | BlockType::Samples);
        let header = BlockHeader {
            block_type: label.block_type.number().into(),
            flags: if critical { FLAG_CRITICAL } else { 0 }.into(),
            codec: codec.number(),
            encoding: encoding_of(label.block_type),
            stored_bytes: (stored_bytes as u32).into(),
            raw_bytes: (raw_bytes as u32).into(),
            first_ns: label.first_ns.into(),
            last_ns: label.last_ns.into(),
            samples: label.samples.into(),
            ..BlockHeader::blank()
        };
        self.write_block(header, stored_bytes)
    }

    /// Copies a block of another recording unchanged, under the next sequence number.
    ///
    /// # Errors
    /// Those of the output.
    pub fn copy(&mut self, block: &Block<'_>) -> io::Result<()> {
        self.emit_samples()?;
        self.emit_spans()?;
        let stored = block.stored();
        let flags = if block.critical { FLAG_CRITICAL } else { 0 };
        let header = BlockHeader {
            block_type: block.block_type.into(),
            flags: flags.into(),
            codec: block.codec,
            encoding: block.encoding,
            stored_bytes: (stored.len() as u32).into(),
            raw_bytes: block.raw_bytes.into(),
            first_ns: block.first_ns.into(),
            last_ns: block.last_ns.into(),
            samples: block.samples.into(),
            ..BlockHeader::blank()
        };
        self.frame.resize(BlockHeader::BYTES, 0);
        self.frame.extend_from_slice(stored);
        self.write_block(header, stored.len())
    }

    /// Numbers, checksums and writes the block whose payload is in `self.frame` after room for its header. It is one
    /// write, so that a pipe's reader gets it at once.
    fn write_block(&mut self, mut header: BlockHeader, stored_bytes: usize) -> io::Result<()> {
        let mut frame = std::mem::take(&mut self.frame);
        let end = BlockHeader::BYTES + stored_bytes;
        header.samples_before = self.samples_before.into();
        header.sequence = self.sequence.into();
        header.payload_crc = crc32fast::hash(&frame[BlockHeader::BYTES..end]).into();
        header.header_crc = header.checksum().into();
        frame[..BlockHeader::BYTES].copy_from_slice(header.as_bytes());
        // Counted even if the write fails, so that the next block shows what is missing.
        self.sequence = self.sequence.saturating_add(1);
        self.samples_before += u64::from(header.samples.get());
        let result = self.write(&frame[..end]);
        self.frame = frame;
        if result.is_ok() {
            self.written_samples += u64::from(header.samples.get());
        }
        result
    }

    /// Puts the payload into `self.frame`, compressed if that makes it smaller, and returns its codec and length.
    fn compress(&mut self, block_type: BlockType) -> io::Result<(Codec, usize)> {
        let parts = match block_type {
            BlockType::Samples | BlockType::Spans => &self.parts[..],
            _ => &[],
        };
        let room = BlockHeader::BYTES + Compressor::bound(self.payload.len(), parts.len());
        if self.frame.len() < room {
            self.frame.resize(room, 0);
        }
        let stored = &mut self.frame[BlockHeader::BYTES..];
        let has_stacks = block_type == BlockType::Samples && self.has_stacks;
        self.compressor.expect_stacks(has_stacks)?;
        if self.payload.len() >= LEAST_COMPRESSED_BYTES {
            let length = self.compressor.compress(&self.payload, parts, stored)?;
            if length < self.payload.len() {
                return Ok((Codec::Zstd, length));
            }
        }
        let stored = &mut self.frame[BlockHeader::BYTES..];
        stored[..self.payload.len()].copy_from_slice(&self.payload);
        Ok((Codec::Plain, self.payload.len()))
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self.preamble.take() {
            Some(preamble) => self.out.write_all(&[preamble.as_bytes(), bytes].concat())?,
            None => self.out.write_all(bytes)?,
        }
        self.written_bytes += bytes.len() as u64;
        Ok(())
    }
}

impl Label {
    fn new(block_type: BlockType, first_ns: u64, last_ns: u64) -> Self {
        Label {
            block_type,
            samples: 0,
            first_ns,
            last_ns,
        }
    }
}
