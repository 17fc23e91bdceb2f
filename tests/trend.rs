//! Trends as users see them: of imported stacks, whose counts are known. The statistics are tested in
//! report/tests/trend.rs.

use kit::uniprof;
use std::fs;
use std::path::Path;
use tempfile::TempDir;

const RECORDINGS: usize = 16;
/// `hash` takes more from this recording on.
const STEP: usize = 9;

/// Recordings in which `hash` is slow from the step on, and a file that is none.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for number in 0..RECORDINGS {
        let noise = |salt: usize| (number + salt).pow(3) * 7 % 13;
        let slow = if number >= STEP { 150 } else { 0 };
        let text = format!(
            "main;parse {}\nmain;hash {}\nmain;<script> {}\n",
            500 + noise(1),
            300 + slow + noise(4),
            200 + noise(9),
        );
        let version = format!("version=1.{number}");
        let input = folder.path().join("stacks");
        fs::write(&input, text).unwrap();
        let mut command = uniprof();
        command.args(["import", "-q", "-f", "folded", "--label", &version, "-o"]);
        command
            .arg(folder.path().join(format!("{number:02}.uprof")))
            .arg(&input);
        assert!(command.status().unwrap().success());
    }
    folder
}

/// Runs `trend` on a folder: exit status, output and messages.
fn trend(folder: &Path, words: &[&str]) -> (i32, String, String) {
    let mut command = uniprof();
    let output = command
        .arg("trend")
        .args(words)
        .arg(folder)
        .output()
        .unwrap();
    let code = output.status.code().unwrap();
    (code, kit::text(&output.stdout), kit::text(&output.stderr))
}

#[test]
fn every_form_has_the_step() {
    let folder = folder();
    let by = ["--order", "label:version"];
    let (code, text, said) = trend(folder.path(), &by);
    assert_eq!(code, 0, "{said}");
    assert!(text.starts_with("`hash` takes "), "{text}");
    assert!(text.contains("since 1.9"), "{text}");
    let (code, json, _) = trend(folder.path(), &["--order", "given", "--json"]);
    assert_eq!(code, 0);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let first = &json["functions"][0];
    assert_eq!(
        (&first["name"], &first["changes"][0]["at"]),
        (&"hash".into(), &STEP.into())
    );
    assert_eq!(json["recordings"].as_array().unwrap().len(), RECORDINGS);
    let (_, markdown, _) = trend(folder.path(), &["--order", "given", "--format", "markdown"]);
    assert!(markdown.contains("| `hash  [imported]` |"), "{markdown}");
    let (_, annotations, _) = trend(folder.path(), &["--order", "given", "--format", "github"]);
    assert!(annotations.contains("::warning"), "{annotations}");
    let (_, page, _) = trend(folder.path(), &["--order", "given", "--html=-"]);
    assert!(
        page.contains("<svg") && page.contains("&lt;script&gt;"),
        "{page}"
    );
    assert_eq!(page.matches("<script>").count(), 1);
}

#[test]
fn a_broken_rule_and_a_file_that_is_left_out_end_with_1() {
    let folder = folder();
    let by = ["--order", "given", "--fail-if"];
    let with = |rule: &'static str| trend(folder.path(), &[by[0], by[1], by[2], rule]);
    let (code, _, said) = with("hash>+10%");
    assert!(code == 1 && said.contains("is broken"), "{said}");
    let (code, _, said) = with("parse>+10%");
    assert!(code == 0 && said.contains("is kept"), "{said}");
    let (code, _, said) = with("absent>+10%");
    assert!(code == 2 && said.contains("absent"), "{said}");
    fs::write(folder.path().join("99.uprof"), "no recording").unwrap();
    fs::copy(
        folder.path().join("00.uprof"),
        folder.path().join("98.uprof"),
    )
    .unwrap();
    let (code, text, said) = trend(folder.path(), &["--order", "given"]);
    assert!(code == 1 && text.starts_with("`hash`"), "{text}");
    assert!(
        said.contains("99.uprof") && said.contains("identity of another"),
        "{said}"
    );
}

#[test]
fn what_has_no_trend_gets_a_message() {
    let folder = folder();
    let (code, _, said) = trend(folder.path(), &[]);
    assert!(code == 2 && said.contains("--order given"), "{said}");
    let (code, _, said) = trend(folder.path(), &["--order", "label:region"]);
    assert!(code == 2 && said.contains("no label region"), "{said}");
    let (code, _, said) = trend(folder.path(), &["--label", "service=web"]);
    assert!(code == 2 && said.contains("service=web"), "{said}");
    let empty = tempfile::tempdir().unwrap();
    let (code, _, said) = trend(empty.path(), &[]);
    assert!(code == 2 && said.contains("no recording"), "{said}");
}
