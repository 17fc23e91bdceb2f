//! BTF: the description of a Linux kernel's types. Input: its bytes. Output: offsets of structure members. Source:
//! Documentation/bpf/btf.rst of Linux.

use super::KernelMemory;
use std::ops::Range;

/// Most bytes of a kernel's BTF; Debian's has 4 MiB.
const BTF_BYTES_MAX: u64 = 32 << 20;
const MAGIC: u16 = 0xeb9f;
/// Deepest nesting of structures without a name.
const NESTED_MAX: u32 = 8;
/// Most members that one lookup visits.
const MEMBERS_MAX: u32 = 1 << 16;
const STRUCT: u32 = 4;
const UNION: u32 = 5;

/// The types of a kernel.
#[derive(Debug)]
pub struct Btf {
    bytes: Vec<u8>,
    texts: Range<usize>,
    /// Offset of each type; the first is number 1.
    types: Vec<u32>,
}

/// A stored type.
#[derive(Clone, Copy)]
struct Type {
    name: u32,
    kind: u32,
    members: usize,
    /// Whether the upper 8 bits of a member's offset are the size of a bit field.
    has_lengths: bool,
    at: usize,
}

impl Btf {
    /// Reads the BTF in `range`; `None` if it isn't valid.
    #[cold]
    pub fn read(memory: &mut dyn KernelMemory, range: Range<u64>) -> Option<Btf> {
        let length = range.end.checked_sub(range.start)?;
        let length = usize::try_from(length)
            .ok()
            .filter(|_| length <= BTF_BYTES_MAX)?;
        Btf::new(memory.bytes(range.start, length)?)
    }

    /// Parses BTF.
    pub fn new(bytes: Vec<u8>) -> Option<Btf> {
        let word = |at: usize| number(&bytes, at).map(|number| number as usize);
        let is_it = bytes.first_chunk().map(|magic| u16::from_le_bytes(*magic)) == Some(MAGIC);
        let header = word(4).filter(|_| is_it)?;
        let section = |offset: usize, length: usize| {
            let start = header.checked_add(word(offset)?)?;
            let end = start.checked_add(word(length)?)?;
            (end <= bytes.len()).then_some(start..end)
        };
        let (all, texts) = (section(8, 12)?, section(16, 20)?);
        let mut btf = Btf {
            bytes,
            texts,
            types: Vec::new(),
        };
        let mut at = all.start;
        while at < all.end {
            let found = btf.type_at(at)?;
            btf.types.push(at as u32);
            at = found.at + length_of(found)?;
        }
        (at == all.end).then_some(btf)
    }

    fn type_at(&self, at: usize) -> Option<Type> {
        let info = number(&self.bytes, at + 4)?;
        // The size, or another type's number, follows.
        number(&self.bytes, at + 8)?;
        Some(Type {
            name: number(&self.bytes, at)?,
            kind: info >> 24 & 31,
            members: (info & 0xffff) as usize,
            has_lengths: info >> 31 != 0,
            at: at + 12,
        })
    }

    fn get(&self, id: u32) -> Option<Type> {
        let index = usize::try_from(id).ok()?.checked_sub(1)?;
        self.type_at(*self.types.get(index)? as usize)
    }

    fn is_called(&self, name: u32, wanted: &str) -> bool {
        let text = self.bytes.get(self.texts.clone());
        let text = text.and_then(|texts| texts.get(name as usize..));
        text.is_some_and(|text| {
            text.starts_with(wanted.as_bytes()) && text.get(wanted.len()) == Some(&0)
        })
    }

    /// The offsets in bytes of these members of the structure called `name`; `None` if one is missing.
    pub fn members<const N: usize>(&self, name: &str, members: [&str; N]) -> Option<[u64; N]> {
        let mut types = self.types.iter();
        let found = types.find_map(|at| {
            let found = self.type_at(*at as usize)?;
            let is_it = found.kind == STRUCT && found.members > 0;
            (is_it && self.is_called(found.name, name)).then_some(found)
        })?;
        let mut offsets = [None; N];
        let mut left = MEMBERS_MAX;
        self.add_members(found, 0, NESTED_MAX, &mut left, &mut |name, at| {
            if let Some(place) = members
                .iter()
                .position(|member| self.is_called(name, member))
            {
                offsets[place].get_or_insert(at);
            }
        });
        let mut all = [0; N];
        for (all, offset) in all.iter_mut().zip(offsets) {
            *all = offset?;
        }
        Some(all)
    }

    /// Passes to `take` the members of `of` and of the structures without a name in it.
    fn add_members(
        &self,
        of: Type,
        base: u64,
        depth: u32,
        left: &mut u32,
        take: &mut dyn FnMut(u32, u64),
    ) {
        for index in 0..of.members {
            let at = of.at + index * 12;
            let member = (
                number(&self.bytes, at),
                number(&self.bytes, at + 4),
                number(&self.bytes, at + 8),
            );
            let (Some(name), Some(id), Some(bits)) = member else {
                return;
            };
            let Some(rest) = left.checked_sub(1) else {
                return;
            };
            *left = rest;
            let bits = if of.has_lengths {
                bits & 0xff_ffff
            } else {
                bits
            };
            let offset = base + u64::from(bits / 8);
            if name != 0 {
                take(name, offset);
                continue;
            }
            let inner = self
                .get(id)
                .filter(|inner| matches!(inner.kind, STRUCT | UNION));
            if let Some(inner) = inner.filter(|_| depth > 0) {
                self.add_members(inner, offset, depth - 1, left, take);
            }
        }
    }
}

/// Bytes after a type's first three words; `None` for an unknown kind.
fn length_of(of: Type) -> Option<usize> {
    Some(match of.kind {
        2 | 7..=12 | 16 | 18 => 0,
        1 | 14 | 17 => 4,
        3 => 12,
        STRUCT | UNION | 15 | 19 => of.members * 12,
        6 | 13 => of.members * 8,
        _ => return None,
    })
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}
