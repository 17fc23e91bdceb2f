//! Data that exceeds the limit of a block is split, left out, or refused with an error that names the limit.

#[allow(dead_code)]
mod fixture;

use fixture::end;
use uprof::cold::{Metadata, TaskChange, TaskEvent};
use uprof::image::{ImageIdentity, Symbol};
use uprof::layout::{MAX_PAYLOAD_BYTES, MAX_RECORDS_BYTES};
use uprof::{Arch, Block, Frame, Item, Payload, RawStack, Sample, SliceReader, Task, Writer};

fn writer() -> Writer<Vec<u8>> {
    Writer::create(Vec::new(), [3; 16], &Metadata::default(), 0).unwrap()
}

fn blocks(bytes: &[u8]) -> Vec<Block<'_>> {
    let items = SliceReader::open(bytes).unwrap().blocks();
    items
        .map(|item| match item {
            Item::Block(block) => block,
            Item::Damage(damage) => panic!("{damage}"),
        })
        .collect()
}

fn sample<'a>(time_ns: u64, chain: &'a [Frame]) -> Sample<'a> {
    Sample::bare(time_ns, Task { space: 0, vcpu: 0 }, chain)
}

#[test]
fn records_are_split_over_blocks() {
    let events: Vec<TaskEvent> = (0..100_000u32)
        .map(|vcpu| TaskEvent {
            time_ns: u64::from(vcpu),
            task: Task { space: 1, vcpu },
            what: TaskChange::Named(format!("a thread with a name, {vcpu}")),
        })
        .collect();
    let mut writer = writer();
    writer.tasks(&events).unwrap();
    let bytes = writer.finish(&end()).unwrap();
    let mut read = Vec::new();
    for block in blocks(&bytes) {
        assert!(block.raw_bytes as usize <= MAX_RECORDS_BYTES);
        if let Payload::Tasks(tasks) = block.payload().unwrap() {
            let times = (block.first_ns, block.last_ns);
            assert_eq!(times, (tasks[0].time_ns, tasks[tasks.len() - 1].time_ns));
            read.extend(tasks);
        }
    }
    assert_eq!(read, events);
}

#[test]
fn one_record_that_is_too_long_is_refused() {
    let event = TaskEvent {
        time_ns: 0,
        task: Task { space: 1, vcpu: 1 },
        what: TaskChange::Named("n".repeat(MAX_RECORDS_BYTES)),
    };
    let mut writer = writer();
    let error = writer.tasks(&[event]).unwrap_err().to_string();
    assert!(error.contains("tasks block of 1048"), "{error}");
    // The recording continues.
    writer.sample(&sample(1, &[])).unwrap();
    assert_eq!(blocks(&writer.finish(&end()).unwrap()).len(), 3);
}

#[test]
fn symbols_are_split_over_parts() {
    let identity = ImageIdentity {
        path: "[kernel]".into(),
        build_id: vec![],
        arch: Arch::X86_64,
        load_bias: 0,
        origin: "kallsyms".into(),
    };
    let names: Vec<String> = (0..300_000)
        .map(|number| format!("function_{number}"))
        .collect();
    let symbols = names.iter().enumerate().map(|(number, name)| Symbol {
        address: number as u64 * 16,
        size_bytes: 16,
        name,
    });
    let mut writer = writer();
    writer.symbols(&identity, symbols.clone(), 0).unwrap();
    let bytes = writer.finish(&end()).unwrap();
    let parts: Vec<_> = blocks(&bytes)
        .iter()
        .filter_map(|block| match block.payload().unwrap() {
            Payload::Image(part) => Some(part),
            _ => None,
        })
        .collect();
    assert!(parts.len() > 1);
    assert!(parts.iter().flat_map(|part| part.symbols()).eq(symbols));
}

#[test]
fn blocks_of_samples_are_closed_before_a_limit() {
    // Deep chains that have nothing in common, then stacks of the largest size.
    let mut writer = writer();
    let mut count = 0u64;
    for number in 0..600u64 {
        let chain: Vec<Frame> = (0..1000)
            .map(|depth| Frame::return_address(number * 100_000 + depth))
            .collect();
        writer.sample(&sample(count, &chain)).unwrap();
        count += 1;
    }
    let stack = vec![0xAB; 300 << 10];
    for number in 0..600u64 {
        let raw = RawStack {
            address: number * 8,
            bytes: &stack,
        };
        let with_stack = Sample {
            stack: Some(raw),
            ..sample(count, &[])
        };
        writer.sample(&with_stack).unwrap();
        count += 1;
    }
    let bytes = writer.finish(&end()).unwrap();
    let mut read = 0u64;
    for block in blocks(&bytes) {
        assert!(block.raw_bytes as usize <= MAX_PAYLOAD_BYTES);
        let Payload::Samples(samples) = block.payload().unwrap() else {
            continue;
        };
        let mut rows = samples.rows();
        while let Some(row) = rows.next_row().unwrap() {
            assert_eq!(row.time_ns, read);
            let kept = row.stack.map_or(0, |stack| stack.bytes.len());
            assert_eq!(kept, if read < 600 { 0 } else { 256 << 10 });
            read += 1;
        }
    }
    assert_eq!(read, count);
}
