//! `uniprof report`: what is in a recording, for people.

use crate::Outcome;
use crate::output::{write_to, write_to_stdout};
use crate::selection::{Selection, parse_share, say};
use std::path::{Path, PathBuf};
use uniprof_report::gather::Profile;
use uniprof_report::recording::Recording;
use uniprof_report::views::flame::{self, FlameOptions};
use uniprof_report::views::{top, tree};

/// Show where the time went: tables, trees and flame graphs
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    selection: Selection,
    /// Functions by their samples (the default)
    #[arg(long, help_heading = "Views")]
    top: bool,
    /// Who called whom, as text
    #[arg(long, help_heading = "Views")]
    tree: bool,
    /// A flame graph as SVG; `-` is standard output [default: the recording's name with .svg]
    #[arg(long, value_name = "SVG", num_args = 0..=1, require_equals = true, help_heading = "Views")]
    flame: Option<Option<PathBuf>>,
    /// Callers instead of callees: innermost frames first
    #[arg(long, help_heading = "Form")]
    reverse: bool,
    /// Leave out what has a smaller share, such as 0.5%
    #[arg(long, value_name = "SHARE", value_parser = parse_share, help_heading = "Form")]
    min_share: Option<f64>,
    /// Lines of --top; 0 for all
    #[arg(long, value_name = "N", default_value_t = 30, help_heading = "Form")]
    rows: usize,
    /// Levels of --tree; 0 for all
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Form")]
    depth: usize,
}

/// Runs the subcommand.
pub fn run(args: Args) -> anyhow::Result<Outcome> {
    let recordings = args.selection.recordings()?;
    let options = args.selection.selecting.options(recordings.len());
    let profile = args.selection.gather(&recordings, &options, None)?;
    if let Some(out) = &args.flame {
        let path = out
            .clone()
            .unwrap_or_else(|| svg_path(&args.selection.files[0]));
        let drawing = flame_options(&args, &recordings, &profile);
        write_to(&path, |out| flame::write(&profile, &drawing, out))?;
        if path != Path::new("-") {
            say(&format!("{} written", path.display()));
        }
    }
    if args.tree {
        let form = tree::TreeOptions {
            least_share: args.min_share.unwrap_or(0.005),
            depth: args.depth,
            reverse: args.reverse,
        };
        write_to_stdout(|out| tree::write(&profile, form, out))?;
    }
    if args.top || !args.tree && args.flame.is_none() {
        let form = top::TopOptions {
            rows: args.rows,
            least_share: args.min_share.unwrap_or(0.0),
        };
        write_to_stdout(|out| top::write(&profile, form, out))?;
    }
    Ok(match profile.account.is_incomplete() {
        true => Outcome::Lossy,
        false => Outcome::Done,
    })
}

fn flame_options(args: &Args, recordings: &[Recording], profile: &Profile) -> FlameOptions {
    let names: Vec<&str> = recordings.iter().map(title).collect();
    FlameOptions {
        title: uniprof_report::labels::printable(&names.join(" + ")).into_owned(),
        subtitle: profile.account.lines().join("; "),
        reverse: args.reverse,
        icicle: args.reverse,
        least_share: args.min_share.unwrap_or(0.0),
    }
}

fn title(recording: &Recording) -> &str {
    let target = &recording.metadata().target;
    match target.name.is_empty() {
        true => recording.name(),
        false => &target.name,
    }
}

/// The recording's name with another ending, in the working folder.
fn svg_path(recording: &Path) -> PathBuf {
    match recording.as_os_str() == "-" {
        true => PathBuf::from("run.svg"),
        false => recording.with_extension("svg"),
    }
}
