//! The command-line program: flags in, a library call, messages out.
//!
//! Each subcommand is one file with its `Args` and a `run`. Only this file lists them. `outcome` is the type that they
//! return.

mod outcome;
mod new_file;
mod terminal;
#[cfg(feature = "report")]
mod output;
#[cfg(feature = "report")]
mod memory;
#[cfg(feature = "report")]
mod status;
mod quantity;
#[cfg(feature = "report")]
mod form;
#[cfg(feature = "report")]
mod pager;
#[cfg(feature = "report")]
mod progress;
#[cfg(feature = "report")]
mod showing;
mod elf;
#[cfg(feature = "report")]
mod images;
#[cfg(feature = "record")]
mod target;
#[cfg(feature = "report")]
mod completions;
#[cfg(feature = "report")]
mod candidates;
#[cfg(feature = "report")]
mod selection;
#[cfg(feature = "report")]
mod views;
#[cfg(feature = "record")]
mod workload;
#[cfg(feature = "report")]
mod bundle;
#[cfg(feature = "report")]
mod push;
#[cfg(feature = "record")]
mod record;
#[cfg(feature = "record")]
mod save;
#[cfg(feature = "record")]
mod doctor;
#[cfg(feature = "report")]
mod report;
#[cfg(feature = "report")]
mod info;
#[cfg(feature = "report")]
mod dump;
#[cfg(feature = "report")]
mod mcp;
#[cfg(feature = "report")]
mod export;
#[cfg(feature = "report")]
mod import;
#[cfg(feature = "report")]
mod diff;
#[cfg(feature = "report")]
mod compare;
#[cfg(all(feature = "record", feature = "report"))]
mod certify;
#[cfg(feature = "report")]
mod trend;
#[cfg(feature = "report")]
mod recover;
#[cfg(feature = "report")]
mod top;
#[cfg(feature = "report")]
mod man;
#[cfg(feature = "record")]
mod demo;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use outcome::Reported;
use std::process::ExitCode;

/// Record/replay profiler for unikernels and other guests.
#[derive(Parser)]
#[command(
    name = "uniprof",
    version,
    max_term_width = 100,
    arg_required_else_help = true
)]
struct Cli {
    /// Print only warnings and errors
    #[arg(short, long, global = true)]
    quiet: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Sample a guest or process into a recording
    #[cfg(feature = "record")]
    Record(Box<record::Args>),
    #[cfg(feature = "record")]
    Save(save::Args),
    /// Record a bundled workload for 3 s and draw it
    #[cfg(feature = "record")]
    Demo(demo::Args),
    #[cfg(feature = "report")]
    Top(top::Args),
    #[cfg(feature = "report")]
    Report(report::Args),
    #[cfg(feature = "report")]
    Diff(diff::Args),
    #[cfg(feature = "report")]
    Compare(compare::Args),
    #[cfg(all(feature = "record", feature = "report"))]
    Certify(certify::Args),
    #[cfg(feature = "report")]
    Trend(trend::Args),
    #[cfg(feature = "report")]
    Export(export::Args),
    #[cfg(feature = "report")]
    Push(push::Args),
    #[cfg(feature = "report")]
    Import(import::Args),
    #[cfg(feature = "report")]
    Info(info::Args),
    #[cfg(feature = "report")]
    Bundle(bundle::Args),
    #[cfg(feature = "report")]
    Dump(dump::Args),
    #[cfg(feature = "report")]
    Recover(recover::Args),
    #[cfg(feature = "report")]
    Mcp(mcp::Args),
    #[cfg(feature = "record")]
    Doctor(doctor::Args),
    #[cfg(feature = "report")]
    Completions(completions::Args),
    #[cfg(feature = "report")]
    Man(man::Args),
    /// The workload that `demo` records
    #[cfg(feature = "record")]
    #[command(hide = true)]
    Workload(workload::Args),
}

#[cfg(feature = "report")]
impl Command {
    /// Whether the subcommand only reads files, which may be hostile.
    fn reads(&self) -> bool {
        match self {
            #[cfg(feature = "record")]
            Command::Record(_)
            | Command::Save(_)
            | Command::Demo(_)
            | Command::Doctor(_)
            | Command::Workload(_) => false,
            #[cfg(feature = "record")]
            Command::Certify(_) => false,
            Command::Compare(args) => args.reads(),
            _ => true,
        }
    }
}

