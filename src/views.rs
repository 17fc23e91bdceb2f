//! The flags of `uniprof report` that select views: one for each row of [`VIEWS`].

use crate::candidates::functions;
use clap::builder::ValueParser;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};
use std::path::PathBuf;
use uniprof_report::views::{Needs, Output, VIEWS, View};

/// The default view.
const DEFAULT: &str = "top";

/// A selected view with the value of its flag.
#[derive(Debug, Clone)]
pub struct SelectedView {
    /// The row.
    pub view: &'static View,
    /// The function that the view shows, or how many entries it has; empty for all.
    pub function: String,
    /// Its output file, if given.
    pub path: Option<PathBuf>,
}

impl SelectedView {
    fn plain(view: &'static View) -> Self {
        SelectedView {
            view,
            function: String::new(),
            path: None,
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
        // What is counted there is samples or calls.
        Needs::VcpuTime => {
            let fits = [Needs::Counts, Needs::VcpuTime];
            let others = VIEWS.iter().filter(|other| !fits.contains(&other.needs));
            arg.conflicts_with_all(others.map(|view| view.name))
                .conflicts_with("off_cpu")
        }
        Needs::Counts
        | Needs::Lines
        | Needs::Samples
        | Needs::Places
        | Needs::Calls
        | Needs::EachCall => arg,
    };
    match view.output {
        Output::Text => arg.action(ArgAction::SetTrue),
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
            let mut one = SelectedView::plain(view);
            match view.output {
                Output::Text => {}
                Output::Count => {
                    let count: Option<&u32> = matches.get_one(view.name);
                    one.function = count.map_or_else(String::new, u32::to_string);
                }
                Output::Function => one.function.clone_from(matches.get_one(view.name)?),
                Output::File { .. } => one.path = matches.get_one(view.name).cloned(),
            }
            Some(one)
        });
        Ok(SelectedViews(asked.flatten().collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
