//! `uniprof trend`: which functions of a service changed over time, when, and how certain is that?

use crate::candidates::recordings;
use crate::compare::folders;
use crate::diff::verdicts::apply_rules;
use crate::form::FormFlag;
use crate::images::place_given;
use crate::outcome::{Outcome, describe, unless_closed};
use crate::output::{keep, write_to, write_to_stdout};
use crate::quantity::label::Label;
use crate::quantity::parse_share;
use crate::selection::{Selecting, inform, say};
use crate::showing::Showing;
use anyhow::{anyhow, bail};
use std::path::{Path, PathBuf};
use uniprof_report::diff::Rule;
use uniprof_report::recording::Recording;
use uniprof_report::stacks::Tables;
use uniprof_report::trend::table::{self, TableOptions};
use uniprof_report::trend::{Collector, Order, Trend, TrendOptions, html, json, markdown};

/// Say which functions of a service changed over time, and since when
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  uniprof trend recordings/                         in order of time
  uniprof trend --label service=web --order label:version *.uprof
  uniprof trend nightly/ --html --fail-if 'parse>+5%'   exit status 1 if its last change is so

A function's share of the samples has a new level if at least 3 recordings are on each side of the change, and chance \
is ruled out: of all functions that are said to have changed, at most --false-discoveries did not. A function whose \
share changed only because others did is not among them. Six recordings are the least.")]
pub struct Args {
    /// Recordings, or folders of recordings (*.uprof)
    #[arg(value_name = "DIR|FILE", required = true, add = recordings())]
    files: Vec<PathBuf>,
    /// Only recordings with this label (record --label); may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = Label::parse, help_heading = "Which samples")]
    label: Vec<Label>,
    /// The order: time; label:KEY, such as label:version; or given, as on the command line
    #[arg(long, value_name = "BY", default_value = "time", value_parser = parse_order)]
    order: Order,
    #[command(flatten)]
    selecting: Selecting,
    /// The trend as a page for a browser, too, trend.html if no file is named; `-` is standard output, instead of the
    /// table
    #[arg(long, value_name = "HTML", num_args = 0..=1, require_equals = true, default_missing_value = "trend.html")]
    html: Option<PathBuf>,
    /// JSON instead of a table
    #[arg(long)]
    json: bool,
    /// In which form to write the table
    #[arg(long, value_enum, default_value_t = FormFlag::Text, conflicts_with = "json")]
    format: FormFlag,
    /// Exit 1 if the last change of a function is certain at that size: 'parse>+5%', 'any>+2%', 'hash<-0.5pp'; may be
    /// repeated
    #[arg(long, value_name = "RULE", value_parser = Rule::parse)]
    fail_if: Vec<Rule>,
    /// Let a rule pass if there is no such function
    #[arg(long, requires = "fail_if")]
    allow_missing: bool,
    /// Ask about functions with at least this share in some successive recordings
    #[arg(long, value_name = "SHARE", value_parser = parse_share, default_value = "0.1%")]
    min_share: f64,
    /// Smallest change to report, of all samples
    #[arg(long, value_name = "SHARE", value_parser = parse_share, default_value = "0.05%")]
    min_change: f64,
    /// Most functions said to have changed that did not
    #[arg(long, value_name = "SHARE", value_parser = parse_share, default_value = "5%")]
    false_discoveries: f64,
    /// Lines of the table; 0 for all
    #[arg(long, value_name = "N", default_value_t = 30)]
    rows: usize,
    #[command(flatten)]
    showing: Showing,
}

