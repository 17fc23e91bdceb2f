//! Every prefix and every flipped byte of a recording is read without panic, hang or much memory, and without
//! losing an intact block. So are recordings with bytes removed, inserted, and copied from elsewhere.

#[allow(dead_code)]
mod bounds;
#[allow(dead_code)]
mod fixture;

use bounds::{alone, bounded};
use fixture::{other_recording, read_slice, read_stream, small_recording};
use std::io::Read;
use uprof::{Block, Damage, DamageKind, Item, OpenError, StreamReader};

/// Reads `bytes` as a slice and as a stream. Both must give the same result, quickly and in little memory.
fn read_both(bytes: &[u8]) -> Result<Vec<Item<'_>>, OpenError> {
    let piece = 1 + bytes.len() % 97;
    let (from_slice, from_stream) = bounded(|| (read_slice(bytes), read_stream(bytes, piece)));
    assert_eq!(
        from_slice, from_stream,
        "slice (left) and stream, {piece} bytes at once"
    );
    from_slice
}

fn split<'a>(items: Vec<Item<'a>>) -> (Vec<Block<'a>>, Vec<Damage>) {
    let (mut blocks, mut damages) = (Vec::new(), Vec::new());
    for item in items {
        match item {
            Item::Block(block) => blocks.push(block),
            Item::Damage(damage) => damages.push(damage),
        }
    }
    (blocks, damages)
}

/// The blocks of the undamaged recording.
fn whole(bytes: &[u8]) -> Vec<Block<'_>> {
    let (blocks, damages) = split(read_both(bytes).unwrap());
    assert_eq!(damages, []);
    blocks
}

fn ends_at(block: &Block<'_>) -> usize {
    (block.offset + block.file_bytes()) as usize
}

#[test]
fn every_prefix_gives_its_whole_blocks() {
    let _turn = alone();
    let bytes = small_recording();
    let blocks = whole(&bytes);
    for length in 0..bytes.len() {
        let complete = blocks
            .iter()
            .filter(|block| ends_at(block) <= length)
            .count();
        let read = read_both(&bytes[..length]);
        if complete == 0 {
            let error = read.unwrap_err();
            let expected = match length {
                0 => OpenError::Empty,
                1..32 => OpenError::TooShort { bytes: length },
                _ => OpenError::NothingSound {
                    bytes: length as u64,
                },
            };
            assert_eq!(error, expected, "prefix of {length} bytes");
            continue;
        }
        let (found, damages) = split(read.unwrap());
        assert_eq!(found, blocks[..complete], "prefix of {length} bytes");
        let kinds: Vec<_> = damages.iter().map(|damage| damage.kind).collect();
        let at_boundary = ends_at(&blocks[complete - 1]) == length;
        let has_end = complete == blocks.len();
        let expected: &[DamageKind] = match (at_boundary, has_end) {
            (true, true) => &[],
            (true, false) => &[DamageKind::Unfinished],
            (false, _) => &[DamageKind::Truncated],
        };
        assert_eq!(kinds, expected, "prefix of {length} bytes");
    }
}

#[test]
fn every_flipped_byte_costs_its_block_only() {
    let _turn = alone();
    let bytes = small_recording();
    let blocks = whole(&bytes);
    for at in 0..bytes.len() {
        for mask in [0xff, 0x01] {
            let mut flipped = bytes.clone();
            flipped[at] ^= mask;
            let (found, damages) = split(read_both(&flipped).unwrap());
            let expected: Vec<_> = blocks
                .iter()
                .filter(|block| !(block.offset as usize..ends_at(block)).contains(&at))
                .cloned()
                .collect();
            let place = format!("byte {at} xor {mask:#04x}");
            assert_eq!(found, expected, "{place}");
            check_damage(at, &blocks, &damages, &place);
        }
    }
}

/// Checks that there is one damage, at the block that was hit, with the number of lost samples if a block
/// follows.
fn check_damage(at: usize, blocks: &[Block<'_>], damages: &[Damage], place: &str) {
    let [damage] = damages else {
        panic!("{place}: {damages:?}")
    };
    let Some(hit) = blocks.iter().position(|block| ends_at(block) > at) else {
        panic!("{place}: no block")
    };
    if at < 32 {
        assert_eq!(
            (damage.kind, damage.offset),
            (DamageKind::Preamble, 0),
            "{place}"
        );
        assert_eq!(damage.samples, Some(0), "{place}");
        return;
    }
    let block = &blocks[hit];
    let in_header = at < block.offset as usize + 64;
    let kind = if in_header {
        DamageKind::Header
    } else {
        DamageKind::Payload
    };
    assert_eq!(
        (damage.kind, damage.offset),
        (kind, block.offset),
        "{place}"
    );
    assert_eq!(damage.bytes, block.file_bytes(), "{place}");
    // After the last block, nothing shows how many samples there were.
    let told = (hit + 1 < blocks.len()).then_some(u64::from(block.samples));
    assert_eq!(damage.samples, told, "{place}");
}

#[test]
fn bytes_taken_out_or_put_in_cost_what_they_touch() {
    let _turn = alone();
    let bytes = small_recording();
    let blocks = whole(&bytes);
    for at in (32..bytes.len()).step_by(13) {
        for length in [1, 40, 200] {
            let end = (at + length).min(bytes.len());
            let cut = [&bytes[..at], &bytes[end..]].concat();
            let stuffed = [&bytes[..at], &vec![0x5a; length], &bytes[at..]].concat();
            for (damaged, range) in [(cut, at..end), (stuffed, at..at)] {
                let touched = |block: &&Block<'_>| {
                    let (first, last) = (block.offset as usize, ends_at(block));
                    range.start < last && first < range.end
                        || range.is_empty() && first < at && at < last
                };
                let expected: Vec<u32> = blocks
                    .iter()
                    .filter(|block| !touched(block))
                    .map(|block| block.sequence)
                    .collect();
                let Ok(items) = read_both(&damaged) else {
                    assert_eq!(expected, Vec::<u32>::new());
                    continue;
                };
                let (found, _) = split(items);
                let found: Vec<u32> = found.iter().map(|block| block.sequence).collect();
                assert_eq!(found, expected, "{range:?}, {length} bytes");
            }
        }
    }
}

