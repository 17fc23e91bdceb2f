//! `uniprof diff`: is B slower than A, where, and how certain is that?

pub mod verdicts;

use crate::candidates::recordings;
use crate::images::tell_unused;
use crate::new_file::is_among_devices;
use crate::outcome::Outcome;
use crate::output::write_to;
use crate::progress::Progress;
use crate::selection::{Selecting, inform, refuse_twice};
use crate::views::OF_SAMPLES;
use anyhow::bail;
use std::path::{Path, PathBuf};
use uniprof_report::diff::flame::{self, Widths};
use uniprof_report::diff::html::{self, PageOptions, Samples};
use uniprof_report::diff::json::JsonSource;
use uniprof_report::diff::listing::ListingSource;
use uniprof_report::diff::{
    Comparable, Comparison, Diff, DiffOptions, comparable, diff, diff_calls,
};
use uniprof_report::images::Library;
use uniprof_report::profile::{Each, Profile, Sampled};
use uniprof_report::recording::{Recording, Unit};
use uniprof_report::stacks::Tables;
use uniprof_report::text::printable;
use uniprof_report::views::caption;
use uniprof_report::views::flame::FlameOptions;
use verdicts::Verdicts;

/// Compare two recordings, or two sets, and say which changes are certain
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  uniprof diff before.uprof after.uprof
  uniprof diff a1.uprof,a2.uprof b1.uprof,b2.uprof --flame=change.svg
  uniprof diff main.uprof branch.uprof --fail-if 'netfront_rx>+5%'   exit status 1 if so

A change is certain if it is larger than --min-change in all likelihood: of all changes that are \
called certain, at most --false-discoveries are not. Its interval has the confidence of that test, \
and leaves out 0; the intervals of other changes have 95 %, each for itself. The table, JSON and \
`--fail-if any` go by this one list; --paths adds call paths, which are judged apart.

Of recordings that hold calls of traces (uniprof import), the time per call and the calls a second of each function \
are compared, apart, and a change that most functions share is reported once.")]
pub struct Args {
    /// Before: a recording, or several with commas between them
    #[arg(value_name = "A", add = recordings())]
    a: String,
    /// After: a recording, or several with commas between them
    #[arg(value_name = "B", add = recordings())]
    b: String,
    #[command(flatten)]
    selecting: Selecting,
    /// Differential flame graphs as SVG, diff.svg if no file is named: one with B's widths, and one with A's beside it
    /// (diff-widths-of-A.svg)
    #[arg(long, value_name = "SVG", num_args = 0..=1, require_equals = true, default_missing_value = "diff.svg")]
    flame: Option<PathBuf>,
    /// Both sides as one page for a browser, diff.html if no file is named: changes, both flame graphs, time of each
    /// side; `-` is standard output, instead of the table
    #[arg(long, value_name = "HTML", num_args = 0..=1, require_equals = true, default_missing_value = "diff.html")]
    html: Option<PathBuf>,
    /// Calls of traces, where the recordings hold samples as well
    #[arg(long, conflicts_with = "paths", conflicts_with_all = OF_SAMPLES)]
    calls: bool,
    /// The whole wall time of vCPUs instead of samples: guest code, exits by function and reason, who handled them,
    /// waits. Of recordings made with --host
    #[arg(long, conflicts_with = "calls", conflicts_with_all = OF_SAMPLES)]
    time: bool,
    #[command(flatten)]
    verdicts: Verdicts,
}

/// Runs the subcommand.
pub fn run(args: Args) -> anyhow::Result<Outcome> {
    if args.verdicts.json && args.is_page_alone() {
        bail!("--json and --html=- would both go to standard output; name a file: --html=FILE");
    }
    if args.flame.as_deref() == Some(Path::new("-")) {
        bail!(
            "--flame draws two pictures, and standard output takes one; name a file: --flame=FILE"
        );
    }
    let library = args.selecting.images.library()?;
    let open = |list| open_all(list, &args.selecting, &library);
    let (a, b) = (open(&args.a)?, open(&args.b)?);
    tell_unused(a.iter().chain(&b), &library);
    let (a, b): (Vec<&Recording>, Vec<&Recording>) = (a.iter().collect(), b.iter().collect());
    let holds = if args.calls {
        Comparable::Calls
    } else {
        comparable(a.iter().chain(&b).copied())
    };
    let of_calls = match holds {
        Comparable::Samples => false,
        Comparable::Calls => true,
        Comparable::Neither { samples, calls } => {
            let name = |number: usize| a.iter().chain(&b).nth(number).map_or("", |one| one.name());
            bail!(
                "{} holds samples and {} calls of a trace, and the two can't be compared: record both sides in the \
                 same way, or import a trace of each",
                name(samples),
                name(calls)
            );
        }
    };
    let mut options = DiffOptions {
        gather: args.selecting.options_to_compare()?,
        identify: args.selecting.identify,
        ..args.verdicts.options()
    };
    options.gather.survey = args.html.is_some();
    if args.time {
        refuse_without_times(a.iter().chain(&b))?;
        options.gather.filter.unit = Some(Unit::VcpuTime);
    }
    if of_calls {
        options.least_change = args.verdicts.min_change.unwrap_or(LEAST_OF_CALLS);
    }
    let compared = Compared {
        a,
        b,
        library,
        options,
    };
    if of_calls {
        compared.calls(&args)
    } else {
        compared.samples(&args)
    }
}

