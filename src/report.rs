//! `uniprof report`: what is in a recording, for people.

use crate::Outcome;
use crate::candidates::functions;
use crate::form::{Form, RecursionFlag};
use crate::output::write_to;
use crate::quantity::parse_share;
use crate::selection::{ProcessesFlag, Selection, inform, say};
use crate::showing::Showing;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use uniprof_report::code::Codes;
use uniprof_report::gather::{By, Each, Profile, Sampled, task_name};
use uniprof_report::recording::Recording;
use uniprof_report::survey::survey;
use uniprof_report::unit::Unit;
use uniprof_report::views::annotate::Annotation;
use uniprof_report::views::chart::Chart;
use uniprof_report::views::flame::{self, FlameOptions};
use uniprof_report::views::heatmap::Heatmap;
use uniprof_report::views::html::{self, Tally};
use uniprof_report::views::{annotate, callers, markdown, top, tree, workflow};

/// Show where the time went: tables, trees and flame graphs
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  uniprof report                                  functions of run.uprof, by their samples
  uniprof report --tree --focus netfront run.uprof
  uniprof report --flame=before.svg before.uprof
  uniprof report --html slow.uprof                slow.html, to send to someone with a browser only
  uniprof report --elf app.elf --from 2s --to 3s run.uprof")]
pub struct Args {
    #[command(flatten)]
    selection: Selection,
    /// Functions by their samples (the default)
    #[arg(long, help_heading = "Views")]
    top: bool,
    /// Who called whom, as text
    #[arg(long, help_heading = "Views")]
    tree: bool,
    /// A flame graph as SVG, or with `chart` one in time order (chart=SVG to name it); `-` is
    /// standard output [default: the recording's name with .svg]
    #[arg(long, value_name = "SVG", num_args = 0..=1, require_equals = true, help_heading = "Views")]
    flame: Option<Option<PathBuf>>,
    /// All of it as one page for a browser, to send to someone else; `-` is standard output
    /// [default: the recording's name with .html]
    #[arg(long, value_name = "HTML", num_args = 0..=1, require_equals = true, help_heading = "Views")]
    html: Option<Option<PathBuf>>,
    /// From where a function is called: its name, or a part of it
    #[arg(long, value_name = "FUNCTION", add = functions(), help_heading = "Views")]
    callers: Option<String>,
    /// The lines of a function with their samples, its instructions where no line is known: its
    /// name, or a part of it
    #[arg(
        long,
        value_name = "FUNCTION",
        add = functions(),
        conflicts_with_all = ["top", "tree", "flame", "callers", "html"],
        help_heading = "Views"
    )]
    annotate: Option<String>,
    /// With --annotate: instructions even where source lines are known; of x86-64 in AT&T syntax
    #[arg(long, requires = "annotate", help_heading = "Form")]
    asm: bool,
    /// When samples fell, as SVG: a column a second, its parts upwards
    #[arg(long, value_name = "SVG", num_args = 0..=1, require_equals = true, help_heading = "Views")]
    heatmap: Option<Option<PathBuf>>,
    /// Callers instead of callees: innermost frames first
    #[arg(long, help_heading = "Form")]
    reverse: bool,
    /// A chain of calls that follows upon itself once, or each frame (default: folded in --tree and
    /// --callers, whole in --flame and --html; charts are whole)
    #[arg(long, value_name = "HOW", help_heading = "Form")]
    recursion: Option<RecursionFlag>,
    /// Leave out what has a smaller share, such as 0.5%
    #[arg(long, value_name = "SHARE", value_parser = parse_share, help_heading = "Form")]
    min_share: Option<f64>,
    /// Lines of --top; 0 for all
    #[arg(long, value_name = "N", default_value_t = 30, help_heading = "Form")]
    rows: usize,
    /// In which form to write --top
    #[arg(
        long,
        value_enum,
        default_value_t = Form::Text,
        conflicts_with_all = ["tree", "callers", "annotate", "flame", "heatmap", "html"],
        help_heading = "Form"
    )]
    format: Form,
    /// Levels of --tree; 0 for all
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Form")]
    depth: usize,
    #[command(flatten)]
    showing: Showing,
}

