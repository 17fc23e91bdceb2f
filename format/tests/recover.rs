//! A recovered recording is sound, has everything that was sound, and reports what was not.

#[allow(dead_code)]
mod fixture;

use fixture::{UUID, end, small_recording};
use std::io;
use uprof::cold::{DAMAGED_PLACES, EndReason, LossReason, Metadata};
use uprof::{
    Block, BlockHeader, Codec, DamageKind, Frame, Item, Payload, Recovered, Sample, SliceReader,
    StreamReader, Task, Writer, recover,
};
use zerocopy::FromBytes;

fn recovered(bytes: &[u8]) -> (Vec<u8>, Recovered) {
    let items = SliceReader::open(bytes).unwrap().blocks().map(Ok);
    let (out, recovered) = recover(items, Vec::new(), UUID).unwrap();
    let streamed = recover(StreamReader::open(bytes).unwrap(), Vec::new(), UUID).unwrap();
    assert_eq!((&streamed.0, &streamed.1), (&out, &recovered));
    (out, recovered)
}

/// The blocks of a recording, which must be sound.
fn blocks(bytes: &[u8]) -> Vec<Block<'_>> {
    let items = SliceReader::open(bytes).unwrap().blocks();
    items
        .map(|item| match item {
            Item::Block(block) => block,
            Item::Damage(damage) => panic!("{damage}"),
        })
        .collect()
}

fn payloads<'a>(blocks: &'a [Block<'_>], skip: &[u16]) -> Vec<&'a [u8]> {
    let kept = blocks
        .iter()
        .filter(|block| !skip.contains(&block.block_type));
    kept.map(|block| block.stored()).collect()
}

/// Types of blocks that a recovery writes again: losses and end.
const RENEWED: [u16; 2] = [6, 9];

#[test]
fn a_whole_recording_stays_as_it_is() {
    let bytes = small_recording();
    let (out, recovered) = recovered(&bytes);
    assert!(recovered.is_whole() && recovered.has_metadata);
    assert_eq!(recovered.samples, 31);
    let (before, after) = (blocks(&bytes), blocks(&out));
    assert_eq!(payloads(&after, &[9]), payloads(&before, &[9]));
}

#[test]
fn every_single_damage_is_recovered_from() {
    let bytes = small_recording();
    let before = blocks(&bytes);
    for at in 32..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 0x10;
        let (out, recovered) = recovered(&flipped);
        let after = blocks(&out);
        let hit = before
            .iter()
            .position(|block| at < (block.offset + block.file_bytes()) as usize)
            .unwrap();
        let mut expected = before.clone();
        let lost = expected.remove(hit);
        let metadata: &[u16] = if lost.block_type == 1 { &[1] } else { &[] };
        let skip = [&RENEWED, metadata].concat();
        assert_eq!(
            payloads(&after, &skip),
            payloads(&expected, &skip),
            "byte {at}"
        );
        assert_eq!(recovered.damages.len(), 1, "byte {at}");
        assert_eq!(recovered.lost_samples, u64::from(lost.samples), "byte {at}");
        assert_eq!(recovered.has_metadata, lost.block_type != 1, "byte {at}");
        assert_eq!(recovered.samples + recovered.lost_samples, 31, "byte {at}");
        check_losses(&after, u64::from(lost.samples));
        assert_eq!(damaged_places(&after), 1, "byte {at}");
        assert_eq!(after[0].block_type, 1, "metadata comes first");
    }
}

