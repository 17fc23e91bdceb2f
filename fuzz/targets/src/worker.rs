//! Runs one target on one input after another until its time is over, in a process that may die.

use nix::sys::resource::{Resource, setrlimit};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};
use uniprof_fuzz_targets::TARGETS;
use uniprof_fuzz_targets::mutation::Mutator;

/// Longest time for one input, and far more than any needs, also unoptimised on a busy machine.
const MOST_TIME: Duration = Duration::from_secs(5);
/// An input that takes longer is kept in a file `.slow`, to be looked at.
const SLOW: Duration = Duration::from_secs(1);
/// Most memory of the process, threads and program included.
const MOST_MEMORY_BYTES: u64 = 2 << 30;
/// Exit status after a hang.
const HANGS: i32 = 4;

/// A seed that nobody chose.
pub fn any_seed() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(1, |passed| passed.as_secs())
}

/// Runs the target called `name`; the input under way is in the file `current`.
///
/// # Errors
/// That the file can't be written or memory not be limited.
pub fn run(name: &str, seed: u64, seconds: u64, current: &Path) -> io::Result<()> {
    let Some(target) = TARGETS.iter().find(|target| target.name == name) else {
        return Err(io::Error::other(format!("there is no target {name}")));
    };
    setrlimit(Resource::RLIMIT_AS, MOST_MEMORY_BYTES, MOST_MEMORY_BYTES)?;
    let file = File::create(current)?;
    let began = Instant::now();
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    std::thread::spawn(move || watch(&NUMBER));
    let mut mutator = Mutator::new(seed, (target.seeds)());
    let mut slowest = Duration::ZERO;
    let mut number = 0;
    while began.elapsed() < Duration::from_secs(seconds) {
        let input = mutator.input(number);
        // The length first, so that an older, longer input behind it doesn't matter.
        file.write_all_at(&(input.len() as u64).to_le_bytes(), 0)?;
        file.write_all_at(&input, 8)?;
        let start = Instant::now();
        (target.run)(&input);
        if start.elapsed() > slowest {
            slowest = start.elapsed();
            if slowest > SLOW {
                std::fs::write(current.with_extension("slow"), &input)?;
            }
        }
        number += 1;
        NUMBER.store(number, Ordering::Relaxed);
    }
    let rate = number as f64 / began.elapsed().as_secs_f64();
    println!("{name:<13} {number:>9} inputs {rate:>9.0} a second, slowest {slowest:.1?}");
    Ok(())
}

/// Ends the process when one and the same input takes too long.
fn watch(number: &AtomicU64) {
    let mut seen = u64::MAX;
    let mut since = Instant::now();
    loop {
        std::thread::sleep(Duration::from_millis(100));
        let now = number.load(Ordering::Relaxed);
        if now != seen {
            (seen, since) = (now, Instant::now());
        } else if since.elapsed() > MOST_TIME {
            eprintln!("input {now} takes more than {MOST_TIME:?}");
            std::process::exit(HANGS);
        }
    }
}

/// The input that was under way.
///
/// # Errors
/// What reading returns, or that the file is shorter than it says.
pub fn read_current(path: &Path) -> io::Result<Vec<u8>> {
    let bytes = std::fs::read(path)?;
    let (length, rest) = bytes
        .split_first_chunk()
        .ok_or(io::ErrorKind::UnexpectedEof)?;
    let length = usize::try_from(u64::from_le_bytes(*length)).unwrap_or(usize::MAX);
    let input = rest.get(..length).ok_or(io::ErrorKind::UnexpectedEof)?;
    Ok(input.to_vec())
}
