//! uftrace's data folder: `info`, `task.txt`, the maps and symbols of its sessions, and a file of records for each
//! thread. Spans come out, one thread after another. Memory grows with the program's symbols, not with the trace.

use super::records::{RECORD_BYTES, Record, What};
use super::symbols::{Sessions, open};
use crate::import::ImportError;
use crate::import::trace::open_calls::{Entry, Exit};
use crate::import::trace::tasks::TASKS_MAX;
use crate::import::trace::{NameId, OpenCalls, SpanKind, SpanSink, TaskLabel};
use std::collections::HashMap;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

/// Size of the cache of names by address.
const NAMED_MAX: usize = 1 << 20;

/// Reads a folder; the number of records.
///
/// # Errors
/// It is no folder of uftrace's, or reading or writing failed.
pub(crate) fn read(folder: &Path, sink: &mut dyn SpanSink) -> Result<u64, ImportError> {
    let is_relative = read_info(&folder.join("info"))?;
    let sessions = Sessions::read(folder, is_relative)?;
    let mut count = 0;
    for (tid, path) in threads(folder)? {
        let pid = sessions.process(tid);
        let task = sink.task(TaskLabel {
            space: pid,
            number: tid,
            name: format!("thread {tid}").as_bytes(),
        });
        let mut thread = Thread {
            sessions: &sessions,
            pid,
            calls: OpenCalls::new(task),
            names: HashMap::new(),
            file: path
                .file_name()
                .map_or_else(String::new, |name| name.to_string_lossy().into_owned()),
        };
        count += thread.read(&path, sink)?;
    }
    Ok(count)
}

/// Whether addresses of symbols are relative to their file's mapping.
fn read_info(path: &Path) -> Result<bool, ImportError> {
    const RELATIVE: u64 = 1 << 5;
    let refuse = |why: &str| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{}: {why}", path.display()),
        )
    };
    let mut header = [0; 40];
    let mut file = open(path).map_err(|error| {
        let more = format!("{error}: is it uftrace's folder?");
        io::Error::new(error.kind(), more)
    })?;
    file.read_exact(&mut header)
        .map_err(|_| refuse("it ends inside its header"))?;
    if &header[..8] != b"Ftrace!\0" {
        return Err(refuse("it is not uftrace's").into());
    }
    let version = u32::from_le_bytes([header[8], header[9], header[10], header[11]]);
    let (order, class) = (header[14], header[15]);
    if version != 4 || order != 1 || class != 2 {
        let why = "uftrace's version 4 for 64-bit little-endian machines is read; import what `uftrace dump` prints";
        return Err(refuse(why).into());
    }
    let mut features = [0; 8];
    features.copy_from_slice(&header[16..24]);
    Ok(u64::from_le_bytes(features) & RELATIVE != 0)
}

/// The threads' files of records.
fn threads(folder: &Path) -> io::Result<Vec<(u32, PathBuf)>> {
    let mut threads = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let is_data = path.extension().is_some_and(|extension| extension == "dat");
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        if let Some(tid) = stem.filter(|_| is_data).and_then(|stem| stem.parse().ok()) {
            threads.push((tid, path));
        }
    }
    threads.sort();
    threads.truncate(TASKS_MAX);
    Ok(threads)
}

/// State of the thread whose file is read.
struct Thread<'s> {
    sessions: &'s Sessions,
    pid: u32,
    calls: OpenCalls,
    names: HashMap<(usize, u64), NameId>,
    file: String,
}

