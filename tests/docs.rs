//! The tables of docs/ name tests and constants; this sees that there are such, so that no row outlives
//! what it rests on.

mod sources;

use sources::{root, sources};
use std::collections::BTreeSet;

/// Names of functions, constants and public fields in all sources.
fn symbols() -> BTreeSet<String> {
    let mut symbols = BTreeSet::new();
    let folders = ["src", "tests", "format", "record", "report", "fuzz"];
    for file in folders
        .iter()
        .flat_map(|folder| sources(&root().join(folder)))
    {
        let text = std::fs::read_to_string(file).unwrap();
        for keyword in ["fn ", "const ", "static ", "pub "] {
            for rest in text.split(keyword).skip(1) {
                let word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
                let end = rest.find(|letter| !word(letter)).unwrap_or(rest.len());
                symbols.insert(rest[..end].to_owned());
            }
        }
    }
    symbols
}

/// Names in backquotes in the last `columns` columns of the tables in a page whose last column is
/// `test`.
fn named(page: &str, columns: usize) -> Vec<String> {
    let text = std::fs::read_to_string(root().join(page)).unwrap();
    let mut names = Vec::new();
    let (mut in_table, mut counts) = (false, false);
    for line in text.lines() {
        let cells: Vec<&str> = line.trim_matches('|').split('|').collect();
        if !line.starts_with('|') {
            in_table = false;
            continue;
        }
        let last = &cells[cells.len().saturating_sub(columns)..];
        if !in_table {
            (in_table, counts) = (true, last[last.len() - 1].trim() == "test");
        } else if counts {
            for cell in last {
                names.extend(cell.split('`').skip(1).step_by(2).map(str::to_owned));
            }
        }
    }
    names
}

#[test]
fn every_test_and_constant_named_in_a_table_exists() {
    let symbols = symbols();
    for (page, columns, least) in [
        ("docs/reliability.md", 1, 30),
        ("docs/limits.md", 2, 60),
        ("docs/security.md", 1, 12),
    ] {
        let names = named(page, columns);
        assert!(names.len() >= least, "{page} names only {}", names.len());
        for name in names {
            // `Vcpus::MOST`, `Plan::default`.
            let last = name.rsplit("::").next().unwrap_or(&name);
            assert!(
                symbols.contains(last),
                "{page} names {name}, which is not there"
            );
        }
    }
}

/// The form for issues asks for a redacted bundle; what it says of one is what the program says.
#[test]
fn the_issue_form_tells_what_a_redacted_bundle_holds() {
    let form = std::fs::read_to_string(root().join(".github/ISSUE_TEMPLATE/bug.yml")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run.uprof");
    std::fs::copy(root().join("corpus/calls-stack.uprof"), &run).unwrap();
    let output = std::process::Command::new(assert_cmd::cargo::cargo_bin("uniprof"))
        .args(["bundle", "--redact"])
        .arg(&run)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(folder.path().join("run.redacted.uprof").exists(), "{said}");
    assert!(form.contains("`uniprof bundle --redact run.uprof` writes `run.redacted.uprof`"));
    let flat = form.split_whitespace().collect::<Vec<_>>().join(" ");
    let (_, told) = flat.split_once("It holds: ").unwrap();
    let (holds, lacks) = told.split_once("It does not hold: ").unwrap();
    // A word of the program's, and of the form's.
    for (left, word) in [
        ("left: target:", "process ids"),
        ("processors of type", "processor model"),
        ("left: host: Linux", "system and its version"),
        ("names of threads", "names of threads"),
        ("times;", "times"),
        ("addresses of code", "addresses"),
        ("build-ids", "build-ids"),
        ("names of images", "names and build-ids of images"),
        (
            "names of functions and source files",
            "names of functions, source file names",
        ),
    ] {
        assert!(
            said.contains(left) && holds.contains(word),
            "{left}, {word}: {said}"
        );
    }
    for (removed, word) in [
        ("removed: raw stack bytes", "memory"),
        ("removed: registers", "registers"),
        ("removed: folders", "folders"),
        ("removed: host name", "host name"),
        ("command lines", "command line"),
        ("notes", "notes"),
        ("names of guests", "names of guests"),
    ] {
        assert!(
            said.contains(removed) && lacks.contains(word),
            "{removed}, {word}: {said}"
        );
    }
}
