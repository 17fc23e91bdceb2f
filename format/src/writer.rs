//! Writes a recording, block by block; nothing is ever patched afterwards.
//!
//! Enters: samples and cold records. Leaves: bytes on any [`Write`], the same for a pipe and a file.

use crate::cold::{
    self, ClockPair, ENCODING_BINCODE_2, End, Loss, Metadata, ModuleEvent, Span, TaskEvent,
};
use crate::image::{ImageIdentity, ImagePart, Symbol};
use crate::layout::{
    BlockHeader, BlockType, Codec, FLAG_CRITICAL, INDEX_TRAILER, MAX_PAYLOAD_BYTES, Preamble, SYNC,
};
use crate::sample::Sample;
use crate::samples::BlockBuilder;
use serde::Serialize;
use std::io::{self, Write};
use zerocopy::IntoBytes;

/// Writes one recording.
///
/// A failed call leaves the recording as it stood: whole blocks, perhaps followed by part of one,
/// which readers skip.
pub struct Writer<W: Write> {
    out: W,
    written_bytes: u64,
    sequence: u32,
    samples_before: u64,
    block: BlockBuilder,
    index: Vec<IndexEntry>,
    compressor: zstd::bulk::Compressor<'static>,
    payload: Vec<u8>,
    stored: Vec<u8>,
}

/// Where a block is (format-spec.md, section 8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, serde::Deserialize)]
pub struct IndexEntry {
    /// Offset of the block's header in the file.
    pub offset: u64,
    /// Number of the block type.
    pub block_type: u16,
    /// Earliest time inside.
    pub first_ns: u64,
    /// Latest time inside.
    pub last_ns: u64,
    /// Samples inside.
    pub samples: u32,
}

/// What a block's header says beside lengths and checksums.
struct Label {
    block_type: BlockType,
    encoding: u8,
    samples: u32,
    first_ns: u64,
    last_ns: u64,
}

const LEVEL: i32 = 1;

impl<W: Write> Writer<W> {
    /// Starts a recording: the preamble and the metadata are written at once.
    ///
    /// `uuid` should be random; it names the recording in diffs and bug reports.
    ///
    /// # Errors
    /// What `out` returns.
    pub fn create(out: W, uuid: [u8; 16], metadata: &Metadata, now_ns: u64) -> io::Result<Self> {
        let mut writer = Writer {
            out,
            written_bytes: 0,
            sequence: 0,
            samples_before: 0,
            block: BlockBuilder::default(),
            index: Vec::new(),
            compressor: zstd::bulk::Compressor::new(LEVEL)?,
            payload: Vec::new(),
            stored: Vec::new(),
        };
        writer.write(Preamble::new(uuid).as_bytes())?;
        writer.payload.clear();
        metadata
            .put(&mut writer.payload)
            .map_err(io::Error::other)?;
        writer.emit(Label::cold(BlockType::Metadata, now_ns, now_ns))?;
        Ok(writer)
    }

    /// Adds a sample. It reaches the file when its block is full or at the next [`Writer::flush`].
    ///
    /// # Errors
    /// What the output returns, if the block was full.
    pub fn sample(&mut self, sample: &Sample<'_>) -> io::Result<()> {
        self.block.push(sample);
        if self.block.is_full() {
            self.emit_samples()?;
        }
        Ok(())
    }

    /// Writes out the samples gathered so far as a block. Call it at least once a second.
    ///
    /// # Errors
    /// What the output returns.
    pub fn flush(&mut self) -> io::Result<()> {
        self.emit_samples()?;
        self.out.flush()
    }

    /// Writes starts, names and ends of vCPUs or threads.
    ///
    /// # Errors
    /// What the output returns.
    pub fn tasks(&mut self, events: &[TaskEvent]) -> io::Result<()> {
        self.records(BlockType::Tasks, events, |event| {
            (event.time_ns, event.time_ns)
        })
    }

    /// Writes changes of address spaces.
    ///
    /// # Errors
    /// What the output returns.
    pub fn modules(&mut self, events: &[ModuleEvent]) -> io::Result<()> {
        self.records(BlockType::Modules, events, |event| {
            (event.time_ns, event.time_ns)
        })
    }

    /// Writes clock readings.
    ///
    /// # Errors
    /// What the output returns.
    pub fn clocks(&mut self, pairs: &[ClockPair]) -> io::Result<()> {
        let time = |pair: &ClockPair| (pair.monotonic_ns, pair.monotonic_ns);
        self.records(BlockType::Clocks, pairs, time)
    }

    /// Writes what was lost.
    ///
    /// # Errors
    /// What the output returns.
    pub fn losses(&mut self, losses: &[Loss]) -> io::Result<()> {
        self.records(BlockType::Losses, losses, |loss| {
            (loss.first_ns, loss.last_ns)
        })
    }

    /// Writes intervals of a function trace.
    ///
    /// # Errors
    /// What the output returns.
    pub fn spans(&mut self, spans: &[Span]) -> io::Result<()> {
        self.records(BlockType::Spans, spans, |span| {
            let start_ns = span.start_ns.unwrap_or(0);
            (start_ns, start_ns.saturating_add(span.duration_ns))
        })
    }

    /// Writes symbols of an image, in as many parts as they need. They must be in order of address;
    /// one that isn't begins a new part.
    ///
    /// # Errors
    /// What the output returns, or that a single name is longer than a block may be.
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
    /// What the output returns, or that the part is longer than a block may be.
    pub fn image_part(&mut self, part: &ImagePart, now_ns: u64) -> io::Result<()> {
        self.payload.clear();
        part.put(&mut self.payload);
        self.emit(Label {
            encoding: 0,
            ..Label::cold(BlockType::Image, now_ns, now_ns)
        })
    }

