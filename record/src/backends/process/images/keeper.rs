//! Finds the files that were mapped, identifies them and keeps them open.
//!
//! A file is searched at its path below the root of its process, where it is checked to be the one that was mapped.
//! Then it is searched among the mapped files of the process, and below the known roots. A file that was identified
//! once is not read again, and also identifies the same file in processes that are gone.

use super::identity::{Identity, State, is_mapped};
use super::jitdump::is_named_so;
use super::progress::Progress;
use super::roots::{Root, Roots};
use super::runtime::{Runtimes, SHARED_MEMORY};
use super::vdso::{self, Vdso};
use super::{Answer, Ask, HeldImage};
use crate::backends::process::maps;
use crate::sys::clock::monotonic_ns;
use crate::sys::open;
use std::collections::HashMap;
use std::fs::File;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};
use uprof::cold::{ClockPair, MappedFile, Mapping, ModuleChange, ModuleEvent};

/// Most files held open. Further ones are identified, and searched by path when symbols are needed.
pub const MOST_HELD: usize = 512;
/// Most files whose identity is remembered. Further ones are read whenever they are mapped.
pub const MOST_KNOWN: usize = 1 << 14;

/// How often the files of running programs with generated code are read.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How much of that time lists of mappings are read: each is read from its start, so that those of a process with many
/// mappings would take the square of their number.
const LISTS_TIME_MAX: Duration = Duration::from_millis(100);

/// The state of the thread.
#[derive(Debug)]
pub struct Keeper {
    /// Offset of the wall clock from the monotonic clock.
    wall_ns: i64,
    answers: Sender<Answer>,
    roots: Roots,
    held: HashMap<Key, Held>,
    known: HashMap<State, Identity>,
    progress: Progress,
    vdso: Vdso,
    runtimes: Runtimes,
    /// Time that lists of mappings took since the last look.
    lists_time: Duration,
}

/// A file as reported by the kernel, by which it is recognised when it is mapped again.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Key {
    path: String,
    build_id: Vec<u8>,
    /// Device and inode.
    file: Option<(u32, u32, u64)>,
}

#[derive(Debug)]
struct Held {
    file: Arc<File>,
    identity: Identity,
    /// A file that changed is identified again.
    state: State,
}

impl Keeper {
    /// A keeper that sends its results to `answers`, and counts its steps.
    pub fn new(clock: ClockPair, answers: Sender<Answer>, progress: Progress) -> Keeper {
        Keeper {
            wall_ns: clock.realtime_ns.wrapping_sub(clock.monotonic_ns as i64),
            answers,
            roots: Roots::new(),
            held: HashMap::new(),
            known: HashMap::new(),
            progress,
            vdso: Vdso::default(),
            runtimes: Runtimes::default(),
            lists_time: Duration::ZERO,
        }
    }

    /// Handles requests until the other end is closed.
    pub fn work(&mut self, asked: &Receiver<Ask>) {
        let mut look_at = Instant::now() + LOOK_EVERY;
        loop {
            let left = if self.runtimes.are_none() {
                Duration::MAX
            } else {
                look_at.saturating_duration_since(Instant::now())
            };
            let asked = asked.recv_timeout(left);
            let ended = matches!(asked, Err(RecvTimeoutError::Disconnected));
            if ended || Instant::now() >= look_at {
                self.look();
                look_at = Instant::now() + LOOK_EVERY;
            }
            if let Ok((number, mut event)) = asked {
                self.progress.step();
                self.complete(&mut event);
                let roots = &mut self.roots;
                let events = self.runtimes.take(event, |pid| roots.of(pid));
                self.answer(Answer::Events(number, events));
            }
            if ended {
                // Bounded, as what is read of each file is.
                while self.runtimes.is_behind() {
                    self.look();
                }
                return;
            }
        }
    }

    /// Sends an answer. That fails if the recording has ended meanwhile.
    fn answer(&self, answer: Answer) {
        let _ = self.answers.send(answer);
    }

    /// Reads the files in which programs report code that they generated.
    fn look(&mut self) {
        self.lists_time = Duration::ZERO;
        let (answers, progress) = (&self.answers, &self.progress);
        self.runtimes.look(monotonic_ns(), |space, new| {
            progress.step();
            let mappings = new.mappings.into_iter();
            let events = mappings.map(|(time_ns, it)| ModuleEvent::mapped(time_ns, space, it));
            let events = events.map(Answer::More);
            let parts = new.parts.into_iter();
            let parts = parts.map(|part| Answer::Part(Box::new(part)));
            let lost = (new.lost > 0).then_some(Answer::Lost(new.lost));
            events.chain(parts).chain(lost).for_each(|answer| {
                let _ = answers.send(answer);
            });
        });
    }

    /// Sends the files, in order of path.
    pub fn finish(&mut self) {
        let held = std::mem::take(&mut self.held);
        let held = held.into_iter().map(|(key, held)| HeldImage {
            path: key.path,
            build_id: held.identity.build_id,
            file: Some(held.identity.file),
            opened: held.file,
        });
        let mut held: Vec<HeldImage> = held.collect();
        held.sort_by(|a, b| (&a.path, &a.build_id).cmp(&(&b.path, &b.build_id)));
        self.answer(Answer::Held(held));
    }

