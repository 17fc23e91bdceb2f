//! Feeds the targets mutated inputs for a bounded time, on a stable compiler.
//!
//! Each target runs in a process of its own, with a bound on memory and a watch on time, and leaves
//! each input where this process finds it when that one dies: by a panic, a full stack, too much
//! memory or a hang. Such an input is saved under `tests/out/fuzz/` and reported.

mod worker;

use clap::Parser;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use uniprof_fuzz_targets::TARGETS;

/// Feeds everything that reads bytes of strangers mutated inputs
#[derive(Debug, Parser)]
#[command(after_help = "\
Examples:
  fuzz                                 every target for five seconds
  fuzz --seconds 600 --target report   one target for ten minutes
  fuzz --target elf --replay FILE      one input again")]
struct Args {
    /// Seconds for each target
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Which sequence of inputs; another one each time if not given
    #[arg(long)]
    seed: Option<u64>,
    /// Only this target; may be repeated
    #[arg(long, value_name = "NAME")]
    target: Vec<String>,
    /// Runs one input
    #[arg(long, value_name = "FILE", requires = "target")]
    replay: Option<PathBuf>,
    /// Writes the inputs to begin with to FOLDER/TARGET/, for cargo-fuzz
    #[arg(long, value_name = "FOLDER")]
    write_seeds: Option<PathBuf>,
    /// The process that runs a target
    #[arg(long, hide = true, value_name = "CURRENT")]
    worker: Option<PathBuf>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("fuzz: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(args: &Args) -> std::io::Result<bool> {
    let unknown = |name: &&String| TARGETS.iter().all(|target| target.name != name.as_str());
    if let Some(name) = args.target.iter().find(unknown) {
        let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
        let text = format!("there is no target {name}; there are {}", names.join(", "));
        return Err(std::io::Error::other(text));
    }
    if let Some(folder) = &args.write_seeds {
        return write_seeds(folder).map(|()| true);
    }
    if let (Some(file), Some(name)) = (&args.replay, args.target.first()) {
        uniprof_fuzz_targets::run(name, &std::fs::read(file)?);
        println!("{name} takes {}", file.display());
        return Ok(true);
    }
    let seed = args.seed.unwrap_or_else(worker::any_seed);
    if let (Some(current), Some(name)) = (&args.worker, args.target.first()) {
        worker::run(name, seed, args.seconds, current)?;
        return Ok(true);
    }
    println!("seed {seed}");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/out/fuzz");
    std::fs::create_dir_all(&folder)?;
    let folder = folder.canonicalize()?;
    let mut sound = true;
    for target in TARGETS {
        let is_chosen =
            args.target.is_empty() || args.target.iter().any(|name| name == target.name);
        if is_chosen {
            sound &= run_target(target.name, seed, args.seconds, &folder)?;
        }
    }
    Ok(sound)
}

/// Runs one target; says whether it survived.
fn run_target(name: &str, seed: u64, seconds: u64, folder: &Path) -> std::io::Result<bool> {
    let current = folder.join(format!("{name}.current"));
    let status = Command::new(std::env::current_exe()?)
        .args(["--target", name])
        .args(["--seed", &seed.to_string()])
        .args(["--seconds", &seconds.to_string()])
        .arg("--worker")
        .arg(&current)
        .status()?;
    let input = worker::read_current(&current).unwrap_or_default();
    let _ = std::fs::remove_file(&current);
    if status.success() {
        return Ok(true);
    }
    let saved = folder.join(format!("{name}-{seed}.input"));
    std::fs::write(&saved, input)?;
    println!(
        "{name}: FOUND ({status}), seed {seed}: the input is in {0}",
        saved.display()
    );
    println!("  again: fuzz --target {name} --replay {}", saved.display());
    Ok(false)
}

fn write_seeds(folder: &Path) -> std::io::Result<()> {
    for target in TARGETS {
        let folder = folder.join(target.name);
        std::fs::create_dir_all(&folder)?;
        for (number, seed) in (target.seeds)().iter().enumerate() {
            std::fs::write(folder.join(format!("{number:03}")), seed)?;
        }
    }
    Ok(())
}