/// Runs the subcommand.
pub fn run(args: &Args) -> anyhow::Result<Outcome> {
    let is_page_alone = args.html.as_deref() == Some(Path::new("-"));
    if args.json && is_page_alone {
        bail!("--json and --html=- would both go to standard output; name a file: --html=FILE");
    }
    let files = files(&args.files)?;
    let mut collector = Collector::new(args.options()?);
    let (mut failed, mut others) = (Vec::new(), 0);
    let mut left = files.iter();
    while !left.as_slice().is_empty() {
        let library = args.selecting.images.library()?;
        let tables = Tables::of_builds(&library);
        while !tables.are_full()
            && let Some(file) = left.next()
        {
            match args.add(file, &tables, &mut collector) {
                Ok(true) => {}
                Ok(false) => others += 1,
                Err(error) => failed.push(format!("{}: {}", file.display(), describe(&error))),
            }
        }
    }
    say_failed(&failed);
    if others == files.len() {
        return Err(Label::none_of(&args.label, others));
    }
    let trend = collector.finish()?;
    if !is_page_alone {
        unless_closed(args.write(&trend))?;
    }
    if let Some(path) = &args.html {
        let labels: Vec<String> = args.label.iter().map(Label::to_string).collect();
        let title = if labels.is_empty() {
            "Trend".to_owned()
        } else {
            labels.join(" ")
        };
        write_to(path, |out| html::write(&trend, &title, out))?;
        if !is_page_alone {
            inform(&format!("{} written", path.display()));
        }
    }
    let is_incomplete = trend.points.iter().any(|point| point.is_incomplete);
    let outcome = Outcome::lossy_if(is_incomplete || !failed.is_empty());
    let how = (args.format, args.allow_missing);
    apply_rules(&args.fail_if, &trend, how, outcome)
}

impl Args {
    fn options(&self) -> anyhow::Result<TrendOptions> {
        if self.selecting.by_thread || self.selecting.processes.is_some() {
            bail!("--by-thread and --processes change nothing in a trend, which is of functions");
        }
        Ok(TrendOptions {
            gather: self.selecting.options_to_compare()?,
            order: self.order.clone(),
            false_discoveries: self.false_discoveries,
            least_change: self.min_change,
            least_share: self.min_share,
            identify: self.selecting.identify,
            ..TrendOptions::default()
        })
    }

    /// Adds a recording, which is closed again; false if it doesn't have the labels.
    fn add(
        &self,
        file: &Path,
        tables: &Tables<'_>,
        collector: &mut Collector,
    ) -> anyhow::Result<bool> {
        keep(file);
        let mut recording = self.selecting.part_of(Recording::open(file)?)?;
        let labels = &recording.metadata().labels;
        if !Label::are_in(&self.label, labels) {
            return Ok(false);
        }
        place_given(&mut recording, tables.library());
        collector.add(&recording, tables, &|_, _| ())?;
        Ok(true)
    }

    fn write(&self, trend: &Trend) -> anyhow::Result<()> {
        if self.json {
            return write_to_stdout(|out| json::write(trend, out));
        }
        let options = TableOptions {
            rows: self.rows,
            screen: self.showing.screen(),
        };
        let write = match self.format {
            FormFlag::Text => table::write,
            FormFlag::Markdown => markdown::write,
            FormFlag::Github => markdown::write_annotations,
        };
        self.showing.write(|out| write(trend, options, out))
    }
}

/// Most recordings whose failure is printed.
const FAILED_SHOWN: usize = 10;

fn say_failed(failed: &[String]) {
    for line in failed.iter().take(FAILED_SHOWN) {
        say(&format!("warning: left out: {line}"));
    }
    if let Some(more @ 1..) = failed.len().checked_sub(FAILED_SHOWN) {
        say(&format!("warning: {more} more recordings are left out"));
    }
}

/// The recordings that are named, and those of the folders that are.
fn files(named: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in named {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let of_folder = folders::paths(path)?;
        if of_folder.is_empty() {
            bail!("{} has no recording (*.uprof)", path.display());
        }
        files.extend(of_folder);
    }
    Ok(files)
}

fn parse_order(text: &str) -> anyhow::Result<Order> {
    match text.split_once(':') {
        None if text == "time" => Ok(Order::Time),
        None if text == "given" => Ok(Order::Given),
        Some(("label", key)) if !key.is_empty() => Ok(Order::Label(key.to_owned())),
        _ => Err(anyhow!(
            "an order is time, given, or label:KEY, such as label:version"
        )),
    }
}
