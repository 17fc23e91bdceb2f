//! Blocks of a recording as bytes, without uniprof's own reader, which might overlook some.

use std::path::Path;
use uprof::{BlockType, Codec, Item, SliceReader};

/// The types of the recording's blocks, in file order, each with its decompressed payload.
pub fn blocks(path: &Path) -> Vec<(Option<BlockType>, Vec<u8>)> {
    let bytes = std::fs::read(path).unwrap();
    let blocks = SliceReader::open(&bytes).unwrap().blocks();
    let blocks = blocks.filter_map(|item| match item {
        Item::Block(block) => Some(block),
        _ => None,
    });
    let unpacked = blocks.map(|block| {
        let payload = match block.codec == Codec::Zstd.number() {
            true => zstd::decode_all(block.stored()).unwrap(),
            false => block.stored().to_vec(),
        };
        assert_eq!(payload.len(), block.raw_bytes as usize);
        (block.known_type(), payload)
    });
    unpacked.collect()
}

/// The first of `texts` that occurs in `bytes`, ignoring case.
pub fn found<'t>(bytes: &[u8], texts: &[&'t str]) -> Option<&'t str> {
    let bytes = bytes.to_ascii_lowercase();
    texts.iter().copied().find(|text| {
        let text = text.to_ascii_lowercase();
        bytes
            .windows(text.len())
            .any(|window| window == text.as_bytes())
    })
}
