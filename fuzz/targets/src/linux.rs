//! A guest's kernel that says anything of its symbols, types and unwind rules, and stacks to walk by them.

use uniprof_linux::{Btf, Kernel, KernelMemory, Orc, find};
use uniprof_record::guest::linux::orc;
use uprof::{RawStack, Registers};

const START: u64 = 0xffff_ffff_8100_0000;
/// A kernel is read so often at the most, and of each so many functions are asked for.
const KERNELS: u32 = 4;
const ASKED: u64 = 64;
const FRAMES: usize = 256;

/// The input, from an address on.
struct Memory<'a>(&'a [u8]);

impl KernelMemory for Memory<'_> {
    fn read(&mut self, address: u64, into: &mut [u8]) -> usize {
        let at = address.wrapping_sub(START) as usize;
        let rest = self.0.get(at..).unwrap_or_default();
        let count = rest.len().min(into.len());
        into[..count].copy_from_slice(&rest[..count]);
        count
    }
}

/// Memory of a kernel; the same bytes as its unwind rules, and as a stack.
pub fn run(bytes: &[u8]) {
    let mut kernels = 0;
    find(
        &mut Memory(bytes),
        START,
        bytes.len() as u64,
        &mut |memory, digits| {
            kernels += 1;
            if let Ok(kernel) = Kernel::read(memory, digits) {
                assert!(kernel.text.start < kernel.text.end);
                for at in 0..ASKED {
                    let address = kernel.text.start.wrapping_add(at * 64);
                    if let Some(function) = kernel.kallsyms.function(address) {
                        assert!(function.start <= address && function.start <= function.end);
                    }
                }
                kernel.orc.iter().for_each(|rules| walk(rules, bytes));
            }
            kernels == KERNELS
        },
    );
    if let Some(types) = Btf::new(bytes.to_vec()) {
        let _ = types.members("task_struct", ["tasks", "mm"]);
    }
    // Places ascend in few inputs: they are made so.
    let (rules, _) = bytes.as_chunks::<6>();
    let places =
        (0..rules.len() as u64).flat_map(|index| ((16 * index - 4 * index) as u32).to_le_bytes());
    if let Some(rules) = Orc::new(START, places.collect(), rules.concat()) {
        let (set, rows) = rules.rules();
        assert!(set.len() <= rows.len() && rows.len() < rules.len().max(1));
        assert!(rows.iter().all(|row| set.rule(row.rule).is_some()));
        walk(&rules, bytes);
    }
}

fn walk(rules: &Orc, bytes: &[u8]) {
    let (words, _) = bytes.as_chunks::<8>();
    let mut registers = Registers::default();
    for (number, word) in (0..17).zip(words) {
        registers.set(number, u64::from_le_bytes(*word));
    }
    let word = |index: usize| words.get(index).map_or(0, |word| u64::from_le_bytes(*word));
    let mut frames = Vec::new();
    for sp in [word(7), START] {
        registers.set(7, sp);
        registers.set(16, START + (word(16) & 0xffff));
        let stacks = [sp, word(6)].map(|address| RawStack { address, bytes });
        orc::walk(rules, &registers, stacks, FRAMES, &mut frames);
        assert!(frames.len() <= FRAMES);
    }
}

/// A small kernel, and bytes without a meaning.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut names = Vec::new();
    let mut markers: Vec<u8> = Vec::new();
    let mut offsets: Vec<u8> = Vec::new();
    let count = 700u32;
    for number in 0..count {
        if number % 256 == 0 {
            markers.extend((names.len() as u32).to_le_bytes());
        }
        let name = match number {
            0 => "T_stext".to_owned(),
            699 => "T_etext".to_owned(),
            other => format!("tf{other}"),
        };
        names.push(name.len() as u8);
        names.extend(name.as_bytes());
        offsets.extend((number * 32).to_le_bytes());
    }
    let mut tokens = Vec::new();
    let mut index: Vec<u8> = Vec::new();
    for byte in 0..=255u8 {
        index.extend((tokens.len() as u16).to_le_bytes());
        tokens.extend([if byte.is_ascii_graphic() { byte } else { b'~' }, 0]);
    }
    let mut out = vec![0x90; 68 << 10];
    let number = u64::from(count).to_le_bytes().to_vec();
    for part in [
        offsets,
        START.to_le_bytes().to_vec(),
        number,
        names,
        markers,
        tokens,
        index,
    ] {
        out.extend(part);
        out.resize(out.len().next_multiple_of(8), 0);
    }
    out.resize(out.len() + (8 << 10), 0);
    let mut seeds = crate::seeds::noise();
    seeds.push(out);
    seeds
}
