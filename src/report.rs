//! `uniprof report`: shows what is in a recording.

use crate::form::{FormFlag, RecursionFlag};
use crate::outcome::Outcome;
use crate::output::write_to;
use crate::quantity::parse_share;
use crate::selection::{ByFlag, ProcessesFlag, Selection, inform, say, say_damages, say_warnings};
use crate::showing::Showing;
use crate::views::{self, SelectedValue, SelectedView, SelectedViews};
use anyhow::bail;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use uniprof_report::profile::{By, Each, Profile, ReducedProfile, Sampled};
use uniprof_report::recording::{Recording, Unit};
use uniprof_report::source_files::SourceFiles;
use uniprof_report::text::in_percent;
use uniprof_report::views::phases::Phase;
use uniprof_report::views::{Content, FlagValue, Form, Needs, Output, Renderer, VIEWS, View};
use uprof::State;

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
    #[command(flatten)]
    views: SelectedViews,
    /// With --annotate: instructions even where source lines are known; of x86-64 in AT&T syntax
    #[arg(long, requires = "annotate", help_heading = "Form")]
    asm: bool,
    /// Folder with the source files, for --annotate and --html; may be repeated. Without it, they are looked for
    /// where a recording says, if it was made on this machine and is a file of yours or of root, or if --elf or
    /// --image-path is given
    #[arg(long, value_name = "FOLDER", help_heading = "Form")]
    source: Vec<PathBuf>,
    /// No text of source files; with --html no instructions either, for a page that is given away
    #[arg(long, help_heading = "Form")]
    no_source: bool,
    /// Callers instead of callees: innermost frames first
    #[arg(long, help_heading = "Form")]
    reverse: bool,
    /// Show a repeated chain of calls once, or every frame (default: folded in --tree and
    /// --callers, whole in --flame and --html; --chart has it whole)
    #[arg(long, value_name = "HOW", help_heading = "Form")]
    recursion: Option<RecursionFlag>,
    /// Leave out what has a smaller share, such as 0.5%
    #[arg(long, value_name = "SHARE", value_parser = parse_share, help_heading = "Form")]
    min_share: Option<f64>,
    /// Lines of --top, --calls and --exits; 0 for all
    #[arg(long, value_name = "N", default_value_t = 30, help_heading = "Form")]
    rows: usize,
    /// In which form to write --top
    #[arg(
        long,
        value_enum,
        default_value_t = FormFlag::Text,
        conflicts_with_all = views::names_but("top"),
        help_heading = "Form"
    )]
    format: FormFlag,
    /// A function whose first entry --phases shows, and a name for the phase that it begins, which is a band of
    /// --chart and of the time line of --html; may be repeated
    #[arg(long, value_name = "NAME=FUNCTION", value_parser = parse_phase, help_heading = "Form")]
    phase: Vec<Phase>,
    /// Levels of --tree; 0 for all
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Form")]
    depth: usize,
    #[command(flatten)]
    showing: Showing,
}

/// A phase: `NAME=FUNCTION`, or a function alone. Names of C++ and Rust have `=` only behind `operator`.
#[expect(clippy::unnecessary_wraps, reason = "clap's parsers may fail")]
fn parse_phase(text: &str) -> Result<Phase, std::convert::Infallible> {
    let parts = text
        .split_once('=')
        .filter(|(name, _)| !name.contains("operator"));
    let (name, function) = parts.unwrap_or((text, text));
    Ok(Phase {
        name: name.to_owned(),
        function: function.to_owned(),
    })
}

/// Says why a recording's source files are not looked for.
const NO_SOURCES: &str = "source files are not looked for, as the recording was made on another machine, or before \
    this one was started, or is not in a file of yours or of root: --source FOLDER says where they are";

/// Says what a view of waits or calls would need, if none counts: an empty table is no answer. For samples an empty
/// table is an answer, since a state or a time may well have none.
pub fn nothing_of(profile: &Profile, recordings: &[Recording]) -> Option<String> {
    let account = &profile.account;
    let counted = match account.unit {
        Unit::VcpuTime => account.vcpus,
        Unit::Samples | Unit::Sampled | Unit::OffCpu | Unit::Calls => account.counted_samples(),
    };
    let advice = match account.unit {
        _ if counted > 0 => return None,
        unit @ (Unit::OffCpu | Unit::Calls) if account.left_out() > 0 => {
            let what = if unit == Unit::OffCpu { "wait" } else { "call" };
            return Some(match account.left_out() {
                1 => format!(
                    "no {what} counts here: the only one is not among those that the flags choose"
                ),
                all => format!(
                    "no {what} counts here: none of {all} {what}s is among those that the flags choose"
                ),
            });
        }
        Unit::OffCpu => Some(
            "no wait of a thread counts here: `uniprof record --off-cpu` records where threads wait",
        ),
        Unit::Calls => Some(
            "no call of a trace counts here: `uniprof import` makes recordings of traces, and `uniprof record --calls` \
             follows functions of a guest",
        ),
        Unit::VcpuTime if recordings.iter().any(Recording::has_vcpu_times) => Some(
            "no wall time of a vCPU counts here: none that has any is among the vCPUs, threads and processes that the \
             flags choose",
        ),
        Unit::VcpuTime => Some(
            "no wall time of a vCPU counts here: `uniprof record --host kvm:PID` records where it goes",
        ),
        Unit::Samples | Unit::Sampled => None,
    };
    advice.map(str::to_owned)
}