fn main() -> ExitCode {
    #[cfg(feature = "report")]
    if completions::answer::<Cli>().unwrap_or_else(|error| refuse(&error)) {
        return ExitCode::SUCCESS;
    }
    let cli = parse(std::env::args_os()).unwrap_or_else(|error| refuse(&error));
    if cli.quiet {
        terminal::be_quiet();
    }
    #[cfg(feature = "report")]
    if cli.command.reads() {
        memory::be_frugal();
        memory::limit();
    }
    let result = match cli.command {
        #[cfg(feature = "record")]
        Command::Record(args) => args.resolved().and_then(start),
        #[cfg(feature = "record")]
        Command::Save(args) => save::run(&args),
        #[cfg(feature = "record")]
        Command::Demo(args) => demo::run(args),
        #[cfg(feature = "report")]
        Command::Top(args) => top::run(args),
        #[cfg(feature = "report")]
        Command::Report(args) => report::run(args),
        #[cfg(feature = "report")]
        Command::Diff(args) => diff::run(args),
        #[cfg(feature = "report")]
        Command::Compare(args) => compare::run(args),
        #[cfg(all(feature = "record", feature = "report"))]
        Command::Certify(args) => certify::run(&args),
        #[cfg(feature = "report")]
        Command::Trend(args) => trend::run(&args),
        #[cfg(feature = "report")]
        Command::Export(args) => export::run(args),
        #[cfg(feature = "report")]
        Command::Push(args) => push::run(&args),
        #[cfg(feature = "report")]
        Command::Import(args) => import::run(&args),
        #[cfg(feature = "report")]
        Command::Info(args) => info::run(&args),
        #[cfg(feature = "report")]
        Command::Bundle(args) => bundle::run(&args),
        #[cfg(feature = "report")]
        Command::Dump(args) => dump::run(&args),
        #[cfg(feature = "report")]
        Command::Recover(args) => recover::run(&args),
        #[cfg(feature = "report")]
        Command::Mcp(args) => mcp::run(&args),
        #[cfg(feature = "record")]
        Command::Doctor(args) => doctor::run(&args),
        #[cfg(feature = "report")]
        Command::Completions(args) => completions::run(&args),
        #[cfg(feature = "report")]
        Command::Man(args) => man::run(args, Cli::command()),
        #[cfg(feature = "record")]
        Command::Workload(args) => workload::run(args),
    };
    match result {
        Ok(outcome) => outcome.into(),
        // The reader closed our output because it has seen enough.
        Err(error) if outcome::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            if !error.is::<Reported>() {
                terminal::say(format_args!("uniprof: {}", outcome::describe(&error)));
            }
            ExitCode::from(2)
        }
    }
}

/// Options of a subcommand that do nothing without another. clap's `requires` is not enough: it asks for none that
/// conflicts with one that is given.
fn needed(subcommand: &str) -> &'static str {
    match subcommand {
        "record" => {
            "save_when:keep after:save_when most_exits:host boot_frequency:boot boot_start:boot until:boot \
             until_output:boot most_stops:calls every:push format:push header_file:push ca_file:push spool:push \
             spool_size:push retry_for:push"
        }
        "report" => "asm:annotate",
        _ => "",
    }
}

/// Parses the command line.
fn parse(words: impl Iterator<Item = std::ffi::OsString>) -> Result<Cli, clap::Error> {
    let matches = Cli::command().try_get_matches_from(words)?;
    // The small recorder has no room for it.
    if cfg!(feature = "report")
        && let Some((subcommand, given)) = matches.subcommand()
    {
        let is_given = |id| given.value_source(id) == Some(ValueSource::CommandLine);
        for pair in needed(subcommand).split_whitespace() {
            let (option, needed) = pair.split_once(':').unwrap_or_default();
            if is_given(option) && !is_given(needed) {
                let said = format!("--{option} is for --{needed} alone\n").replace('_', "-");
                return Err(clap::Error::raw(ErrorKind::MissingRequiredArgument, said));
            }
        }
    }
    Cli::from_arg_matches(&matches)
}

