//! Recordings that were made to harm: every checksum is right, what they cover is not.

#[allow(dead_code)]
mod fixture;

use fixture::{Random, UUID, exhaust, read_slice, read_stream, small_recording};
use peak_alloc::PeakAlloc;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use uprof::layout::{MAX_PAYLOAD_BYTES, MAX_ROWS, SYNC};
use uprof::{BlockHeader, BlockType, Codec, DamageKind, Item, Payload, Preamble, Recording};
use zerocopy::IntoBytes;

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

const MOST_MEMORY_BYTES: usize = 64 << 20;
/// Far more than is needed, even unoptimised on a busy machine; far less than a hang.
const MOST_TIME: Duration = Duration::from_secs(30);

/// The heap's peak is the whole program's: one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `read` and checks what it took.
fn bounded<T>(read: impl FnOnce() -> T) -> T {
    HEAP.reset_peak_usage();
    let before = HEAP.current_usage();
    let start = Instant::now();
    let result = read();
    let memory_bytes = HEAP.peak_usage().saturating_sub(before);
    println!("{memory_bytes} bytes, {:?}", start.elapsed());
    assert!(
        memory_bytes <= MOST_MEMORY_BYTES,
        "{memory_bytes} bytes of memory"
    );
    assert!(start.elapsed() <= MOST_TIME, "{:?}", start.elapsed());
    result
}

fn header(block_type: BlockType, samples: usize) -> BlockHeader {
    let columns = matches!(block_type, BlockType::Samples | BlockType::Image);
    BlockHeader {
        sync: SYNC,
        block_type: block_type.number().into(),
        flags: 0.into(),
        codec: Codec::Plain.number(),
        encoding: u8::from(!columns),
        reserved: 0.into(),
        stored_bytes: 0.into(),
        raw_bytes: 0.into(),
        first_ns: 0.into(),
        last_ns: 0.into(),
        samples_before: 0.into(),
        samples: (samples as u32).into(),
        sequence: 0.into(),
        payload_crc: 0.into(),
        header_crc: 0.into(),
    }
}

/// A recording of one block with this payload, compressed, and right checksums.
fn recording_of(block_type: BlockType, samples: usize, payload: &[u8]) -> Vec<u8> {
    let stored = zstd::bulk::compress(payload, 1).unwrap();
    let mut header = header(block_type, samples);
    header.codec = Codec::Zstd.number();
    header.stored_bytes = (stored.len() as u32).into();
    header.raw_bytes = (payload.len() as u32).into();
    header.payload_crc = crc32fast::hash(&stored).into();
    header.header_crc = header.checksum().into();
    [Preamble::new(UUID).as_bytes(), header.as_bytes(), &stored].concat()
}

