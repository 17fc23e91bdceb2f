//! `uniprof demo`: records the bundled workload and shows the result.

use crate::outcome::Outcome;
use crate::record;
use crate::terminal;
use clap::Parser;

/// Record a bundled workload for 3 s and draw it.
#[derive(clap::Args, Debug)]
pub struct Args {}

/// The flags of `record`, parsed from words.
#[derive(Parser)]
struct RecordFlags {
    #[command(flatten)]
    args: record::Args,
}

/// Records demo.uprof.
pub fn run(_: Args) -> anyhow::Result<Outcome> {
    let own = std::env::current_exe()?;
    let own = own.to_string_lossy();
    let words = [
        "record",
        "-F",
        "997",
        "-o",
        "demo.uprof",
        "--",
        &own,
        "workload",
        "3",
    ];
    terminal::inform(format_args!(
        "$ uniprof record -F 997 -o demo.uprof -- uniprof workload 3"
    ));
    let flags = RecordFlags::try_parse_from(words)?;
    let outcome = record::run(flags.args)?;
    show()?;
    Ok(outcome)
}

/// The flags of `report`, likewise.
#[cfg(feature = "report")]
#[derive(Parser)]
struct ReportFlags {
    #[command(flatten)]
    args: crate::report::Args,
}

/// Draws demo.svg and prints the top table, then what to try next.
#[cfg(feature = "report")]
fn show() -> anyhow::Result<()> {
    terminal::inform(format_args!(
        "\n$ uniprof report demo.uprof --flame --top --rows 15 --no-inlines"
    ));
    // Inlined functions of the standard library would only confuse at first.
    let words = [
        "report",
        "demo.uprof",
        "--flame",
        "--top",
        "--rows",
        "15",
        "--no-inlines",
    ];
    let flags = ReportFlags::try_parse_from(words)?;
    crate::report::run(flags.args)?;
    let next = [
        ("uniprof report demo.uprof --tree", "who called whom"),
        ("uniprof info demo.uprof", "what was recorded, and how well"),
        (
            "uniprof export demo.uprof -f firefox -o demo.json",
            "for profiler.firefox.com",
        ),
        ("uniprof record -F 997 -- COMMAND", "a program of your own"),
    ];
    terminal::inform(format_args!("\nOpen demo.svg in a browser. Then try:"));
    for (command, what) in next {
        terminal::inform(format_args!("  {command:<52}{what}"));
    }
    Ok(())
}

#[cfg(not(feature = "report"))]
fn show() -> anyhow::Result<()> {
    Ok(())
}
