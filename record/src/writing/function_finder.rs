//! Finds functions by name in the images that a target maps, so that a flight recorder can watch their share.
//!
//! Input: names and mappings. Output: addresses. Reads symbol tables, without DWARF, in a thread of its own, as large
//! ones take time. Functions are found under the names that `nm` prints; code that is generated at run time has none.

use crate::elf::{self, PT_LOAD, symbols};
use crate::sys::open;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use uprof::cold::{Mapping, ModuleChange, ModuleEvent};

/// Most mappings that wait to be looked at; further ones are not.
const MOST_WAITING: u64 = 1 << 16;
/// Most functions that wait to be taken.
const MOST_FOUND: usize = 4096;
/// Most images whose functions are remembered.
const MOST_IMAGES: usize = 4096;

/// A function of an address space.
#[derive(Debug, PartialEq, Eq)]
pub struct FoundFunction {
    /// The address space.
    pub space: u32,
    /// The index of its name.
    pub number: usize,
    /// Its code.
    pub addresses: Range<u64>,
}

/// Looks for functions in a thread.
pub struct FunctionFinder {
    names: Vec<String>,
    /// For each name, whether it was found, or reported as missing.
    is_known: Vec<bool>,
    /// Images of a guest are named as the user named them.
    is_guest: bool,
    asked: Sender<(u32, Mapping)>,
    found: Receiver<FoundFunction>,
    /// Mappings that were handed over, that were looked at, and that were too many.
    asked_count: u64,
    done_count: Arc<AtomicU64>,
    pub(crate) left_out: u64,
}

impl FunctionFinder {
    /// Starts the thread. An empty name stands for none.
    ///
    /// # Errors
    /// The thread can't be started.
    pub fn start(names: Vec<String>, is_guest: bool) -> io::Result<Self> {
        let (asked, mappings) = channel::<(u32, Mapping)>();
        let (sender, found) = sync_channel(MOST_FOUND);
        let done_count = Arc::new(AtomicU64::new(0));
        let done = Arc::clone(&done_count);
        let mut images = Images {
            names: names.clone(),
            is_guest,
            known: HashMap::new(),
        };
        let thread = std::thread::Builder::new().name("uniprof-finder".into());
        thread.spawn(move || {
            for (space, mapping) in mappings {
                for (number, addresses) in images.functions_in(space, &mapping) {
                    let function = FoundFunction {
                        space,
                        number,
                        addresses,
                    };
                    if sender.send(function).is_err() {
                        return;
                    }
                }
                done.fetch_add(1, Ordering::Release);
            }
        })?;
        Ok(FunctionFinder {
            is_known: names.iter().map(String::is_empty).collect(),
            names,
            is_guest,
            asked,
            found,
            asked_count: 0,
            done_count,
            left_out: 0,
        })
    }

    /// The names that are looked for.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Looks for the functions in a new mapping.
    pub fn ask(&mut self, event: &ModuleEvent) {
        let ModuleChange::Mapped(mapping) = &event.what else {
            return;
        };
        if !(mapping.path.starts_with('/') || self.is_guest && !mapping.path.starts_with('[')) {
            return;
        }
        if self.waiting() >= MOST_WAITING {
            self.left_out += 1;
        } else if self.asked.send((event.space, mapping.clone())).is_ok() {
            self.asked_count += 1;
        }
    }

    /// Number of mappings that have not been looked at yet.
    pub fn waiting(&self) -> u64 {
        self.asked_count - self.done_count.load(Ordering::Acquire)
    }

    /// The function of this number was found.
    pub fn note(&mut self, number: usize) {
        if let Some(is_known) = self.is_known.get_mut(number) {
            *is_known = true;
        }
    }

    /// The functions found since the last call.
    pub fn found(&mut self) -> Vec<FoundFunction> {
        let found: Vec<FoundFunction> = self.found.try_iter().collect();
        found.iter().for_each(|function| self.note(function.number));
        found
    }

    /// The names that were not found, each once.
    pub fn missing(&mut self) -> Vec<String> {
        let names = self.names.iter().zip(&mut self.is_known);
        let missing = names.filter_map(|(name, is_known)| {
            (!std::mem::replace(is_known, true)).then(|| name.clone())
        });
        missing.collect()
    }
}

/// A function's number, and the offsets of its code in its file.
type InFile = (usize, Range<u64>);

/// The images that were read.
struct Images {
    names: Vec<String>,
    is_guest: bool,
    known: HashMap<(String, u64), Vec<InFile>>,
}

