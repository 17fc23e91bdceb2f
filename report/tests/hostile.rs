//! Damaged images. Real ELF files with changed bytes, cuts and huge claims are passed to all code that reads
//! an image. An error is fine; a panic, a hang or much memory is not.

use fastrand::Rng;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use uniprof_report::images::{Image, ImageAddress, LineStore, Lines, SymbolTable};
use uniprof_report::unwind::{Cache, Module, Options, RuleTable, Stack, UnwindRules, Unwinder};
use uprof::{Arch, Registers};

/// The longest time for one damaged image; undamaged ones take milliseconds.
const TIME_MAX: Duration = Duration::from_secs(5);
/// The most memory of this process at any time.
const MEMORY_MAX_KIB: u64 = 512 << 10;

fn corpus(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../corpus/images")
        .join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()))
}

/// A program with DWARF, if this machine has a compiler.
fn with_dwarf() -> Option<Vec<u8>> {
    let folder = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/gdb/work.c");
    let program = folder.path().join("work");
    let mut gcc = std::process::Command::new("gcc");
    let built = gcc
        .args(["-g", "-O2", "-gz=zlib", "-o"])
        .arg(&program)
        .arg(source)
        .status();
    built.ok().filter(|status| status.success())?;
    std::fs::read(program).ok()
}

/// Calls all code that reads an image.
fn read_all(bytes: Vec<u8>, random: &mut Rng) {
    let Ok(image) = Image::from_bytes("damaged", bytes) else {
        return;
    };
    let image = Arc::new(image);
    let table = SymbolTable::from_image(&image);
    let rules = Arc::new(UnwindRules::of(&image, None));
    let store = LineStore::default();
    let lines = Lines::new(&store, &image, None, false);
    let code: Vec<_> = image
        .segments()
        .iter()
        .filter(|segment| segment.has_code)
        .collect();
    let mut stack = vec![0u8; 4096];
    stack.iter_mut().for_each(|byte| *byte = random.u8(..));
    for segment in code.into_iter().take(4) {
        let into = random.u64(..segment.memory_bytes.clamp(1, 1 << 20));
        let address = ImageAddress(segment.address.wrapping_add(into));
        let _ = (table.find(address), image.bytes_at(address, 64));
        if let Some(lines) = &lines {
            let _ = lines.find(address);
        }
        unwind(&image, &rules, segment.address, address.0, &mut stack);
    }
}

/// Unwinds a stack full of addresses of the image.
fn unwind(image: &Arc<Image>, rules: &Arc<UnwindRules>, start: u64, pc: u64, stack: &mut [u8]) {
    const BASE: u64 = 0x7fff_0000_0000;
    for (index, word) in stack.chunks_exact_mut(8).enumerate() {
        let value = match index % 3 {
            0 => start.wrapping_add(u64::from(word[0]) << 4),
            1 => BASE + u64::from(word[1]) * 16,
            _ => u64::from_le_bytes(word.try_into().unwrap()),
        };
        word.copy_from_slice(&value.to_le_bytes());
    }
    let module = Module {
        start: 0,
        end: u64::MAX,
        bias: 0,
        rules: Arc::clone(rules),
        image: Some(Arc::clone(image)),
    };
    let mut registers = Registers::default();
    (0..17).for_each(|number| registers.set(number, BASE + u64::from(number) * 8));
    registers.set(16, pc);
    let memory = Stack {
        base: BASE,
        bytes: stack,
    };
    for arch in [Arch::X86_64, Arch::Aarch64] {
        registers.set(32, pc);
        let unwinder = Unwinder::new(arch, vec![module.clone()]);
        for scan in [false, true] {
            let options = Options {
                scan,
                ..Options::default()
            };
            let mut frames = Vec::new();
            unwinder.unwind(&mut Cache::new(), &registers, &memory, options, &mut frames);
            assert!(frames.len() <= options.depth_max);
        }
    }
}

/// The peak memory of this process so far.
fn memory_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn timed(what: &str, bytes: Vec<u8>, random: &mut Rng) {
    let start = Instant::now();
    read_all(bytes, random);
    let took = start.elapsed();
    assert!(took < TIME_MAX, "{what}: {took:?}");
}

