//! A long recording of a simulated guest, and an account of any recording. benches/soak.py runs it.
//!
//!     soak simulate HOURS [HZ]    records the simulated guest to standard output, by the recorder's
//!                                 own sampler, ring and encoder; ends early on SIGINT
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
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
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
        ["check"] => check(None)?,
        ["check", "simulated"] => check(Some(Guest::new()))?,
        _ => {
            return Err(io::Error::other(
                "usage: soak simulate HOURS [HZ] | check [simulated]",
            ));
        }
    };
    Ok(if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}
