//! Malicious recordings: every checksum is right, but the content is not.

#[allow(dead_code)]
mod bounds;
#[allow(dead_code)]
mod fixture;
#[allow(dead_code)]
mod forge;

use bounds::{alone, bounded};
use fixture::{UUID, exhaust, read_stream, small_recording};
use forge::{columns, header, read_one, recording_of, varint};
use uprof::layout::{MAX_PAYLOAD_BYTES, MAX_ROWS};
use uprof::{BlockType, Item, Preamble, SliceReader};
use zerocopy::IntoBytes;

#[test]
fn random_changes_of_payloads_are_survived() {
    let _turn = alone();
    let seed = 0x00C0_FFEE;
    println!("seed {seed:#x}");
    let mut random = fastrand::Rng::with_seed(seed);
    let bytes = small_recording();
    let recording = SliceReader::open(&bytes).unwrap();
    let blocks: Vec<_> = recording
        .blocks()
        .filter_map(|item| match item {
            Item::Block(block) => Some(block),
            Item::Damage(_) => None,
        })
        .collect();
    let mut refused = 0;
    for round in 0..4000 {
        let block = &blocks[round % blocks.len()];
        let raw_bytes = block.raw_bytes as usize;
        let mut payload = match block.codec {
            0 => block.stored().to_vec(),
            _ => zstd::bulk::decompress(block.stored(), raw_bytes).unwrap(),
        };
        for _ in 0..=random.usize(..3) {
            let at = random.usize(..payload.len().max(1));
            match random.usize(..5) {
                0 => payload.truncate(at),
                1 => payload.insert(at, random.u8(..)),
                2 if at < payload.len() => payload[at] ^= 1 << random.usize(..8),
                3 if at < payload.len() => payload[at] = 0xff,
                4 => payload.extend_from_within(at..),
                _ => {}
            }
        }
        let block_type = block.known_type().unwrap();
        let samples = block.samples as usize * (1 + random.usize(..2));
        let bytes = recording_of(block_type, samples, &payload);
        let (rows, message) = read_one(&bytes);
        assert!(rows <= MAX_ROWS);
        refused += usize::from(message.is_some());
    }
    assert!(refused > 400, "only {refused} of 4,000 changes were found");
}

#[test]
fn tables_longer_than_the_limits_are_refused() {
    let _turn = alone();
    let many = vec![0; MAX_PAYLOAD_BYTES - 64];
    // Tasks, node steps (each node is the child of the one before), register masks.
    for (column, word) in [(1, "tasks"), (5, "step"), (13, "masks")] {
        let mut all = vec![(column, many.clone())];
        if column == 5 {
            all = vec![(5, vec![0; 2000]), (6, vec![0; 2000])];
            all.extend([(7, vec![2; 2000]), (8, vec![0; 2000])]);
        }
        let payload = columns(&all);
        let (_, message) = read_one(&recording_of(BlockType::Samples, 1, &payload));
        let message = message.unwrap();
        assert!(message.contains(word), "{message}");
    }
    let rows = recording_of(BlockType::Samples, MAX_ROWS + 1, &columns(&[]));
    let (_, message) = read_one(&rows);
    assert!(message.unwrap().contains("16,384"));
}

#[test]
fn the_largest_stack_table_is_read() {
    let _turn = alone();
    // Outermost frames side by side, all different: no list exceeds its limit.
    let count = uprof::layout::MAX_NODES;
    let mut steps = vec![1];
    steps.resize(count, 3);
    let mut wide = columns(&[
        (1, vec![0, 0]),
        (3, vec![0; MAX_ROWS + 1]),
        (5, steps),
        (6, vec![0; count]),
        (
            7,
            (0..count as u64).fold(Vec::new(), |mut out, at| {
                varint(&mut out, at * 2);
                out
            }),
        ),
        (8, vec![0; count]),
    ]);
    let (rows, message) = read_one(&recording_of(BlockType::Samples, MAX_ROWS, &wide));
    assert_eq!((rows, message), (MAX_ROWS, None));
    // The same with one node more.
    wide = columns(&[
        (5, [vec![1], vec![3; count]].concat()),
        (6, vec![0; count + 1]),
        (
            7,
            (0..=count as u64).fold(Vec::new(), |mut out, at| {
                varint(&mut out, at * 2);
                out
            }),
        ),
        (8, vec![0; count + 1]),
    ]);
    let (_, message) = read_one(&recording_of(BlockType::Samples, 0, &wide));
    assert!(message.unwrap().contains("number of stack nodes"));
}

#[test]
fn repeated_stacks_are_bounded() {
    let _turn = alone();
    // The first row has 256 KiB, and each further row repeats them in six bytes.
    let length = 256u64 << 10;
    let (mut lengths, mut runs) = (Vec::new(), Vec::new());
    for row in 0..MAX_ROWS {
        varint(&mut lengths, length + 1);
        if row > 0 {
            varint(&mut runs, length / 8);
            runs.push(0);
        }
    }
    let payload = columns(&[
        (1, vec![0, 0]),
        (3, vec![0; MAX_ROWS + 1]),
        (16, vec![0; MAX_ROWS]),
        (17, lengths),
        (18, runs),
        (20, vec![7; length as usize]),
    ]);
    let (rows, _) = read_one(&recording_of(BlockType::Samples, MAX_ROWS, &payload));
    assert_eq!(rows, 256, "64 MiB of 256 KiB each");
}

