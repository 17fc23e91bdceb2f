//! `uniprof demo`: records the bundled workload and shows what there is to see.

use crate::Outcome;
use crate::record;
use crate::terminal;
use clap::Parser;

/// Record a bundled workload for 3 s and draw it.
#[derive(clap::Args, Debug)]
pub struct Args {}

/// The flags of `record`, to fill from words.
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
        "-d",
        "3s",
        "-o",
        "demo.uprof",
        "--",
        &own,
        "workload",
        "10",
    ];
    terminal::say(format_args!(
        "$ uniprof record -F 997 -d 3s -o demo.uprof -- uniprof workload"
    ));
    let flags = RecordFlags::try_parse_from(words)?;
    record::run(flags.args)
}
