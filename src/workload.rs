//! The workload that `demo` records: a loop that serves synthetic requests, with an interesting call tree. It parses,
//! hashes, compresses, recurses and waits.

use crate::outcome::Outcome;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long to work.
#[derive(clap::Args, Debug, Clone, Copy)]
pub struct Args {
    /// Seconds
    #[arg(default_value = "60")]
    seconds: u64,

    /// Make `hash` so many percent slower, to see what `diff` finds
    #[arg(long, value_name = "PERCENT", default_value = "0", value_parser = clap::value_parser!(u64).range(..=1000))]
    slower: u64,

    /// End after each server has served so many requests, for runs that do the same work
    #[arg(long, value_name = "N", default_value_t = u64::MAX, hide_default_value = true)]
    requests: u64,
}

/// Serves requests until the time is over.
pub fn run(args: Args) -> anyhow::Result<Outcome> {
    let end = Instant::now() + Duration::from_secs(args.seconds);
    let others = [
        start("server", move || serve_until(end, &args))?,
        start("compressor", move || compress_until(end))?,
    ];
    serve_until(end, &args);
    IS_SERVED.store(true, Ordering::Relaxed);
    for thread in others {
        let _ = thread.join();
    }
    Ok(Outcome::Done)
}

fn start(name: &str, work: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.into()).spawn(work)
}

/// Whether all requests were served.
static IS_SERVED: AtomicBool = AtomicBool::new(false);

fn serve_until(end: Instant, args: &Args) {
    let mut served = 0;
    while served < args.requests && Instant::now() < end {
        black_box(serve(served, hash_rounds(served, args.slower)));
        served += 1;
        if served.is_multiple_of(64) {
            wait_for_network();
        }
    }
}

fn compress_until(end: Instant) {
    let mut served = 0;
    while Instant::now() < end && !IS_SERVED.load(Ordering::Relaxed) {
        black_box(compress(&request(served)));
        served += 1;
        std::thread::sleep(Duration::from_micros(500));
    }
}

#[inline(never)]
fn serve(number: u64, hash_rounds: u64) -> u64 {
    let request = request(number);
    let fields = parse(&request);
    let digest = hash(&request, hash_rounds);
    digest ^ walk_tree(22, digest) ^ fields as u64
}

#[inline(never)]
fn request(number: u64) -> Vec<u8> {
    let mut text = Vec::with_capacity(4096);
    for field in 0..96u64 {
        let value = number
            .wrapping_mul(0x9E37_79B9_7F4A_7C15)
            .rotate_left(field as u32);
        text.extend_from_slice(format!("field-{field}: {value:x}\r\n").as_bytes());
    }
    text
}

#[inline(never)]
fn parse(request: &[u8]) -> usize {
    let text = String::from_utf8_lossy(request);
    let fields = text.lines().filter_map(|line| line.split_once(": "));
    fields.filter(|(name, value)| is_valid(name, value)).count()
}

#[inline(never)]
fn is_valid(name: &str, value: &str) -> bool {
    name.starts_with("field-") && value.bytes().all(|byte| byte.is_ascii_hexdigit())
}

const HASH_ROUNDS: u64 = 10;

/// Rounds of hashing for a request: some requests get one more, so that on average `slower` percent are added.
fn hash_rounds(request: u64, slower: u64) -> u64 {
    let added = |requests: u64| requests * HASH_ROUNDS * slower / 100;
    HASH_ROUNDS + added(request + 1) - added(request)
}

/// FNV-1a, several times over.
#[inline(never)]
fn hash(bytes: &[u8], rounds: u64) -> u64 {
    let mix = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    let mut hash = 0;
    for _ in 0..rounds {
        hash = black_box(bytes).iter().fold(0xcbf2_9ce4_8422_2325, mix);
    }
    hash
}

#[inline(never)]
fn walk_tree(depth: u32, seed: u64) -> u64 {
    if depth == 0 {
        return seed.count_ones().into();
    }
    let left = walk_tree(depth - 1, seed.rotate_left(depth));
    if seed & 1 == 0 {
        left
    } else {
        left ^ walk_tree(depth - 2.min(depth), black_box(seed ^ left))
    }
}

/// Run-length encoding: slow on purpose.
#[inline(never)]
fn compress(bytes: &[u8]) -> Vec<(u8, u32)> {
    let mut runs: Vec<(u8, u32)> = Vec::new();
    for _ in 0..16 {
        runs.clear();
        for &byte in black_box(bytes) {
            match runs.last_mut() {
                Some((last, count)) if *last == byte => *count += 1,
                _ => runs.push((byte, 1)),
            }
        }
    }
    runs
}

#[inline(never)]
fn wait_for_network() {
    std::thread::sleep(Duration::from_millis(1));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn added_rounds_are_as_many_as_were_asked_for() {
        for (slower, rounds) in [(0, 1000), (5, 1050), (33, 1330), (100, 2000)] {
            let sum: u64 = (0..100).map(|request| hash_rounds(request, slower)).sum();
            assert_eq!(sum, rounds);
        }
    }
}
