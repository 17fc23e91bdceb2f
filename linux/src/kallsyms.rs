//! kallsyms: a Linux kernel's compressed table of its own symbols. Input: the address of the digits in its token
//! table. Output: addresses and names, kept compressed.
//!
//! Layout around the token table (scripts/kallsyms.c of Linux 4.20 to 6.17):
//!
//! | up to 6.4 | from 6.5 on | |
//! |---|---|---|
//! | offsets or addresses | | u32, or u64, of each symbol, ascending |
//! | relative base | | u64, with offsets |
//! | number of symbols | number of symbols | u32 |
//! | names | names | length (LEB128 of one or two bytes), tokens; the first letter is the type |
//! | markers | markers | u32: where every 256th name begins |
//! | (order by name: 6.2 to 6.4) | | 3 bytes of each symbol |
//! | tokens | tokens | 256 texts, each with a zero behind it |
//! | token index | token index | u16: where each text begins |
//! | | offsets | |
//! | | relative base | |
//!
//! Each table begins at a multiple of 8, at an address that is stored nowhere. A table is accepted if all its entries
//! agree with the next table.

use super::{KernelMemory, behind};
use uprof::alias::{Alias, Binding, Kind};
use uprof::cpu::{KERNEL_HALF, is_kernel_address};

/// Most symbols of a kernel; Debian's has 170,000.
const SYMBOLS_MAX: usize = 1 << 20;
/// Most bytes of all compressed names.
const NAMES_BYTES_MAX: u64 = 16 << 20;
/// Most bytes of one name; Linux stops at 512.
const NAME_BYTES_MAX: usize = 1024;
/// Most bytes of a compressed name, with its length.
const STORED_BYTES_MAX: u64 = 1024;
/// Symbols between two markers.
const MARKED: usize = 256;
/// How far before the tokens the markers may be, since an index of all symbols by name may be between.
const BEFORE_TOKENS: u64 = 3 * SYMBOLS_MAX as u64 + 4096 * 4;
/// Names and words of memory that are looked at to find the names; a sound kernel takes a few times its symbols.
const NAME_STEPS_MAX: usize = 1 << 26;
/// Most symbols at an address that are compared. Linux may have hundreds where system calls are that it lacks, and
/// sorts the weak ones last.
const ALIASES_MAX: usize = 256;
/// Most bytes of all tokens.
const TOKENS_BYTES_MAX: usize = 4096;
const INDEX_BYTES: u64 = 512;

/// The symbols of a kernel.
#[derive(Debug)]
pub struct Kallsyms {
    places: Places,
    names: Vec<u8>,
    /// Offset in `names` of every 256th name.
    markers: Vec<u32>,
    tokens: Tokens,
}

/// A function of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// First address.
    pub start: u64,
    /// First address of the next symbol.
    pub end: u64,
    /// Name.
    pub name: String,
}

/// Addresses of symbols, in order.
#[derive(Debug)]
enum Places {
    Absolute(Vec<u64>),
    /// Offsets to add to the base.
    Relative {
        base: u64,
        offsets: Vec<u32>,
    },
    /// A negative offset o means base - 1 - o. The others are offsets in each processor's data, not addresses.
    PerProcessor {
        base: u64,
        offsets: Vec<u32>,
    },
}

impl Places {
    fn len(&self) -> usize {
        match self {
            Places::Absolute(addresses) => addresses.len(),
            Places::Relative { offsets, .. } | Places::PerProcessor { offsets, .. } => {
                offsets.len()
            }
        }
    }

    fn get(&self, index: usize) -> u64 {
        match self {
            Places::Absolute(addresses) => addresses[index],
            Places::Relative { base, offsets } => base.wrapping_add(u64::from(offsets[index])),
            Places::PerProcessor { base, offsets } => match offsets[index].cast_signed() {
                own @ 0.. => u64::from(own.unsigned_abs()),
                below => base.wrapping_add_signed(-1 - i64::from(below)),
            },
        }
    }

