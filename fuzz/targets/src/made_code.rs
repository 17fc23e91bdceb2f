//! What programs tell of code that they make: the file is other people's, and so is its reader's time.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use uniprof_record::process::images::functions::{Functions, NewCode};
use uniprof_record::process::images::jitdump::JitDump;
use uniprof_record::process::images::perf_map::PerfMap;

/// Memory that may hold code: what lies elsewhere must not be mapped.
const PIECES: [(u64, u64); 3] = [
    (0x1000, 0x3000),
    (0x4000, 0x1000),
    (0x7f00_0000_0000, 1 << 20),
];

/// A perf map that grows by `bytes` in two steps, and a jitdump of them.
pub fn run(bytes: &[u8]) {
    let _ = told(bytes);
}

fn told(bytes: &[u8]) -> io::Result<()> {
    let (first, second) = bytes.split_at(bytes.len() / 2);
    let (mut written, file) = nameless_file()?;
    let mut map = PerfMap::new(file.try_clone()?);
    let mut dump = JitDump::new(file);
    let mut functions = Functions::new(7);
    for (start, length) in PIECES {
        functions.piece(start, length, 1);
    }
    for (round, half) in (2u64..).zip([first, second]) {
        written.write_all(half)?;
        check(&functions.add(map.look(round)));
        check(&functions.add(dump.look(round, round + 1)));
        let (start, length) = PIECES[0];
        functions.piece(start + 0x800, length, round);
    }
    Ok(())
}

fn check(news: &NewCode) {
    for (_, mapping) in &news.mappings {
        let end = mapping.start.checked_add(mapping.length);
        // The first two may grow together.
        let inside = |(start, length): &(u64, u64)| {
            mapping.start >= *start && end.is_some_and(|end| end <= start + length + 0x1000)
        };
        assert!(PIECES.iter().any(inside), "{mapping:?}");
        assert_eq!(mapping.file_offset, mapping.start);
    }
    for part in &news.parts {
        assert!(
            part.symbols()
                .is_sorted_by(|one, next| one.address < next.address)
        );
        assert!(
            part.symbols()
                .all(|symbol| symbol.size_bytes > 0 && !symbol.name.is_empty())
        );
    }
}

/// A file that is gone when it is closed: one end to write, one to read.
fn nameless_file() -> io::Result<(File, File)> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("uniprof-fuzz-{}-{number}", std::process::id());
    let path: PathBuf = std::env::temp_dir().join(name);
    let written = File::create_new(&path)?;
    let read = File::open(&path);
    std::fs::remove_file(&path)?;
    Ok((written, read?))
}