#[test]
fn the_largest_block_is_not_held_twice() {
    let _turn = alone();
    // 63 tasks with 256 KiB of stack each, stored without compression.
    let (rows, length) = (63, 256usize << 10);
    let mut tasks = Vec::new();
    (0..rows as u64).for_each(|task| tasks.extend([0, task as u8]));
    let mut lengths = Vec::new();
    (0..rows).for_each(|_| varint(&mut lengths, length as u64 + 1));
    let payload = columns(&[
        (1, tasks),
        (2, (0..rows as u8).collect()),
        (3, vec![0; rows + 1]),
        (16, vec![0; rows]),
        (17, lengths),
        (20, vec![7; rows * length]),
    ]);
    let mut header = header(BlockType::Samples, rows);
    header.stored_bytes = (payload.len() as u32).into();
    header.raw_bytes = header.stored_bytes;
    header.payload_crc = crc32fast::hash(&payload).into();
    header.header_crc = header.checksum().into();
    let bytes = [Preamble::new(UUID).as_bytes(), header.as_bytes(), &payload].concat();
    drop(payload);
    let items = bounded(|| read_stream(&bytes, 1 << 20).unwrap());
    assert!(matches!(&items[0], Item::Block(block) if exhaust(block) == (rows, true)));
}

#[test]
fn stacks_that_creep_downwards_are_bounded() {
    let _turn = alone();
    // The first row has 255 KiB. Each further row has two bytes, one of which is below the others.
    let length = 255u64 << 10;
    let mut lengths = Vec::new();
    varint(&mut lengths, length + 1);
    lengths.resize(lengths.len() + MAX_ROWS - 1, 3);
    let payload = columns(&[
        (1, vec![0, 0]),
        (3, vec![0; MAX_ROWS + 1]),
        (16, [vec![0], vec![1; MAX_ROWS - 1]].concat()),
        (17, lengths),
        (20, vec![7; length as usize + 2 * MAX_ROWS]),
    ]);
    let (rows, message) = read_one(&recording_of(BlockType::Samples, MAX_ROWS, &payload));
    assert_eq!((rows, message), (MAX_ROWS, None));
}

#[test]
fn every_task_may_have_registers_and_a_stack() {
    let _turn = alone();
    let mut tasks = Vec::new();
    (0..MAX_ROWS as u64).for_each(|task| {
        varint(&mut tasks, task);
        varint(&mut tasks, 1);
    });
    let mut index = Vec::new();
    (0..MAX_ROWS as u64)
        .rev()
        .for_each(|task| varint(&mut index, task));
    let mut mask = Vec::new();
    varint(&mut mask, u64::MAX);
    let mut all = vec![
        (1, tasks),
        (2, index),
        (3, vec![0; MAX_ROWS + 1]),
        (13, mask),
        (14, vec![1; MAX_ROWS]),
        (16, vec![0; MAX_ROWS]),
        (17, vec![9; MAX_ROWS]),
        (20, vec![7; MAX_ROWS * 8]),
    ];
    all.extend((64..128).map(|register| (register, vec![2; MAX_ROWS])));
    let payload = columns(&all);
    let (rows, message) = read_one(&recording_of(BlockType::Samples, MAX_ROWS, &payload));
    assert_eq!((rows, message), (MAX_ROWS, None));
}

#[test]
fn cold_records_that_claim_to_be_long_are_refused() {
    let _turn = alone();
    use BlockType::{Clocks, Code, End, Losses, Modules, Tasks, Times};
    for block_type in [Clocks, Code, End, Losses, Modules, Tasks, Times] {
        for claim in [
            [0xfd; 9].to_vec(),
            [&[0xfc][..], &[0xff; 4]].concat(),
            vec![250],
        ] {
            let (_, message) = read_one(&recording_of(block_type, 0, &claim));
            assert!(message.is_some(), "{}", block_type.name());
        }
        // As many records as fit into the longest payload, with the least bytes each.
        let mut most = vec![0xfc];
        most.extend(((1u32 << 20) / 8).to_le_bytes());
        most.resize(1 << 20, 0);
        read_one(&recording_of(block_type, 0, &most));
    }
    // Metadata with endless texts in the command line, and notes of empty pairs.
    for (tag, count_at) in [(1u8, 1), (5, 0)] {
        let mut section = vec![0; count_at];
        section.push(0xfc);
        section.extend((1u32 << 19).to_le_bytes());
        section.resize((1 << 20) - 16, 0);
        let mut payload = vec![tag];
        varint(&mut payload, section.len() as u64);
        payload.extend(section);
        read_one(&recording_of(BlockType::Metadata, 0, &payload));
    }
}

#[test]
fn symbols_that_claim_to_be_many_are_refused() {
    let _turn = alone();
    let identity = [1, 5, 0, 0, 62, 0, 0];
    let mut symbols = Vec::new();
    varint(&mut symbols, 1 << 18);
    symbols.resize(MAX_PAYLOAD_BYTES - 64, 0);
    let mut payload = identity.to_vec();
    payload.push(2);
    varint(&mut payload, symbols.len() as u64);
    payload.extend(&symbols);
    let (count, message) = read_one(&recording_of(BlockType::Image, 0, &payload));
    assert_eq!((count, message), (1 << 18, None));
    varint(&mut symbols, 0);
    symbols[2] += 1;
    payload.truncate(payload.len() - symbols.len() + 1);
    payload.extend(&symbols);
    let (_, message) = read_one(&recording_of(BlockType::Image, 0, &payload));
    assert!(message.is_some());
    // Sections of unknown types.
    let unknown = [&identity[..], &[9, 0].repeat(1 << 20)].concat();
    let (_, message) = read_one(&recording_of(BlockType::Image, 0, &unknown));
    assert!(message.unwrap().contains("section"));
}