    fn complete(&mut self, event: &mut ModuleEvent) {
        let pid = event.space as i32;
        let mapped_ns = (event.time_ns as i64).saturating_add(self.wall_ns);
        if let ModuleChange::Mapped(mapping) = &mut event.what
            && mapping.path.starts_with('/')
            && !mapping.path.starts_with("//")
            && !mapping.path.starts_with(SHARED_MEMORY)
            && pid > 0
        {
            if is_named_so(&mapping.path)
                && let Some(file) = self.find(pid, mapped_ns, mapping)
            {
                let (roots, time_ns) = (&mut self.roots, event.time_ns);
                self.runtimes
                    .found_dump(event.space, time_ns, file, |pid| roots.of(pid));
            }
            self.identify(pid, mapped_ns, mapping);
        } else if let ModuleChange::Mapped(mapping) = &mut event.what
            && mapping.path == vdso::NAME
            && let Some(part) = self.vdso.complete(pid, mapping)
        {
            self.answer(Answer::Part(Box::new(part)));
        }
    }

    fn identify(&mut self, pid: i32, mapped_ns: i64, mapping: &mut Mapping) {
        let key = Key {
            path: mapping.path.clone(),
            build_id: mapping.build_id.clone(),
            file: mapping.file.map(numbers),
        };
        if let Some(held) = self.held.get(&key)
            && held.is_unchanged()
        {
            held.identity.tell(mapping);
            return;
        }
        let Some(file) = self.find(pid, mapped_ns, mapping) else {
            if let Some(held) = self.same_file(mapped_ns, mapping) {
                held.identity
                    .clone()
                    .reported_as(mapping.file)
                    .tell(mapping);
            }
            return;
        };
        let Some((state, identity)) = self.identity(&file, mapping) else {
            return;
        };
        identity.tell(mapping);
        if self.held.len() < MOST_HELD || self.held.contains_key(&key) {
            let file = Arc::new(file);
            let held = Held {
                file,
                identity,
                state,
            };
            self.held.insert(key, held);
        }
    }

    /// The identity of the file that was mapped.
    fn identity(&mut self, file: &File, mapping: &Mapping) -> Option<(State, Identity)> {
        let state = State::of(file).ok()?;
        if let Some(known) = self.known.get(&state) {
            return Some((state, known.clone().reported_as(mapping.file)));
        }
        let identity = Identity::of(file, mapping.file, &self.progress).ok()?;
        // It may have been written to while it was read.
        let state = State::of(file).ok().filter(|after| *after == state)?;
        if self.known.len() < MOST_KNOWN {
            self.known.insert(state, identity.clone());
        }
        Some((state, identity))
    }

    /// A held file that the kernel reported as the same, at another path. File systems without a device of their own
    /// may report the same numbers for several files.
    fn same_file(&self, mapped_ns: i64, mapping: &Mapping) -> Option<&Held> {
        let reported = mapping.file.filter(|file| file.device_major > 0)?;
        self.held.iter().find_map(|(key, held)| {
            let is_same = key.file == Some(numbers(reported))
                && held.state.changed_ns() <= mapped_ns
                && held.is_unchanged();
            is_same.then_some(held)
        })
    }

    /// The file that was mapped: the file at the path below the process's root, one of its mapped files, its program,
    /// or the file at the path below our root or those of other processes.
    fn find(&mut self, pid: i32, mapped_ns: i64, mapping: &Mapping) -> Option<File> {
        let root = self.roots.of(pid);
        let is_it = |file: &File| is_mapped(mapping, mapped_ns, file);
        let below = |root: &Arc<Root>| open::below(root.folder(), &mapping.path).ok();
        if let Some(file) = root.as_ref().and_then(below).filter(is_it) {
            return Some(file);
        }
        if self.lists_time < LISTS_TIME_MAX {
            let begun = Instant::now();
            let file = mapped_now(pid, mapping);
            self.lists_time += begun.elapsed();
            if file.is_some() {
                return file;
            }
        }
        let program = open::by_link(&format!("/proc/{pid}/exe")).ok();
        if let Some(program) = program.filter(is_it) {
            return Some(program);
        }
        self.roots.all().iter().filter_map(below).find(is_it)
    }
}

impl Held {
    fn is_unchanged(&self) -> bool {
        State::of(&self.file).is_ok_and(|now| now.has_contents_of(&self.state))
    }
}

/// Device and inode.
fn numbers(file: MappedFile) -> (u32, u32, u64) {
    (file.device_major, file.device_minor, file.inode)
}

