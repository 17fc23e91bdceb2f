//! Sessions (programs that ran in a process), their mappings and symbols: text files of the folder go in, names of
//! addresses come out.

use crate::images::symbols::demangle;
use crate::import::trace::decimal::seconds_ns;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Limit on the size of a text file (bytes); the rest is not read.
const TEXT_BYTES_MAX: u64 = 64 << 20;

/// All sessions: each is a program that was run.
pub(super) struct Sessions {
    sessions: Vec<Session>,
    /// The process of a thread, and the process that a process is forked from.
    processes: HashMap<u32, u32>,
    parents: HashMap<u32, u32>,
    symbols: Vec<Symbols>,
}

struct Session {
    start_ns: u64,
    pid: u32,
    maps: Vec<Map>,
}

struct Map {
    start: u64,
    end: u64,
    /// Subtracted from an address to find its symbol.
    base: u64,
    symbols: usize,
}

/// Symbols of a file by address; an entry without a name marks the end of the previous one.
type Symbols = Vec<(u64, Option<String>)>;

impl Sessions {
    /// Reads `task.txt`, and the maps and symbols that it refers to.
    pub(super) fn read(folder: &Path, is_relative: bool) -> io::Result<Sessions> {
        let mut all = Sessions {
            sessions: Vec::new(),
            processes: HashMap::new(),
            parents: HashMap::new(),
            symbols: Vec::new(),
        };
        let mut files = HashMap::new();
        for line in text(&folder.join("task.txt"))?.lines() {
            let value = |key: &str| {
                let (_, rest) = line.split_once(key)?;
                rest.split(' ').next()
            };
            let number = |key: &str| value(key).and_then(|text| text.parse::<u32>().ok());
            let start_ns = value("timestamp=").and_then(|text| seconds_ns(text.as_bytes()));
            match line.get(..4) {
                Some("SESS") => {
                    let sid = value(" sid=").unwrap_or_default();
                    // It becomes part of a file's name, so it must not hold a path.
                    let is_sane = sid.bytes().all(|byte| byte.is_ascii_alphanumeric());
                    let maps = match is_sane {
                        true => all.maps(folder, sid, is_relative, &mut files)?,
                        false => Vec::new(),
                    };
                    all.sessions.push(Session {
                        start_ns: start_ns.unwrap_or(0),
                        pid: number(" pid=").or(number(" tid=")).unwrap_or(0),
                        maps,
                    });
                }
                Some("TASK") => {
                    if let (Some(tid), Some(pid)) = (number(" tid="), number(" pid=")) {
                        all.processes.insert(tid, pid);
                    }
                }
                Some("FORK") => {
                    if let (Some(pid), Some(parent)) = (number(" pid="), number(" ppid=")) {
                        all.parents.insert(pid, parent);
                    }
                }
                _ => {}
            }
        }
        all.sessions.sort_by_key(|session| session.start_ns);
        Ok(all)
    }

    /// The files mapped in a session.
    fn maps(
        &mut self,
        folder: &Path,
        sid: &str,
        is_relative: bool,
        files: &mut HashMap<String, usize>,
    ) -> io::Result<Vec<Map>> {
        let mut maps: Vec<Map> = Vec::new();
        let mut firsts = HashMap::new();
        for line in text(&folder.join(format!("sid-{sid}.map")))?.lines() {
            let mut words = line.split_ascii_whitespace();
            let range = words.next().and_then(|range| range.split_once('-'));
            let Some((start, end)) = range.and_then(|(start, end)| Some((hex(start)?, hex(end)?)))
            else {
                continue;
            };
            let Some(name) = words
                .nth(4)
                .and_then(|path| Path::new(path).file_name()?.to_str())
            else {
                continue;
            };
            let symbols = match files.get(name) {
                Some(symbols) => *symbols,
                None => {
                    let path = folder.join(format!("{name}.sym"));
                    self.symbols.push(match text(&path) {
                        Ok(text) => symbols(&text),
                        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
                        Err(error) => return Err(error),
                    });
                    files.insert(name.to_owned(), self.symbols.len() - 1);
                    self.symbols.len() - 1
                }
            };
            let first = *firsts.entry(symbols).or_insert(start);
            maps.push(Map {
                start,
                end,
                base: if is_relative { first } else { 0 },
                symbols,
            });
        }
        maps.sort_by_key(|map| map.start);
        Ok(maps)
    }

    /// The process of a thread.
    pub(super) fn process(&self, tid: u32) -> u32 {
        self.processes.get(&tid).copied().unwrap_or(tid)
    }

    /// The session of a process at a time: its own latest one, or that of its parent.
    pub(super) fn of(&self, pid: u32, time_ns: u64) -> usize {
        let mut pid = pid;
        // A cycle of parents has no session.
        for _ in 0..=self.parents.len() {
            let is_it = |session: &Session| session.pid == pid && session.start_ns <= time_ns;
            if let Some(at) = self.sessions.iter().rposition(is_it) {
                return at;
            }
            match self.parents.get(&pid) {
                Some(parent) => pid = *parent,
                None => break,
            }
        }
        0
    }

    /// The name of an address.
    pub(super) fn name(&self, session: usize, address: u64) -> Option<&str> {
        let maps = &self.sessions.get(session)?.maps;
        let behind = maps.partition_point(|map| map.start <= address);
        let map = maps.get(behind.checked_sub(1)?)?;
        if address >= map.end {
            return None;
        }
        let symbols = self.symbols.get(map.symbols)?;
        let address = address.checked_sub(map.base)?;
        let after = symbols.partition_point(|(start, _)| *start <= address);
        symbols.get(after.checked_sub(1)?)?.1.as_deref()
    }
}

/// `0000000000001219 T leaf`, a line each.
fn symbols(text: &str) -> Symbols {
    let mut symbols: Symbols = text
        .lines()
        .filter_map(|line| {
            let mut words = line.splitn(3, ' ');
            let (address, kind, name) = (hex(words.next()?)?, words.next()?, words.next()?);
            Some((address, (kind != "?").then(|| demangle(name).into_owned())))
        })
        .collect();
    symbols.sort_by_key(|(address, _)| *address);
    symbols
}

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

fn text(path: &Path) -> io::Result<String> {
    let describe =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let mut bytes = Vec::new();
    open(path)?
        .take(TEXT_BYTES_MAX)
        .read_to_end(&mut bytes)
        .map_err(describe)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Opens a file of the folder's own. Whoever made the folder may have put links to files of its reader there, or pipes
/// that keep it waiting.
///
/// # Errors
/// It can't be opened, or is no regular file; its path is in the message.
pub(super) fn open(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
    let opened = options.read(true).custom_flags(flags).open(path);
    let describe = |error: io::Error| match error.raw_os_error() {
        Some(libc::ELOOP) => io::Error::new(
            io::ErrorKind::InvalidData,
            format!(
                "{}: it is a link: copy what it leads to into the folder, if you trust it",
                path.display()
            ),
        ),
        _ => io::Error::new(error.kind(), format!("{}: {error}", path.display())),
    };
    let file = opened.map_err(describe)?;
    match file.metadata().map_err(describe)?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{}: it is no regular file", path.display()),
        )),
    }
}
