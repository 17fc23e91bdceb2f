//! The recording of a guest's monitor inside the guest's (format-spec.md, section 6.13). Input: the blocks that have
//! its bytes. Output: a recording.

use super::source::Source;
use super::{Recording, RecordingError, spool};
use std::io::{self, Read};
use uprof::{Block, Payload};

/// Most bytes that are kept in memory.
const IN_MEMORY_BYTES_MAX: u64 = 16 << 20;

/// Position and size of a block with bytes of the monitor's recording.
#[derive(Debug, Clone, Copy)]
pub(super) struct MonitorBlockPlace {
    pub offset: u64,
    pub bytes: u32,
    pub raw_bytes: u32,
}

impl Recording {
    /// Opens the recording of the guest's monitor, if this one has one. One that can't be opened is a fault of this.
    pub(super) fn with_monitor(mut self) -> Self {
        if self.monitor_blocks.is_empty() {
            return self;
        }
        match self.open_monitor() {
            Ok(monitor) => self.monitor = Some(Box::new(monitor)),
            Err(error) => self.damages.undecodable.push(error.to_string()),
        }
        self
    }

    fn open_monitor(&self) -> Result<Recording, RecordingError> {
        let blocks = self.monitor_blocks.iter();
        let raw_bytes: u64 = blocks.map(|block| u64::from(block.raw_bytes)).sum();
        let mut bytes = MonitorReader {
            source: &self.source,
            blocks: self.monitor_blocks.iter(),
            piece: io::Cursor::default(),
        };
        let source = if raw_bytes <= IN_MEMORY_BYTES_MAX {
            let mut whole = Vec::new();
            let read = bytes.read_to_end(&mut whole);
            let name = self.name.clone();
            read.map_err(|source| RecordingError::Read { name, source })?;
            Source::Owned(whole)
        } else {
            Source::File(spool::spool(bytes)?)
        };
        let name = format!("the monitor's part of {}", self.name);
        Recording::load(name, source, self.is_ours)
    }

    /// The recording of the guest's monitor, if there is one.
    pub fn monitor(&self) -> Option<&Recording> {
        self.monitor.as_deref()
    }

    /// The recording of the guest's monitor instead of the guest's, if there is one.
    pub fn into_monitor(self) -> Option<Recording> {
        self.monitor.map(|monitor| *monitor)
    }
}

/// Reads the payloads of all blocks, one after the other. One that can't be read is a gap.
struct MonitorReader<'a> {
    source: &'a Source,
    blocks: std::slice::Iter<'a, MonitorBlockPlace>,
    piece: io::Cursor<Vec<u8>>,
}

impl MonitorReader<'_> {
    fn payload(&self, place: &MonitorBlockPlace) -> io::Result<Vec<u8>> {
        let bytes = self.source.read(place.offset, place.bytes as usize)?;
        let block = Block::at(place.offset, &bytes);
        match block.map(|block| crate::work::payload(&block)) {
            Some(Ok(Payload::Monitor(bytes))) => Ok(bytes),
            _ => Ok(Vec::new()),
        }
    }
}

impl Read for MonitorReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.piece.read(buffer)?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            let Some(place) = self.blocks.next() else {
                return Ok(0);
            };
            self.piece = io::Cursor::new(self.payload(place)?);
        }
    }
}
