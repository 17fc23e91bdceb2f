//! Processes that generate code at run time, and their reports about it.
//!
//! Input: events of address spaces, in order. Output: mappings and tables of that code. The processes' files are read
//! periodically; a new entry was written since the last reading.

use super::functions::{Function, Functions, NewCode, TableBytes};
use super::jitdump::JitDump;
use super::perf_map::PerfMap;
use super::roots::Root;
use crate::backends::process::{maps, proc_status};
use crate::sys::open;
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use uprof::cold::{Mapping, ModuleChange, ModuleEvent};

/// Most processes followed; in further ones, generated code has no names.
pub const MOST_PROCESSES: usize = 1024;
/// Most open files that describe generated code.
pub const MOST_FILES: usize = 256;
/// A file last written this long before its process began belongs to another process, in nanoseconds.
const SLACK_NS: i64 = 1_000_000_000;

/// All processes with memory that may hold such code.
#[derive(Debug, Default)]
pub struct Runtimes {
    by_space: HashMap<u32, Process>,
    serial: u32,
    files: usize,
    /// Bytes of all names.
    bytes: TableBytes,
}

#[derive(Debug)]
struct Process {
    functions: Functions,
    identity: Option<Identity>,
    map: Option<PerfMap>,
    dump: Option<JitDump>,
    read_ns: u64,
}

/// Distinguishes a process's own files from those of others.
#[derive(Debug)]
struct Identity {
    /// Its process id in its own namespace.
    inner_pid: i32,
    user: u32,
    /// When it began, by the wall clock.
    began_ns: i64,
    root: Arc<Root>,
}

/// Path of memory that processes share.
pub const SHARED_MEMORY: &str = "/dev/zero";

/// Whether a mapping is memory without a file.
pub fn is_memory(path: &str) -> bool {
    let names = [
        "//anon",
        "[anon",
        "[heap]",
        "/memfd:",
        SHARED_MEMORY,
        "anon_inode:",
    ];
    names.iter().any(|name| path.starts_with(name))
}

impl Runtimes {
    /// Handles an event; returns the part to record. `root` finds the root of the process. For memory, that part is
    /// the memory that was not known before, since the kernel reports a mapping whenever its protection changes.
    pub fn take(
        &mut self,
        event: ModuleEvent,
        root: impl FnOnce(i32) -> Option<Arc<Root>>,
    ) -> Vec<ModuleEvent> {
        let (space, time_ns) = (event.space, event.time_ns);
        match &event.what {
            ModuleChange::Cleared => self.forget(space),
            ModuleChange::CopiedFrom(parent) => self.copy(*parent, space, time_ns, root),
            // An image that was written to memory counts as memory.
            ModuleChange::Mapped(mapping)
                if is_memory(&mapping.path) && mapping.build_id.is_empty() =>
            {
                if let Some(process) = self.process(space, time_ns, root) {
                    let new = process
                        .functions
                        .piece(mapping.start, mapping.length, time_ns);
                    let new = new.into_iter().map(|(start, length)| Mapping {
                        start,
                        length,
                        file_offset: mapping.file_offset.wrapping_add(start - mapping.start),
                        ..mapping.clone()
                    });
                    return new
                        .map(|mapping| ModuleEvent::mapped(time_ns, space, mapping))
                        .collect();
                }
            }
            ModuleChange::Mapped(mapping) => {
                if let Some(process) = self.by_space.get_mut(&space) {
                    process.functions.lose(mapping.start, mapping.length);
                }
            }
        }
        vec![event]
    }

    /// Opens the jitdump that a process has mapped.
    pub fn found_dump(
        &mut self,
        space: u32,
        time_ns: u64,
        file: File,
        root: impl FnOnce(i32) -> Option<Arc<Root>>,
    ) {
        if self.files >= MOST_FILES {
            return;
        }
        let bytes = self.bytes.share();
        let Some(process) = self.process(space, time_ns, root) else {
            return;
        };
        let owner = process.identity.as_ref().map(|identity| identity.user);
        let is_trusted = file
            .metadata()
            .is_ok_and(|it| it.uid() == 0 || Some(it.uid()) == owner);
        if process.dump.is_none() && is_trusted {
            let mut dump = JitDump::new(file);
            dump.bytes = bytes;
            process.dump = Some(dump);
            self.files += 1;
        }
    }

    /// Whether no process is known to generate code.
    pub fn are_none(&self) -> bool {
        self.by_space.is_empty()
    }

    /// Reads all files; passes new functions to `each`.
    pub fn look(&mut self, now_ns: u64, mut each: impl FnMut(u32, NewCode)) {
        let mut gone = Vec::new();
        for (&space, process) in &mut self.by_space {
            // Checked first, so that everything that a process wrote before it ended is read.
            let lives = std::path::Path::new(&format!("/proc/{space}")).exists();
            if process.map.is_none() && process.dump.is_none() && self.files < MOST_FILES {
                process.map = process.identity.as_ref().and_then(open_map);
                self.files += usize::from(process.map.is_some());
            }
            let new = process.look(space as i32, now_ns);
            each(space, new);
            if !lives && !process.is_behind() && !process.has_more() {
                gone.push(space);
            }
        }
        gone.into_iter().for_each(|space| self.forget(space));
    }