    /// Writes what is left, the end record and the index, and gives the output back.
    ///
    /// # Errors
    /// What the output returns.
    pub fn finish(mut self, end: &End) -> io::Result<W> {
        self.emit_samples()?;
        self.records(BlockType::End, std::slice::from_ref(end), |end| {
            (end.time_ns, end.time_ns)
        })?;
        let offset = self.written_bytes;
        self.payload.clear();
        cold::put(&mut self.payload, &self.index).map_err(io::Error::other)?;
        if self.payload.len() <= MAX_PAYLOAD_BYTES - 16 {
            self.payload.extend_from_slice(&offset.to_le_bytes());
            self.payload.extend_from_slice(&INDEX_TRAILER);
            self.emit(Label::cold(BlockType::Index, end.time_ns, end.time_ns))?;
        }
        self.out.flush()?;
        Ok(self.out)
    }

    /// Bytes written so far, all of them in whole blocks after a call that succeeded.
    pub fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    /// The output, for example to ask its file for something.
    pub fn get_ref(&self) -> &W {
        &self.out
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
        if self.payload.len() > MAX_PAYLOAD_BYTES && records.len() > 1 {
            let (head, tail) = records.split_at(records.len() / 2);
            self.records(block_type, head, &time_ns as &dyn Fn(&T) -> (u64, u64))?;
            return self.records(block_type, tail, &time_ns as &dyn Fn(&T) -> (u64, u64));
        }
        let first_ns = records
            .iter()
            .map(|record| time_ns(record).0)
            .min()
            .unwrap_or(0);
        let last_ns = records
            .iter()
            .map(|record| time_ns(record).1)
            .max()
            .unwrap_or(0);
        self.emit(Label::cold(block_type, first_ns, last_ns))
    }

    fn emit_samples(&mut self) -> io::Result<()> {
        if self.block.rows() == 0 {
            return Ok(());
        }
        let (first_ns, last_ns) = self.block.time_range_ns();
        self.payload.clear();
        self.block.payload(&mut self.payload);
        let samples = self.block.rows() as u32;
        self.block.clear();
        self.emit(Label {
            block_type: BlockType::Samples,
            encoding: 0,
            samples,
            first_ns,
            last_ns,
        })
    }

    /// Compresses, checksums and writes `self.payload` as one block.
    fn emit(&mut self, label: Label) -> io::Result<()> {
        let raw_bytes = self.payload.len();
        if raw_bytes > MAX_PAYLOAD_BYTES {
            let what = format!("a {} block of {raw_bytes} bytes", label.block_type.name());
            return Err(io::Error::other(format!(
                "{what}: the format allows 16 MiB"
            )));
        }
        let codec = self.compress(label.block_type)?;
        let stored = match codec {
            Codec::Plain => &self.payload,
            Codec::Zstd => &self.stored,
        };
        let critical = matches!(label.block_type, BlockType::Metadata | BlockType::Samples);
        let mut header = BlockHeader {
            sync: SYNC,
            block_type: label.block_type.number().into(),
            flags: if critical { FLAG_CRITICAL } else { 0 }.into(),
            codec: codec.number(),
            encoding: label.encoding,
            reserved: 0.into(),
            stored_bytes: (stored.len() as u32).into(),
            raw_bytes: (raw_bytes as u32).into(),
            first_ns: label.first_ns.into(),
            last_ns: label.last_ns.into(),
            samples_before: self.samples_before.into(),
            samples: label.samples.into(),
            sequence: self.sequence.into(),
            payload_crc: crc32fast::hash(stored).into(),
            header_crc: 0.into(),
        };
        header.header_crc = header.checksum().into();
        self.index.push(IndexEntry {
            offset: self.written_bytes,
            block_type: label.block_type.number(),
            first_ns: label.first_ns,
            last_ns: label.last_ns,
            samples: label.samples,
        });
        self.sequence += 1;
        self.samples_before += u64::from(label.samples);
        let stored = match codec {
            Codec::Plain => std::mem::take(&mut self.payload),
            Codec::Zstd => std::mem::take(&mut self.stored),
        };
        let result = self
            .write(header.as_bytes())
            .and_then(|()| self.write(&stored));
        match codec {
            Codec::Plain => self.payload = stored,
            Codec::Zstd => self.stored = stored,
        }
        result
    }

    /// Compresses the payload into `self.stored` where that helps. An index stays plain: its
    /// trailer must be the last bytes of the file.
    fn compress(&mut self, block_type: BlockType) -> io::Result<Codec> {
        if block_type == BlockType::Index || self.payload.len() < 64 {
            return Ok(Codec::Plain);
        }
        self.stored
            .resize(zstd::zstd_safe::compress_bound(self.payload.len()), 0);
        let length = self
            .compressor
            .compress_to_buffer(&self.payload, &mut self.stored[..])?;
        self.stored.truncate(length);
        Ok(if length < self.payload.len() {
            Codec::Zstd
        } else {
            Codec::Plain
        })
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)?;
        self.written_bytes += bytes.len() as u64;
        Ok(())
    }
}

impl Label {
    fn cold(block_type: BlockType, first_ns: u64, last_ns: u64) -> Self {
        Label {
            block_type,
            encoding: ENCODING_BINCODE_2,
            samples: 0,
            first_ns,
            last_ns,
        }
    }
}
