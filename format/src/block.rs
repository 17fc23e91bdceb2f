//! A sound block, and the contents of its payload (format-spec.md, sections 3 and 4).

use crate::cold;
use crate::cold::{
    ClockPair, Code, End, Exits, HandledExit, Loss, Metadata, ModuleEvent, ProcessTime, SpaceEvent,
    TaskEvent, VcpuTime,
};
use crate::error::{BlockPlace, DecodeError, Fault};
use crate::image::ImagePart;
use crate::layout::{BlockHeader, BlockType, Codec, ENCODING_COLUMNS, ENCODING_RECORDS};
use crate::samples::SampleBlock;
use crate::spans::SpanBlock;

/// A block whose header and payload have the right checksums.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block<'a> {
    /// Offset of the header in the file.
    pub offset: u64,
    /// Number of the block type, which may be unknown to this version.
    pub block_type: u16,
    /// Number of the block.
    pub sequence: u32,
    /// Whether a reader that doesn't know the type must refuse the file.
    pub critical: bool,
    /// Earliest time inside, in nanoseconds of the recording's monotonic clock.
    pub first_ns: u64,
    /// Latest time inside.
    pub last_ns: u64,
    /// Samples inside.
    pub samples: u32,
    /// Samples in all blocks before.
    pub samples_before: u64,
    /// Bytes of the payload when decompressed.
    pub raw_bytes: u32,
    /// Number of the codec, which may be unknown to this version.
    pub codec: u8,
    pub(crate) encoding: u8,
    stored: std::borrow::Cow<'a, [u8]>,
}

/// The contents of a block.
#[derive(Debug)]
pub enum Payload {
    /// Facts about the recording: recorder, host, target and sampling.
    Metadata(Metadata),
    /// Samples.
    Samples(SampleBlock),
    /// Starts, names and ends of vCPUs or threads.
    Tasks(Vec<TaskEvent>),
    /// Changes of address spaces.
    Modules(Vec<ModuleEvent>),
    /// Clock readings.
    Clocks(Vec<ClockPair>),
    /// Samples that were lost.
    Losses(Vec<Loss>),
    /// Processor time that the kernel counted.
    Times(Vec<ProcessTime>),
    /// Code of a guest, copied from its memory.
    Code(Vec<Code>),
    /// Address spaces of a guest.
    Spaces(Vec<SpaceEvent>),
    /// Calls of a trace.
    Spans(SpanBlock),
    /// Wall time of vCPUs.
    VcpuTimes(Vec<VcpuTime>),
    /// Exits of vCPUs.
    Exits(Vec<Exits>),
    /// Bytes of a recording of the guest's monitor.
    Monitor(Vec<u8>),
    /// What vCPUs' threads handled when they were sampled in that recording.
    Handled(Vec<HandledExit>),
    /// One part of an image's tables.
    Image(ImagePart),
    /// The reason why the recording ended.
    End(End),
    /// An optional block of a type that this version does not know.
    Unknown(u16),
}

impl<'a> Block<'a> {
    pub(crate) fn new(offset: u64, header: &BlockHeader, stored: &'a [u8]) -> Self {
        Block {
            offset,
            block_type: header.block_type.get(),
            sequence: header.sequence.get(),
            critical: header.is_critical(),
            first_ns: header.first_ns.get(),
            last_ns: header.last_ns.get(),
            samples: header.samples.get(),
            samples_before: header.samples_before.get(),
            raw_bytes: header.raw_bytes.get(),
            codec: header.codec,
            encoding: header.encoding,
            stored: stored.into(),
        }
    }