/// Reads a recording of one block both ways; rows read and the message, if its payload is bad.
fn read_one(bytes: &[u8]) -> (usize, Option<String>) {
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

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// A sample payload with these columns.
fn columns(columns: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let mut payload = Vec::new();
    varint(&mut payload, columns.len() as u64);
    for (id, bytes) in columns {
        varint(&mut payload, *id);
        varint(&mut payload, 1);
        varint(&mut payload, bytes.len() as u64);
    }
    columns.iter().for_each(|(_, bytes)| payload.extend(bytes));
    payload
}

#[test]
fn random_changes_of_payloads_are_survived() {
    let _turn = alone();
    let seed = 0x00C0_FFEE;
    println!("seed {seed:#x}");
    let mut random = Random(seed);
    let bytes = small_recording();
    let recording = Recording::open(&bytes).unwrap();
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
        for _ in 0..=random.below(3) {
            let at = random.below(payload.len().max(1));
            match random.below(5) {
                0 => payload.truncate(at),
                1 => payload.insert(at, random.below(256) as u8),
                2 if at < payload.len() => payload[at] ^= 1 << random.below(8),
                3 if at < payload.len() => payload[at] = 0xff,
                4 => payload.extend_from_within(at..),
                _ => {}
            }
        }
        let block_type = block.known_type().unwrap();
        let samples = block.samples as usize * (1 + random.below(2));
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
    // Tasks, node steps (all children of the node before), register masks.
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
    // Outermost frames side by side, each new: no list is longer than its limit.
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
    // The first row has 256 KiB, each further row repeats them in six bytes.
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
    // 63 tasks with 256 KiB of stack each, stored plain.
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
    // The first row has 255 KiB; each further row has two bytes, one of them below the rest.
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
    use BlockType::{Clocks, End, Index, Losses, Modules, Spans, Tasks};
    for block_type in [Clocks, End, Index, Losses, Modules, Spans, Tasks] {
        for claim in [
            [0xfd; 9].to_vec(),
            [&[0xfc][..], &[0xff; 4]].concat(),
            vec![250],
        ] {
            let (_, message) = read_one(&recording_of(block_type, 0, &claim));
            assert!(message.is_some(), "{}", block_type.name());
        }
        // As many records as the longest payload can hold, of the least bytes each.
        let mut most = vec![0xfc];
        most.extend(((1u32 << 20) / 8).to_le_bytes());
        most.resize(1 << 20, 0);
        read_one(&recording_of(block_type, 0, &most));
    }
    // Metadata: texts without end in the command line; notes of empty pairs.
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
    // Sections that nobody knows.
    let unknown = [&identity[..], &[9, 0].repeat(1 << 20)].concat();
    let (_, message) = read_one(&recording_of(BlockType::Image, 0, &unknown));
    assert!(message.unwrap().contains("section"));
}

#[test]
fn headers_within_headers_do_not_make_a_reader_slow() {
    let _turn = alone();
    // Each asks for as much as there is and has a wrong checksum: 16 Ki × 1 MiB to be looked at.
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
    // One byte more than allowed is no header at all.
    claim.stored_bytes = (MAX_PAYLOAD_BYTES as u32 + 1).into();
    claim.header_crc = claim.checksum().into();
    let bytes = [&sound[..32], claim.as_bytes(), &sound[32..]].concat();
    let items = read_slice(&bytes).unwrap();
    assert!(matches!(&items[0], Item::Damage(damage) if damage.kind == DamageKind::Header));
}

#[test]
fn an_index_that_lies_is_not_used() {
    let _turn = alone();
    let sound = small_recording();
    let recording = Recording::open(&sound).unwrap();
    let entries = recording.index().unwrap();
    let last = recording.blocks().last();
    let Some(Item::Block(index)) = last else {
        panic!("{last:?}")
    };
    assert!(matches!(index.payload(), Ok(Payload::Index(read)) if read == entries));
    let start = index.offset as usize;
    // Another first offset (33), one entry fewer, another number of samples in the last entry.
    let changes: [fn(&mut Vec<u8>); 3] = [
        |payload| payload[1] = 250,
        |payload| payload[0] -= 1,
        |payload| {
            let last = payload.len() - 17;
            payload[last] += 1;
        },
    ];
    for change in changes {
        let mut payload = index.stored().to_vec();
        change(&mut payload);
        let mut header = header(BlockType::Index, 0);
        header.stored_bytes = (payload.len() as u32).into();
        header.raw_bytes = header.stored_bytes;
        header.sequence = index.sequence.into();
        header.samples_before = index.samples_before.into();
        header.payload_crc = crc32fast::hash(&payload).into();
        header.header_crc = header.checksum().into();
        let bytes = [&sound[..start], header.as_bytes(), &payload].concat();
        assert_eq!(Recording::open(&bytes).unwrap().index(), None);
        assert_eq!(
            read_slice(&bytes).unwrap().len(),
            recording.blocks().count()
        );
    }
    // A trailer that points anywhere.
    for offset in [0, 32, 33, u64::MAX, sound.len() as u64] {
        let mut bytes = sound.clone();
        let place = bytes.len() - 16;
        bytes[place..place + 8].copy_from_slice(&offset.to_le_bytes());
        assert_eq!(Recording::open(&bytes).unwrap().index(), None);
    }
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