    /// Whether they ascend and are in the kernel's half, not counting offsets in per-processor data.
    fn are_sound(&self) -> bool {
        let all = || (0..self.len()).map(|index| self.get(index));
        let is_low = |address: u64| address < u64::from(u32::MAX);
        let in_half = |address: &u64| is_kernel_address(*address);
        let (Some(first), Some(last)) = (all().find(in_half), all().next_back().filter(in_half))
        else {
            return false;
        };
        all().is_sorted()
            && all().all(|address| in_half(&address) || is_low(address))
            // Constant memory is sorted, too, so the addresses must also differ.
            && last - first >= self.len() as u64
    }

    /// Index after the last symbol at or below `address`.
    fn behind(&self, address: u64) -> usize {
        behind(self.len(), |index| self.get(index) <= address)
    }
}

impl Kallsyms {
    /// Reads the tables around the digits of the token table.
    #[cold]
    pub(super) fn read(memory: &mut dyn KernelMemory, digits: u64) -> Result<Self, &'static str> {
        let tokens = Tokens::read(memory, digits).ok_or("no index fits its table of tokens")?;
        let mut left = NAME_STEPS_MAX;
        let (names_at, count, names, markers) = read_names(memory, tokens.start, &mut left)
            .ok_or("no names fit its table of tokens")?;
        let places =
            read_places(memory, names_at, tokens.end, count).ok_or("no addresses fit its names")?;
        Ok(Kallsyms {
            places,
            names,
            markers,
            tokens,
        })
    }

    /// Number of symbols.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The function at `address` under its preferred name; `None` if the symbol there is not a function.
    pub fn function(&self, address: u64) -> Option<Function> {
        let behind = self.places.behind(address);
        let start = self.places.get(behind.checked_sub(1)?);
        let end = (behind < self.len()).then(|| self.places.get(behind));
        let first = start
            .checked_sub(1)
            .map_or(0, |below| self.places.behind(below));
        let mut best: Option<Symbol> = None;
        for index in (first..behind).take(ALIASES_MAX) {
            let Some(symbol) = self.symbol(index) else {
                continue;
            };
            let alias = symbol.alias();
            let is_better = |best: &Symbol| {
                let other = best.alias();
                match (alias, other) {
                    (Some(alias), Some(other)) => alias.compare(&other).is_lt(),
                    _ => false,
                }
            };
            if alias.is_some() && best.as_ref().is_none_or(is_better) {
                best = Some(symbol);
            }
        }
        Some(Function {
            start,
            end: end.unwrap_or(start),
            name: best?.name,
        })
    }

    /// The addresses of the symbols in `wanted`; the first of each name.
    pub fn addresses_of<const N: usize>(&self, wanted: [&str; N]) -> [Option<u64>; N] {
        let mut found = [None; N];
        self.each(|address, symbol| {
            if let Some(place) = wanted.iter().position(|name| *name == symbol.name) {
                found[place].get_or_insert(address);
            }
        });
        found
    }

    /// Passes all symbols with their addresses to `take`.
    pub fn each(&self, mut take: impl FnMut(u64, Symbol)) {
        let mut at = 0;
        for index in 0..self.len() {
            let Some((stored, next)) = stored_name(&self.names, at) else {
                return;
            };
            if let Some(symbol) = self.tokens.expand(stored) {
                take(self.places.get(index), symbol);
            }
            at = next;
        }
    }

    fn symbol(&self, index: usize) -> Option<Symbol> {
        let mut at = *self.markers.get(index / MARKED)? as usize;
        for _ in 0..index % MARKED {
            at = stored_name(&self.names, at)?.1;
        }
        self.tokens.expand(stored_name(&self.names, at)?.0)
    }
}

/// A symbol's type, as in `nm`, and its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Symbol {
    /// `T` for an exported function, `t` for a local one, …
    pub kind: char,
    /// Name.
    pub name: String,
}

impl Symbol {
    /// The name as a candidate for its address; `None` if it is not a function.
    fn alias(&self) -> Option<Alias<'_>> {
        let binding = match self.kind {
            'T' => Binding::Global,
            'w' | 'W' => Binding::Weak,
            't' => Binding::Local,
            _ => return None,
        };
        Some(Alias {
            name: &self.name,
            kind: Kind::Unsaid,
            binding,
            has_size: false,
        })
    }
}

