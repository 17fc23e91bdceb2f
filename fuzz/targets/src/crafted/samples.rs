//! Recordings in which samples are what there is too much of.

use super::{Content, LENGTH_NS, TEXT, count, memory, recording, task, time_ns};
use fastrand::Rng;
use std::io::Error;
use uprof::cold::{End, EndReason};
use uprof::layout::SYNC;
use uprof::{
    BlockHeader, BlockType, Frame, Item, Preamble, RawStack, Registers, Sample, SliceReader, Wait,
    Writer,
};
use zerocopy::{FromBytes, IntoBytes};

/// Samples, and frames of all of them together, that are written; what is copied is beside that.
const ROWS_MAX: u64 = 1 << 18;
const FRAMES_MAX: u64 = 1 << 26;
/// Stack bytes of all samples together.
const STACK_BYTES_MAX: u64 = 128 << 20;
/// The least length of a recording that is not copied any more (bytes).
const FILE_BYTES_MAX: usize = 1 << 20;

fn chain(random: &mut Rng, depth: u64, addresses: u64) -> Vec<Frame> {
    let frame = |_| Frame::return_address(TEXT + 16 * random.u64(..addresses));
    (0..depth).map(frame).collect()
}

/// A few stacks, as deep as can be, in many samples.
pub(super) fn chains(random: &mut Rng) -> Content {
    let content = recording(random, |writer, random| {
        let depth = count(random, 1024);
        let addresses = count(random, 1 << 20);
        let different = count(random, (1 << 17) / depth);
        let chains: Vec<Vec<Frame>> = (0..different)
            .map(|_| chain(random, depth, addresses))
            .collect();
        let rows = count(random, ROWS_MAX.min(FRAMES_MAX / depth));
        let tasks = count(random, 64) as u32;
        for row in 0..rows {
            let chain = &chains[(row % different) as usize];
            let sample = Sample::bare(time_ns(random), task(random, tasks), chain);
            memory(writer.sample(&sample));
        }
    });
    copied(content, random)
}

/// A recording with each block of samples up to some thousand times.
fn copied(content: Content, random: &mut Rng) -> Content {
    let recording = memory(SliceReader::open(content.bytes()).map_err(Error::other));
    let mut writer = memory(Writer::without_metadata(Vec::new(), [7; 16]));
    let times = count(random, 1 << 12);
    for item in recording.blocks() {
        let Item::Block(block) = item else { continue };
        // The copy has an end of its own.
        if block.known_type() == Some(BlockType::End) {
            continue;
        }
        let times = if block.samples > 0 { times } else { 1 };
        for _ in 0..times {
            if writer.written_bytes() < FILE_BYTES_MAX as u64 || times == 1 {
                memory(writer.copy(&block));
            }
        }
    }
    let end = End {
        time_ns: LENGTH_NS,
        reason: EndReason::TargetEnded,
        message: String::new(),
        totals: Vec::new(),
    };
    Content::Recording(memory(writer.finish(&end)))
}

/// Each sample has a stack of its own.
pub(super) fn stacks(random: &mut Rng) -> Content {
    recording(random, |writer, random| {
        let depth = count(random, 1024);
        let addresses = count(random, 1 << 20);
        let tasks = count(random, 1 << 10) as u32;
        for _ in 0..count(random, (1 << 20) / depth) {
            let chain = chain(random, depth, addresses);
            let sample = Sample::bare(time_ns(random), task(random, tasks), &chain);
            memory(writer.sample(&sample));
        }
    })
}

/// The same row again and again, mostly with a raw stack.
fn repeat(writer: &mut Writer<Vec<u8>>, random: &mut Rng, stack_bytes: u64) {
    let mut registers = Registers::default();
    registers.set(7, 0x7fff_0000);
    registers.set(16, TEXT + 5);
    let bytes = (TEXT + 5).to_le_bytes().repeat(stack_bytes as usize / 8);
    let stack = RawStack {
        address: 0x7fff_0000,
        bytes: &bytes,
    };
    let wait = random.bool().then(|| Wait {
        time_ns: random.u64(..),
        count: random.u64(1..),
    });
    let depth = count(random, 64);
    let chain = chain(random, depth, 8);
    let rows = count(random, ROWS_MAX.min(STACK_BYTES_MAX / stack_bytes.max(1)));
    let tasks = count(random, 1 << 12) as u32;
    for row in 0..rows {
        let mut sample = Sample::bare(row, task(random, tasks), &chain);
        if stack_bytes > 0 {
            sample.registers = Some(&registers);
            sample.stack = Some(stack);
        }
        sample.wait = wait;
        memory(writer.sample(&sample));
    }
}

/// Rows and stack bytes that compress to nothing.
pub(super) fn bombs(random: &mut Rng) -> Content {
    let content = recording(random, |writer, random| {
        let stack_bytes = match random.u32(..3) {
            0 => 0,
            _ => count(random, 256 << 10) & !7,
        };
        repeat(writer, random, stack_bytes);
    });
    copied(content, random)
}

/// A sound recording of many blocks, and then something wrong with most of them.
pub(super) fn broken(random: &mut Rng) -> Content {
    let content = recording(random, |writer, random| {
        for _ in 0..count(random, 1 << 5) {
            let stack_bytes = count(random, 128 << 10) & !7;
            let bytes = vec![1; stack_bytes as usize];
            let depth = count(random, 1024);
            let chain = chain(random, depth, 64);
            for row in 0..count(random, (4 << 20) / (stack_bytes + 64)) {
                let mut sample = Sample::bare(row, task(random, 8), &chain);
                let address = 0x7fff_0000;
                sample.stack = (!bytes.is_empty()).then_some(RawStack {
                    address,
                    bytes: &bytes,
                });
                memory(writer.sample(&sample));
            }
            memory(writer.flush());
        }
    });
    let mut bytes = copied(content, random).bytes().to_vec();
    let is_nested = random.u32(..4) == 0;
    break_blocks(&mut bytes, random);
    if is_nested {
        nest_headers(&mut bytes, random);
    }
    Content::Recording(bytes)
}

/// Has blocks behind the metadata claim a row too many, stand out of order or have a wrong payload.
fn break_blocks(bytes: &mut [u8], random: &mut Rng) {
    let way = random.u32(..4);
    let mut at = Preamble::BYTES;
    let mut number = 0;
    while let Some(rest) = bytes.get_mut(at..).filter(|rest| rest.starts_with(&SYNC)) {
        let Ok((header, payload)) = BlockHeader::mut_from_prefix(rest) else {
            return;
        };
        let stored_bytes = header.stored_bytes.get() as usize;
        match way {
            _ if number == 0 => {}
            0 if header.samples.get() > 0 => header.samples += 1,
            1 => header.sequence = random.u32(..2 * number).into(),
            2 => payload[random.usize(..stored_bytes)] ^= 1,
            _ => header.samples_before = random.u64(..).into(),
        }
        header.header_crc = header.checksum().into();
        at += BlockHeader::BYTES + stored_bytes;
        number += 1;
    }
}

/// Appends headers that each claim all that follows as their payload.
fn nest_headers(bytes: &mut Vec<u8>, random: &mut Rng) {
    let headers = count(random, 1 << 14) as usize;
    for number in 0..headers {
        let mut header = BlockHeader::blank();
        header.block_type = 2.into();
        header.sequence = (1 << 30).into();
        let behind = (headers - number - 1) * BlockHeader::BYTES;
        header.stored_bytes = (behind as u32).into();
        header.raw_bytes = header.stored_bytes;
        header.header_crc = header.checksum().into();
        bytes.extend(header.as_bytes());
    }
}