/// Runs the subcommand.
pub fn run(args: Args) -> anyhow::Result<Outcome> {
    let recordings = args.selection.recordings()?;
    let mut options = args.selection.selecting.options(recordings.len());
    options.by_process = args.selection.selecting.processes != Some(ProcessesFlag::Together);
    if args.annotate.is_some() {
        options.by = By::Place;
    }
    let mut watched = Watched::new(&args, &recordings);
    let is_watched = watched.is_needed();
    let mut take = |sampled: &Sampled, _: &Profile| watched.add(&recordings, sampled);
    let each: Option<&mut Each<'_>> = match is_watched {
        true => Some(&mut take),
        false => None,
    };
    let profile = args.selection.gather(&recordings, &options, each)?;
    let drawing = flame_options(&args, &recordings, &profile);
    watched.write(&args, &recordings, &profile, &drawing)?;
    if let Some(path) = args.flame_path() {
        write_picture(&path, |out| flame::write(&profile, &drawing, out))?;
    }
    let found = write_texts(&args, &recordings, &profile)?;
    Ok(match !found || profile.account.is_incomplete() {
        true => Outcome::Lossy,
        false => Outcome::Done,
    })
}

/// What takes samples one by one, as far as it was asked for.
struct Watched {
    chart: Option<Chart>,
    heatmap: Option<Heatmap>,
    tally: Option<Tally>,
}

impl Watched {
    fn new(args: &Args, recordings: &[Recording]) -> Self {
        let lengths = recordings.iter().map(|one| one.end_ns() - one.start_ns());
        let length_ns = lengths.max().unwrap_or(0);
        Watched {
            chart: args.chart_path().map(|_| Chart::default()),
            heatmap: args.heatmap.as_ref().map(|_| Heatmap::new(length_ns)),
            tally: args.html.as_ref().map(|_| Tally::new(length_ns)),
        }
    }

    fn is_needed(&self) -> bool {
        self.chart.is_some() || self.heatmap.is_some() || self.tally.is_some()
    }

    fn add(&mut self, recordings: &[Recording], sampled: &Sampled) {
        if let Some(chart) = &mut self.chart {
            let recording = &recordings[sampled.recording];
            chart.add(sampled, &task_name(recording, sampled.task, u64::MAX));
        }
        self.heatmap
            .iter_mut()
            .for_each(|heatmap| heatmap.add(sampled));
        self.tally.iter_mut().for_each(|tally| tally.add(sampled));
    }

    fn write(
        &mut self,
        args: &Args,
        recordings: &[Recording],
        profile: &Profile,
        drawing: &FlameOptions,
    ) -> anyhow::Result<()> {
        if let (Some(chart), Some(path)) = (&mut self.chart, args.chart_path()) {
            let period_ns = period_ns(&recordings[0], profile);
            write_picture(&path, |out| chart.write(profile, period_ns, drawing, out))?;
        }
        if let (Some(heatmap), Some(path)) = (&self.heatmap, &args.heatmap) {
            let path = path
                .clone()
                .unwrap_or_else(|| args.picture_path("heatmap.svg"));
            let lines = profile.account.lines();
            write_picture(&path, |out| heatmap.write(&drawing.title, &lines, out))?;
        }
        if let (Some(tally), Some(path)) = (&self.tally, &args.html) {
            let path = path.clone().unwrap_or_else(|| args.picture_path("html"));
            let surveyed = recordings.iter().map(|one| (one, survey(one, &|_, _| ())));
            let page = html::Page {
                recordings: &surveyed.collect::<Vec<_>>(),
                profile,
                tally,
                chosen: args.chosen(),
                drawing,
                least_share: args.min_share.unwrap_or(0.0),
                calls: tree::TreeOptions {
                    fold: drawing.fold,
                    ..args.tree_options()
                },
                identify: args.selection.selecting.identify,
            };
            write_picture(&path, |out| html::write(&page, out))?;
        }
        Ok(())
    }
}

/// Says whether all functions asked for were found.
fn write_texts(args: &Args, recordings: &[Recording], profile: &Profile) -> anyhow::Result<bool> {
    let texts = args.tree || args.callers.is_some() || args.annotate.is_some();
    let pictures = args.flame.is_some() || args.heatmap.is_some() || args.html.is_some();
    let has_top = args.top || !texts && !pictures;
    if !texts && !has_top {
        return Ok(true);
    }
    let selecting = &args.selection.selecting;
    let asked = args.annotate.as_deref();
    let library = asked.map(|_| selecting.images.library()).transpose()?;
    let recordings: Vec<&Recording> = recordings.iter().collect();
    let code_of = |library| Codes::new(&recordings, library, !selecting.no_demangle);
    let codes = library.as_ref().map(code_of);
    let mut form = args.tree_options();
    let mut missing: Vec<&str> = Vec::new();
    args.showing.write(|out| {
        if args.tree {
            tree::write(profile, form, out)?;
        }
        if let Some(function) = &args.callers {
            form.reverse = false;
            if !callers::write(profile, function, form, out)? {
                missing.push(function);
            }
        }
        if let Some((function, codes)) = asked.zip(codes.as_ref()) {
            let what = Annotation {
                function,
                assembly: args.asm,
                sources: !selecting.images.no_search,
                codes,
                screen: form.screen,
            };
            if !annotate::write(profile, &what, out)? {
                missing.push(function);
            }
        }
        match has_top {
            true => write_top(args, profile, out),
            false => Ok(()),
        }
    })?;
    for function in &missing {
        say(&format!(
            "warning: no sample has {function} in its stack; see --top for names"
        ));
    }
    Ok(missing.is_empty())
}

