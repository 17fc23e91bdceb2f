//! Reads `/proc/PID/maps`: which parts of which images a process has mapped as code.

use uprof::cold::Mapping;

/// The executable mappings of process `pid`, in order of address; empty when it is gone.
pub fn executable(pid: i32) -> Vec<Mapping> {
    let text = std::fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    String::from_utf8_lossy(&text)
        .lines()
        .filter_map(parse)
        .collect()
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
    let (_device, _inode) = (field(), field());
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
            "[anon]".into()
        } else {
            path.into()
        },
        build_id: Vec::new(),
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
        assert_eq!(
            parse("7f00-8f00 r-xp 00000000 00:00 0 ").unwrap().path,
            "[anon]"
        );
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
    }
}