#[test]
fn a_block_taken_out_is_missing_and_one_twice_is_repeated() {
    let _turn = alone();
    let bytes = small_recording();
    let blocks = whole(&bytes);
    let samples = blocks.iter().find(|block| block.samples > 0).unwrap();
    let (first, last) = (samples.offset as usize, ends_at(samples));

    let without = [&bytes[..first], &bytes[last..]].concat();
    let (found, damages) = split(read_both(&without).unwrap());
    assert_eq!(found.len(), blocks.len() - 1);
    assert_eq!((damages.len(), damages[0].kind), (1, DamageKind::Missing));
    assert_eq!(damages[0].samples, Some(u64::from(samples.samples)));

    let twice = [&bytes[..last], &bytes[first..]].concat();
    let (found, damages) = split(read_both(&twice).unwrap());
    assert_eq!(found.len(), blocks.len());
    assert_eq!((damages.len(), damages[0].kind), (1, DamageKind::Repeated));
    assert_eq!(damages[0].samples, Some(0));
}

#[test]
fn two_recordings_in_one_file_are_read_as_the_first() {
    let _turn = alone();
    let (bytes, other) = (small_recording(), other_recording());
    let blocks = whole(&bytes);
    assert!(whole(&other).len() > blocks.len());
    let cut = ends_at(&blocks[4]);
    // The first is whole, cut between two blocks, and cut inside one.
    for (first, kept) in [(bytes.len(), blocks.len()), (cut, 5), (cut + 30, 5)] {
        let both = [&bytes[..first], &other].concat();
        let (found, damages) = split(read_both(&both).unwrap());
        assert_eq!(found, blocks[..kept], "{first} bytes");
        let [damage] = &damages[..] else {
            panic!("{damages:?}")
        };
        assert_eq!(damage.offset, ends_at(&blocks[kept - 1]) as u64);
        assert_eq!(damage.offset + damage.bytes, both.len() as u64);
        // The same one again has what the first part lacks.
        let both = [&bytes[..first], &bytes].concat();
        let (found, damages) = split(read_both(&both).unwrap());
        let found = found.iter().map(|block| block.sequence);
        assert!(found.eq(0..blocks.len() as u32), "{first} bytes");
        assert_eq!(damages.len(), 1, "{damages:?}");
    }
    // Blocks of another one inside, whose next number is that of the block behind them.
    let inner = &other[..ends_at(&whole(&other)[4])];
    let both = [&bytes[..cut], inner, &bytes[cut..]].concat();
    let (found, damages) = split(read_both(&both).unwrap());
    let found = found.iter().map(|block| block.sequence);
    assert!(found.eq(0..blocks.len() as u32), "{damages:?}");
    assert_eq!((damages.len(), damages[0].samples), (1, Some(0)));
}

#[test]
fn what_is_no_recording_is_refused() {
    let _turn = alone();
    for bytes in [
        &b"#!/bin/sh\n"[..],
        &[0; 4096],
        b"\x7fELF\x02\x01\x01",
        &[0xf5; 300],
    ] {
        assert_eq!(read_both(bytes), Err(OpenError::NotARecording));
    }
    // A pipe that never ends.
    let endless = StreamReader::open(std::io::repeat(0xf5));
    assert_eq!(endless.err(), Some(OpenError::NotARecording));
    // A file whose first part is overwritten, and the same bytes from a pipe.
    let whole = small_recording();
    let file = || std::io::repeat(0).take(65 << 20).chain(&whole[..]);
    let piped = StreamReader::open(file());
    assert_eq!(piped.err(), Some(OpenError::NotARecording));
    let items = StreamReader::open_to_end(file())
        .unwrap()
        .map(Result::unwrap);
    let (blocks, _) = split(items.collect());
    assert_eq!(blocks.len(), split(read_both(&whole).unwrap()).0.len());
}
