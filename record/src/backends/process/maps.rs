//! Reads the code mappings of a process from `/proc/PID/maps`.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use uprof::cold::{MappedFile, Mapping};

/// Most bytes read of a list: a few times as many mappings as the kernel usually allows.
pub const MOST_BYTES: u64 = 64 << 20;

/// The suffix that the kernel appends to the path of a deleted file.
const DELETED: &str = " (deleted)";

/// The executable mappings of process `pid`, in order of address; empty when it is gone.
pub fn executable(pid: i32) -> Vec<Mapping> {
    each(pid).collect()
}

/// The executable mapping of process `pid` that holds `address`.
pub fn at(pid: i32, address: u64) -> Option<Mapping> {
    each(pid).find(|mapping| address.wrapping_sub(mapping.start) < mapping.length)
}

fn each(pid: i32) -> impl Iterator<Item = Mapping> {
    let file = File::open(format!("/proc/{pid}/maps")).into_iter();
    let lines = file.flat_map(|file| BufReader::new(file.take(MOST_BYTES)).split(b'\n'));
    lines
        .map_while(Result::ok)
        .filter_map(|line| parse(&String::from_utf8_lossy(&line)))
}

/// One line (proc_pid_maps(5)); `None` unless it is an executable mapping.
pub fn parse(line: &str) -> Option<Mapping> {
    let mut rest = line;
    let mut field = || {
        let trimmed = rest.trim_start_matches(' ');
        let (word, tail) = trimmed.split_once(' ').unwrap_or((trimmed, ""));
        rest = tail;
        word
    };
    let (range, permissions, offset) = (field(), field(), field());
    let (device, inode) = (field(), field());
    if !permissions.contains('x') {
        return None;
    }
    let (start, end) = range.split_once('-')?;
    let start = u64::from_str_radix(start, 16).ok()?;
    let end = u64::from_str_radix(end, 16).ok()?;
    let path = rest.trim_start_matches(' ');
    Some(Mapping {
        start,
        length: end.checked_sub(start)?,
        file_offset: u64::from_str_radix(offset, 16).ok()?,
        path: if path.is_empty() {
            ANONYMOUS.into()
        } else {
            path.strip_suffix(DELETED).unwrap_or(path).into()
        },
        build_id: Vec::new(),
        file: file(device, inode),
    })
}

/// Path of anonymous memory.
pub const ANONYMOUS: &str = "[anon]";

fn file(device: &str, inode: &str) -> Option<MappedFile> {
    let (major, minor) = device.split_once(':')?;
    Some(MappedFile {
        device_major: u32::from_str_radix(major, 16).ok()?,
        device_minor: u32::from_str_radix(minor, 16).ok()?,
        inode: inode.parse().ok().filter(|&inode| inode != 0)?,
        contents: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_all_kinds() {
        let mapping =
            parse("7f00-8f00 r-xp 00001000 08:02 173521      /usr/lib/a file.so").unwrap();
        assert_eq!(
            (mapping.start, mapping.length, mapping.file_offset),
            (0x7f00, 0x1000, 0x1000)
        );
        assert_eq!(mapping.path, "/usr/lib/a file.so");
        let file = mapping.file.unwrap();
        assert_eq!(
            (file.device_major, file.device_minor, file.inode),
            (8, 2, 173_521)
        );
        let gone = parse("7f00-8f00 r-xp 00000000 00:1a 7       /tmp/a (deleted)").unwrap();
        assert_eq!(
            (&gone.path[..], gone.file.unwrap().device_minor),
            ("/tmp/a", 26)
        );
        let nothing = parse("7f00-8f00 r-xp 00000000 00:00 0 ").unwrap();
        assert_eq!((&nothing.path[..], nothing.file), (ANONYMOUS, None));
        assert_eq!(
            parse("7f00-8f00 rw-p 00001000 08:02 173521      /usr/lib/a"),
            None
        );
        for hostile in ["", "-", "8-7 r-xp 0 0 0", "zz-zz r-xp 0 0 0 x"] {
            assert_eq!(parse(hostile), None);
        }
    }

    #[test]
    fn our_own_code_is_mapped() {
        let own = executable(std::process::id() as i32);
        let here = our_own_code_is_mapped as *const () as u64;
        assert!(
            own.iter()
                .any(|map| (map.start..map.start + map.length).contains(&here))
        );
        let found = at(std::process::id() as i32, here).unwrap();
        assert!(own.contains(&found));
    }
}
