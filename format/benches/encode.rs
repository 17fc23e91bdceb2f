//! Nanoseconds and bytes per sample: ours beside plain fixed rows with `zstd -1`, in one run.
//!
//! `cargo bench -p uprof --bench encode`

mod synthetic;

use criterion::{Criterion, Throughput};
use std::hint::black_box;
use std::time::{Duration, Instant};
use synthetic::{BLOCK_ROWS, SAMPLES, SEED, Set, put_fixed_row};
use uprof::cold::{End, EndReason, Metadata};
use uprof::{Item, Payload, RawStack, SliceReader, Writer};

/// Plain fixed rows in blocks, compressed and checksummed. Raw and compressed bytes.
fn fixed_rows(set: &Set) -> (usize, usize) {
    let mut compressor = zstd::bulk::Compressor::new(1).unwrap();
    let mut block = Vec::new();
    let mut out = Vec::new();
    let (mut raw, mut stored) = (0, 0);
    for rows in set.rows.chunks(BLOCK_ROWS) {
        block.clear();
        for row in rows {
            put_fixed_row(&mut block, &set.sample(row));
        }
        out.resize(zstd::zstd_safe::compress_bound(block.len()), 0);
        let length = compressor.compress_to_buffer(&block, &mut out[..]).unwrap();
        black_box(crc32fast::hash(&out[..length]));
        raw += block.len();
        stored += length;
    }
    (raw, stored)
}

fn ours(set: &Set, out: Vec<u8>) -> Vec<u8> {
    let mut writer = Writer::create(out, [0; 16], &Metadata::default(), 0).unwrap();
    for row in &set.rows {
        writer.sample(&set.sample(row)).unwrap();
    }
    writer.finish(&end()).unwrap()
}

fn end() -> End {
    End {
        time_ns: 0,
        reason: EndReason::Duration,
        message: String::new(),
        totals: Vec::new(),
    }
}

/// Decodes every row; returns how many, and raw bytes of sample blocks.
fn read(bytes: &[u8]) -> (usize, u64) {
    let (mut count, mut raw) = (0, 0);
    for item in SliceReader::open(bytes).unwrap().blocks() {
        let Item::Block(block) = item else {
            panic!("damage")
        };
        let Payload::Samples(samples) = block.payload().unwrap() else {
            continue;
        };
        raw += u64::from(block.raw_bytes);
        let mut rows = samples.rows();
        while let Some(row) = rows.next_row().unwrap() {
            black_box(row.time_ns);
            count += 1;
        }
    }
    (count, raw)
}

/// Samples with 8 KiB of raw stack each.
const STACK_SAMPLES: usize = 20_000;

/// As [`ours`], each sample with a stack of which some 24 words change, as measured in xz.
fn ours_with_stacks(set: &Set, out: Vec<u8>) -> Vec<u8> {
    let mut writer = Writer::create(out, [0; 16], &Metadata::default(), 0).unwrap();
    let mut random = fastrand::Rng::with_seed(SEED);
    let mut memories: Vec<Vec<u8>> = (0..4u64)
        .map(|seed| {
            let mut random = fastrand::Rng::with_seed(SEED + seed);
            (0..9000).map(|_| random.u8(..)).collect()
        })
        .collect();
    for row in &set.rows[..STACK_SAMPLES] {
        let memory = &mut memories[row.vcpu as usize];
        for _ in 0..24 {
            let word = random.usize(..1000) * 8;
            memory[word] = random.u8(..);
        }
        let start = random.usize(..100) * 8;
        let mut sample = set.sample(row);
        sample.stack = Some(RawStack {
            address: 0x7fff_0000 + start as u64,
            bytes: &memory[start..start + 8192],
        });
        writer.sample(&sample).unwrap();
    }
    writer.flush().unwrap();
    writer.finish(&end()).unwrap()
}

/// Processor time of this thread in nanoseconds, where Linux says it (proc(5), schedstat); else the
/// time on the wall, since `start`.
fn processor_ns(start: Instant) -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let running = stat.split(' ').next().and_then(|ns| ns.parse().ok());
    running.unwrap_or(start.elapsed().as_nanos() as u64)
}

/// Runs each of `works` in turn, several times, and returns each one's best processor time in
/// nanoseconds per sample: what the machine does besides hits all of them alike.
fn best_ns<const N: usize>(mut works: [&mut dyn FnMut(); N]) -> [f64; N] {
    let mut best = [f64::MAX; N];
    let start = Instant::now();
    for _ in 0..8 {
        for (best, work) in best.iter_mut().zip(&mut works) {
            let before_ns = processor_ns(start);
            work();
            let ns = processor_ns(start) - before_ns;
            *best = best.min(ns as f64 / SAMPLES as f64);
        }
    }
    best
}