/// The text that each byte of a compressed name stands for.
#[derive(Debug)]
struct Tokens {
    /// Address of the table, and of the end of its index.
    start: u64,
    end: u64,
    texts: Vec<u8>,
    /// Offset of each text.
    index: [u16; 256],
}

impl Tokens {
    fn read(memory: &mut dyn KernelMemory, digits: u64) -> Option<Tokens> {
        let before = digits.checked_sub(TOKENS_BYTES_MAX as u64)?;
        let mut bytes = vec![0; 3 * TOKENS_BYTES_MAX];
        let got = memory.read(before, &mut bytes);
        bytes.truncate(got);
        // The terminators of the texts before the first digit's.
        let zeros = (0..bytes.len().min(TOKENS_BYTES_MAX)).rev();
        let mut zeros = zeros.filter(|&at| bytes[at] == 0);
        let first_end = zeros.nth(usize::from(b'0') - 1)?;
        let starts = (0..=first_end).rev();
        let mut starts = starts.take_while(|&at| at == first_end || bytes[at] != 0);
        starts.find_map(|start| Tokens::at(before, &bytes, start))
    }

    /// The table that begins at byte `start` of `bytes`, which are at `address`, if its index agrees.
    fn at(address: u64, bytes: &[u8], start: usize) -> Option<Tokens> {
        let is_aligned = |at: usize| (address + at as u64).is_multiple_of(8);
        if !is_aligned(start) {
            return None;
        }
        let mut index = [0; 256];
        let mut end = start;
        for begins in &mut index {
            *begins = u16::try_from(end - start).ok()?;
            end += bytes.get(end..)?.iter().position(|&byte| byte == 0)? + 1;
        }
        let said = (end..end + 8).find(|&at| is_aligned(at))?;
        let stored = bytes.get(said..said + INDEX_BYTES as usize)?;
        let agrees = words(stored).zip(&index).all(|(said, own)| said == *own);
        (agrees && end - start <= TOKENS_BYTES_MAX).then(|| Tokens {
            start: address + start as u64,
            end: address + said as u64 + INDEX_BYTES,
            texts: bytes[start..end].to_vec(),
            index,
        })
    }

    /// Expands a compressed name; `None` if it is not a valid one.
    fn expand(&self, stored: &[u8]) -> Option<Symbol> {
        let mut name = Vec::with_capacity(stored.len() * 3);
        for token in stored {
            let text = &self.texts[usize::from(self.index[usize::from(*token)])..];
            name.extend(text.iter().take_while(|byte| **byte != 0));
            if name.len() > NAME_BYTES_MAX {
                return None;
            }
        }
        let (kind, name) = name.split_first()?;
        let name = str::from_utf8(name).ok()?;
        Some(Symbol {
            kind: char::from(*kind),
            name: name.to_owned(),
        })
    }
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u16> + '_ {
    let (words, _) = bytes.as_chunks::<2>();
    words.iter().map(|word| u16::from_le_bytes(*word))
}

fn double_words(bytes: &[u8]) -> impl Iterator<Item = u32> + '_ {
    let (words, _) = bytes.as_chunks::<4>();
    words.iter().map(|word| u32::from_le_bytes(*word))
}

/// The compressed name at `at`, and the offset of the next.
fn stored_name(names: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let first = usize::from(*names.get(at)?);
    let (length, start) = match first & 0x80 {
        0 => (first, at + 1),
        // Since 6.1, for names of 128 tokens and more.
        _ => (first & 0x7f | usize::from(*names.get(at + 1)?) << 7, at + 2),
    };
    let end = start + length;
    Some((names.get(start..end)?, end))
}

type Names = (u64, usize, Vec<u8>, Vec<u32>);

/// Takes `steps` from what is left; `None` if that is less.
fn spend(left: &mut usize, steps: usize) -> Option<()> {
    *left = left.checked_sub(steps)?;
    Some(())
}