/// Runs the subcommand.
pub fn run(args: Args) -> anyhow::Result<Outcome> {
    let asked = args.views.or_default();
    let needs = |what| asked.iter().any(|one| one.view.needs == what);
    let shows_phases = |one: &SelectedView| matches!(one.view.name, "phases" | "chart" | "html");
    if !args.phase.is_empty() && !asked.iter().any(shows_phases) {
        bail!("--phase names what --phases, --chart and --html show: give one of them, too");
    }
    args.refuse_mixed(&asked)?;
    args.refuse_unused(&asked)?;
    let recordings = args.selection.recordings()?;
    let selecting = &args.selection.selecting;
    let mut options = selecting.options(recordings.len());
    options.by_process = selecting.processes != Some(ProcessesFlag::Together);
    if needs(Needs::Calls) || needs(Needs::EachCall) {
        options.filter.unit = Some(Unit::Calls);
        let counts = asked.iter().map(|one| match one.value {
            SelectedValue::Count(count) => count,
            _ => 0,
        });
        options.slowest = counts.max().unwrap_or(0);
    }
    if needs(Needs::VcpuTime) {
        options.filter.unit = Some(Unit::VcpuTime);
    }
    // A function is entered even if its vCPU waits for a processor just then.
    let is_of_samples =
        options.filter.unit != Some(Unit::OffCpu) && options.filter.states.is_empty();
    if is_of_samples && asked.iter().all(|one| one.view.name == "phases") {
        options.filter.states = BTreeSet::from([State::Running, State::Ready]);
    }
    options.survey = needs(Needs::Places);
    let library = selecting.images.library()?;
    let has_code = asked.iter().any(|one| args.shows_code(one.view));
    let by_place = (has_code || needs(Needs::Lines)) && options.by == By::Function;
    let by_place = by_place && !needs(Needs::VcpuTime);
    let by_place = by_place && recordings.iter().all(|one| one.span_blocks().is_empty());
    if needs(Needs::Instructions) || by_place {
        options.by = By::Place;
    }
    let begun = asked.iter().map(|one| (one.view.begin)(&recordings));
    let mut drawn: Vec<Box<dyn Renderer>> = begun.collect();
    // The views beside one by instruction are by function.
    let mut functions = ReducedProfile::default();
    let mut take = |sampled: &Sampled, profile: &Profile| {
        let mut by_function = *sampled;
        if by_place {
            functions.extend_by_function(profile);
            by_function.node = functions.node(sampled.node);
        }
        for (one, view) in asked.iter().zip(&mut drawn) {
            let by_place = args.shows_code(one.view);
            view.add(&recordings, if by_place { sampled } else { &by_function });
        }
    };
    let one_by_one = [Needs::Samples, Needs::Places, Needs::EachCall];
    let each: Option<&mut Each<'_>> = if one_by_one.into_iter().any(needs) {
        Some(&mut take)
    } else {
        None
    };
    let mut profile = Selection::gather(&recordings, &library, &options, each);
    if !asked.iter().any(|one| one.view.output == Output::Page) {
        say_warnings(&profile);
    }
    say_damages(&recordings);
    if profile.unit() == Unit::Calls {
        selecting.refuse_states_of_calls()?;
    }
    if let Some(advice) = nothing_of(&profile, &recordings) {
        say(&advice);
        profile.account.lines().iter().for_each(|line| say(line));
        return Ok(Outcome::Lossy);
    }
    let mut places = None;
    if by_place {
        functions.extend_by_function(&profile);
        let by_function = functions.into_profile(&mut profile);
        places = Some(std::mem::replace(&mut profile, by_function));
    }
    let form = args.form(&recordings, options.filter.leaves_out());
    if (needs(Needs::Instructions) && !args.no_source || has_code && by_place)
        && !form.sources.may_open()
    {
        inform(&format!("note: {NO_SOURCES}"));
    }
    let all = Content {
        recordings: &recordings,
        profile: &profile,
        places: places.as_ref(),
        library: Some(&library),
        value: FlagValue::None,
        form: &form,
    };
    let (files, mut texts): (Vec<_>, Vec<_>) = asked
        .iter()
        .zip(drawn)
        .partition(|(asked, _)| matches!(asked.view.output, Output::File { .. }));
    for (asked, mut drawn) in files {
        let path = args.path_of(asked);
        // A page to give away has no instructions, whatever is shown beside it.
        let places = all.places.filter(|_| args.shows_code(asked.view));
        write_to(&path, |out| drawn.write(&Content { places, ..all }, out))?;
        if path != Path::new("-") {
            inform(&format!("{} written", path.display()));
        }
    }
    // The table of functions comes last, next to the prompt.
    texts.sort_by_key(|(asked, _)| asked.is_default());
    let mut missing = Vec::new();
    if !texts.is_empty() {
        args.showing.write(|out| {
            for (asked, drawn) in &mut texts {
                let value = asked.value.of_view();
                let is_found = drawn.write(&Content { value, ..all }, out)?;
                if let (false, FlagValue::Function(name)) = (is_found, value) {
                    missing.push(name);
                }
            }
            Ok(())
        })?;
    }
    for function in &missing {
        say(&format!(
            "warning: no sample has {function} in its stack; see --top for names"
        ));
    }
    Ok(Outcome::lossy_if(
        !missing.is_empty() || profile.account.is_incomplete(),
    ))
}

