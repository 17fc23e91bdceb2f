//! Makes lengths and checksums of a mutated recording right, so that its payloads reach the decoders;
//! and unpacks payloads beforehand, since a mutated zstd frame seldom is one.

use uprof::layout::{MAGIC, SYNC};
use uprof::{BlockHeader, BlockType, Codec, Item, Preamble, SliceReader};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// The recording with right lengths and checksums. A block reaches up to the next one's start.
pub fn repair(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if let Ok((preamble, _)) = Preamble::mut_from_prefix(&mut bytes) {
        preamble.magic = MAGIC;
        preamble.crc = preamble.checksum().into();
    }
    let mut at = Preamble::BYTES.min(bytes.len());
    while let Some(start) = find(&bytes, at) {
        let end = find(&bytes, start + SYNC.len()).unwrap_or(bytes.len());
        let block = &mut bytes[start..end];
        if let Ok((header, payload)) = BlockHeader::mut_from_prefix(block) {
            finish(header, payload);
        }
        at = end;
    }
    bytes
}

fn find(bytes: &[u8], from: usize) -> Option<usize> {
    let rest = bytes.get(from..)?;
    let place = rest.windows(SYNC.len()).position(|window| window == SYNC)?;
    Some(from + place)
}

fn finish(header: &mut BlockHeader, payload: &[u8]) {
    header.stored_bytes = (payload.len() as u32).into();
    if header.codec == Codec::Plain.number() {
        header.raw_bytes = header.stored_bytes;
    }
    header.payload_crc = crc32fast::hash(payload).into();
    header.header_crc = header.checksum().into();
}

/// A recording of one block with this payload.
pub fn recording_of(block_type: BlockType, samples: u32, payload: &[u8]) -> Vec<u8> {
    let columns = matches!(block_type, BlockType::Samples | BlockType::Image);
    let mut header = BlockHeader::new_zeroed();
    header.sync = SYNC;
    header.block_type = block_type.number().into();
    header.encoding = u8::from(!columns);
    header.samples = samples.into();
    finish(&mut header, payload);
    [
        Preamble::new([7; 16]).as_bytes(),
        header.as_bytes(),
        payload,
    ]
    .concat()
}

/// The recording with each payload unpacked.
pub fn unpack(bytes: &[u8]) -> Vec<u8> {
    let mut out = bytes[..Preamble::BYTES.min(bytes.len())].to_vec();
    let blocks = SliceReader::open(bytes).map(|recording| recording.blocks());
    for item in blocks.into_iter().flatten() {
        let Item::Block(block) = item else { continue };
        let place = block.offset as usize;
        let mut header = match BlockHeader::read_from_prefix(&bytes[place..]) {
            Ok((header, _)) => header,
            Err(_) => continue,
        };
        let unpacked = match header.codec == Codec::Zstd.number() {
            true => zstd::bulk::decompress(block.stored(), block.raw_bytes as usize).ok(),
            false => Some(block.stored().to_vec()),
        };
        let Some(payload) = unpacked else { continue };
        header.codec = Codec::Plain.number();
        finish(&mut header, &payload);
        out.extend(header.as_bytes());
        out.extend(payload);
    }
    out
}
