//! Names of sampled kernel functions. They are recorded since the addresses mean nothing on another machine.
//!
//! Input: sampled addresses. Output: parts of an image table with their functions. Source: `/proc/kallsyms`, whose
//! lines are `address type name`, then a tab and `[module]`.

use super::registers::ARCH;
use crate::elf::build_id;
use crate::guest::addresses::Addresses;
use std::collections::HashSet;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::thread::JoinHandle;
use uniprof_linux::KERNEL_PATH;
use uprof::alias::{Alias, Binding, Kind};
use uprof::cold::{Mapping, ModuleEvent};
use uprof::cpu::is_kernel_address;
use uprof::{Arch, ImageIdentity, ImagePart, Symbol};

/// Bytes of a page.
const PAGE_BYTES: u64 = 4096;

/// Collects sampled kernel addresses and names them.
#[derive(Debug, Default)]
pub struct KernelNames {
    sampled: Addresses,
    table: Table,
    recorded: HashSet<u64>,
}

/// Function starts and names, in order. A kernel has 100,000 functions, so their names share one text.
#[derive(Debug, Default)]
pub struct Functions {
    /// Address, offset of the name in the text, and binding.
    starts: Vec<(u64, u32, Binding)>,
    /// The names, each followed by a line feed.
    names: String,
}

/// The [`Functions`] of this kernel.
#[derive(Debug, Default)]
enum Table {
    /// Not read, as there was no kernel address yet.
    #[default]
    Unasked,
    /// Being read by a thread, since that may take longer than a block may wait.
    Coming(JoinHandle<Functions>),
    Here(Functions),
}

impl Table {
    /// The table, if it was read; with `wait`, waits for it.
    fn get(&mut self, wait: bool) -> Option<&Functions> {
        *self = match std::mem::take(self) {
            Table::Unasked => Table::Coming(std::thread::spawn(|| {
                let list = File::open("/proc/kallsyms").map(BufReader::new);
                list.map_or_else(|_| Functions::default(), Functions::read)
            })),
            other => other,
        };
        *self = match std::mem::take(self) {
            Table::Coming(thread) if wait || thread.is_finished() => {
                Table::Here(thread.join().unwrap_or_default())
            }
            other => other,
        };
        match self {
            Table::Here(table) => Some(table),
            _ => None,
        }
    }
}

impl KernelNames {
    /// Remembers an address of the kernel; ignores others.
    pub fn add(&mut self, address: u64) {
        if is_kernel_address(address) {
            self.sampled.add(address);
        }
    }

    /// The functions of the addresses added since the last call. `None` if there are none, or if the names are still
    /// being read and `wait` is `false`.
    pub fn part(&mut self, wait: bool) -> Option<ImagePart> {
        if self.sampled.is_empty() {
            return None;
        }
        let table = self.table.get(wait)?;
        let mut found: Vec<usize> = self
            .sampled
            .take()
            .into_iter()
            .filter_map(|address| table.find(address))
            .filter(|&index| self.recorded.insert(table.starts[index].0))
            .collect();
        if found.is_empty() {
            return None;
        }
        found.sort_unstable();
        let mut part = ImagePart::new(ImageIdentity {
            path: KERNEL_PATH.into(),
            build_id: own_build_id(),
            arch: ARCH,
            load_bias: 0,
            origin: "kallsyms".into(),
        });
        for index in found {
            let address = table.starts[index].0;
            let symbol = Symbol {
                address,
                size_bytes: table.end(index) - address,
                name: table.name(index),
            };
            if !part.push(symbol) {
                break;
            }
        }
        Some(part)
    }
}

/// The range of the kernel's code and that of its modules. Only the privileged can read the exact addresses within it.
/// (Linux, Documentation/arch/x86/x86_64/mm.rst and Documentation/arch/arm64/memory.rst; with the 39-bit addresses of
/// small systems, the modules are higher up in the same range.)
const TEXT: std::ops::Range<u64> = match ARCH {
    Arch::X86_64 => 0xffff_ffff_8000_0000..0xffff_ffff_ff00_0000,
    Arch::Aarch64 => 0xffff_8000_0000_0000..0xffff_ffff_ff00_0000,
};

/// The kernel as a module of every process of this machine (address space 0).
pub fn module_event(now_ns: u64) -> ModuleEvent {
    let mapping = Mapping {
        start: TEXT.start,
        length: TEXT.end - TEXT.start,
        path: KERNEL_PATH.into(),
        build_id: own_build_id(),
        ..Mapping::default()
    };
    ModuleEvent::mapped(now_ns, 0, mapping)
}

fn own_build_id() -> Vec<u8> {
    let notes = std::fs::read("/sys/kernel/notes").unwrap_or_default();
    build_id::of_notes(&notes).unwrap_or_default()
}

impl Functions {
    /// Reads a list, and keeps the preferred name of each address. Empty if the addresses are hidden (all zero).
    pub fn read(mut list: impl BufRead) -> Functions {
        let mut all = Functions::default();
        let mut line = String::new();
        while matches!(list.read_line(&mut line), Ok(1..)) {
            if let Some((address, alias)) = parse_line(line.trim_end_matches('\n'))
                && let Ok(name_at) = u32::try_from(all.names.len())
            {
                all.starts.push((address, name_at, alias.binding));
                let name = alias.name.chars();
                all.names
                    .extend(name.map(|c| if c == '\t' { ' ' } else { c }));
                all.names.push('\n');
            }
            line.clear();
        }
        let Functions { starts, names } = &mut all;
        let alias = |&(_, name_at, binding): &_| alias(name_in(names, name_at), binding);
        starts.sort_by(|a, b| {
            let by_address = a.0.cmp(&b.0);
            by_address.then_with(|| alias(a).compare(&alias(b)))
        });
        starts.dedup_by_key(|(address, ..)| *address);
        starts.shrink_to_fit();
        names.shrink_to_fit();
        all
    }