    /// The same block, owning its bytes.
    pub fn into_owned(self) -> Block<'static> {
        Block {
            stored: self.stored.into_owned().into(),
            ..self
        }
    }

    /// The block without its payload, and the length of that in bytes.
    pub(crate) fn without_payload(&self) -> (Block<'static>, usize) {
        let bare = Block {
            stored: Vec::new().into(),
            ..*self
        };
        (bare, self.stored.len())
    }

    /// The same block with this payload.
    pub(crate) fn with_payload(self, stored: Vec<u8>) -> Self {
        Block {
            stored: stored.into(),
            ..self
        }
    }

    /// Bytes that the block takes in the file, header included.
    pub fn file_bytes(&self) -> u64 {
        (BlockHeader::BYTES + self.stored.len()) as u64
    }

    /// The payload as it is stored in the file.
    pub fn stored(&self) -> &[u8] {
        &self.stored
    }

    /// The type, if this version knows it.
    pub fn known_type(&self) -> Option<BlockType> {
        BlockType::from_number(self.block_type)
    }

    /// Decompresses and decodes the payload. Rows of samples are decoded later, one by one.
    ///
    /// # Errors
    /// A fault in the payload, with the position of the block.
    pub fn payload(&self) -> Result<Payload, DecodeError> {
        self.decode().map_err(|what| self.error(what))
    }

    /// The position of the block, for messages.
    pub fn place(&self) -> BlockPlace {
        BlockPlace {
            offset: self.offset,
            sequence: self.sequence,
            block: self.known_type().map_or("unknown", BlockType::name),
        }
    }

    /// A fault found inside this block, with the position of the block.
    pub fn error(&self, what: Fault) -> DecodeError {
        self.place().error(what)
    }

    fn decode(&self) -> Result<Payload, Fault> {
        let Some(block_type) = self.known_type() else {
            return if self.critical {
                Err(Fault::unknown("critical block type", self.block_type))
            } else {
                Ok(Payload::Unknown(self.block_type))
            };
        };
        if self.encoding != encoding_of(block_type) {
            return Err(Fault::unknown("encoding", self.encoding));
        }
        let raw = self.decompress()?;
        Ok(match block_type {
            BlockType::Metadata => Payload::Metadata(Metadata::parse(&raw)?),
            BlockType::Samples => {
                Payload::Samples(SampleBlock::decode(raw, self.samples as usize)?)
            }
            BlockType::Tasks => Payload::Tasks(cold::parse(&raw)?),
            BlockType::Modules => Payload::Modules(cold::parse(&raw)?),
            BlockType::Clocks => Payload::Clocks(cold::parse(&raw)?),
            BlockType::Losses => Payload::Losses(cold::parse(&raw)?),
            BlockType::Times => Payload::Times(cold::parse(&raw)?),
            BlockType::Code => Payload::Code(cold::parse(&raw)?),
            BlockType::Spaces => Payload::Spaces(cold::parse(&raw)?),
            BlockType::Spans => Payload::Spans(SpanBlock::decode(raw)?),
            BlockType::VcpuTimes => Payload::VcpuTimes(cold::parse(&raw)?),
            BlockType::Exits => Payload::Exits(cold::parse(&raw)?),
            BlockType::Monitor => Payload::Monitor(raw),
            BlockType::Handled => Payload::Handled(cold::parse(&raw)?),
            BlockType::Image => Payload::Image(ImagePart::parse(&raw)?),
            BlockType::End => {
                let ends: Vec<End> = cold::parse(&raw)?;
                Payload::End(ends.into_iter().next().ok_or(Fault::Short("end record"))?)
            }
        })
    }

    /// The decompressed payload. Its length was checked against the limits with the header.
    pub(crate) fn decompress(&self) -> Result<Vec<u8>, Fault> {
        let raw_bytes = self.raw_bytes as usize;
        let raw = match Codec::from_number(self.codec) {
            Some(Codec::Plain) => self.stored.to_vec(),
            Some(Codec::Zstd) => {
                // The library would put several frames together.
                let frame_bytes = zstd::zstd_safe::find_frame_compressed_size(&self.stored);
                if frame_bytes.is_ok_and(|bytes| bytes != self.stored.len()) {
                    return Err(Fault::Zstd("the payload is not one whole frame".into()));
                }
                zstd::bulk::decompress(&self.stored, raw_bytes)
                    .map_err(|error| Fault::Zstd(error.to_string()))?
            }
            None => return Err(Fault::unknown("codec", self.codec)),
        };
        if raw.len() != raw_bytes {
            return Err(Fault::Range {
                what: "length of the payload",
                value: raw.len() as u64,
                rule: "as the header says",
            });
        }
        Ok(raw)
    }
}

/// The encoding byte of blocks of a type in this version.
pub(crate) fn encoding_of(block_type: BlockType) -> u8 {
    match block_type {
        BlockType::Samples | BlockType::Spans | BlockType::Image | BlockType::Monitor => {
            ENCODING_COLUMNS
        }
        _ => ENCODING_RECORDS,
    }
}
