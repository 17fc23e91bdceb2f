//! Runs commands of uniprof on crafted files, and says which took the most time and memory.
//!
//! Each command is run by a process of its own that runs nothing else, so that what the system counts for its children
//! is that command's.

use clap::Parser;
use kit::commands::{self, Words};
use nix::sys::resource::{Resource, UsageWho, getrusage, setrlimit};
use nix::sys::time::TimeVal;
use std::io::{Error, Result};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use uniprof_fuzz_targets::crafted::{Content, Crafted, KINDS, craft};

/// Runs commands of uniprof on crafted files, and fails if one takes too much or ends otherwise than by a status
#[derive(Debug, Parser)]
#[command(after_help = "\
Examples:
  crafted                           8 commands on each of 100 files
  crafted --files 5000 --jobs 2     the same of more
  crafted --files 50 --commands 99  every command on each file")]
struct Args {
    /// How many files
    #[arg(long, default_value_t = 100)]
    files: u64,
    /// The number of the first one
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Commands on each file, in turn
    #[arg(long, default_value_t = 8)]
    commands: usize,
    /// Which files; others each time if not given
    #[arg(long)]
    seed: Option<u64>,
    /// Commands at a time
    #[arg(long, default_value_t = 1)]
    jobs: usize,
    /// The program
    #[arg(long, value_name = "FILE", default_value = "target/release/uniprof")]
    program: PathBuf,
    /// Runs one command and prints what it took
    #[arg(long, hide = true, num_args = 1.., allow_hyphen_values = true)]
    measure: Option<Vec<String>>,
}

/// No command may take longer: of elapsed and processor time the lower counts, as others use the machine.
const MOST_TIME: Duration = Duration::from_secs(10);
/// None may have more memory.
const MOST_MEMORY_BYTES: u64 = 300 << 20;
/// One that takes so long is killed.
const PATIENCE_SECONDS: u64 = 60;
/// Rows of each table.
const ROWS: usize = 10;

/// What a command took.
struct Taken {
    file: u64,
    kind: &'static str,
    file_bytes: usize,
    words: String,
    /// The exit status, or 128 and the signal's number.
    status: i32,
    time: Duration,
    memory_bytes: u64,
}

impl Taken {
    fn is_too_much(&self) -> bool {
        self.time > MOST_TIME || self.memory_bytes > MOST_MEMORY_BYTES || self.status > 2
    }

