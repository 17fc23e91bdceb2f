//! Calls of a trace. Written calls are read back unchanged, no bytes are trusted, and a damaged block loses
//! only its own calls.

#[allow(dead_code)]
mod bounds;
#[allow(dead_code)]
mod fixture;
#[allow(dead_code)]
mod forge;

use bounds::alone;
use fixture::{UUID, end};
use forge::{columns, flagged_columns, read_one, recording_of, varint};
use proptest::prelude::*;
use uprof::cold::Metadata;
use uprof::layout::{MAX_FRAMES, MAX_SPANS};
use uprof::{
    BlockType, Item, Payload, SliceReader, Span, SpanBlock, SpanKind, Task, Writer, recover,
};

fn spans() -> impl Strategy<Value = Vec<Span<String>>> {
    let span = (
        (
            prop::sample::select(vec!["main", "", "größe::<T>", "関数", "a b\n\"c\""]),
            (0u32..3, 0u32..3),
        ),
        (
            prop::option::of(any::<u32>()),
            prop::option::of(any::<u64>()),
            prop::option::of(any::<u64>()),
        ),
        (0..MAX_FRAMES as u16, any::<bool>()),
        (
            prop::sample::select(SpanKind::ALL),
            prop::option::of(any::<i64>()),
        ),
    )
        .prop_map(
            |((name, (space, vcpu)), known, (depth, complete), call)| Span {
                name: name.to_owned(),
                task: Task { space, vcpu },
                cpu: known.0,
                start_ns: known.1,
                length_ns: known.2,
                depth,
                complete,
                kind: call.0,
                result: call.1,
            },
        );
    prop::collection::vec(span, 1..80)
}

fn writer() -> Writer<Vec<u8>> {
    Writer::create(Vec::new(), UUID, &Metadata::default(), 0).unwrap()
}

fn owned_rows(block: &SpanBlock) -> Vec<Span<String>> {
    let mut rows = block.rows();
    let mut all = Vec::new();
    while let Some(row) = rows.next_row().unwrap() {
        let name = block.name(row.name).to_owned();
        all.push(row.with(name, row.task));
    }
    all
}

/// The span blocks of a sound recording, each with the times of its header.
fn blocks(bytes: &[u8]) -> Vec<(SpanBlock, (u64, u64))> {
    let mut blocks = Vec::new();
    for item in SliceReader::open(bytes).unwrap().blocks() {
        let Item::Block(block) = item else {
            panic!("{item:?}")
        };
        if let Payload::Spans(spans) = block.payload().unwrap() {
            blocks.push((spans, (block.first_ns, block.last_ns)));
        }
    }
    blocks
}

proptest! {
    #[test]
    fn spans_survive_in_any_split(spans in spans(), split in 1usize..30) {
        let mut writer = writer();
        for (index, span) in spans.iter().enumerate() {
            writer.span(&span.clone().with(&span.name, span.task)).unwrap();
            if index % split == 0 {
                writer.flush().unwrap();
            }
        }
        let bytes = writer.finish(&end()).unwrap();
        let mut read = Vec::new();
        for (block, (first_ns, last_ns)) in blocks(&bytes) {
            prop_assert_eq!(block.before(), Some(read.len() as u64));
            prop_assert!(!block.is_empty());
            let rows = owned_rows(&block);
            for row in &rows {
                if let Some(start_ns) = row.start_ns {
                    prop_assert!(first_ns <= start_ns);
                    prop_assert!(last_ns >= start_ns.saturating_add(row.length_ns.unwrap_or(0)));
                }
            }
            read.extend(rows);
        }
        prop_assert_eq!(read, spans);
    }
}

/// A call of a task, with the duration `length_ns`.
fn call(name: &str, depth: u16, length_ns: u64) -> Span<&str> {
    Span {
        name,
        task: Task { space: 0, vcpu: 1 },
        cpu: None,
        start_ns: None,
        length_ns: Some(length_ns),
        depth,
        complete: true,
        kind: SpanKind::Function,
        result: None,
    }
}

#[test]
fn a_trace_longer_than_a_block_is_split() {
    let mut writer = writer();
    for number in 0..100_000u64 {
        writer.span(&call("leaf", 0, number)).unwrap();
    }
    let bytes = writer.finish(&end()).unwrap();
    let lengths: Vec<_> = blocks(&bytes)
        .iter()
        .map(|(block, times)| (block.before(), block.len(), *times))
        .collect();
    let whole = 1 << 15;
    let expected = [0, 1, 2, 3].map(|block: u64| {
        let before = block * whole;
        (Some(before), whole.min(100_000 - before) as usize, (0, 0))
    });
    assert_eq!(lengths, expected);
}

#[test]
fn names_and_tasks_are_bounded_by_the_block() {
    let mut writer = writer();
    // Enough tasks to fill a block, then names that fill several, and one name that is too long.
    for vcpu in 0..20_000 {
        let task = Task { space: 9, vcpu };
        let span = Span {
            task,
            ..call("leaf", 0, 1)
        };
        writer.span(&span).unwrap();
    }
    let long = "é".repeat(4000);
    for number in 0..2000 {
        let name = format!("{number} {long}");
        writer.span(&call(&name, 0, 1)).unwrap();
    }
    let bytes = writer.finish(&end()).unwrap();
    let blocks = blocks(&bytes);
    assert_eq!(blocks[0].0.tasks().len(), 16_384);
    assert_eq!(
        blocks.iter().map(|(block, _)| block.len()).sum::<usize>(),
        22_000
    );
    let name = owned_rows(&blocks.last().unwrap().0).pop().unwrap().name;
    assert!(
        name.starts_with("1999 éé") && name.len() == 4095,
        "{}",
        name.len()
    );
}

