//! Every command that reads a recording. Input: the recording's path. Output: arguments of `uniprof`, a list for each
//! command. Views and exports come from the tables that the program itself has.

use uniprof_report::export::FORMATS;
use uniprof_report::views::{Output, VIEWS, View};

/// Arguments of a run of `uniprof`.
pub type Words = Vec<String>;

fn words(words: &[&str]) -> Words {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// The flag of a view. One that is about a function gets `function`; pictures and pages go to standard output.
#[must_use]
pub fn view_flag(view: &View, function: &str) -> String {
    match view.output {
        Output::Text | Output::Page => format!("--{}", view.name),
        Output::Count => format!("--{}=3", view.name),
        Output::Function => format!("--{}={function}", view.name),
        Output::File { .. } => format!("--{}=-", view.name),
    }
}

/// Each view of `recording`.
#[must_use]
pub fn views(recording: &str, function: &str) -> Vec<Words> {
    let flags = VIEWS.iter().map(|view| view_flag(view, function));
    flags
        .map(|flag| words(&["report", &flag, recording]))
        .collect()
}

/// Views of `recording` with the options that change how they are written, or what they count.
#[must_use]
pub fn forms(recording: &str, function: &str) -> Vec<Words> {
    let annotated = format!("--annotate={function}");
    let forms: [&[&str]; 11] = [
        &[],
        &["--format", "markdown"],
        &["--format", "github"],
        &["--width", "60"],
        &["--by", "address"],
        &["--by", "module"],
        &["--tree", "--by-thread"],
        &["--tree", "--by-thread", "--width", "60"],
        &["--tree", "--reverse", "--state", "all"],
        &["--tree", "--off-cpu"],
        &[&annotated, "--asm"],
    ];
    let forms = forms.map(|form| words(&[&["report"], form, &[recording]].concat()));
    forms.into()
}

/// Each report of `recording`.
#[must_use]
pub fn reports(recording: &str, function: &str) -> Vec<Words> {
    [views(recording, function), forms(recording, function)].concat()
}

/// Each export of `recording`, to standard output.
#[must_use]
pub fn exports(recording: &str) -> Vec<Words> {
    let formats = FORMATS.iter().filter(|format| format.is_file());
    let formats = formats.map(|format| format.name);
    let plain = formats.map(|format| words(&["export", "-f", format, recording]));
    let by_thread = words(&["export", "-f", "folded", "--by-thread", recording]);
    plain.chain([by_thread]).collect()
}

/// Each form of a comparison of two recordings; its pictures go to standard output.
#[must_use]
pub fn comparisons(before: &str, after: &str) -> Vec<Words> {
    let forms: [&[&str]; 9] = [
        &[],
        &["--explain"],
        &["--paths"],
        &["--width", "60"],
        &["--json"],
        &["--format", "markdown"],
        &["--format", "github"],
        &["--flame=/dev/stdout"],
        &["--html=-"],
    ];
    let forms = forms.map(|form| words(&[&["diff"], form, &[before, after]].concat()));
    forms.into()
}

/// What is said of `recording` beside its profile.
#[must_use]
pub fn inspections(recording: &str) -> Vec<Words> {
    let forms: [&[&str]; 3] = [&["info"], &["info", "--width", "60"], &["dump"]];
    forms
        .map(|form| words(&[form, &[recording]].concat()))
        .into()
}

/// Recordings that are made of `recording`, each as the new file `out`.
#[must_use]
pub fn copies(recording: &str, out: &str) -> Vec<Words> {
    let forms: [&[&str]; 3] = [&["recover"], &["bundle"], &["bundle", "--redact"]];
    let forms = forms.map(|form| words(&[form, &[recording, "-o", out]].concat()));
    forms.into()
}

/// All of them.
#[must_use]
pub fn all(recording: &str, function: &str, out: &str) -> Vec<Words> {
    [
        inspections(recording),
        reports(recording, function),
        exports(recording),
        comparisons(recording, recording),
        copies(recording, out),
    ]
    .concat()
}