fn refuse_without_times<'r>(
    mut all: impl Iterator<Item = &'r &'r Recording>,
) -> anyhow::Result<()> {
    let Some(without) = all.find(|one| !one.has_vcpu_times()) else {
        return Ok(());
    };
    bail!(
        "{} doesn't say where the time of vCPUs went: record both sides with --host",
        without.name()
    );
}

/// Smallest change of the time per call, or of calls a second, that is worth reporting.
const LEAST_OF_CALLS: f64 = 0.01;

/// Both sides, and what to compare.
struct Compared<'r> {
    a: Vec<&'r Recording>,
    b: Vec<&'r Recording>,
    library: Library,
    options: DiffOptions,
}

impl Compared<'_> {
    fn samples(self, args: &Args) -> anyhow::Result<Outcome> {
        let progress = Progress::new();
        let tell = |done, total| progress.tell(done, total);
        let mut samples = Samples::default();
        let mut take = |sampled: &Sampled, _: &Profile| samples.add(sampled);
        let each = args.html.as_ref().map(|_| &mut take as &mut Each<'_>);
        let tables = Tables::of_builds(&self.library);
        let found = diff(&self.a, &self.b, &tables, &self.options, &tell, each);
        args.verdicts.refuse_empty(&found)?;
        args.verdicts.refuse_missing(&found)?;
        let written = args.write(&found);
        if let Some(path) = &args.flame {
            draw(&found, path)?;
        }
        if let Some(path) = &args.html {
            let options = PageOptions {
                paths: args.verdicts.paths,
                chosen: args.selecting.flags().join(" "),
            };
            write_to(path, |out| {
                html::write(&found, [&self.a, &self.b], samples, &options, out)
            })?;
            if !args.is_page_alone() {
                inform(&format!("{} written", path.display()));
            }
        }
        args.verdicts.apply_rules(&found, written)
    }

    fn calls(mut self, args: &Args) -> anyhow::Result<Outcome> {
        args.selecting.refuse_states_of_calls()?;
        let refused = [
            ("--paths", args.verdicts.paths),
            ("--functions", !args.verdicts.functions.is_empty()),
            ("--own", args.verdicts.own),
            ("--min-share", args.verdicts.min_share.is_some()),
            ("--html", args.html.is_some()),
        ];
        if let Some((flag, _)) = refused.iter().find(|(_, is_given)| *is_given) {
            bail!(
                "{flag} is of shares of samples, and these are calls of traces: see the table, --json or --flame"
            );
        }
        let progress = Progress::new();
        let tell = |done, total| progress.tell(done, total);
        let found = diff_calls(&self.a, &self.b, &self.library, &self.options, &tell);
        args.verdicts.refuse_empty(&found)?;
        let written = args.write(&found);
        if let Some(path) = &args.flame {
            self.options.gather.filter.unit = Some(Unit::Calls);
            let tables = Tables::of_builds(&self.library);
            let whole = diff(&self.a, &self.b, &tables, &self.options, &tell, None);
            draw(&whole, path)?;
        }
        args.verdicts.apply_rules(&found, written)
    }
}

impl Args {
    /// Whether only the page is written, to standard output, instead of the table.
    fn is_page_alone(&self) -> bool {
        self.html.as_deref() == Some(Path::new("-"))
    }

    /// Writes the comparison in its form, unless only the page is written.
    fn write<S, V>(&self, found: &Comparison<S, V>) -> anyhow::Result<()>
    where
        Comparison<S, V>: ListingSource + JsonSource,
    {
        if self.is_page_alone() && !self.verdicts.json {
            return Ok(());
        }
        self.verdicts.write(found)
    }
}

fn open_all(
    list: &str,
    selecting: &Selecting,
    library: &Library,
) -> anyhow::Result<Vec<Recording>> {
    let names = list.split(',').filter(|name| !name.is_empty());
    let opened = names.map(|name| selecting.open_to_compare(Path::new(name), library));
    let opened = opened.collect::<anyhow::Result<Vec<Recording>>>()?;
    if opened.is_empty() {
        bail!("no recording is named in '{list}'; give one, or several with commas");
    }
    refuse_twice(&opened)?;
    Ok(opened)
}

fn draw(found: &Diff, path: &Path) -> anyhow::Result<()> {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let other = path.with_file_name(format!("{stem}-widths-of-A.svg"));
    let pictures = [(path, Widths::B, "B"), (&other, Widths::A, "A")];
    // Beside a device there is no place for a second one.
    let count = if is_among_devices(path) { 1 } else { 2 };
    for (path, widths, name) in pictures.into_iter().take(count) {
        let options = FlameOptions {
            title: format!("From A to B, widths of {name}: red grew, blue shrank"),
            subtitle: format!("{} → {}", side(found, 0), side(found, 1)),
            reverse: false,
            icicle: false,
            least_share: 0.0,
            fold: false,
        };
        write_to(path, |out| flame::write(found, widths, &options, out))?;
        inform(&format!("{} written", path.display()));
    }
    Ok(())
}

/// Columns of a side's half of the line under the title.
const SIDE_COLUMNS: usize = 76;

/// A side in a few words: number of samples and names of recordings.
fn side(found: &Diff, number: usize) -> String {
    let (account, names) = (&found.accounts[number], &found.names[number]);
    let incomplete = if account.is_incomplete() {
        ", incomplete"
    } else {
        ""
    };
    let counted = account.unit.phrase(account.counted);
    let names = printable(&names.join(" + ")).into_owned();
    let text = format!("{}: {counted}{incomplete}, {names}", ["A", "B"][number]);
    caption::cut(&text, SIDE_COLUMNS)
}
