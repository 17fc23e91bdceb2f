//! The tables of a fleet as files: where they are, that they are the same again, and what an unreadable recording
//! costs. Real engines ask what is in them, in tests/consumers/fleet.py.

use kit::{corpus, uniprof};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

const NAMES: [&str; 3] = ["calls.uprof", "pack-stack.uprof", "off-cpu.uprof"];

/// Exports to the tables in `folder`: exit status, and what was said.
fn export(folder: &Path, words: &[&str], recordings: &[PathBuf]) -> (i32, String) {
    let mut command = uniprof();
    command.args(["export", "-f", "parquet", "-o"]).arg(folder);
    let output = command.args(words).args(recordings).output().unwrap();
    (output.status.code().unwrap(), kit::text(&output.stderr))
}

/// All files below `folder` with their bytes.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(inner) = folders.pop() {
        for entry in fs::read_dir(inner).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(folder).unwrap().to_str().unwrap();
                found.insert(name.to_owned(), fs::read(&path).unwrap());
            }
        }
    }
    found
}

#[test]
fn a_recording_has_a_file_in_each_table_and_the_same_bytes_again() {
    let recordings = NAMES.map(corpus);
    let folder = tempfile::tempdir().unwrap();
    let tables = folder.path().join("new/tables");
    assert_eq!(export(&tables, &["--no-search"], &recordings).0, 0);
    let first = files(&tables);
    assert_eq!(first.len(), 3 * NAMES.len(), "{:?}", first.keys());
    for (name, bytes) in &first {
        let parts: Vec<&str> = name.split('/').collect();
        let [table, date, service, file] = parts[..] else {
            panic!("{name}");
        };
        assert!(["samples", "stacks", "frames"].contains(&table), "{name}");
        assert!(date.starts_with("date=20") && date.len() == 15, "{name}");
        let services = ["service=calls", "service=pack", "service=waits"];
        assert!(services.contains(&service), "{name}");
        assert!(
            file.len() == 32 + ".parquet".len() && file.ends_with(".parquet"),
            "{name}"
        );
        assert!(
            bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"),
            "{name}"
        );
    }
    // One after another, in another order, over those that are there.
    for recording in recordings.iter().rev() {
        export(&tables, &["--no-search"], std::slice::from_ref(recording));
    }
    assert!(files(&tables) == first);
}

#[test]
fn a_recording_that_cannot_be_exported_costs_only_itself() {
    let folder = tempfile::tempdir().unwrap();
    let tables = folder.path().join("tables");
    let copy = folder.path().join("copy.uprof");
    fs::copy(corpus("calls.uprof"), &copy).unwrap();
    let text = folder.path().join("text.uprof");
    fs::write(&text, "no recording").unwrap();
    let recordings = [
        text.clone(),
        corpus("calls.uprof"),
        copy,
        folder.path().join("none.uprof"),
    ];
    let (status, said) = export(&tables, &[], &recordings);
    assert_eq!(status, 1, "{said}");
    for wanted in [
        "text.uprof",
        "has the identity of",
        "none.uprof",
        "of 1 recordings",
    ] {
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
    assert_eq!(files(&tables).len(), 3);
    let (status, said) = export(&tables, &[], &[text]);
    assert_eq!(status, 2, "{said}");
    let (status, said) = export(
        &tables,
        &["--label", "service=web"],
        &[corpus("calls.uprof")],
    );
    assert!(
        status == 2 && said.contains("none of 1 recordings has the label service=web"),
        "{said}"
    );
    let (status, said) = export(Path::new("-"), &[], &[corpus("calls.uprof")]);
    assert!(status == 2 && said.contains("-o DIR"), "{said}");
}