    /// Whether another look is due at once.
    pub fn is_behind(&self) -> bool {
        self.by_space.values().any(Process::is_behind)
    }

    fn forget(&mut self, space: u32) {
        if let Some(process) = self.by_space.remove(&space) {
            self.files -= usize::from(process.map.is_some()) + usize::from(process.dump.is_some());
        }
    }

    fn process(
        &mut self,
        space: u32,
        time_ns: u64,
        root: impl FnOnce(i32) -> Option<Arc<Root>>,
    ) -> Option<&mut Process> {
        if !self.by_space.contains_key(&space) {
            if self.by_space.len() >= MOST_PROCESSES {
                return None;
            }
            self.serial += 1;
            let identity = root(space as i32).and_then(|root| identify(space as i32, root));
            let mut functions = Functions::new(self.serial);
            functions.bytes = self.bytes.share();
            let process = Process {
                functions,
                identity,
                map: None,
                dump: None,
                read_ns: time_ns,
            };
            self.by_space.insert(space, process);
        }
        self.by_space.get_mut(&space)
    }

    /// Handles a fork: the child's memory is the same, and its code is in the parent's tables, which are mapped there.
    fn copy(
        &mut self,
        parent: u32,
        space: u32,
        time_ns: u64,
        root: impl FnOnce(i32) -> Option<Arc<Root>>,
    ) {
        // What was read of it before is of the program that it was then.
        self.forget(space);
        let parent = self.by_space.get(&parent);
        let pieces = parent.map_or(Vec::new(), |it| it.functions.for_copy());
        if pieces.is_empty() {
            return;
        }
        if let Some(process) = self.process(space, time_ns, root) {
            process.functions.inherit(pieces, time_ns);
        }
    }
}

impl Process {
    fn has_more(&self) -> bool {
        self.map.as_ref().is_some_and(PerfMap::has_more)
    }

    /// Whether the last look left something that was there for the next one.
    fn is_behind(&self) -> bool {
        self.map.as_ref().is_some_and(|map| map.is_behind)
            || self.dump.as_ref().is_some_and(|dump| dump.is_behind)
    }

    fn look(&mut self, pid: i32, now_ns: u64) -> NewCode {
        let since_ns = self.read_ns;
        let mut made = Vec::new();
        if let Some(dump) = &mut self.dump {
            made = dump.look(since_ns, now_ns);
        }
        if let Some(map) = &mut self.map {
            made.extend(map.look(since_ns));
        }
        // What is left is as old as what was read.
        if !self.is_behind() {
            self.read_ns = now_ns;
        }
        if made.is_empty() {
            return NewCode::default();
        }
        self.find_memory(pid, since_ns, &made);
        self.functions.add(made)
    }

    /// Searches memory of functions for which there was no event.
    fn find_memory(&mut self, pid: i32, since_ns: u64, made: &[Function]) {
        if made
            .iter()
            .all(|function| self.functions.has_room(function))
        {
            return;
        }
        for mapping in maps::executable(pid) {
            if is_memory(&mapping.path) {
                self.functions
                    .piece(mapping.start, mapping.length, since_ns);
            }
        }
    }
}

fn identify(pid: i32, root: Arc<Root>) -> Option<Identity> {
    let status = proc_status::read(pid)?;
    Some(Identity {
        inner_pid: status.inner_pid,
        user: status.user,
        began_ns: proc_status::began_ns(pid)?,
        root,
    })
}