/// Reads names and markers before the token table: the address and number of the names, and both tables. `left` is the
/// number of steps that this may take: hostile memory may look like markers everywhere.
fn read_names(memory: &mut dyn KernelMemory, tokens: u64, left: &mut usize) -> Option<Names> {
    let mut looked_at = 0;
    for before in [64 << 10, BEFORE_TOKENS] {
        let start = tokens.checked_sub(before)? & !7;
        let mut bytes = vec![0; (tokens - start) as usize];
        // The memory above a missing part may still hold everything that is needed.
        let missing = memory.read(start, &mut bytes) < bytes.len();
        if missing && before == 64 << 10 {
            return None;
        }
        let all: Vec<u32> = double_words(&bytes).collect();
        // Each offset is tried once; few look like the first markers.
        let places = (0..all.len().saturating_sub(looked_at)).rev();
        for place in places.filter(|place| place.is_multiple_of(2)) {
            let ascending = ascending(&all[place..]);
            if ascending.len() > 2
                && let Some(names) = names_before(memory, start + place as u64 * 4, ascending, left)
            {
                return Some(names);
            }
        }
        looked_at = all.len();
    }
    None
}

/// The part of `words` that looks like markers: it begins with 0 and ascends in steps of the size of 256 names.
fn ascending(words: &[u32]) -> &[u32] {
    if words.first() != Some(&0) {
        return &[];
    }
    let steps = words.windows(2);
    let is_step = |step: u32| (MARKED as u32 * 2..=STORED_BYTES_MAX as u32 * 64).contains(&step);
    let steps = steps.take_while(|pair| pair[1].checked_sub(pair[0]).is_some_and(is_step));
    &words[..=steps.count().min(SYMBOLS_MAX / MARKED)]
}

/// The names before `markers_at`, if any fit these markers.
fn names_before(
    memory: &mut dyn KernelMemory,
    markers_at: u64,
    markers: &[u32],
    left: &mut usize,
) -> Option<Names> {
    // The words after the markers may look like more of them.
    for used in (markers.len().saturating_sub(2)..=markers.len()).rev() {
        let markers = markers.get(..used).filter(|markers| markers.len() > 2)?;
        let last = u64::from(*markers.last()?);
        let most = last + MARKED as u64 * STORED_BYTES_MAX / 4;
        if most > NAMES_BYTES_MAX {
            return None;
        }
        spend(left, (most / 8) as usize)?;
        let start = markers_at.checked_sub(most + 8)?;
        let mut bytes = vec![0; (most + 8) as usize];
        if memory.read(start, &mut bytes) < bytes.len() {
            continue;
        }
        // The number of symbols is right before the names.
        let from = usize::try_from(most - last).ok()?;
        for at in (0..=from)
            .rev()
            .filter(|at| (start + *at as u64).is_multiple_of(8))
        {
            let count = u64::from_le_bytes(*bytes[at..].first_chunk()?);
            let counted = usize::try_from(count)
                .ok()
                .filter(|count| *count <= SYMBOLS_MAX);
            let Some(count) = counted.filter(|count| count.div_ceil(MARKED) == used) else {
                continue;
            };
            if let Some(length) = length_of_names(&bytes[at + 8..], count, markers, left) {
                let names = bytes[at + 8..at + 8 + length].to_vec();
                return Some((start + at as u64 + 8, count, names, markers.to_vec()));
            }
        }
    }
    None
}

/// Length of `count` names, if they begin at the markers.
fn length_of_names(names: &[u8], count: usize, markers: &[u32], left: &mut usize) -> Option<usize> {
    let mut at = 0;
    for index in 0..count {
        spend(left, 1)?;
        if index.is_multiple_of(MARKED) && markers.get(index / MARKED) != Some(&(at as u32)) {
            return None;
        }
        at = stored_name(names, at)?.1;
    }
    // Only padding to a multiple of 8 follows.
    let rest = &names[at..];
    (rest.len() < 8 && rest.iter().all(|byte| *byte == 0)).then_some(at)
}