    /// Addresses of the functions, in order.
    pub fn starts(&self) -> impl Iterator<Item = u64> {
        self.starts.iter().map(|(start, ..)| *start)
    }

    /// The index of the function at `address`.
    fn find(&self, address: u64) -> Option<usize> {
        let after = self.starts.partition_point(|(start, ..)| *start <= address);
        let index = after.checked_sub(1)?;
        (address < self.end(index)).then_some(index)
    }

    /// Where a function ends: at the next one's start. The last one of the kernel or of a module gets the rest of its
    /// page and one more page, as in perf: what follows is not in the list, such as seccomp filters and modules that
    /// were loaded later.
    fn end(&self, index: usize) -> u64 {
        let module = |index| self.name(index).split_once(' ').map(|(_, module)| module);
        let address = self.starts[index].0;
        let alone = (address & !(PAGE_BYTES - 1)).saturating_add(2 * PAGE_BYTES);
        match self.starts.get(index + 1) {
            Some((next, ..)) if module(index) == module(index + 1) => *next,
            Some((next, ..)) => alone.min(*next),
            None => alone,
        }
    }

    fn name(&self, index: usize) -> &str {
        name_in(&self.names, self.starts[index].1)
    }
}

fn name_in(names: &str, at: u32) -> &str {
    let from = names.get(at as usize..).unwrap_or_default();
    from.split('\n').next().unwrap_or_default()
}

fn alias(name: &str, binding: Binding) -> Alias<'_> {
    Alias {
        name,
        kind: Kind::Unsaid,
        binding,
        has_size: false,
    }
}

fn parse_line(line: &str) -> Option<(u64, Alias<'_>)> {
    let mut words = line.splitn(3, ' ');
    let address = u64::from_str_radix(words.next()?, 16).ok()?;
    let binding = match words.next()? {
        "T" => Binding::Global,
        "w" | "W" => Binding::Weak,
        "t" => Binding::Local,
        _ => return None,
    };
    let alias = alias(words.next()?, binding);
    (is_kernel_address(address)).then_some((address, alias))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "ffffffff81000000 T _stext\nffffffff81000010 t b\n\
        ffffffff81000010 T alias\nffffffff81000030 D data\nffffffffc0000000 t f\t[net]\n\
        0000000000000000 A percpu\nnonsense\n";

    #[test]
    fn functions_are_named_once() {
        let mut names = KernelNames {
            table: Table::Here(Functions::read(TEXT.as_bytes())),
            ..KernelNames::default()
        };
        for address in [
            0xffff_ffff_8100_0012,
            0xffff_ffff_8100_0018,
            0xffff_ffff_c000_0001,
            5,
        ] {
            names.add(address);
        }
        let part = names.part(true).unwrap();
        let found: Vec<_> = part
            .symbols()
            .map(|symbol| (symbol.address, symbol.name))
            .collect();
        assert_eq!(
            found,
            [
                (0xffff_ffff_8100_0010, "alias"),
                (0xffff_ffff_c000_0000, "f [net]")
            ]
        );
        names.add(0xffff_ffff_8100_0011);
        assert!(names.part(true).is_none(), "named already");
    }

    /// Seccomp filters and modules that were loaded later are not in the list.
    #[test]
    fn code_that_is_not_listed_has_no_name() {
        let list = "ffffffff81000000 T _stext\nffffffff81000010 T far\nffffffff83008910 T _einittext\n\
            ffffffffc0001000 t near\t[net]\nffffffffc0001ff0 t last\t[net]\n\
            ffffffffc0002000 t next\t[usb]\nffffffffc0200000 t one\t[bpf]\n";
        let names = Functions::read(list.as_bytes());
        let found = |address| names.find(address).map(|index| names.name(index));
        // A function that another one of its module follows may be long.
        assert_eq!(found(0xffff_ffff_8300_890f), Some("far"));
        assert_eq!(found(0xffff_ffff_8300_9fff), Some("_einittext"));
        assert_eq!(found(0xffff_ffff_8300_a000), None);
        assert_eq!(found(0xffff_ffff_c000_0fff), None);
        assert_eq!(found(0xffff_ffff_c000_1fef), Some("near [net]"));
        assert_eq!(found(0xffff_ffff_c000_1fff), Some("last [net]"));
        assert_eq!(found(0xffff_ffff_c000_3fff), Some("next [usb]"));
        assert_eq!(found(0xffff_ffff_c000_4000), None);
        assert_eq!(found(0xffff_ffff_c020_1fff), Some("one [bpf]"));
        assert_eq!(found(0xffff_ffff_c020_2000), None);
    }

    #[test]
    fn hidden_addresses_name_nothing() {
        let hidden = "0000000000000000 T _stext\n0000000000000000 t b\n";
        assert!(Functions::read(hidden.as_bytes()).starts.is_empty());
    }
}
