//! The flags of `uniprof report` that select views: one for each row of [`VIEWS`].

use crate::candidates::functions;
use clap::builder::ValueParser;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};
use std::path::PathBuf;
use uniprof_report::views::{FlagValue, Needs, Output, VIEWS, View};

/// The default view.
const DEFAULT: &str = "top";

/// Flags that choose among samples and waits, of which calls and the time of vCPUs are neither.
pub const OF_SAMPLES: [&str; 6] = ["off_cpu", "on_cpu", "idle", "state", "min_wait", "max_wait"];

/// The value of a view's flag.
#[derive(Debug, Clone)]
pub enum SelectedValue {
    /// There is none.
    None,
    /// A function's name, or a part of it.
    Function(String),
    /// A number of rows.
    Count(usize),
    /// An output file.
    Path(PathBuf),
}

impl SelectedValue {
    /// The value for the view.
    pub fn of_view(&self) -> FlagValue<'_> {
        match self {
            SelectedValue::Function(name) => FlagValue::Function(name),
            SelectedValue::Count(count) => FlagValue::Count(*count),
            SelectedValue::None | SelectedValue::Path(_) => FlagValue::None,
        }
    }
}

/// A selected view with the value of its flag.
#[derive(Debug, Clone)]
pub struct SelectedView {
    /// The row.
    pub view: &'static View,
    /// The value.
    pub value: SelectedValue,
}

impl SelectedView {
    fn plain(view: &'static View) -> Self {
        SelectedView {
            view,
            value: SelectedValue::None,
        }
    }

    /// Whether it is the default view.
    pub fn is_default(&self) -> bool {
        self.view.name == DEFAULT
    }
}

/// The selected views, in the order of the table.
#[derive(Debug)]
pub struct SelectedViews(Vec<SelectedView>);

impl SelectedViews {
    /// The selected views, or the default one.
    pub fn or_default(&self) -> Vec<SelectedView> {
        let default = VIEWS.iter().filter(|view| view.name == DEFAULT);
        if self.0.is_empty() {
            default.map(SelectedView::plain).collect()
        } else {
            self.0.clone()
        }
    }
}

/// The flags of all views but one.
pub fn names_but(name: &str) -> Vec<&'static str> {
    let names = VIEWS.iter().map(|view| view.name);
    names.filter(|other| *other != name).collect()
}

fn flag(view: &'static View) -> Arg {
    let arg = Arg::new(view.name).long(view.name).help(view.about);
    let arg = arg.help_heading("Views");
    let arg = match view.needs {
        Needs::Instructions => arg.conflicts_with_all(names_but(view.name)),
        Needs::Calls | Needs::EachCall => arg.conflicts_with_all(OF_SAMPLES),
        // What is counted there is samples or calls.
        Needs::VcpuTime => {
            let fits = [Needs::Counts, Needs::VcpuTime];
            let others = VIEWS.iter().filter(|other| !fits.contains(&other.needs));
            arg.conflicts_with_all(others.map(|view| view.name))
                .conflicts_with_all(OF_SAMPLES)
        }
        Needs::Counts | Needs::Lines | Needs::Samples | Needs::Places => arg,
    };
    match view.output {
        Output::Text | Output::Page => arg.action(ArgAction::SetTrue),
        Output::Count => arg
            .value_name("N")
            .value_parser(clap::value_parser!(u32).range(1..=100)),
        Output::Function => arg
            .value_name("FUNCTION")
            .value_parser(ValueParser::string())
            .add(functions()),
        Output::File { kind, .. } => arg
            .value_name(kind)
            .value_parser(ValueParser::path_buf())
            .num_args(0..=1)
            .require_equals(true),
    }
}

impl clap::Args for SelectedViews {
    fn augment_args(command: Command) -> Command {
        command.args(VIEWS.iter().map(flag))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for SelectedViews {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let is_asked =
            |view: &&View| matches.value_source(view.name) == Some(ValueSource::CommandLine);
        let asked = VIEWS.iter().filter(is_asked).map(|view| {
            let value = match view.output {
                Output::Text | Output::Page => None,
                Output::Count => {
                    let count = matches.get_one::<u32>(view.name);
                    count.map(|count| SelectedValue::Count(*count as usize))
                }
                Output::Function => {
                    let name = matches.get_one(view.name).cloned();
                    name.map(SelectedValue::Function)
                }
                Output::File { .. } => {
                    let path = matches.get_one(view.name).cloned();
                    path.map(SelectedValue::Path)
                }
            };
            SelectedView {
                view,
                value: value.unwrap_or(SelectedValue::None),
            }
        });
        Ok(SelectedViews(asked.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
