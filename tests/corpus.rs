//! Reports of the recordings in corpus/ equal the goldens, byte for byte.
//!
//! `UNIPROF_BLESS=1` writes the goldens anew.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The extension of each golden, and the arguments that print it.
const REPORTS: &[(&str, &[&str])] = &[
    ("top.txt", &["report", "--top"]),
    ("tree.txt", &["report", "--tree"]),
    ("folded.txt", &["export", "--format", "folded"]),
    ("flame.svg", &["report", "--flame=-"]),
];

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

/// The same for recordings of calls. The dump shows every call.
const TRACES: &[(&str, &[&str])] = &[
    ("dump.txt", &["dump"]),
    ("folded.txt", &["export", "--format", "folded"]),
];

fn is_trace(file: &Path) -> bool {
    let name = file.file_name().unwrap().to_string_lossy();
    name.starts_with("trace-")
}

fn reports(file: &Path) -> &'static [(&'static str, &'static [&'static str])] {
    if is_trace(file) { TRACES } else { REPORTS }
}

/// The recordings, ordered by name.
fn recordings() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(corpus()).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|ending| ending == "uprof"));
    files.sort();
    assert!(files.len() >= 8, "the corpus is there: {files:?}");
    files
}

fn print(file: &Path, arguments: &[&str]) -> Vec<u8> {
    let mut command = kit::uniprof();
    command
        .args(arguments)
        .arg(file.file_name().unwrap())
        .current_dir(corpus());
    if arguments == ["dump"] {
        return finish(command);
    }
    command.arg("--no-search");
    let mut images: Vec<PathBuf> = std::fs::read_dir(corpus().join("images"))
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    images.sort();
    for image in images {
        command
            .arg("--elf")
            .arg(Path::new("images").join(image.file_name().unwrap()));
    }
    finish(command)
}

fn finish(mut command: Command) -> Vec<u8> {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        matches!(output.status.code(), Some(0 | 1)),
        "{command:?}: {said}"
    );
    output.stdout
}

#[test]
fn reports_are_the_golden_ones() {
    let bless = std::env::var_os("UNIPROF_BLESS").is_some();
    let mut wrong = Vec::new();
    for file in recordings() {
        for (ending, arguments) in reports(&file) {
            let name = format!("{}.{ending}", file.file_stem().unwrap().to_string_lossy());
            let golden = corpus().join("golden").join(name);
            let printed = print(&file, arguments);
            if bless {
                std::fs::create_dir_all(golden.parent().unwrap()).unwrap();
                std::fs::write(&golden, &printed).unwrap();
            } else if std::fs::read(&golden).unwrap_or_default() != printed {
                wrong.push(golden);
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "not as before: {wrong:#?}\nif that is wanted: UNIPROF_BLESS=1 cargo test --test corpus"
    );
}

/// The number of threads must not change a report.
#[test]
fn reports_do_not_depend_on_the_number_of_threads() {
    // The page is too large for a golden, and changes with every word in it.
    let page: (&str, &[&str]) = ("html", &["report", "--html=-"]);
    for file in recordings() {
        for (ending, arguments) in REPORTS.iter().chain([&page]) {
            let one = with_threads(&file, arguments, "1");
            assert_eq!(
                one,
                with_threads(&file, arguments, "2"),
                "{file:?} {ending}"
            );
        }
    }
}

fn with_threads(file: &Path, arguments: &[&str], threads: &str) -> Vec<u8> {
    let mut command = kit::uniprof();
    command
        .env("RAYON_NUM_THREADS", threads)
        .args(arguments)
        .arg("--no-search")
        .arg(file);
    command.output().unwrap().stdout
}

/// A trace whose import was killed keeps everything that was written.
#[test]
fn calls_survive_a_cut_file_and_its_recovery() {
    let folder = tempfile::tempdir().unwrap();
    let spans = |dump: Vec<u8>| -> Vec<String> {
        let text = String::from_utf8(dump).unwrap();
        let spans = text.lines().filter(|line| line.starts_with("span "));
        spans.map(str::to_owned).collect()
    };
    for file in recordings().into_iter().filter(|file| is_trace(file)) {
        let whole = std::fs::read(&file).unwrap();
        let (cut, out) = (folder.path().join("cut"), folder.path().join("out"));
        // The file is cut in the middle of the end record.
        std::fs::write(&cut, &whole[..whole.len() - 20]).unwrap();
        let recover = |from: &Path| {
            let mut command = kit::uniprof();
            command.arg("recover").arg(from).arg("-o").arg(&out);
            finish(command)
        };
        recover(&cut);
        let expected = spans(print(&file, &["dump"]));
        assert!(expected.len() >= 7, "{file:?}");
        let mut command = kit::uniprof();
        command.arg("dump").arg(&out);
        assert_eq!(spans(finish(command)), expected, "{file:?}");
    }
}

/// The shares of `calls.c` are known: `often` has twice the steps of `seldom`.
#[test]
fn shares_are_the_known_ones() {
    for name in ["calls.uprof", "calls-stack.uprof"] {
        let folded = print(&corpus().join(name), &["export", "--format", "folded"]);
        let folded = String::from_utf8(folded).unwrap();
        let count = |function: &str| -> u64 {
            let lines = folded
                .lines()
                .filter(|line| line.split([';', ' ']).any(|f| f == function));
            lines
                .map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
                .sum()
        };
        let (often, seldom) = (count("often") as f64, count("seldom") as f64);
        let share = often / (often + seldom);
        assert!(
            (share - 2.0 / 3.0).abs() < 0.05,
            "{name}: often {often}, seldom {seldom}"
        );
        let deep = folded
            .lines()
            .filter(|line| line.matches(";deep").count() >= 20);
        assert!(deep.count() > 0, "{name}: the recursion is seen in full");
    }
}
