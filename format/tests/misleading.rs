//! Malicious block headers: their checksums are right.

#[allow(dead_code)]
mod bounds;
#[allow(dead_code)]
mod fixture;
#[allow(dead_code)]
mod forge;

use bounds::{alone, bounded};
use fixture::{UUID, other_recording, read_slice, read_stream, small_recording};
use forge::{columns, flagged_columns, header, read_one, recording_of, recording_of_stored};
use uprof::layout::MAX_PAYLOAD_BYTES;
use uprof::{BlockHeader, BlockType, DamageKind, Item, Payload, Preamble};
use zerocopy::IntoBytes;

#[test]
fn headers_within_headers_do_not_make_a_reader_slow() {
    let _turn = alone();
    // Each claims all remaining bytes and has a wrong checksum: 16 Ki × 1 MiB to be checked.
    let count = 1 << 14;
    let mut bytes = Preamble::new(UUID).as_bytes().to_vec();
    for number in 0..count {
        let mut header = header(BlockType::Samples, 1);
        header.stored_bytes = ((count - number - 1) * 64).into();
        header.raw_bytes = 1.into();
        header.payload_crc = 1.into();
        header.header_crc = header.checksum().into();
        bytes.extend(header.as_bytes());
    }
    bytes.extend(&small_recording()[32..]);
    bounded(|| {
        let items = read_slice(&bytes).unwrap();
        assert_eq!(items, read_stream(&bytes, 70_000).unwrap());
        let Item::Damage(damage) = &items[0] else {
            panic!("{:?}", items[0])
        };
        assert_eq!(damage.kind, DamageKind::Payload);
        assert_eq!(damage.bytes, count as u64 * 64);
        assert_eq!(
            items.len(),
            1 + read_slice(&small_recording()).unwrap().len()
        );
    });
}

#[test]
fn a_header_that_claims_16_mib_hides_nothing() {
    let _turn = alone();
    let mut claim = header(BlockType::Samples, 5);
    claim.stored_bytes = (MAX_PAYLOAD_BYTES as u32).into();
    claim.raw_bytes = claim.stored_bytes;
    claim.header_crc = claim.checksum().into();
    let sound = small_recording();
    let bytes = [&sound[..32], claim.as_bytes(), &sound[32..]].concat();
    bounded(|| {
        let items = read_slice(&bytes).unwrap();
        assert_eq!(items, read_stream(&bytes, 100).unwrap());
        assert_eq!(items.len(), 1 + read_slice(&sound).unwrap().len());
    });
    // One byte more than allowed makes it no header at all.
    claim.stored_bytes = (MAX_PAYLOAD_BYTES as u32 + 1).into();
    claim.header_crc = claim.checksum().into();
    let bytes = [&sound[..32], claim.as_bytes(), &sound[32..]].concat();
    let items = read_slice(&bytes).unwrap();
    assert!(matches!(&items[0], Item::Damage(damage) if damage.kind == DamageKind::Header));
}

#[test]
fn a_damaged_block_of_a_monitor_does_not_give_its_blocks() {
    let _turn = alone();
    let sound = small_recording();
    let inner = &sound[32..];
    let mut monitor = header(BlockType::Monitor, 0);
    monitor.stored_bytes = (inner.len() as u32).into();
    monitor.raw_bytes = monitor.stored_bytes;
    monitor.payload_crc = 1.into();
    monitor.header_crc = monitor.checksum().into();
    let bytes = [&sound[..32], monitor.as_bytes(), inner, inner].concat();
    let items = read_slice(&bytes).unwrap();
    assert_eq!(items, read_stream(&bytes, 100).unwrap());
    assert_eq!(items.len(), 1 + read_slice(&sound).unwrap().len());
    assert_eq!(items[0].file_bytes(), (64 + inner.len()) as u64);
    // The same, cut short behind the first block of the file.
    let first = 32 + read_slice(&sound).unwrap()[0].file_bytes() as usize;
    let cut = &inner[..inner.len() - 1];
    let bytes = [&sound[..first], monitor.as_bytes(), cut].concat();
    let items = read_slice(&bytes).unwrap();
    assert_eq!(items, read_stream(&bytes, 100).unwrap());
    let [Item::Block(_), Item::Damage(damage)] = &items[..] else {
        panic!("{items:?}")
    };
    assert_eq!(damage.kind, DamageKind::Truncated);
    // Its header is damaged, so its blocks are found. They are none of this recording, whose next block comes.
    let (header, other) = ([0x5A; BlockHeader::BYTES], other_recording());
    let bytes = [&sound[..first], &header, &other, &sound[first..]].concat();
    let items = read_slice(&bytes).unwrap();
    assert_eq!(items, read_stream(&bytes, 100).unwrap());
    assert_eq!(items.len(), 1 + read_slice(&sound).unwrap().len());
    assert!(matches!(&items[1], Item::Damage(damage) if damage.samples == Some(0)));
}

#[test]
fn a_payload_of_two_frames_is_refused() {
    let _turn = alone();
    // One task, two rows.
    let payload = columns(&[(1, vec![0, 3]), (3, vec![100, 0, 10])]);
    let read = |stored: &[u8]| {
        let (of, length) = (BlockType::Samples, payload.len());
        read_one(&recording_of_stored(of, 2, length, stored))
    };
    let frame = |bytes: &[u8]| zstd::bulk::compress(bytes, 1).unwrap();
    assert_eq!(read(&frame(&payload)), (2, None));
    let (head, tail) = payload.split_at(3);
    let (rows, message) = read(&[frame(head), frame(tail)].concat());
    assert_eq!(rows, 0);
    assert!(message.unwrap().contains("not one whole frame"));
}

#[test]
fn unknown_blocks_are_skipped_or_refused_by_name() {
    let sound = small_recording();
    let mut header = header(BlockType::Tasks, 0);
    header.block_type = 99.into();
    header.header_crc = header.checksum().into();
    let payload = |header: &BlockHeader| {
        let bytes = [&sound[..32], header.as_bytes()].concat();
        let items = read_slice(&bytes).unwrap();
        match &items[0] {
            Item::Block(block) => block.payload().map_err(|error| error.to_string()),
            Item::Damage(damage) => panic!("{damage}"),
        }
    };
    assert!(matches!(payload(&header), Ok(Payload::Unknown(99))));
    header.flags = 1.into();
    header.header_crc = header.checksum().into();
    let message = payload(&header).err().unwrap();
    assert!(
        message.contains("critical block type number 99"),
        "{message}"
    );
}

#[test]
fn a_column_of_a_later_version_is_skipped_if_it_is_optional_and_else_gives_up_the_block() {
    let _turn = alone();
    // One task, two rows at 100 and 105.
    let known = [(1, vec![0, 3]), (3, vec![100, 0, 10])];
    for (flags, rows, said) in [(0, 2, None), (1, 0, Some("column number 60 is not known"))] {
        let unknown = vec![7; 9];
        let mut columns: Vec<_> = known.iter().map(|(id, bytes)| (*id, 1, bytes)).collect();
        columns.insert(1, (60, flags, &unknown));
        let bytes = recording_of(BlockType::Samples, 2, &flagged_columns(&columns));
        let (read, message) = read_one(&bytes);
        assert_eq!(read, rows);
        match (said, message) {
            (None, None) => {}
            (Some(said), Some(message)) => assert!(message.contains(said), "{message}"),
            (_, message) => panic!("{message:?}"),
        }
    }
}