/// Opens the perf map of a process, if it belongs to its user or root and is not left from another process.
fn open_map(identity: &Identity) -> Option<PerfMap> {
    let path = format!("/tmp/perf-{}.map", identity.inner_pid);
    let file = open::named(identity.root.folder(), &path).ok()?;
    let found = file.metadata().ok()?;
    let is_trusted = found.uid() == 0 || found.uid() == identity.user;
    let written_ns = found
        .mtime()
        .saturating_mul(1_000_000_000)
        .saturating_add(found.mtime_nsec());
    let is_own = written_ns.saturating_add(SLACK_NS) >= identity.began_ns;
    (is_trusted && is_own).then(|| PerfMap::new(file))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::process::images::functions::PATH;
    use crate::backends::process::images::roots::Roots;
    use std::io::Write;

    fn memory(space: u32, start: u64) -> ModuleEvent {
        let mapping = Mapping {
            start,
            length: 0x1000,
            path: "//anon".into(),
            ..Mapping::default()
        };
        ModuleEvent::mapped(5, space, mapping)
    }

    /// Of a long list, later looks read what was there at the first one.
    #[test]
    fn what_a_look_leaves_is_as_old_as_what_it_read() {
        let line = "7f00 1a a function with a name of some length\n";
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let lines = super::super::perf_map::MOST_LOOK_BYTES / line.len() + 2;
        file.write_all(line.repeat(lines).as_bytes()).unwrap();
        let mut process = Process {
            functions: Functions::new(1),
            identity: None,
            map: Some(PerfMap::new(file.reopen().unwrap())),
            dump: None,
            read_ns: 5,
        };
        let pid = std::process::id() as i32;
        process.look(pid, 10);
        assert_eq!((process.is_behind(), process.read_ns), (true, 5));
        process.look(pid, 20);
        assert_eq!((process.is_behind(), process.read_ns), (false, 20));
    }

    #[test]
    fn only_so_many_processes_are_followed() {
        let mut runtimes = Runtimes::default();
        for space in 0..MOST_PROCESSES as u32 + 5 {
            runtimes.take(memory(1 << 24 | space, 0x1000), |_| None);
        }
        assert_eq!(runtimes.by_space.len(), MOST_PROCESSES);
        // None of them is there.
        runtimes.look(9, |_, new| assert!(new.parts.is_empty()));
        assert!(runtimes.by_space.is_empty());
    }

    /// A file of our own that claims to describe our code; returns the names and mappings found.
    fn read(path: &str) -> (Vec<String>, Vec<Mapping>) {
        let own = std::process::id();
        let mut roots = Roots::new();
        let mut runtimes = Runtimes::default();
        runtimes.take(memory(own, 0x1000), |pid| roots.of(pid));
        let (mut names, mut mappings) = (Vec::new(), Vec::new());
        runtimes.look(9, |_, new| {
            mappings.extend(new.mappings.iter().map(|(_, mapping)| mapping.clone()));
            let symbols = new.parts.iter().flat_map(|part| part.symbols());
            names.extend(symbols.map(|symbol| symbol.name.to_owned()));
        });
        let _ = std::fs::remove_file(path);
        let again = runtimes.take(memory(own, 0x1000), |_| None);
        assert!(again.is_empty(), "it is known");
        (names, mappings)
    }

    #[test]
    fn what_changes_nothing_is_not_recorded_and_a_file_takes_its_place() {
        let mut runtimes = Runtimes::default();
        let places = |events: Vec<ModuleEvent>| -> Vec<(u64, u64, u64)> {
            let mapping = |event: ModuleEvent| match event.what {
                ModuleChange::Mapped(it) => (it.start, it.length, it.file_offset),
                _ => panic!("it is a mapping"),
            };
            events.into_iter().map(mapping).collect()
        };
        let of = |path: &str, start: u64, length: u64| {
            let mapping = Mapping {
                start,
                length,
                path: path.into(),
                ..Mapping::default()
            };
            ModuleEvent::mapped(5, 7, mapping)
        };
        let zero = "/dev/zero (deleted)";
        let first = places(runtimes.take(of(zero, 0x2000, 0x2000), |_| None));
        assert_eq!(first, [(0x2000, 0x2000, 0)]);
        for (start, length) in [(0x2000, 0x2000), (0x2000, 0x1000), (0x3000, 0x1000)] {
            assert!(runtimes.take(of(zero, start, length), |_| None).is_empty());
        }
        let wider = places(runtimes.take(of(zero, 0x1000, 0x4000), |_| None));
        assert_eq!(wider, [(0x1000, 0x1000, 0), (0x4000, 0x1000, 0x3000)]);
        let file = runtimes.take(of("/lib/a.so", 0x2000, 0x1000), |_| None);
        assert_eq!(places(file), [(0x2000, 0x1000, 0)]);
        let again = places(runtimes.take(of(zero, 0x1000, 0x4000), |_| None));
        assert_eq!(again, [(0x2000, 0x1000, 0x1000)]);
    }

    #[test]
    fn a_map_is_taken_from_whom_it_tells_of_alone() {
        let path = format!("/tmp/perf-{}.map", std::process::id());
        let write = || std::fs::write(&path, "1000 10 f\n7f0000 10 elsewhere\n").unwrap();
        write();
        let (names, mappings) = read(&path);
        assert_eq!(names, ["f"]);
        let mappings: Vec<_> = mappings.iter().map(|it| (&it.path[..], it.start)).collect();
        assert_eq!(mappings, [(PATH, 0x1000)]);
        // Left behind by an earlier process with the same id.
        write();
        let old = std::time::SystemTime::UNIX_EPOCH;
        let file = File::options().write(true).open(&path).unwrap();
        file.set_modified(old).unwrap();
        let (names, mappings) = read(&path);
        assert!(names.is_empty() && mappings.is_empty());
        // A pipe, and a link.
        nix::unistd::mkfifo(&path[..], nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(read(&path).0.is_empty());
        std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
        assert!(read(&path).0.is_empty());
        if nix::unistd::geteuid().is_root() {
            write();
            std::os::unix::fs::chown(&path, Some(65534), None).unwrap();
            assert!(read(&path).0.is_empty(), "someone else's");
        }
    }
}