    fn print(&self) {
        println!(
            "  {:>6.2} s {:>5} MiB  status {}  file {} ({}, {} bytes): {}",
            self.time.as_secs_f64(),
            self.memory_bytes >> 20,
            self.status,
            self.file,
            self.kind,
            self.file_bytes,
            self.words
        );
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    let done = match &args.measure {
        Some(words) => measure(words).map(|()| true),
        None => run(&args),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("crafted: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(args: &Args) -> Result<bool> {
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(..1 << 32));
    println!("seed {seed}");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/out/crafted");
    std::fs::create_dir_all(&folder)?;
    let next = AtomicU64::new(args.first);
    let all = Mutex::new(Vec::new());
    let end = args.first + args.files;
    std::thread::scope(|scope| -> Result<()> {
        let work = |job| -> Result<()> {
            let folder = folder.join(format!("job{job}"));
            std::fs::create_dir_all(&folder)?;
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= end {
                    return std::fs::remove_dir_all(&folder);
                }
                let taken = take(args, seed, number, &folder)?;
                all.lock()
                    .map_err(|_| Error::other("a job died"))?
                    .extend(taken);
            }
        };
        let jobs: Vec<_> = (0..args.jobs.max(1))
            .map(|job| scope.spawn(move || work(job)))
            .collect();
        let mut joined = jobs.into_iter().map(|job| job.join());
        joined.try_for_each(|job| job.map_err(|_| Error::other("a job died"))?)
    })?;
    let all = all.into_inner().map_err(|_| Error::other("a job died"))?;
    Ok(summarize(all, args.files))
}

/// Runs commands on the file with this number; it is kept if one takes too much.
fn take(args: &Args, seed: u64, number: u64, folder: &Path) -> Result<Vec<Taken>> {
    let Crafted { kind, content } = craft(seed, number);
    let file = folder.join("run.uprof");
    std::fs::write(&file, content.bytes())?;
    let mut all = Vec::new();
    let out = folder.join("out").display().to_string();
    let path = file.display().to_string();
    let commands = match content {
        Content::Text(format, _) => {
            let words = ["import", "-f", format, &path, "-o", &out];
            vec![words.map(str::to_owned).to_vec()]
        }
        Content::Recording(_) => {
            // A function that crafted recordings have.
            let known = commands::all(&path, "f1", &out);
            let first = (number / KINDS.len() as u64) as usize * args.commands;
            let turn = known.iter().cycle().skip(first % known.len());
            turn.take(args.commands.min(known.len())).cloned().collect()
        }
    };
    for words in commands {
        let (status, time, memory_bytes) = started(&args.program, &words)?;
        let _ = std::fs::remove_file(&out);
        let taken = Taken {
            file: number,
            kind,
            file_bytes: content.bytes().len(),
            words: words.join(" "),
            status,
            time,
            memory_bytes,
        };
        if taken.is_too_much() {
            taken.print();
            std::fs::copy(&file, folder.join(format!("../{seed}-{number}-{kind}")))?;
        }
        all.push(taken);
    }
    Ok(all)
}

/// Status, time and memory of one command.
fn started(program: &Path, words: &Words) -> Result<(i32, Duration, u64)> {
    let output = Command::new(std::env::current_exe()?)
        .arg("--measure")
        .arg(program)
        .args(words)
        .stderr(Stdio::inherit())
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut numbers = text.split_whitespace().map(str::parse::<u64>);
    let mut number = || numbers.next().and_then(|number| number.ok());
    match (number(), number(), number()) {
        (Some(status), Some(ns), Some(bytes)) => {
            Ok((status as i32, Duration::from_nanos(ns), bytes))
        }
        _ => Err(Error::other(format!(
            "{words:?}: it could not be started: {text}"
        ))),
    }
}

/// Runs a command and prints its status, time (nanoseconds) and most memory (bytes).
fn measure(words: &[String]) -> Result<()> {
    let Some((program, words)) = words.split_first() else {
        return Err(Error::other("there is no command"));
    };
    setrlimit(Resource::RLIMIT_CPU, PATIENCE_SECONDS, PATIENCE_SECONDS)?;
    let began = Instant::now();
    let status = Command::new(program)
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()?;
    let elapsed = began.elapsed();
    let used = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let ns = |time: TimeVal| time.tv_sec() as u64 * 1_000_000_000 + time.tv_usec() as u64 * 1000;
    let processor_ns = ns(used.user_time()) + ns(used.system_time());
    let time_ns = processor_ns.min(elapsed.as_nanos() as u64);
    let status = status.code().or(status.signal().map(|signal| 128 + signal));
    let memory_bytes = used.max_rss() << 10;
    println!("{} {time_ns} {memory_bytes}", status.unwrap_or(255));
    Ok(())
}

/// Prints what took the most; says whether none took too much.
fn summarize(mut all: Vec<Taken>, files: u64) -> bool {
    let ended = |status| all.iter().filter(|taken| taken.status == status).count();
    let (done, lossy, failed) = (ended(0), ended(1), ended(2));
    println!(
        "{} commands on {files} files: {done} with status 0, {lossy} with 1, {failed} with 2",
        all.len()
    );
    all.sort_by_key(|taken| std::cmp::Reverse(taken.time));
    println!("the slowest:");
    all.iter().take(ROWS).for_each(Taken::print);
    all.sort_by_key(|taken| std::cmp::Reverse(taken.memory_bytes));
    println!("the hungriest:");
    all.iter().take(ROWS).for_each(Taken::print);
    let too_much = all.iter().filter(|taken| taken.is_too_much()).count();
    println!(
        "{too_much} took more than {} s or {} MiB, or ended otherwise",
        MOST_TIME.as_secs(),
        MOST_MEMORY_BYTES >> 20
    );
    too_much == 0
}
