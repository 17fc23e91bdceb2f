//! Views for people: a gathered profile goes in, text or a picture comes out. Every one says what
//! it rests on: how many samples, and what was lost, late or cut. [`VIEWS`] is the table of them.

pub mod caption;
pub mod markdown;
pub mod workflow;
pub mod top;
pub mod tree;
pub mod callers;
pub mod calls;
pub mod annotate;
pub mod flame;
pub mod cpus;
pub mod slowest;
pub mod chart;
pub mod heatmap;
pub mod info;
pub mod html;
pub mod dump;

use crate::images::library::Library;
use crate::profile::Profile;
use crate::profile::gather::Sampled;
use crate::recording::Recording;
use crate::recording::unit::Unit;
use crate::text::printable;
use crate::text::screen::Screen;
use flame::FlameOptions;
use std::io::{self, Write};
use tree::TreeOptions;

/// A view that `uniprof report` has a flag for.
#[derive(Debug)]
pub struct View {
    /// The flag, without its hyphens.
    pub name: &'static str,
    /// What the flag's help says.
    pub about: &'static str,
    /// Where it is written, and what its flag takes.
    pub output: Output,
    /// How samples are gathered for it.
    pub needs: Needs,
    /// Makes it, before samples are gathered.
    pub begin: fn(&[Recording]) -> Box<dyn Drawn>,
}

/// Where a view is written, and what its flag takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// Text for standard output.
    Text,
    /// Text for standard output, about the function that the flag names.
    Function,
    /// Text for standard output, of as many things as the flag says.
    Count,
    /// A file, which the flag may name.
    File {
        /// What kind of file, as the flag's help says it.
        kind: &'static str,
        /// The ending that it is given beside the recording.
        ending: &'static str,
    },
}

/// How samples are gathered for a view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// Added up: nothing but the profile.
    Counts,
    /// One by one, in the order of the file: [`Drawn::add`] is called for each.
    Samples,
    /// Calls of a trace, added up: [`Profile::calls`].
    Calls,
    /// Added up by instruction ([`By::Place`](crate::profile::gather::By::Place)), and images: such a view is
    /// shown alone.
    Instructions,
}

/// The views, in the order of help.
pub const VIEWS: &[View] = &[
    top::VIEW,
    tree::VIEW,
    callers::VIEW,
    calls::VIEW,
    cpus::VIEW,
    slowest::VIEW,
    annotate::VIEW,
    flame::VIEW,
    chart::VIEW,
    heatmap::VIEW,
    html::VIEW,
];

/// A view while it is made.
pub trait Drawn {
    /// Takes a sample of `recordings`, if the view needs them one by one.
    fn add(&mut self, recordings: &[Recording], sampled: &Sampled) {
        let _ = (recordings, sampled);
    }

    /// Writes it; `false` if no sample has the function that it is about.
    ///
    /// # Errors
    /// What `out` returns.
    fn write(&mut self, shown: &Shown<'_>, out: &mut dyn Write) -> io::Result<bool>;
}

/// A view that needs nothing but the profile is a function.
impl<F: FnMut(&Shown<'_>, &mut dyn Write) -> io::Result<bool>> Drawn for F {
    fn write(&mut self, shown: &Shown<'_>, out: &mut dyn Write) -> io::Result<bool> {
        self(shown, out)
    }
}

/// What a view shows.
#[derive(Debug, Clone, Copy)]
pub struct Shown<'a> {
    /// The recordings that were added up.
    pub recordings: &'a [Recording],
    /// Their samples.
    pub profile: &'a Profile,
    /// Images, for views that need instructions.
    pub library: Option<&'a Library>,
    /// The function that the view is about, or how many things it shows; empty for one that is about all.
    pub function: &'a str,
    /// How it is shown.
    pub form: &'a Form,
}

/// In which form a table is written.
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

/// How views are shown. Each takes of it what concerns it.
#[derive(Debug, Clone, Default)]
pub struct Form {
    /// Form of the table of functions.
    pub table: TableForm,
    /// Lines of that table; 0 for all.
    pub rows: usize,
    /// Levels of the tree; 0 for all.
    pub depth: usize,
    /// Least share of the samples, 0 to 1, of what is shown, if not the view's own.
    pub least_share: Option<f64>,
    /// Innermost frames first.
    pub reverse: bool,
    /// Whether recursion is told once, if not as the view has it.
    pub fold: Option<bool>,
    /// Instructions even where source lines are known.
    pub assembly: bool,
    /// Whether to open the source files that images and recordings name.
    pub sources: bool,
    /// Names as the linker has them.
    pub mangled: bool,
    /// Whether to tell the command line, the host's name and folders.
    pub identify: bool,
    /// The flags that chose samples and frames; empty where all are shown.
    pub chosen: String,
    /// What texts are written on.
    pub screen: Screen,
}

/// What fits under the title of a picture 1200 pixels wide, less the words for what doesn't.
const SUBTITLE_LETTERS: usize = 130;

impl Shown<'_> {
    /// How trees of calls are written.
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

    /// How flame graphs are drawn.
    #[must_use]
    pub(crate) fn flame_options(&self) -> FlameOptions {
        let names: Vec<&str> = self.recordings.iter().map(Recording::subject).collect();
        let what = match self.profile.unit() {
            Unit::Samples => "",
            Unit::OffCpu => "time off CPU: ",
            Unit::Calls => "time in calls: ",
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

/// The time of the longest of these recordings, in nanoseconds.
fn longest_ns(recordings: &[Recording]) -> u64 {
    let lengths = recordings.iter().map(|one| one.end_ns() - one.start_ns());
    lengths.max().unwrap_or(0)
}