/// Lines for the table of `benches/run`.
fn figures(ours_bytes: f64, fixed_bytes: f64, [ours_ns, fixed_ns, read_ns]: [f64; 3]) {
    let fixed = "fixed rows, zstd -1";
    println!(
        "figure\tfile: bytes a sample\t{ours_bytes:.2}\tbytes\t{fixed}\t{fixed_bytes:.2}\tours <= 10"
    );
    println!(
        "figure\tencoder: time of a sample\t{ours_ns:.0}\tns\t{fixed}\t{fixed_ns:.0}\tours <= 400"
    );
    println!("figure\treader: time of a sample\t{read_ns:.0}\tns\t\t\t");
}

fn main() {
    let set = Set::new();
    let per_sample = |bytes: usize| bytes as f64 / SAMPLES as f64;
    let (fixed_raw, fixed_stored) = fixed_rows(&set);
    let bytes = ours(&set, Vec::new());
    let (count, raw) = read(&bytes);
    assert_eq!(count, set.rows.len());
    println!(
        "{SAMPLES} samples, {} stacks, mean depth {:.1}, seed {SEED:#x}",
        set.stacks.len(),
        set.mean_depth()
    );
    println!("bytes per sample                 raw   compressed");
    println!(
        "fixed rows, zstd -1          {:7.1}   {:10.1}   (calibrated: 155 and 23.5, within 3 %)",
        per_sample(fixed_raw),
        per_sample(fixed_stored)
    );
    for (found, expected) in [(fixed_raw, 155.0), (fixed_stored, 23.5)] {
        let ratio = per_sample(found) / expected;
        assert!(
            (0.97..1.03).contains(&ratio),
            "the set is not what it was: {ratio:.3}"
        );
    }
    println!(
        "ours, whole file             {:7.1}   {:10.1}   (goal: at most 10)",
        per_sample(raw as usize),
        per_sample(bytes.len())
    );
    let with_stacks = ours_with_stacks(&set, Vec::new());
    println!(
        "ours, with 8 KiB of stack            {:10.1}",
        with_stacks.len() as f64 / STACK_SAMPLES as f64
    );
    let mut room = Vec::with_capacity(bytes.len());
    let mut stack_room = Vec::with_capacity(with_stacks.len());
    let [fixed_ns, ours_ns, read_ns, stacks_ns, read_stacks_ns] = best_ns([
        &mut || {
            black_box(fixed_rows(&set));
        },
        &mut || {
            room = ours(&set, std::mem::take(&mut room));
            room.clear();
        },
        &mut || {
            black_box(read(&bytes));
        },
        &mut || {
            stack_room = ours_with_stacks(&set, std::mem::take(&mut stack_room));
            stack_room.clear();
        },
        &mut || {
            black_box(read(&with_stacks));
        },
    ]);
    let per_stack = SAMPLES as f64 / STACK_SAMPLES as f64;
    println!("processor time per sample in nanoseconds, best of 8, in turns");
    println!("fixed rows: encode, compress, checksum {fixed_ns:6.0}");
    println!("ours: encode, compress, checksum       {ours_ns:6.0}   (goal: at most 400)");
    println!("ours: checksum, decompress, decode     {read_ns:6.0}");
    println!(
        "with 8 KiB of stack: encode …          {:6.0}",
        stacks_ns * per_stack
    );
    println!(
        "with 8 KiB of stack: … decode          {:6.0}",
        read_stacks_ns * per_stack
    );

    figures(
        per_sample(bytes.len()),
        per_sample(fixed_stored),
        [ours_ns, fixed_ns, read_ns],
    );

    let mut criterion = Criterion::default()
        .sample_size(10)
        .measurement_time(Duration::from_secs(3))
        .configure_from_args();
    let mut group = criterion.benchmark_group("per 500,000 samples");
    group.throughput(Throughput::Elements(SAMPLES as u64));
    group.bench_function("fixed rows: encode, compress, checksum", |bencher| {
        bencher.iter(|| fixed_rows(&set));
    });
    group.bench_function("ours: encode, compress, checksum", |bencher| {
        bencher.iter(|| {
            room = ours(&set, std::mem::take(&mut room));
            room.clear();
        });
    });
    group.bench_function("ours: checksum, decompress, decode rows", |bencher| {
        bencher.iter(|| read(&bytes));
    });
    group.finish();
    criterion.final_summary();
}