/// The file that process `pid` has mapped at the mapping's address, from `/proc/PID/map_files`. Following its links
/// requires CAP_CHECKPOINT_RESTORE.
fn mapped_now(pid: i32, mapping: &Mapping) -> Option<File> {
    let line = maps::at(pid, mapping.start)?;
    let end = line.start.checked_add(line.length)?;
    let file = open::by_link(&format!("/proc/{pid}/map_files/{:x}-{end:x}", line.start)).ok()?;
    // If the line is the same before and after, nothing else was mapped there meanwhile.
    let same = maps::at(pid, mapping.start)? == line;
    let place = |mapping: &Mapping| mapping.start.wrapping_sub(mapping.file_offset);
    (same && place(&line) == place(mapping) && is_same(&line, mapping, &file)).then_some(file)
}

/// Whether a line of `/proc/PID/maps`, and the file behind it, match `mapping`.
fn is_same(line: &Mapping, mapping: &Mapping, file: &File) -> bool {
    if !mapping.build_id.is_empty() {
        return crate::elf::build_id::of_elf(file).is_some_and(|id| id == mapping.build_id);
    }
    // Some kernels report another device and inode for a file on overlayfs than `/proc/PID/maps`.
    line.file == mapping.file || line.path == mapping.path
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn files_are_held_up_to_a_limit() {
        let (answers, _answers) = channel();
        let mut keeper = Keeper::new(ClockPair::default(), answers, Progress::default());
        let own = std::process::id();
        let libc = maps::executable(own as i32);
        let libc = libc.into_iter().find(|it| it.path.contains("libc.so"));
        let libc = libc.expect("tests link libc");
        let mut identify = |minor: usize| {
            // As many files as there are names for one.
            let mut mapping = libc.clone();
            mapping.path = format!("{}{}", libc.path, "/".repeat(minor));
            let what = ModuleChange::Mapped(mapping);
            let mut event = ModuleEvent {
                time_ns: 0,
                space: own,
                what,
            };
            // Here all come at once.
            keeper.lists_time = Duration::ZERO;
            keeper.complete(&mut event);
            let ModuleChange::Mapped(mapping) = event.what else {
                panic!("it is a mapping")
            };
            (mapping.build_id.len(), keeper.held.len())
        };
        assert_eq!(identify(0), (20, 1));
        assert_eq!(identify(0), (20, 1));
        for number in 1..MOST_HELD {
            assert_eq!(identify(number), (20, number + 1));
        }
        assert_eq!(identify(MOST_HELD), (20, MOST_HELD), "identified, not held");
        assert_eq!(keeper.known.len(), 1, "it is one file, and was read once");
    }

    #[test]
    fn lists_of_mappings_are_read_for_a_part_of_the_time() {
        let (answers, _answers) = channel();
        let mut keeper = Keeper::new(ClockPair::default(), answers, Progress::default());
        let own = std::process::id() as i32;
        let mut all = maps::executable(own).into_iter();
        let mut libc = all.find(|it| it.path.contains("libc.so")).unwrap();
        libc.path = "/nowhere/libc.so".into();
        let find = |keeper: &mut Keeper| keeper.find(own, i64::MAX, &libc).is_some();
        // Only root may follow the links of the list.
        let is_found = find(&mut keeper);
        assert!(keeper.lists_time > Duration::ZERO);
        keeper.lists_time = LISTS_TIME_MAX;
        assert!(!find(&mut keeper));
        assert_eq!(keeper.lists_time, LISTS_TIME_MAX, "it was not read");
        keeper.look();
        assert_eq!(find(&mut keeper), is_found);
    }

    #[test]
    fn a_file_that_is_held_identifies_the_mappings_of_processes_that_are_gone() {
        let (answers, _answers) = channel();
        let mut keeper = Keeper::new(ClockPair::default(), answers, Progress::default());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.so");
        std::fs::write(&path, "\x7fELF no more").unwrap();
        let file = File::open(&path).unwrap();
        let reported = MappedFile {
            device_major: 8,
            device_minor: 1,
            inode: 77,
            contents: None,
        };
        let (state, identity) = keeper
            .identity(
                &file,
                &Mapping {
                    file: Some(reported),
                    ..Mapping::default()
                },
            )
            .unwrap();
        let changed_ns = state.changed_ns();
        let key = Key {
            path: "/a.so".into(),
            build_id: Vec::new(),
            file: Some(numbers(reported)),
        };
        let file = Arc::new(file);
        let held = Held {
            file,
            identity,
            state,
        };
        keeper.held.insert(key, held);
        let mut contents = |file: MappedFile, mapped_ns: i64| {
            let mut mapping = Mapping {
                path: "/elsewhere/b.so".into(),
                file: Some(file),
                ..Mapping::default()
            };
            keeper.identify(i32::MAX, mapped_ns, &mut mapping);
            mapping.file.and_then(|file| file.contents)
        };
        assert_eq!(contents(reported, changed_ns).unwrap().size_bytes, 12);
        assert_eq!(contents(reported, changed_ns - 1), None, "changed since");
        let other = MappedFile {
            inode: 78,
            ..reported
        };
        assert_eq!(contents(other, changed_ns), None);
        std::fs::write(&path, "\x7fELF another").unwrap();
        assert_eq!(contents(reported, i64::MAX), None, "written to since");
    }
}
