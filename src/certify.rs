//! `uniprof certify`: slows down a program's hottest functions by a known amount, one at a time, and checks that the
//! profile shows that amount.

mod finding;
mod beside;
mod planted_runs;
mod table;

use crate::compare::run_folder::RunFolder;
use crate::outcome::Outcome;
use crate::quantity::{parse_rate, parse_share};
use crate::terminal;
use anyhow::bail;
use beside::Peer;
use finding::{Certificate, Finding, Tally};
use planted_runs::{PlantedRuns, RunSum, SAMPLES_MIN};
use uniprof_record::plant::{self, Plant, SITE_BYTES, Site};
use uniprof_record::signal;
use uniprof_report::profile::hot_functions::{HotFunction, hot_functions, samples_at};
use uprof::Arch;

/// Check the profile of a program by slowing down its hottest functions by a known amount
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  uniprof certify                              the bundled workload
  uniprof certify -- sort -R words             a program of your own
  uniprof certify --beside perf -- ./server --test
  uniprof certify --share 2% --functions 5 -- ./server --test

The program is started again for each function: its arguments must make it do the same work each time. It has no \
terminal and no input here. x86-64 only, with perf events.")]
pub struct Args {
    /// How many functions to slow down, the hottest ones that have names
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=100))]
    functions: usize,
    /// The part of the processor time that is planted in a function
    #[arg(long, value_name = "SHARE", default_value = "10%", value_parser = parse_planted)]
    share: f64,
    /// Samples a second of each thread
    #[arg(short = 'F', long, value_name = "HZ", default_value = "997", value_parser = parse_rate)]
    frequency: f64,
    /// Run another profiler on the same runs, and print what it sees
    #[arg(long, value_name = "PROFILER", value_enum)]
    beside: Option<Peer>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// The program and its arguments (default: the bundled workload)
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Most of the processor time that can be planted.
const PLANTED_MAX: f64 = 0.8;

fn parse_planted(text: &str) -> anyhow::Result<f64> {
    match parse_share(text)? {
        share if share > 0.0 && share <= PLANTED_MAX => Ok(share),
        _ => bail!("{text} can't be planted: give more than 0%, and at most 80%"),
    }
}

/// Functions with a smaller share of the samples seldom run.
const SHARE_MIN: f64 = 0.005;

/// Runs the subcommand.
pub fn run(args: &Args) -> anyhow::Result<Outcome> {
    plant::check_processor()?;
    let command = match &args.command[..] {
        [] => vec![
            std::env::current_exe()?.to_string_lossy().into_owned(),
            "workload".to_owned(),
            "3".to_owned(),
        ],
        command => command.to_vec(),
    };
    if let Some(peer) = args.beside {
        peer.check()?;
    }
    let folder = RunFolder::new(None, "certify", &[])?;
    signal::hold_stops();
    let mut runs = PlantedRuns::new(command, args.frequency, args.beside, folder.path());
    terminal::show_line("running without a plant");
    let plain = runs.run(None)?;
    let functions = functions(&plain, args, &runs)?;
    let mut findings = Vec::new();
    for (number, function) in functions.iter().enumerate() {
        terminal::show_line(&format!(
            "running with {} slowed down ({} of {})",
            function.name,
            number + 1,
            functions.len()
        ));
        findings.push(slowed(function, &plain, args, &mut runs)?);
    }
    terminal::clear_line();
    let certificate = Certificate {
        command: runs.command().to_vec(),
        share: args.share,
        frequency: args.frequency,
        peer: args.beside.map(Peer::name),
        findings,
        warnings: runs.warnings().to_vec(),
    };
    table::write(&certificate, args.json)?;
    Ok(Outcome::lossy_if(!certificate.is_right()))
}

/// The functions to slow down.
fn functions(
    plain: &RunSum,
    args: &Args,
    runs: &PlantedRuns<'_>,
) -> anyhow::Result<Vec<HotFunction>> {
    let samples = plain.profile.account.counted;
    let program = runs.program();
    if samples < SAMPLES_MIN {
        bail!(
            "{} of `{program}` had {samples} samples ({:.3} s of processor time), too few to certify: let it do \
             its work many times over, or give a higher rate (-F).{}",
            if plain.runs == 1 { "a run" } else { "all runs" },
            plain.cpu_ns as f64 / 1e9,
            runs.said()
        );
    }
    let mut functions = hot_functions(&plain.profile);
    functions.retain(|function| function.own as f64 >= SHARE_MIN * samples as f64);
    functions.truncate(args.functions);
    if functions.is_empty() {
        bail!(
            "`{program}` has no function with a name in 0.5 % of its {samples} samples, so there is none to slow down: \
             build it with symbols, or install those of its package (`uniprof report` shows where its time goes)"
        );
    }
    Ok(functions)
}

/// Runs the program with a function slowed down.
fn slowed(
    function: &HotFunction,
    plain: &RunSum,
    args: &Args,
    runs: &mut PlantedRuns<'_>,
) -> anyhow::Result<Finding> {
    let share = function.own as f64 / plain.profile.account.counted as f64;
    let mut finding = Finding::new(function, share);
    let instruction = function.hottest_instruction(Arch::X86_64, SITE_BYTES);
    let Some((offset, bytes)) = instruction.ok().flatten().and_then(|it| {
        let bytes = it.bytes.first_chunk::<SITE_BYTES>()?;
        Some((it.offset, *bytes))
    }) else {
        finding.reason =
            Some("none of its sampled instructions has 3 bytes in the file".to_owned());
        return Ok(finding);
    };
    let plant = Plant {
        site: Site {
            path: function.image.clone(),
            file_offset: offset,
            bytes,
        },
        share: args.share,
    };
    let sum = runs.run(Some(&plant))?;
    finding.runs = sum.runs;
    finding.spins = sum.spins;
    finding.cpu_ns = sum.cpu_ns;
    finding.planted_ns = sum.planted_ns;
    if sum.spins == 0 {
        finding.reason = Some("no thread came to its hottest instruction".to_owned());
        return Ok(finding);
    }
    let at_plant = offset + plant::SPIN_OFFSET_BYTES;
    finding.tally = Tally {
        samples: sum.profile.account.counted,
        seen: samples_at(&sum.profile, function, at_plant),
    };
    finding.beside = sum.beside;
    if !finding.is_enough() {
        finding.reason = Some(format!(
            "only {:.0} ms of {:.1} s could be planted, too few to tell",
            finding.planted_ns as f64 / 1e6,
            finding.cpu_ns as f64 / 1e9
        ));
    }
    Ok(finding)
}