#[test]
fn damaged_images_neither_panic_nor_hang_nor_grow() {
    let mut images: Vec<(&str, Vec<u8>)> = ["calls", "libpack.so"]
        .into_iter()
        .map(|name| (name, corpus(name)))
        .collect();
    match with_dwarf() {
        Some(bytes) => images.push(("work, with DWARF", bytes)),
        None => eprintln!("skipped: DWARF, since there is no gcc"),
    }
    let rounds = if cfg!(debug_assertions) { 150 } else { 3000 };
    for (name, whole) in &images {
        for seed in 1..=rounds {
            let mut random = Rng::with_seed(seed);
            let mut bytes = whole.clone();
            // A few changes, some of them in the headers, on which everything depends.
            for _ in 0..1 + random.usize(..6) {
                let range = if random.usize(..3) == 0 {
                    4096.min(bytes.len())
                } else {
                    bytes.len()
                };
                let at = random.usize(..range);
                let huge = random.usize(..4) == 0;
                let end = if huge {
                    (at + 8).min(bytes.len())
                } else {
                    at + 1
                };
                bytes[at..end].fill(if huge { 0xff } else { random.u8(..) });
            }
            if random.usize(..4) == 0 {
                bytes.truncate(random.usize(..whole.len()));
            }
            timed(&format!("{name}, seed {seed}"), bytes, &mut random);
        }
        // The section headers and the last tables are at the end, so each cut loses another one.
        for cut in 1..60 {
            let length = whole.len() - cut * 64;
            timed(
                &format!("{name}, cut {cut}"),
                whole[..length].to_vec(),
                &mut Rng::with_seed(1),
            );
        }
    }
    let peak = memory_kib();
    println!(
        "{} images, {rounds} changes each, peak memory {peak} KiB",
        images.len()
    );
    assert!(peak < MEMORY_MAX_KIB, "{peak} KiB");
}

/// If every function refers to one common entry that is as long as all others together, compiling the rules
/// must not become quadratic.
#[test]
fn a_long_common_entry_does_not_make_compiling_quadratic() {
    let whole = corpus("calls");
    let image = Image::from_bytes("calls", whole.clone()).unwrap();
    let (address, _) = image.section_range(".text").unwrap();
    let mut frame = Vec::new();
    let mut entry = |id: u32, body: &[u8]| {
        let padded = body.len().next_multiple_of(4);
        frame.extend_from_slice(&(padded as u32 + 4).to_le_bytes());
        frame.extend_from_slice(&id.to_le_bytes());
        frame.extend_from_slice(body);
        frame.resize(frame.len() + padded - body.len(), 0);
    };
    // Version 1, no augmentation, factors 1 and -8, return address 16; then 200,000 rules.
    let mut common = vec![1, 0, 1, 0x78, 16];
    (0..200_000).for_each(|number| common.extend([0x80 | (number % 17) as u8, 1]));
    entry(u32::MAX, &common);
    for number in 0..20_000u64 {
        let mut function = (address.0 + number).to_le_bytes().to_vec();
        function.extend_from_slice(&1u64.to_le_bytes());
        entry(0, &function);
    }
    let elf = with_debug_frame(&whole, &frame);
    let image = Image::from_bytes("long", elf).unwrap();
    assert_eq!(image.section(".debug_frame").unwrap().len(), frame.len());
    let start = Instant::now();
    let table = RuleTable::compile(&image, None);
    println!(
        "{} rows in {:?}, left out {:?}",
        table.len(),
        start.elapsed(),
        table.skipped()
    );
    assert!(start.elapsed() < TIME_MAX, "{:?}", start.elapsed());
    assert!(table.skipped().broken >= 20_000);
}

/// `whole` with the contents of `.comment` replaced by `frame` under the name `.debug_frame`.
fn with_debug_frame(whole: &[u8], frame: &[u8]) -> Vec<u8> {
    let word = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let mut elf = whole.to_vec();
    let headers = word(whole, 0x28) as usize;
    let count = u16::from_le_bytes([whole[0x3c], whole[0x3d]]) as usize;
    let names_index = u16::from_le_bytes([whole[0x3e], whole[0x3f]]) as usize;
    let (data_at, names_at) = (elf.len(), elf.len() + frame.len());
    elf.extend_from_slice(frame);
    let old_names = word(whole, headers + names_index * 64 + 24) as usize;
    let old_length = word(whole, headers + names_index * 64 + 32) as usize;
    elf.extend_from_slice(&whole[old_names..old_names + old_length]);
    elf.extend_from_slice(b".debug_frame\0");
    let mut set = |index: usize, field: usize, value: u64| {
        let at = headers + index * 64 + field;
        elf[at..at + 8].copy_from_slice(&value.to_le_bytes());
    };
    set(names_index, 24, names_at as u64);
    set(names_index, 32, old_length as u64 + 13);
    let comment = (1..count)
        .find(|index| {
            let at = headers + index * 64;
            let name = u32::from_le_bytes(whole[at..at + 4].try_into().unwrap()) as usize;
            whole[old_names + name..].starts_with(b".comment\0")
        })
        .expect("no .comment");
    set(comment, 24, data_at as u64);
    set(comment, 32, frame.len() as u64);
    let at = headers + comment * 64;
    elf[at..at + 4].copy_from_slice(&(old_length as u32).to_le_bytes());
    elf
}
