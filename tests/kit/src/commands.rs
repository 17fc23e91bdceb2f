//! Every command that reads a recording. Input: the recording's path. Output: arguments of `uniprof`, one
//! list for each command. Views and exports come from the program's own tables.

use uniprof_report::export::FORMATS;
use uniprof_report::views::{Output, VIEWS, View};

/// Arguments of a run of `uniprof`.
pub type Words = Vec<String>;

fn words(words: &[&str]) -> Words {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// The flag of a view. A view of one function gets `function`; pictures and pages go to standard output.
#[must_use]
pub fn view_flag(view: &View, function: &str) -> String {
    match view.output {
        Output::Text => format!("--{}", view.name),
        Output::Count => format!("--{}=3", view.name),
        Output::Function => format!("--{}={function}", view.name),
        Output::File { .. } => format!("--{}=-", view.name),
    }
}

/// Commands for each view of `recording`, and for the options that change how views are written.
#[must_use]
pub fn reports(recording: &str, function: &str) -> Vec<Words> {
    let views = VIEWS.iter().map(|view| view_flag(view, function));
    let views = views.map(|flag| words(&["report", &flag, recording]));
    let annotated = format!("--annotate={function}");
    let forms: [&[&str]; 10] = [
        &[],
        &["--format", "markdown"],
        &["--format", "github"],
        &["--width", "60"],
        &["--by", "address"],
        &["--by", "module"],
        &["--tree", "--by-thread"],
        &["--tree", "--by-thread", "--width", "60"],
        &["--tree", "--reverse", "--state", "all"],
        &[&annotated, "--asm"],
    ];
    let forms = forms.map(|form| words(&[&["report"], form, &[recording]].concat()));
    views.chain(forms).collect()
}

/// Commands for each export of `recording`, to standard output.
#[must_use]
pub fn exports(recording: &str) -> Vec<Words> {
    let formats = FORMATS.iter().map(|format| format.name);
    let plain = formats.map(|format| words(&["export", "-f", format, recording]));
    let by_thread = words(&["export", "-f", "folded", "--by-thread", recording]);
    plain.chain([by_thread]).collect()
}

/// Commands for each form of a comparison of two recordings. Pictures go to standard output.
#[must_use]
pub fn comparisons(before: &str, after: &str) -> Vec<Words> {
    let forms: [&[&str]; 8] = [
        &[],
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

/// Commands that describe `recording` without its profile.
#[must_use]
pub fn inspections(recording: &str) -> Vec<Words> {
    let forms: [&[&str]; 3] = [&["info"], &["info", "--width", "60"], &["dump"]];
    forms
        .map(|form| words(&[form, &[recording]].concat()))
        .into()
}

/// Commands that write a recording made from `recording` to the new file `out`.
#[must_use]
pub fn copies(recording: &str, out: &str) -> Vec<Words> {
    let forms: [&[&str]; 3] = [&["recover"], &["bundle"], &["bundle", "--redact"]];
    let forms = forms.map(|form| words(&[form, &[recording, "-o", out]].concat()));
    forms.into()
}

/// All of these commands.
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