impl Args {
    /// Where source files are looked for.
    fn sources(&self, recordings: &[Recording]) -> SourceFiles {
        if self.no_source {
            return SourceFiles::none();
        }
        let images = &self.selection.selecting.images;
        let is_trusted = images.are_named() || recordings.iter().all(Recording::is_made_here);
        SourceFiles::of(is_trusted && !images.no_search, self.source.clone())
    }

    /// Whether a view shows source and instructions of all functions.
    fn shows_code(&self, view: &View) -> bool {
        view.needs == Needs::Places && !self.no_source
    }

    fn form(&self, recordings: &[Recording], is_part: bool) -> Form {
        let selecting = &self.selection.selecting;
        let fold = |how| how == RecursionFlag::Folded;
        Form {
            table: self.format.into(),
            rows: self.rows,
            phases: self.phase.clone(),
            depth: self.depth,
            least_share: self.min_share,
            reverse: self.reverse,
            fold: self.recursion.map(fold),
            assembly: self.asm,
            sources: self.sources(recordings),
            mangled: selecting.no_demangle,
            identify: selecting.identify,
            chosen: self.chosen(),
            is_part,
            screen: self.showing.screen(),
        }
    }

    /// The flags that change what a page shows, as on the command line.
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
            .map(|share| format!("--min-share {}%", in_percent(share)));
        flags.extend(share);
        if self.depth > 0 {
            flags.push(format!("--depth {}", self.depth));
        }
        flags.join(" ")
    }

    /// Refuses options that none of the views looks at.
    fn refuse_unused(&self, asked: &[SelectedView]) -> anyhow::Result<()> {
        let selecting = &self.selection.selecting;
        let shares = [
            "top", "tree", "callers", "flame", "chart", "html", "slowest", "phases",
        ];
        let without_frames = [
            "calls", "cpus", "syscalls", "slowest", "listing", "annotate",
        ];
        let without_threads = ["calls", "cpus", "slowest", "listing", "exits", "annotate"];
        let looks = |option: &str, view: &str| match option {
            "--min-share" => shares.contains(&view),
            "--reverse" => ["tree", "flame", "html"].contains(&view),
            "--depth" => ["tree", "callers", "slowest"].contains(&view),
            "--by" => !without_frames.contains(&view),
            _ => !without_threads.contains(&view),
        };
        let given = [
            ("--min-share", self.min_share.is_some()),
            ("--reverse", self.reverse),
            ("--depth", self.depth > 0),
            ("--by", selecting.by != ByFlag::Function),
            ("--by-thread", selecting.by_thread),
        ];
        for (option, _) in given.iter().filter(|(_, is_given)| *is_given) {
            if !asked.iter().any(|one| looks(option, one.view.name)) {
                let views: Vec<String> = asked
                    .iter()
                    .map(|one| format!("--{}", one.view.name))
                    .collect();
                let able = VIEWS.iter().filter(|one| looks(option, one.name));
                let able: Vec<String> = able.map(|one| format!("--{}", one.name)).collect();
                let (views, able) = (views.join(", "), able.join(", "));
                bail!("{option} changes nothing in {views}: it is for {able}");
            }
        }
        Ok(())
    }

    /// Refuses a picture or page in one stream with something else.
    fn refuse_mixed(&self, asked: &[SelectedView]) -> anyhow::Result<()> {
        let streamed = asked
            .iter()
            .filter(|one| self.path_of(one) == Path::new("-"));
        let streamed: Vec<&View> = streamed.map(|one| one.view).collect();
        let file = streamed
            .iter()
            .find(|view| matches!(view.output, Output::File { .. }));
        match file {
            Some(file) if streamed.len() > 1 => bail!(
                "--{0}=- would share standard output with another view; name a file: --{0}=FILE",
                file.name
            ),
            _ => Ok(()),
        }
    }

    /// The output path of a view that is a file: the given one, or one beside the first recording.
    fn path_of(&self, asked: &SelectedView) -> PathBuf {
        let Output::File { ending, .. } = asked.view.output else {
            return PathBuf::from("-");
        };
        let recording = &self.selection.files[0];
        match &asked.value {
            SelectedValue::Path(path) => path.clone(),
            _ if recording.as_os_str() == "-" => Path::new("run").with_extension(ending),
            _ => recording.with_extension(ending),
        }
    }
}