/// Reads a block with these columns. Returns the number of rows, and the message if it can't be decoded.
fn block_of(all: &[(u64, Vec<u8>)]) -> (usize, Option<String>) {
    read_one(&recording_of(BlockType::Spans, 0, &columns(all)))
}

/// The columns of one complete span without a time, of task 0/0 and with the name `a`.
fn one() -> Vec<(u64, Vec<u8>)> {
    vec![
        (1, vec![0, 0]),
        (2, vec![1]),
        (3, b"a".to_vec()),
        (4, vec![1]),
    ]
}

#[test]
fn tables_that_cannot_be_are_refused() {
    let _turn = alone();
    assert_eq!(block_of(&one()), (1, None));
    for (column, bytes, word) in [
        (1, vec![0; 2 * 16_385], "16,384"),
        (2, vec![2], "name"),
        (2, vec![0; MAX_SPANS + 1], "65,536"),
        (3, vec![0xff], "UTF-8"),
        (4, vec![1; MAX_SPANS + 1], "65,536"),
    ] {
        let mut all = one();
        all.retain(|(id, _)| *id != column);
        all.push((column, bytes));
        let (_, message) = block_of(&all);
        let message = message.unwrap();
        assert!(message.contains(word), "column {column}: {message}");
        assert!(message.contains("block 0 (spans) at byte 32"), "{message}");
    }
    // A name that ends in the middle of a letter.
    let mut all = one();
    all[1].1 = vec![1, 1];
    all[2].1 = "é".into();
    assert!(block_of(&all).1.unwrap().contains("between two characters"));
    let unknown = flagged_columns(&[(99, 1, &vec![0])]);
    let (_, message) = read_one(&recording_of(BlockType::Spans, 0, &unknown));
    assert!(message.unwrap().contains("column number 99"));
    let optional = flagged_columns(&[(99, 0, &vec![0])]);
    assert_eq!(
        read_one(&recording_of(BlockType::Spans, 0, &optional)),
        (0, None)
    );
}

#[test]
fn a_wrong_span_ends_the_block_and_those_before_it_are_good() {
    let _turn = alone();
    let three = |more: &[(u64, Vec<u8>)]| {
        let mut all = vec![(1, vec![0, 0]), (2, vec![1]), (3, b"a".to_vec())];
        all.extend(more.iter().cloned());
        block_of(&all).0
    };
    let mut deep = vec![0, 0];
    varint(&mut deep, 2 * MAX_FRAMES as u64);
    let mut deepest = vec![0, 0];
    varint(&mut deepest, 2 * (MAX_FRAMES as u64 - 1));
    assert_eq!(three(&[(4, vec![1; 3])]), 3);
    assert_eq!(
        three(&[(4, vec![1; 3]), (5, vec![0, 0, 1])]),
        2,
        "a task that is not there"
    );
    assert_eq!(
        three(&[(4, vec![1; 3]), (6, vec![0, 1, 0])]),
        1,
        "a name that is not there"
    );
    assert_eq!(three(&[(4, vec![1; 3]), (7, deep)]), 2, "too deep");
    assert_eq!(three(&[(4, vec![1; 3]), (7, deepest)]), 3);
    assert_eq!(
        three(&[(4, vec![1; 3]), (7, vec![0, 1, 0])]),
        1,
        "less deep than none"
    );
    assert_eq!(
        three(&[(4, vec![3; 3]), (8, vec![7, 7])]),
        2,
        "a length is missing"
    );
    assert_eq!(
        three(&[(4, vec![5; 3]), (9, vec![7])]),
        1,
        "starts are missing"
    );
    assert_eq!(
        three(&[(4, vec![1, 0x31, 1])]),
        1,
        "a kind that is not known"
    );
}

#[test]
fn the_largest_block_is_read() {
    let _turn = alone();
    let mut index = Vec::new();
    (0..MAX_SPANS as u64).for_each(|number| varint(&mut index, number));
    let all = [
        (1, vec![0, 0]),
        (2, vec![1; MAX_SPANS]),
        (3, vec![b'x'; MAX_SPANS]),
        (4, vec![0x0f; MAX_SPANS]),
        (6, index),
        (8, vec![9; MAX_SPANS]),
        (9, vec![2; MAX_SPANS]),
        (10, vec![1; MAX_SPANS]),
    ];
    assert_eq!(block_of(&all), (MAX_SPANS, None));
}

#[test]
fn of_a_block_with_a_wrong_span_the_others_are_recovered() {
    let mut payload = one();
    payload[3].1 = vec![1; 3];
    payload.push((6, vec![0, 0, 7]));
    payload.push((12, vec![40]));
    let bytes = recording_of(BlockType::Spans, 0, &columns(&payload));
    let items = SliceReader::open(&bytes).unwrap().blocks().map(Ok);
    let (out, recovered) = recover(items, Vec::new(), UUID).unwrap();
    assert_eq!(recovered.undecodable.len(), 1);
    let message = recovered.undecodable[0].to_string();
    assert!(message.contains("name is 7"), "{message}");
    let blocks = blocks(&out);
    assert_eq!(blocks.len(), 1);
    assert_eq!((blocks[0].0.before(), blocks[0].0.len()), (Some(40), 2));
}
