//! Completions of words on the command line: recordings, functions and targets.

use crate::completions::is_plain;
use crate::memory;
use clap_complete::engine::{
    ArgValueCandidates, ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter,
};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use uniprof_report::images::Library;
use uniprof_report::profile::functions::rows;
use uniprof_report::profile::{Options, gather};
use uniprof_report::recording::Recording;

/// Size in bytes above which a recording's functions are not completed, since that would take too long.
const RECORDING_BYTES_MAX: u64 = 16 << 20;
/// Most functions listed; those with the most samples come first.
const FUNCTIONS_MAX: usize = 200;

/// Completes a recording; in a list separated by commas, the last one.
pub fn recordings() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let current = current.to_string_lossy();
        let begin = current.rfind(',').map_or(0, |comma| comma + 1);
        let (before, last) = current.split_at(begin);
        let files = PathCompleter::file().filter(is_recording);
        let found = files.complete(OsStr::new(last)).into_iter();
        let found = found.map(|one| one.add_prefix(before));
        found.collect::<Vec<_>>()
    })
}

/// Whether a file that nobody has named is a recording, by its name. Nobody may ever write to a pipe that has one.
pub fn is_recording(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "uprof") && path.is_file()
}

/// Functions of the recordings on the command line, or of `run.uprof`. A name is cut before the first character that
/// a shell would interpret, since a part of a name is sufficient.
pub fn functions() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        memory::limit();
        let words = std::env::args_os().map(PathBuf::from);
        let mut files: Vec<PathBuf> = words.filter(|word| is_recording(word)).collect();
        if files.is_empty() {
            files.push(PathBuf::from("run.uprof"));
        }
        let is_small = |file: &&PathBuf| {
            std::fs::metadata(file).is_ok_and(|found| found.len() <= RECORDING_BYTES_MAX)
        };
        let small = files.iter().filter(is_small);
        let opened: Vec<Recording> = small.filter_map(|it| Recording::open(it).ok()).collect();
        let opened: Vec<&Recording> = opened.iter().collect();
        let library = Library::default();
        let profile = gather(&opened, &library, &Options::default(), &|_, _| (), None);
        let rows = rows(&profile).into_iter().take(FUNCTIONS_MAX);
        let names = rows.filter_map(|row| plain_part(profile.labels.name(row.label)));
        let mut seen = HashSet::new();
        let names = names.filter(|name| seen.insert(name.clone()));
        names.map(CompletionCandidate::new).collect()
    })
}

/// The part of a name that needs no quoting in a shell.
fn plain_part(name: &str) -> Option<String> {
    if name.contains("+0x") {
        return None; // an address without a symbol
    }
    let end = name.find(|letter: char| !is_plain(letter.encode_utf8(&mut [0; 4])));
    let part = name[..end.unwrap_or(name.len())].trim_end_matches(':');
    (part.len() > 1).then(|| part.to_owned())
}

/// Targets: their forms, and those present on this machine.
#[cfg(feature = "record")]
pub fn targets() -> ArgValueCompleter {
    use crate::target::{BACKENDS, guests, running};
    ArgValueCompleter::new(|current: &OsStr| {
        let current = current.to_string_lossy();
        let mut all: Vec<CompletionCandidate> = Vec::new();
        let forms = BACKENDS.iter().filter(|backend| !backend.prefix.is_empty());
        let forms = forms.filter(|backend| !current.starts_with(backend.prefix));
        all.extend(forms.map(|backend| described(backend.prefix, backend.what)));
        if current.starts_with("pid:") || current.starts_with("name:") {
            for (pid, name) in running() {
                all.push(described(&format!("pid:{pid}"), &name));
                all.push(CompletionCandidate::new(format!("name:{name}")));
            }
        } else {
            all.extend(guests().into_iter().map(CompletionCandidate::new))
        }
        if let Some(path) = current.strip_prefix("qemu:") {
            let paths = PathCompleter::any().complete(OsStr::new(path));
            all.extend(paths.into_iter().map(|one| one.add_prefix("qemu:")));
        }
        all.retain(|one| one.get_value().to_string_lossy().starts_with(&*current));
        all.sort();
        all.dedup_by(|one, other| one.get_value() == other.get_value());
        all
    })
}

#[cfg(feature = "record")]
fn described(value: &str, what: &str) -> CompletionCandidate {
    let what = crate::terminal::printable_lines(what);
    CompletionCandidate::new(value).help(Some(what.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_names_only_what_no_shell_takes_for_something_else_is_offered() {
        assert_eq!(
            plain_part("core::iter::fold<u8, u64>").as_deref(),
            Some("core::iter::fold")
        );
        assert_eq!(plain_part("price(Order&)").as_deref(), Some("price"));
        assert_eq!(plain_part("naïve").as_deref(), Some("naïve"));
        for hostile in [
            "$(touch x)",
            "`x`",
            "<T as X>::f",
            ";x",
            "",
            "a;b\u{1b}",
            "~x",
            "\n",
            "libc+0x12",
        ] {
            assert_eq!(plain_part(hostile), None, "{hostile}");
        }
    }
}