/// The addresses of `count` symbols: before the names, or after the token index.
fn read_places(
    memory: &mut dyn KernelMemory,
    names: u64,
    behind_tokens: u64,
    count: usize,
) -> Option<Places> {
    let length = (count * 4).next_multiple_of(8) as u64;
    let number = names - 8;
    let before = |bytes: u64| number.checked_sub(bytes);
    let pairs = [
        (before(length + 8), before(8)),
        (Some(behind_tokens), Some(behind_tokens + length)),
    ];
    for (offsets, base) in pairs {
        let (Some(offsets), Some(base)) = (offsets, base) else {
            continue;
        };
        let base = memory
            .bytes(base, 8)
            .and_then(|base| Some(u64::from_le_bytes(*base.first_chunk()?)));
        let offsets = memory.bytes(offsets, count * 4);
        let (Some(base @ KERNEL_HALF..), Some(offsets)) = (base, offsets) else {
            continue;
        };
        let offsets: Vec<u32> = double_words(&offsets).collect();
        let is_signed = offsets.iter().any(|offset| offset.cast_signed() < 0);
        let places = if is_signed {
            Places::PerProcessor { base, offsets }
        } else {
            Places::Relative { base, offsets }
        };
        if places.are_sound() {
            return Some(places);
        }
    }
    let bytes = memory.bytes(before(count as u64 * 8)?, count * 8)?;
    let (words, _) = bytes.as_chunks::<8>();
    let places = Places::Absolute(words.iter().map(|word| u64::from_le_bytes(*word)).collect());
    places.are_sound().then_some(places)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Symbols with these letters as types, and `s` and their number as names.
    fn kallsyms(places: Places, types: &[u8]) -> Kallsyms {
        let (mut names, mut markers) = (Vec::new(), Vec::new());
        for (number, kind) in types.iter().enumerate() {
            if number.is_multiple_of(MARKED) {
                markers.push(names.len() as u32);
            }
            let name = format!("{}s{number}", char::from(*kind));
            names.push(name.len() as u8);
            names.extend(name.bytes());
        }
        let mut texts = Vec::new();
        let index = std::array::from_fn(|byte| {
            let begins = texts.len() as u16;
            texts.extend([byte as u8, 0]);
            begins
        });
        let tokens = Tokens {
            start: 0,
            end: 0,
            texts,
            index,
        };
        Kallsyms {
            places,
            names,
            markers,
            tokens,
        }
    }

    #[test]
    fn the_best_name_of_an_address_is_among_the_first_ones() {
        let place = KERNEL_HALF + 16;
        let name = |types: &[u8]| {
            let all = kallsyms(Places::Absolute(vec![place; types.len()]), types);
            all.function(place + 1).unwrap().name
        };
        let mut types = vec![b't'; 2 * ALIASES_MAX];
        types[ALIASES_MAX - 1] = b'T';
        assert_eq!(name(&types), format!("s{}", ALIASES_MAX - 1));
        types[ALIASES_MAX - 1] = b't';
        types[ALIASES_MAX] = b'T';
        assert_ne!(name(&types), format!("s{ALIASES_MAX}"));
    }

    #[test]
    fn a_function_may_begin_at_0() {
        let places = Places::PerProcessor {
            base: KERNEL_HALF,
            offsets: vec![0],
        };
        let function = kallsyms(places, b"T").function(0).unwrap();
        assert_eq!((function.start, &*function.name), (0, "s0"));
    }

    /// Everything in it looks like markers.
    struct Candidates {
        reads: usize,
    }

    impl KernelMemory for Candidates {
        fn read(&mut self, _: u64, into: &mut [u8]) -> usize {
            self.reads += 1;
            if into.len() == 64 << 10 {
                let words = [0_u32, 1000, 2000, 3000].map(u32::to_le_bytes).concat();
                let (wholes, _) = into.as_chunks_mut::<16>();
                wholes.iter_mut().for_each(|to| to.copy_from_slice(&words));
            }
            into.len()
        }
    }

    #[test]
    fn the_work_for_markers_everywhere_is_bounded() {
        let mut memory = Candidates { reads: 0 };
        let mut left = 100_000;
        assert!(read_names(&mut memory, KERNEL_HALF + (1 << 30), &mut left).is_none());
        // A read takes 8,500 steps, and twice the words before the tokens are read.
        assert!((8..=16).contains(&memory.reads), "{}", memory.reads);
        let names = [1, b'a', 1, b'b'];
        assert_eq!(length_of_names(&names, 2, &[0], &mut 2), Some(4));
        assert_eq!(length_of_names(&names, 2, &[0], &mut 1), None);
    }
}
