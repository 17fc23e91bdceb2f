//! Views for people. Input: a gathered profile. Output: text or a picture, each with its account: the number
//! of samples, and those lost, late or truncated. [`VIEWS`] is the table of the views.

pub mod caption;
pub(crate) mod columns;
pub mod markdown;
pub mod workflow;
pub mod top;
pub mod tree;
pub mod callers;
pub mod calls;
pub mod annotate;
pub mod flame;
pub mod cpus;
pub mod vcpu_time;
pub mod phases;
pub mod exits;
pub mod slowest;
pub mod listing;
pub mod syscalls;
pub mod chart;
pub mod info;
pub mod brief;
pub mod html;
pub mod dump;

use crate::images::library::Library;
use crate::profile::Profile;
use crate::profile::gather::{Sampled, names};
use crate::recording::Recording;
use crate::recording::unit::Unit;
use crate::source_files::SourceFiles;
use crate::text::printable;
use crate::text::screen::Screen;
use flame::FlameOptions;
use phases::Phase;
use std::io::{self, Write};
use tree::TreeOptions;

/// A view that `uniprof report` has a flag for.
#[derive(Debug)]
pub struct View {
    /// The flag, without its hyphens.
    pub name: &'static str,
    /// The flag's help text.
    pub about: &'static str,
    /// Where it is written, and the value of its flag.
    pub output: Output,
    /// How samples are gathered for it.
    pub needs: Needs,
    /// Creates the view, before samples are gathered.
    pub begin: fn(&[Recording]) -> Box<dyn Renderer>,
}

/// Where a view is written, and the value of its flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// Text for standard output.
    Text,
    /// Text for standard output that has the warnings, too.
    Page,
    /// Text for standard output, about the function that the flag names.
    Function,
    /// Text for standard output; the flag says how many rows.
    Count,
    /// A file, whose path the flag may give.
    File {
        /// The type of file, for the flag's help.
        kind: &'static str,
        /// The extension of the default file name, which is the recording's otherwise.
        ending: &'static str,
    },
}

/// The value of a view's flag, according to its [`Output`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum FlagValue<'a> {
    /// There is none.
    #[default]
    None,
    /// The name of the function that the view is about, or a part of it.
    Function(&'a str),
    /// The number of rows that it shows.
    Count(usize),
}

impl<'a> FlagValue<'a> {
    /// The function that the view is about; empty if it is about all.
    fn function(self) -> &'a str {
        match self {
            FlagValue::Function(name) => name,
            FlagValue::None | FlagValue::Count(_) => "",
        }
    }

    /// The number of rows; `None` for all.
    fn count(self) -> Option<usize> {
        match self {
            FlagValue::Count(count) => Some(count),
            FlagValue::None | FlagValue::Function(_) => None,
        }
    }
}

/// How samples are gathered for a view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// Summed: only the profile.
    Counts,
    /// One by one, in file order: [`Renderer::add`] is called for each sample.
    Samples,
    /// Calls of a trace, added up: [`Profile::calls`].
    Calls,
    /// Calls of a trace one by one, the last one of a recording first: [`Renderer::add`] is called for each.
    EachCall,
    /// Wall time of vCPUs: [`Profile::vcpu_times`] and [`Profile::exits`]. Views that need only the profile show it by
    /// function beside such a view.
    VcpuTime,
    /// One by one and by instruction, if functions are asked for and images may be read: [`Content::places`]. The
    /// recordings are surveyed in the same pass.
    Places,
    /// Summed, and by instruction as well, where functions are asked for: [`Content::places`].
    Lines,
    /// Summed by instruction ([`By::Place`](crate::profile::gather::By::Place)), with images. Such a view is
    /// shown alone.
    Instructions,
}

/// All views, in the order of the help text.
pub const VIEWS: &[View] = &[
    top::VIEW,
    brief::VIEW,
    tree::VIEW,
    callers::VIEW,
    calls::VIEW,
    cpus::VIEW,
    slowest::VIEW,
    syscalls::VIEW,
    listing::VIEW,
    phases::VIEW,
    vcpu_time::VIEW,
    exits::VIEW,
    annotate::VIEW,
    flame::VIEW,
    chart::VIEW,
    html::VIEW,
];

/// A view under construction.
pub trait Renderer {
    /// Adds a sample of `recordings`, if the view needs them one by one.
    fn add(&mut self, recordings: &[Recording], sampled: &Sampled) {
        let _ = (recordings, sampled);
    }