fn write_top(args: &Args, profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let options = top::TopOptions {
        rows: args.rows,
        least_share: args.min_share.unwrap_or(0.0),
        screen: args.showing.screen(),
    };
    match args.format {
        Form::Text => top::write(profile, options, out),
        Form::Markdown => markdown::write_top(profile, options, out),
        Form::Github => workflow::write_top(profile, options, out),
    }
}

fn write_picture(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> anyhow::Result<()> {
    write_to(path, write)?;
    if path != Path::new("-") {
        inform(&format!("{} written", path.display()));
    }
    Ok(())
}

/// How much time a sample stands for: the rate asked for, unless the recorder kept no note of it.
fn period_ns(recording: &Recording, profile: &Profile) -> u64 {
    let rate = recording.metadata().sampling.rate_millihertz;
    let asked = 1_000_000_000_000_u64.checked_div(rate);
    asked.unwrap_or_else(|| {
        let counted = profile.account.counted.max(1);
        (recording.end_ns() - recording.start_ns()) / counted
    })
}

impl Args {
    /// Where `--flame=chart` goes, if it was asked for.
    fn chart_path(&self) -> Option<PathBuf> {
        let path = self.flame.as_ref()?.as_ref()?.to_str()?;
        match path.strip_prefix("chart=") {
            Some(path) => Some(PathBuf::from(path)),
            None => (path == "chart").then(|| self.picture_path("chart.svg")),
        }
    }

    /// Where `--flame` goes, if it was asked for and isn't a chart.
    fn flame_path(&self) -> Option<PathBuf> {
        let path = self
            .flame
            .as_ref()
            .filter(|_| self.chart_path().is_none())?;
        Some(path.clone().unwrap_or_else(|| self.picture_path("svg")))
    }

    /// The flags that change what a page shows, as they might be typed.
    fn chosen(&self) -> String {
        let mut flags = self.selection.selecting.flags();
        if self.reverse {
            flags.push("--reverse".to_owned());
        }
        if self.recursion == Some(RecursionFlag::Folded) {
            flags.push("--recursion folded".to_owned());
        }
        let share = self
            .min_share
            .map(|share| format!("--min-share {}%", share * 100.0));
        flags.extend(share);
        if self.depth > 0 {
            flags.push(format!("--depth {}", self.depth));
        }
        flags.join(" ")
    }

    fn tree_options(&self) -> tree::TreeOptions {
        tree::TreeOptions {
            least_share: self.min_share.unwrap_or(0.005),
            depth: self.depth,
            reverse: self.reverse,
            fold: self.recursion != Some(RecursionFlag::Whole),
            screen: self.showing.screen(),
        }
    }

    /// The first recording's name with another ending.
    fn picture_path(&self, ending: &str) -> PathBuf {
        let recording = &self.selection.files[0];
        match recording.as_os_str() == "-" {
            true => PathBuf::from("run").with_extension(ending),
            false => recording.with_extension(ending),
        }
    }
}

/// What fits under the title of a picture 1200 pixels wide, less the words for what doesn't.
const SUBTITLE_LETTERS: usize = 130;

fn flame_options(args: &Args, recordings: &[Recording], profile: &Profile) -> FlameOptions {
    let names: Vec<&str> = recordings.iter().map(Recording::subject).collect();
    let what = match profile.unit() {
        Unit::Samples => "",
        Unit::OffCpu => "time off CPU: ",
    };
    let title = format!("{what}{}", names.join(" + "));
    FlameOptions {
        title: uniprof_report::labels::printable(&title).into_owned(),
        subtitle: profile.account.short_line(SUBTITLE_LETTERS),
        reverse: args.reverse,
        icicle: args.reverse,
        least_share: args.min_share.unwrap_or(0.0),
        fold: args.recursion == Some(RecursionFlag::Folded),
    }
}