/// Starts a recording of samples, of calls, or of several domains.
#[cfg(feature = "record")]
fn start(args: record::Args) -> anyhow::Result<outcome::Outcome> {
    if args.keep.is_some() {
        // Before anything takes time: by default, the signal that saves ends a program.
        uniprof_record::signal::listen_to_saves();
    }
    if let Some(runs) = args.runs {
        record::runs::run(&args, runs)
    } else if !args.calls.is_empty() {
        record::call_recording::run(&args)
    } else if args.are_several() {
        record::domains::run(&args)
    } else {
        record::run(args)
    }
}

/// Exits with clap's message, or with our own if a subcommand is not in this build.
fn refuse(error: &clap::Error) -> ! {
    let Some(half) = missing_half(error) else {
        error.exit()
    };
    terminal::say(format_args!("uniprof: {half}"));
    std::process::exit(2)
}

/// Subcommands of each half of the program: texts, which take less room than lists. Who is in both needs both.
const RECORD: &str = "record save demo doctor certify";
const REPORT: &str = "top report diff compare trend export push import info bundle dump recover mcp completions man \
                      certify";

/// The message about a subcommand, or a flag of `record`, that is not in this build.
fn missing_half(error: &clap::Error) -> Option<String> {
    let named = error.get(ContextKind::InvalidSubcommand);
    let Some(ContextValue::String(name)) = named.or_else(|| error.get(ContextKind::InvalidArg))
    else {
        return None;
    };
    let name = name.as_str();
    if cfg!(not(feature = "record")) && RECORD.split(' ').any(|one| one == name) {
        return Some(format!(
            "this build of uniprof doesn't record: `{name}` needs one with the feature `record`, on Linux"
        ));
    }
    let is_flag = cfg!(not(feature = "report")) && matches!(name, "--push" | "--until-output");
    (REPORT.split(' ').any(|one| one == name) || is_flag).then(|| {
        format!(
            "this build of uniprof only records: `{name}` is in the whole one (cargo install uniprof)"
        )
    })
}

#[cfg(all(test, feature = "record", feature = "report"))]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn refused(words: &str) -> String {
        let words = format!("uniprof {words}");
        let words = words.split(' ').map(Into::into);
        parse(words)
            .err()
            .map_or(String::new(), |error| error.to_string())
    }

    #[test]
    fn an_option_needs_its_other_whatever_else_is_given() {
        let whole = Cli::command();
        for subcommand in whole.get_subcommands() {
            for pair in needed(subcommand.get_name()).split_whitespace() {
                let known = |id: &str| subcommand.get_arguments().any(|arg| arg.get_id() == id);
                let (option, needed) = pair.split_once(':').unwrap();
                assert!(known(option) && known(needed), "{pair}");
            }
        }
        let calls = refused("record --calls f --save-when crash gdb:1");
        assert!(calls.contains("--save-when is for --keep alone"), "{calls}");
        let kept = refused("record --keep 2s --every 5s pid:1");
        assert!(kept.contains("--every is for --push alone"), "{kept}");
        let boot = refused("record -a --boot-frequency 777");
        assert!(
            boot.contains("--boot-frequency is for --boot alone"),
            "{boot}"
        );
        let asm = refused("report --top --asm run.uprof");
        assert!(asm.contains("--asm is for --annotate alone"), "{asm}");
        let runs = refused("record --runs 2 -a");
        assert!(runs.contains("--runs"), "{runs}");
        assert_eq!(
            refused("record --keep 2s --save-when crash --after 1s pid:1"),
            ""
        );
        assert_eq!(refused("report --annotate f --asm run.uprof"), "");
        assert_eq!(refused("export --format csv run.uprof"), "");
    }

    #[test]
    fn each_subcommand_is_of_one_half() {
        let whole = Cli::command();
        let all = whole.get_subcommands().filter(|it| !it.is_hide_set());
        let all: BTreeSet<&str> = all.map(clap::Command::get_name).collect();
        assert_eq!(all, RECORD.split(' ').chain(REPORT.split(' ')).collect());
    }
}