impl Images {
    /// The functions in a mapping, and their addresses there.
    fn functions_in(&mut self, space: u32, mapping: &Mapping) -> Vec<InFile> {
        let inode = mapping.file.map_or(0, |file| file.inode);
        let key = (mapping.path.clone(), inode);
        if !self.known.contains_key(&key) {
            let Some(file) = self.open(space, &mapping.path, inode) else {
                return Vec::new();
            };
            if self.known.len() >= MOST_IMAGES {
                self.known.clear();
            }
            let found = in_file(&file, &self.names);
            self.known.insert(key.clone(), found);
        }
        let functions = self.known.get(&key).into_iter().flatten();
        let here = functions.filter_map(|(number, offsets)| {
            let into = offsets.start.checked_sub(mapping.file_offset)?;
            let bytes = offsets.end.saturating_sub(offsets.start);
            let start = mapping.start.checked_add(into)?;
            (into < mapping.length).then(|| (*number, start..start.saturating_add(bytes)))
        });
        here.collect()
    }

    fn open(&self, space: u32, path: &str, inode: u64) -> Option<File> {
        let file = if self.is_guest {
            open::at(Path::new(path)).ok()?
        } else {
            let root = open::folder(Path::new(&format!("/proc/{space}/root"))).ok()?;
            open::below(root, path).ok()?
        };
        let is_same = inode == 0 || file.metadata().is_ok_and(|found| found.ino() == inode);
        is_same.then_some(file)
    }
}

/// The functions of a file, by offset.
fn in_file(file: &File, names: &[String]) -> Vec<InFile> {
    let read = |into: &mut [u8], at: u64| file.read_exact_at(into, at);
    let Some(headers) = elf::read(&read) else {
        return Vec::new();
    };
    let loaded: Vec<_> = headers.flatten().filter(|it| it.kind == PT_LOAD).collect();
    let found = symbols::ranges(&read, names).into_iter();
    let placed = found.filter_map(|(number, code)| {
        let is_in = |it: &&elf::ProgramHeader| code.start.wrapping_sub(it.address) < it.file_bytes;
        let part = loaded.iter().find(is_in)?;
        let offset = part.offset.checked_add(code.start - part.address)?;
        Some((number, offset..offset.saturating_add(code.end - code.start)))
    });
    placed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[inline(never)]
    fn function_to_be_found() -> u64 {
        std::hint::black_box(7)
    }

    #[test]
    fn a_function_of_this_process_is_found_where_it_is() {
        let here = function_to_be_found as fn() -> u64 as usize as u64;
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let number = |text: &str| u64::from_str_radix(text, 16).unwrap();
        let mapping = maps.lines().find_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (start, end) = words[0].split_once('-')?;
            let (start, end) = (number(start), number(end));
            (start..end).contains(&here).then(|| Mapping {
                start,
                length: end - start,
                file_offset: number(words[2]),
                path: words[5].into(),
                ..Mapping::default()
            })
        });
        let executable = std::env::current_exe().unwrap();
        let mut image = Vec::new();
        // Names of Rust functions are mangled.
        let own = File::open(executable).unwrap();
        let read = |into: &mut [u8], at: u64| own.read_exact_at(into, at);
        image.extend(symbols::ranges(&read, &["main".into()]));
        assert_eq!(image.len(), 1);
        let names = vec!["main".to_owned(), "no_such_function".to_owned()];
        let mut finder = FunctionFinder::start(names, false).unwrap();
        let what = ModuleChange::Mapped(mapping.unwrap());
        let event = ModuleEvent {
            time_ns: 1,
            space: std::process::id(),
            what,
        };
        finder.ask(&event);
        let began = Instant::now();
        let found = loop {
            match finder.found().pop() {
                Some(found) => break found,
                None => assert!(began.elapsed() < Duration::from_secs(60)),
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        assert_eq!((found.number, found.space), (0, std::process::id()));
        // Both are in the same image, so they are as far apart as its symbols are.
        let size = found.addresses.end - found.addresses.start;
        assert_eq!(size, image[0].1.end - image[0].1.start);
        assert_eq!(finder.missing(), ["no_such_function"]);
        assert!(finder.missing().is_empty());
        // Nobody takes what is found, so that mappings wait.
        let enough = MOST_WAITING + MOST_FOUND as u64 + 100;
        (0..enough).for_each(|_| finder.ask(&event));
        assert!(finder.waiting() <= MOST_WAITING);
        assert!((99..=enough - MOST_WAITING).contains(&finder.left_out));
    }
}
