//! A long recording of a simulated guest, and an account of any recording. benches/soak.py runs it.
//!
//!     soak simulate HOURS [HZ]    records the simulated guest to standard output, by the recorder's
//!                                 own sampler, ring and encoder; ends early on SIGINT
//!     soak keep HOURS [HZ]        the same, of which only the last minute is kept (`record --keep`), in a
//!                                 temporary folder, and saved twice a second on the wall; prints its size, and memory
//!                                 and open files of this process
//!     soak check [simulated]      reads a recording from standard input and accounts for each
//!                                 block, sample and deadline; `simulated`: compares every sample
//!                                 with what was simulated
//!
//! Exit status 1: something is wrong with the recording.

mod guest;
mod ledger;

use guest::Guest;
use ledger::Ledger;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use uniprof_record::flight_recorder::{Keep, KeepEvent};
use uniprof_record::save_requests::SaveRequests;
use uniprof_record::window_folder::WindowFolder;
use uniprof_record::{Counters, Plan};
use uniprof_record::{signal, simulated};

/// Where simulated time begins: any time but 0, as on a machine that has been up for an hour.
const START_NS: u64 = 3_600_000_000_000;

fn simulate(hours: f64, rate_hz: f64) -> io::Result<bool> {
    signal::listen_to_children();
    signal::hold_stops();
    simulated::start(START_NS);
    let plan = Plan {
        rate_hz,
        duration: Some(Duration::from_secs_f64(hours * 3600.0)),
        command_line: std::env::args().collect(),
        ..Plan::default()
    };
    let counters = Arc::new(Counters::default());
    let source = guest::source(Arc::clone(&counters));
    // As a file: standard output of its own would look for line ends.
    let output = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let summary = uniprof_record::record(source, output, &plan, counters);
    let summary = summary.map_err(io::Error::other)?;
    eprintln!(
        "simulated {} samples, {} bytes, {:.3} s; {}",
        summary.samples,
        summary.bytes,
        summary.passed_ns as f64 / 1e9,
        summary.ending
    );
    Ok(summary.output_error.is_none())
}

/// Keeps the last minute of the simulated guest, saves it at each look, and prints what grows.
fn keep(hours: f64, rate_hz: f64) -> io::Result<bool> {
    signal::listen_to_children();
    simulated::start(START_NS);
    let folder = tempfile::tempdir()?;
    let window =
        WindowFolder::create(&folder.path().join("run.uprof")).map_err(io::Error::other)?;
    let window = Arc::new(window);
    let files = window.by_descriptor();
    let (events, received) = std::sync::mpsc::channel();
    let plan = Plan {
        rate_hz,
        duration: Some(Duration::from_secs_f64(hours * 3600.0)),
        ..Plan::default()
    };
    let requests = Arc::<SaveRequests>::default();
    let keep = Keep {
        window: Duration::from_secs(60),
        after: Duration::ZERO,
        triggers: Vec::new(),
        folder: Arc::clone(&window),
        requests: Arc::clone(&requests),
        events,
    };
    let counters = Arc::new(Counters::default());
    let source = guest::source(Arc::clone(&counters));
    let counted = Arc::clone(&counters);
    let recorder =
        std::thread::spawn(move || uniprof_record::record_window(source, keep, &plan, counted));
    let (mut last, mut saves) = (None, 0);
    while !recorder.is_finished() {
        requests.ask("a look".into(), UnixStream::pair()?.0);
        std::thread::sleep(Duration::from_millis(500));
        for event in received.try_iter() {
            match event {
                KeepEvent::Save(capture) => {
                    saves += u64::from(capture.write(io::sink())?.samples > 0)
                }
                KeepEvent::Last(capture) => last = Some(capture),
                KeepEvent::Trouble(what) => return Err(io::Error::other(what)),
            }
        }
        let hours = counters.passed_ns.load(Ordering::Relaxed) as f64 / 3600e9;
        println!("hours={hours:.3} saves={saves} {}", what_is_taken(&files)?);
    }
    let summary = recorder
        .join()
        .map_err(|_| io::Error::other("the recorder panicked"))?;
    let summary = summary.map_err(io::Error::other)?;
    let is_last = |event| match event {
        KeepEvent::Last(capture) => Some(capture),
        _ => None,
    };
    let last = last.or_else(|| received.iter().find_map(is_last));
    let last = last.ok_or_else(|| io::Error::other("there is no last window"))?;
    let saved = last.write(io::sink())?;
    println!("recorded={} {saved:?}", summary.samples);
    Ok(summary.output_error.is_none())
}

/// Files and bytes of the window in this folder; open files and memory, in KiB, of this process.
fn what_is_taken(folder: &Path) -> io::Result<String> {
    let sizes = std::fs::read_dir(folder)?.flatten();
    let sizes: Vec<u64> = sizes
        .filter_map(|file| Some(file.metadata().ok()?.len()))
        .collect();
    let status = std::fs::read_to_string("/proc/self/status")?;
    let memory = status.lines().find(|line| line.starts_with("RssAnon"));
    Ok(format!(
        "files={} bytes={} open={} memory={}",
        sizes.len(),
        sizes.iter().sum::<u64>(),
        std::fs::read_dir("/proc/self/fd")?.count(),
        memory
            .unwrap_or_default()
            .split_whitespace()
            .nth(1)
            .unwrap_or_default(),
    ))
}

fn check(guest: Option<Guest>) -> io::Result<bool> {
    let mut ledger = Ledger::new(guest);
    let mut out = io::stdout().lock();
    ledger.read(io::stdin().lock(), &mut out)?;
    ledger.write(&mut out)
}

fn main() -> io::Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let number = |word: &str| word.parse::<f64>().map_err(io::Error::other);
    let good = match words[..] {
        ["simulate", hours] => simulate(number(hours)?, 10_000.0)?,
        ["simulate", hours, rate] => simulate(number(hours)?, number(rate)?)?,
        ["keep", hours] => keep(number(hours)?, 99.0)?,
        ["keep", hours, rate] => keep(number(hours)?, number(rate)?)?,
        ["check"] => check(None)?,
        ["check", "simulated"] => check(Some(Guest::new()))?,
        _ => {
            return Err(io::Error::other(
                "usage: soak simulate HOURS [HZ] | keep HOURS [HZ] | check [simulated]",
            ));
        }
    };
    Ok(if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}