    /// Writes the view; `false` if no sample has the function that it is about.
    ///
    /// # Errors
    /// The errors of `out`.
    fn write(&mut self, content: &Content<'_>, out: &mut dyn Write) -> io::Result<bool>;
}

/// A view that needs only the profile is a function.
impl<F: FnMut(&Content<'_>, &mut dyn Write) -> io::Result<bool>> Renderer for F {
    fn write(&mut self, content: &Content<'_>, out: &mut dyn Write) -> io::Result<bool> {
        self(content, out)
    }
}

/// The content of a view.
#[derive(Debug, Clone, Copy)]
pub struct Content<'a> {
    /// The recordings that are shown.
    pub recordings: &'a [Recording],
    /// The profile of their samples.
    pub profile: &'a Profile,
    /// The same profile by instruction, if the view needs it.
    pub places: Option<&'a Profile>,
    /// Images, for views that need instructions.
    pub library: Option<&'a Library>,
    /// The value of the view's flag.
    pub value: FlagValue<'a>,
    /// The options of the view.
    pub form: &'a Form,
}

/// The form of a table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TableForm {
    /// For a terminal.
    #[default]
    Text,
    /// A table in Markdown.
    Markdown,
    /// Annotations for a workflow of GitHub Actions.
    Github,
}

/// Options of views. Each view uses those that concern it.
#[derive(Debug, Clone, Default)]
pub struct Form {
    /// Form of the table of functions.
    pub table: TableForm,
    /// Number of rows of that table; 0 for all.
    pub rows: usize,
    /// The functions whose first entries are asked for; empty for the most frequent.
    pub phases: Vec<Phase>,
    /// Number of levels of the tree; 0 for all.
    pub depth: usize,
    /// The least share of the samples, 0 to 1, that is shown; `None` for the view's default.
    pub least_share: Option<f64>,
    /// Whether the tree starts with the innermost frames.
    pub reverse: bool,
    /// Whether to collapse recursion; `None` for the view's default.
    pub fold: Option<bool>,
    /// Whether to show instructions even if source lines are known.
    pub assembly: bool,
    /// Where to find the source files that images and recordings name.
    pub sources: SourceFiles,
    /// Whether to show mangled names.
    pub mangled: bool,
    /// Whether to show the command line, the host's name and folders.
    pub identify: bool,
    /// The flags that selected samples and frames; empty if all are shown.
    pub chosen: String,
    /// Whether they leave out samples that count by default.
    pub is_part: bool,
    /// Width and colours of the terminal.
    pub screen: Screen,
}

/// What a title begins with where samples stand for time.
const TIME_TITLE: &str = "time: ";

/// Letters that fit under the title of a picture 1200 pixels wide, less the note on what was omitted.
const SUBTITLE_LETTERS: usize = 130;

/// Writes how many of `all` rows are left out, if only `shown` are shown.
fn write_left_out(all: usize, shown: usize, out: &mut dyn Write) -> io::Result<()> {
    match all.saturating_sub(shown) {
        0 => Ok(()),
        more => writeln!(out, "… and {more} more (--rows 0 shows all)"),
    }
}

impl Content<'_> {
    /// The recordings, and their names in a view of several.
    fn named_recordings(&self) -> (Vec<&Recording>, Vec<String>) {
        let recordings: Vec<&Recording> = self.recordings.iter().collect();
        let names = names(&recordings);
        (recordings, names)
    }

    /// The options for trees of calls.
    #[must_use]
    pub(crate) fn tree_options(&self) -> TreeOptions {
        TreeOptions {
            least_share: self.form.least_share.unwrap_or(0.005),
            depth: self.form.depth,
            reverse: self.form.reverse,
            fold: self.form.fold.unwrap_or(true),
            screen: self.form.screen,
        }
    }

    /// The options for flame graphs.
    #[must_use]
    pub(crate) fn flame_options(&self) -> FlameOptions {
        let names: Vec<&str> = self.recordings.iter().map(Recording::subject).collect();
        let what = match self.profile.unit() {
            Unit::Samples => "",
            Unit::Sampled => TIME_TITLE,
            Unit::OffCpu => "time off CPU: ",
            Unit::Calls => "time in calls: ",
            Unit::VcpuTime => "wall time of vCPUs: ",
        };
        let title = format!("{what}{}", names.join(" + "));
        FlameOptions {
            title: printable(&title).into_owned(),
            subtitle: self.profile.account.short_line(SUBTITLE_LETTERS),
            reverse: self.form.reverse,
            icicle: self.form.reverse,
            least_share: self.form.least_share.unwrap_or(0.0),
            fold: self.form.fold.unwrap_or(false),
        }
    }
}
