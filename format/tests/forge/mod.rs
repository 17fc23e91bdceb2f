//! Builds recordings whose checksums are right, whatever their content.

use crate::bounds::bounded;
use crate::fixture::{UUID, exhaust, read_slice, read_stream};
use uprof::{BlockHeader, BlockType, Codec, Item, Preamble};
use zerocopy::IntoBytes;

/// A header without a payload, whose checksum has yet to be set.
pub fn header(block_type: BlockType, samples: usize) -> BlockHeader {
    let columns = matches!(
        block_type,
        BlockType::Samples | BlockType::Spans | BlockType::Image
    );
    BlockHeader {
        block_type: block_type.number().into(),
        encoding: u8::from(!columns),
        samples: (samples as u32).into(),
        ..BlockHeader::blank()
    }
}

/// A recording of one block with this payload, compressed, and with right checksums.
pub fn recording_of(block_type: BlockType, samples: usize, payload: &[u8]) -> Vec<u8> {
    let stored = zstd::bulk::compress(payload, 1).unwrap();
    recording_of_stored(block_type, samples, payload.len(), &stored)
}

/// As [`recording_of`], with a payload that is compressed already.
pub fn recording_of_stored(
    block_type: BlockType,
    samples: usize,
    raw_bytes: usize,
    stored: &[u8],
) -> Vec<u8> {
    let mut header = header(block_type, samples);
    header.codec = Codec::Zstd.number();
    header.stored_bytes = (stored.len() as u32).into();
    header.raw_bytes = (raw_bytes as u32).into();
    header.payload_crc = crc32fast::hash(stored).into();
    header.header_crc = header.checksum().into();
    [Preamble::new(UUID).as_bytes(), header.as_bytes(), stored].concat()
}

/// Reads a recording of one block both ways. Returns the number of rows, and the message if the payload is
/// bad.
pub fn read_one(bytes: &[u8]) -> (usize, Option<String>) {
    bounded(|| {
        let items = read_slice(bytes).unwrap();
        assert_eq!(items, read_stream(bytes, 70_000).unwrap());
        let Item::Block(block) = &items[0] else {
            panic!("{:?}", items[0])
        };
        let message = block.payload().err().map(|error| error.to_string());
        (exhaust(block).0, message)
    })
}

/// Appends a number as in format-spec.md, section 1.
pub fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// A sample payload with these columns, all of them critical.
pub fn columns(columns: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let flagged: Vec<_> = columns.iter().map(|(id, bytes)| (*id, 1, bytes)).collect();
    flagged_columns(&flagged)
}

/// A sample payload with these columns: number, flags, bytes.
pub fn flagged_columns(columns: &[(u64, u64, &Vec<u8>)]) -> Vec<u8> {
    let mut payload = Vec::new();
    varint(&mut payload, columns.len() as u64);
    for (id, flags, bytes) in columns {
        varint(&mut payload, *id);
        varint(&mut payload, *flags);
        varint(&mut payload, bytes.len() as u64);
    }
    columns
        .iter()
        .for_each(|(.., bytes)| payload.extend(*bytes));
    payload
}