impl Thread<'_> {
    fn read(&mut self, path: &Path, sink: &mut dyn SpanSink) -> Result<u64, ImportError> {
        let mut input = BufReader::with_capacity(1 << 18, open(path)?);
        let mut count = 0;
        let mut bytes = [0; RECORD_BYTES];
        loop {
            let at = count * RECORD_BYTES as u64;
            let left = io::copy(
                &mut input.by_ref().take(RECORD_BYTES as u64),
                &mut &mut bytes[..],
            )?;
            if left < RECORD_BYTES as u64 {
                if left > 0 {
                    sink.trouble(at, &format!("of {}: a record that is cut", self.file));
                }
                break;
            }
            let record = match Record::of(bytes) {
                Ok(record) => record,
                Err(what) => {
                    sink.trouble(at, &format!("of {}: {what}", self.file));
                    break;
                }
            };
            count += 1;
            self.record(&record, at, sink)?;
        }
        self.calls.finish(sink)?;
        Ok(count)
    }

    fn record(
        &mut self,
        record: &Record,
        at: u64,
        sink: &mut dyn SpanSink,
    ) -> Result<(), ImportError> {
        let depth = u64::from(record.depth);
        match record.what {
            What::Entry => {
                let entry = Entry {
                    name: self.name(record, sink),
                    start_ns: Some(record.time_ns),
                    cpu: None,
                    kind: SpanKind::Function,
                    line: at,
                };
                self.calls.enter_at(depth, entry, sink)
            }
            What::Exit => {
                let exit = Exit {
                    name: Some(self.name(record, sink)),
                    end_ns: Some(record.time_ns),
                    line: at,
                    ..Exit::default()
                };
                self.calls.leave_at(depth, exit, sink)
            }
            What::Lost => {
                sink.trouble(at, &format!("of {}: records that uftrace lost", self.file));
                Ok(())
            }
            What::Event => Ok(()),
        }
    }

    fn name(&mut self, record: &Record, sink: &mut dyn SpanSink) -> NameId {
        let session = self.sessions.of(self.pid, record.time_ns);
        if let Some(name) = self.names.get(&(session, record.address)) {
            return *name;
        }
        let name = match self.sessions.name(session, record.address) {
            Some(name) => sink.name(name.as_bytes()),
            None => sink.name(format!("0x{:x}", record.address).as_bytes()),
        };
        if self.names.len() < NAMED_MAX {
            self.names.insert((session, record.address), name);
        }
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::trace::collected::Collected;

    /// Writes a folder as uftrace does, for one process that forks.
    fn write(folder: &Path, records: &[(u64, u64, u64, u64)]) {
        let mut info = b"Ftrace!\0\x04\0\0\0\x28\0\x01\x02".to_vec();
        info.extend((1_u64 << 5).to_le_bytes());
        info.resize(40, 0);
        let files: [(&str, &[u8]); 5] = [
            ("info", &info),
            (
                "task.txt",
                b"SESS timestamp=1.000000000 pid=7 sid=ab exename=\"/x/prog\"\nTASK timestamp=1.0 tid=7 pid=7\n\
                  FORK timestamp=1.5 pid=8 ppid=7\n",
            ),
            ("sid-ab.map", b"1000-5000 r-xp 00000000 00:00 0     /x/prog build-id:12\n"),
            ("prog.sym", b"# symbols: 3\n0000000000000100 T main\n0000000000000200 T _ZN2ns3fooEv\n\
                  0000000000000300 ? __end\n"),
            ("8.dat", b""),
        ];
        for (name, bytes) in files {
            std::fs::write(folder.join(name), bytes).unwrap();
        }
        let bytes: Vec<u8> = records
            .iter()
            .flat_map(|(time_ns, kind, depth, address)| {
                let word = kind | 5 << 3 | depth << 6 | address << 16;
                [time_ns.to_le_bytes(), word.to_le_bytes()].concat()
            })
            .collect();
        std::fs::write(folder.join("7.dat"), &bytes).unwrap();
        std::fs::write(folder.join("8.dat"), &bytes[..24]).unwrap();
    }

    #[test]
    fn records_and_symbols_become_calls() {
        let folder = tempfile::tempdir().unwrap();
        let records = [
            (1_000_000_010, 0, 0, 0x1104),
            (1_000_000_020, 0, 1, 0x1210),
            (1_000_000_025, 3, 1, 100_001),
            (1_000_000_050, 1, 1, 0x1210),
            (1_000_000_060, 0, 1, 0x1300),
            (1_000_000_070, 1, 1, 0x1300),
            (1_000_000_090, 1, 0, 0x1104),
        ];
        write(folder.path(), &records);
        let mut sink = Collected::default();
        assert_eq!(read(folder.path(), &mut sink).unwrap(), 8);
        let expected = [
            "7/7 ns::foo() 1 30",
            "7/7 0x1300 1 10",
            "7/7 main 0 80",
            "8/8 main 0 ? cut",
        ];
        assert_eq!(sink.lines(), expected);
        let what = "of 8.dat: a record that is cut".to_owned();
        assert_eq!(sink.troubles, [(16, what)]);
    }

    /// A folder may come by mail.
    #[test]
    fn a_folder_leads_to_no_file_outside_and_keeps_nobody_waiting() {
        let reads = |name: &str, put: &dyn Fn(&Path)| {
            let folder = tempfile::tempdir().unwrap();
            let records = [(1_000_000_010, 0, 0, 0x1104), (1_000_000_020, 1, 0, 0x1104)];
            write(folder.path(), &records);
            let path = folder.path().join(name);
            std::fs::remove_file(&path).unwrap();
            put(&path);
            read(folder.path(), &mut Collected::default()).map_err(|error| error.to_string())
        };
        let outside = tempfile::tempdir().unwrap();
        let outside = outside.path().join("mine");
        std::fs::write(&outside, "0000000000000100 T my_secret\n").unwrap();
        for name in ["info", "task.txt", "sid-ab.map", "prog.sym", "7.dat"] {
            let link = |path: &Path| std::os::unix::fs::symlink(&outside, path).unwrap();
            let said = reads(name, &link).unwrap_err();
            assert!(said.contains(&format!("{name}: it is a link")), "{said}");
            let pipe = |path: &Path| {
                nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRUSR).unwrap();
            };
            let said = reads(name, &pipe).unwrap_err();
            assert!(
                said.contains(&format!("{name}: it is no regular file")),
                "{said}"
            );
            let folder = |path: &Path| std::fs::create_dir(path).unwrap();
            assert!(reads(name, &folder).is_err(), "{name}");
        }
        assert_eq!(reads("prog.sym", &|_| {}), Ok(3), "without its symbols");
    }

    /// In a second; it would take minutes if each were compared with each.
    #[test]
    fn as_many_mappings_as_a_folder_can_have() {
        let folder = tempfile::tempdir().unwrap();
        let many = 200_000_u64;
        // A thousand names: what collects them for tests looks at one after the other.
        let address = |number: u64| 0x1000 * (1 + number / 2 % 1000 * 200);
        let records: Vec<_> = (0..many)
            .map(|number| (1_000_000_000 + number, number % 2, 0, address(number)))
            .collect();
        write(folder.path(), &records);
        let maps = (1..=many)
            .map(|number| {
                let (start, end) = (number * 0x1000, (number + 1) * 0x1000);
                format!("{start:x}-{end:x} r-xp 00000000 00:00 0 /x/lib{number}.so\n")
            })
            .collect::<String>();
        std::fs::write(folder.path().join("sid-ab.map"), maps).unwrap();
        let mut sink = Collected::default();
        assert_eq!(read(folder.path(), &mut sink).unwrap(), many + 1);
    }

    #[test]
    fn a_folder_that_is_not_uftraces_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let refused = |folder: &Path| {
            read(folder, &mut Collected::default())
                .unwrap_err()
                .to_string()
        };
        assert!(refused(folder.path()).contains("is it uftrace's folder?"));
        std::fs::write(folder.path().join("info"), [0; 40]).unwrap();
        assert!(refused(folder.path()).contains("it is not uftrace's"));
    }
}