/// How many damaged places there were, as the end says.
fn damaged_places(after: &[Block<'_>]) -> u64 {
    let Payload::End(end) = after[after.len() - 1].payload().unwrap() else {
        panic!("no end")
    };
    let places = end.totals.iter().find(|(name, _)| name == DAMAGED_PLACES);
    places.unwrap().1
}

/// Samples lost with damage are reported as a loss.
fn check_losses(after: &[Block<'_>], lost: u64) {
    let damaged = |block: &Block<'_>| match block.payload().unwrap() {
        Payload::Losses(losses) => losses
            .iter()
            .filter(|loss| loss.reason == LossReason::Damaged)
            .map(|loss| loss.count)
            .sum(),
        _ => 0,
    };
    assert_eq!(after.iter().map(damaged).sum::<u64>(), lost);
}

#[test]
fn every_prefix_is_recovered() {
    let bytes = small_recording();
    for length in 32..bytes.len() {
        let Ok(recording) = SliceReader::open(&bytes[..length]) else {
            continue;
        };
        let found = recording
            .blocks()
            .filter(|item| matches!(item, Item::Block(_)));
        let found = found.count() as u64;
        let (out, recovered) = recovered(&bytes[..length]);
        let after = blocks(&out);
        let ended = recovered.end.is_some();
        assert_eq!(
            recovered.blocks,
            found - u64::from(ended),
            "prefix of {length} bytes"
        );
        let Payload::End(new_end) = after[after.len() - 1].payload().unwrap() else {
            panic!("no end")
        };
        match ended {
            true => assert_eq!(new_end.reason, end().reason),
            false => assert_eq!(new_end.reason, EndReason::Cut),
        }
        // A cut between two blocks is in the reason alone.
        let mut damages = recovered.damages.iter();
        let is_inside = damages.any(|damage| damage.kind == DamageKind::Truncated);
        assert_eq!(damaged_places(&after), u64::from(is_inside));
    }
}

#[test]
fn lost_metadata_is_said_to_be_lost() {
    let mut bytes = small_recording();
    bytes[40] ^= 1;
    let (out, _) = recovered(&bytes);
    let Payload::Metadata(metadata) = blocks(&out)[0].payload().unwrap() else {
        panic!("no metadata")
    };
    assert_ne!(metadata, Metadata::default());
    assert_eq!(metadata.notes[0].0, "recovered");
}

#[test]
fn metadata_that_can_not_be_decoded_are_said_to_be_lost() {
    let writer = Writer::create(Vec::new(), UUID, &Metadata::default(), 5).unwrap();
    let mut bytes = writer.finish(&end()).unwrap();
    let length = blocks(&bytes)[0].file_bytes() as usize;
    let (header, payload) = BlockHeader::mut_from_prefix(&mut bytes[32..][..length]).unwrap();
    // The section of the target begins with its kind.
    let section = payload.windows(2).position(|bytes| bytes == [3, 5]);
    payload[section.unwrap() + 2] = 99;
    header.payload_crc = crc32fast::hash(payload).into();
    header.header_crc = header.checksum().into();
    let (out, recovered) = recovered(&bytes);
    assert!(!recovered.has_metadata);
    assert_eq!(recovered.undecodable.len(), 1);
    let after = blocks(&out);
    let Payload::Metadata(metadata) = after[0].payload().unwrap() else {
        panic!("no metadata")
    };
    assert_eq!(metadata.notes[0].0, "recovered");
    assert_eq!((after.len(), after[0].first_ns), (2, 5));
    assert_eq!(damaged_places(&after), 1);
}

#[test]
fn an_input_that_fails_is_an_error() {
    let bytes = small_recording();
    let items = SliceReader::open(&bytes).unwrap().blocks().map(Ok);
    let failing = items.take(3).chain([Err(io::Error::other("unplugged"))]);
    let error = recover(failing, Vec::new(), UUID).unwrap_err();
    assert_eq!(error.to_string(), "unplugged");
}

/// The block is copied rather than encoded again, which would take time for each frame of each row.
#[test]
fn a_block_keeps_its_bytes_up_to_a_fault() {
    let mut writer = Writer::create(Vec::new(), UUID, &Metadata::default(), 0).unwrap();
    let chain = [Frame::exact(0x401136)];
    let task = Task { space: 1, vcpu: 1 };
    writer.sample(&Sample::bare(7, task, &chain)).unwrap();
    writer.flush().unwrap();
    let at = writer.written_bytes() as usize;
    let mut bytes = writer.finish(&end()).unwrap();
    let start = blocks(&bytes)[1].offset as usize;
    // One row too many, and a byte after the columns.
    bytes.insert(at, 0);
    let (header, payload) = BlockHeader::mut_from_prefix(&mut bytes[start..=at]).unwrap();
    assert_eq!(header.codec, Codec::Plain.number());
    header.samples += 1;
    header.stored_bytes += 1;
    header.raw_bytes += 1;
    header.payload_crc = crc32fast::hash(payload).into();
    header.header_crc = header.checksum().into();
    let (out, recovered) = recovered(&bytes);
    assert_eq!((recovered.samples, recovered.lost_samples), (1, 1));
    let after = blocks(&out);
    assert_eq!(
        (after[1].samples, after[1].stored()),
        (1, blocks(&bytes)[1].stored())
    );
}
