//! Speed of unwinding: nanoseconds per frame against framehop with a warm cache, on the same real
//! stacks, in one run; and the time to compile the rules of a large library.

#[path = "../tests/stops/mod.rs"]
mod stops;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use stops::oracle::Oracle;
use stops::{Dump, Stopped, driver};
use uniprof_report::images::Image;
use uniprof_report::unwind::{Cache, Options, RuleTable, Unwinder};
use uprof::Frame;

const STOPS: usize = 500;

/// Both unwinders over the same stops.
struct Contest {
    unwinder: Unwinder,
    cache: Cache,
    frames: Vec<Frame>,
    oracle: Oracle,
    addresses: Vec<u64>,
}

impl Contest {
    fn new(dump: &Dump) -> Contest {
        Contest {
            unwinder: dump.unwinder(),
            cache: Cache::new(),
            frames: Vec::with_capacity(1024),
            oracle: Oracle::new(&dump.modules),
            addresses: Vec::with_capacity(1024),
        }
    }

    fn ours(&mut self, stop: &Stopped) -> usize {
        self.frames.clear();
        let (cache, frames) = (&mut self.cache, &mut self.frames);
        let memory = stop.memory();
        self.unwinder
            .unwind(cache, &stop.registers, &memory, Options::default(), frames);
        black_box(frames).len()
    }

    fn theirs(&mut self, stop: &Stopped) -> usize {
        self.addresses.clear();
        self.oracle
            .unwind(&stop.registers, &stop.memory(), &mut self.addresses);
        black_box(&mut self.addresses).len()
    }

    /// Only where both find the same frames is their time comparable.
    fn agrees(&mut self, stop: &Stopped) -> bool {
        self.ours(stop);
        self.theirs(stop);
        self.frames
            .iter()
            .map(|frame| frame.address)
            .eq(self.addresses.iter().copied())
    }
}

/// The lowest time of many rounds over `stops`, in nanoseconds per frame: what the machine does
/// beside us only ever adds.
fn ns_per_frame(stops: &[&Stopped], mut unwind: impl FnMut(&Stopped) -> usize) -> f64 {
    let frames: usize = stops.iter().map(|stop| unwind(stop)).sum();
    let mut best = Duration::MAX;
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(2) {
        let start = Instant::now();
        for stop in stops {
            black_box(unwind(stop));
        }
        best = best.min(start.elapsed());
    }
    best.as_nanos() as f64 / frames as f64
}

fn unwinding(criterion: &mut Criterion) {
    if let Some(reason) = driver::missing() {
        println!("skipped: no stacks to unwind: {reason}");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for program in driver::PROGRAMS
        .iter()
        .filter(|program| program.name.contains("-O"))
    {
        let dump = program.stop(folder.path(), STOPS, 1);
        let mut contest = Contest::new(&dump);
        let same: Vec<&Stopped> = dump
            .stops
            .iter()
            .filter(|stop| contest.agrees(stop))
            .collect();
        let Some(deepest) = same.iter().max_by_key(|stop| stop.frames.len()) else {
            continue;
        };
        for (set, stops) in [
            ("deepest stack", std::slice::from_ref(deepest)),
            ("all", &same[..]),
        ] {
            let ours = ns_per_frame(stops, |stop| contest.ours(stop));
            let theirs = ns_per_frame(stops, |stop| contest.theirs(stop));
            let frames: usize = stops.iter().map(|stop| stop.frames.len()).sum();
            println!(
                "{}, {set}: {} stacks, {frames} frames: ours {ours:.1} ns per frame, framehop \
                 {theirs:.1}, ratio {:.2}",
                program.name,
                stops.len(),
                ours / theirs,
            );
            println!(
                "figure\tunwinder: a frame, {}, {set}\t{ours:.1}\tns\tframehop\t{theirs:.1}\tratio <= 1",
                program.name
            );
        }
        if program.name == "cpp-O2" {
            let mut group = criterion.benchmark_group("deepest-stack");
            group.throughput(Throughput::Elements(deepest.frames.len() as u64));
            group.bench_function("ours", |bencher| bencher.iter(|| contest.ours(deepest)));
            group.bench_function("framehop", |bencher| {
                bencher.iter(|| contest.theirs(deepest))
            });
            group.finish();
        }
    }
}

/// The largest library at hand: the compiler's own.
fn large_library() -> Option<PathBuf> {
    let rustc = std::process::Command::new("rustc")
        .args(["--print", "sysroot"])
        .output()
        .ok()?;
    let sysroot = PathBuf::from(String::from_utf8(rustc.stdout).ok()?.trim());
    std::fs::read_dir(sysroot.join("lib"))
        .ok()?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().contains("rustc_driver"))
        })
}

fn compiling(criterion: &mut Criterion) {
    let Some(path) = large_library() else {
        println!("skipped: there is no librustc_driver");
        return;
    };
    let image = Image::open(&path).unwrap();
    let start = Instant::now();
    let table = RuleTable::compile(&image, None);
    println!(
        "{}: {} rows, {} rules, {} KiB, left out {:?}; first time {:?}",
        path.display(),
        table.len(),
        table.rule_count(),
        table.size_bytes() >> 10,
        table.skipped(),
        start.elapsed(),
    );
    let mut group = criterion.benchmark_group("compile");
    group.sample_size(10);
    group.bench_function("librustc_driver", |bencher| {
        bencher.iter(|| RuleTable::compile(black_box(&image), None));
    });
    group.finish();
}

criterion_group!(benches, unwinding, compiling);
criterion_main!(benches);
