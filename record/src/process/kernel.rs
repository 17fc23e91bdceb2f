//! Names of sampled kernel functions, which are recorded since their addresses mean nothing on another machine.
//!
//! Input: sampled addresses. Output: parts of an image table with their functions. Source: `/proc/kallsyms`, whose
//! lines are `address type name`, then a tab and `[module]`.

use super::registers::ARCH;
use crate::addresses::Addresses;
use crate::elf::build_id;
use std::collections::HashSet;
use std::thread::JoinHandle;
use uprof::alias::{Alias, Binding, Kind};
use uprof::cold::{Mapping, ModuleChange, ModuleEvent};
use uprof::linux::{KERNEL_HALF, KERNEL_PATH};
use uprof::{ImageIdentity, ImagePart, Symbol};

/// Collects sampled kernel addresses and names them.
#[derive(Debug, Default)]
pub struct KernelNames {
    sampled: Addresses,
    table: Table,
    recorded: HashSet<u64>,
}

/// Function starts and names, in order.
#[derive(Debug, Default)]
enum Table {
    /// Not read: there was no kernel address yet.
    #[default]
    Unasked,
    /// Being read by a thread, as that may take longer than a block may wait.
    Coming(JoinHandle<Vec<(u64, String)>>),
    Here(Vec<(u64, String)>),
}

impl Table {
    /// The table, if it was read; with `wait`, waits for it.
    fn get(&mut self, wait: bool) -> Option<&[(u64, String)]> {
        *self = match std::mem::take(self) {
            Table::Unasked => Table::Coming(std::thread::spawn(|| {
                parse(&std::fs::read_to_string("/proc/kallsyms").unwrap_or_default())
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
        if address >= KERNEL_HALF {
            self.sampled.add(address);
        }
    }

    /// The functions of the addresses added since the last call; `None` if there are none, or if the names are still
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
            .filter_map(|address| {
                table
                    .partition_point(|(start, _)| *start <= address)
                    .checked_sub(1)
            })
            .filter(|&index| self.recorded.insert(table[index].0))
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
            let (address, name) = &table[index];
            let end = table.get(index + 1).map_or(*address, |(next, _)| *next);
            let symbol = Symbol {
                address: *address,
                size_bytes: end - address,
                name,
            };
            if !part.push(symbol) {
                break;
            }
        }
        Some(part)
    }
}

/// The kernel as a module of every process of this machine (address space 0).
pub fn module_event(now_ns: u64) -> ModuleEvent {
    let mapping = Mapping {
        start: KERNEL_HALF,
        length: KERNEL_HALF - 1,
        file_offset: 0,
        path: KERNEL_PATH.into(),
        build_id: own_build_id(),
        file: None,
    };
    ModuleEvent {
        time_ns: now_ns,
        space: 0,
        what: ModuleChange::Mapped(mapping),
    }
}

fn own_build_id() -> Vec<u8> {
    let notes = std::fs::read("/sys/kernel/notes").unwrap_or_default();
    build_id::of_notes(&notes).unwrap_or_default()
}

/// Function starts and names, with the preferred name of each address. Empty if the addresses are hidden (all zero).
pub fn parse(text: &str) -> Vec<(u64, String)> {
    let mut table: Vec<(u64, Alias<'_>)> = text.lines().filter_map(parse_line).collect();
    table.sort_by(|a, b| a.0.cmp(&b.0).then_with(|| a.1.compare(&b.1)));
    table.dedup_by_key(|(address, _)| *address);
    let named = |(address, alias): (u64, Alias<'_>)| (address, alias.name.replace('\t', " "));
    table.into_iter().map(named).collect()
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
    let alias = Alias {
        name: words.next()?,
        kind: Kind::Unsaid,
        binding,
        has_size: false,
    };
    (address >= KERNEL_HALF).then_some((address, alias))
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
            table: Table::Here(parse(TEXT)),
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

    #[test]
    fn hidden_addresses_name_nothing() {
        assert!(parse("0000000000000000 T _stext\n0000000000000000 t b\n").is_empty());
    }
}
