//! Help, completions and manual pages: every subcommand has them, with an example.

use assert_cmd::cargo::cargo_bin;
use std::process::Command;

fn print(arguments: &[&str]) -> String {
    let output = Command::new(cargo_bin("uniprof"))
        .args(arguments)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{arguments:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

/// The subcommands that `--help` lists.
fn subcommands() -> Vec<String> {
    let help = print(&["--help"]);
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let lines = lines.take_while(|line| line.starts_with("  "));
    let names = lines.filter(|line| !line.starts_with("   "));
    let names = names
        .filter_map(|line| line.split_whitespace().next())
        .map(String::from);
    names.filter(|name| name != "help").collect()
}

#[test]
fn every_subcommand_says_what_it_is_for() {
    let names = subcommands();
    for expected in [
        "record", "report", "diff", "export", "bundle", "info", "dump", "recover",
    ] {
        assert!(names.iter().any(|name| name == expected), "{names:?}");
    }
    for name in names {
        let help = print(&[&name, "--help"]);
        assert!(help.contains("Usage: uniprof"), "{name}: {help}");
        let simple = ["demo", "doctor"].contains(&name.as_str());
        assert!(
            simple || help.contains("Examples:"),
            "{name} has no example"
        );
        assert!(
            help.lines().all(|line| line.chars().count() <= 120),
            "{name}: {help}"
        );
    }
}

#[test]
fn completions_know_the_subcommands() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = print(&["completions", shell]);
        assert!(
            script.contains("record") && script.contains("frequency"),
            "{shell}"
        );
    }
}

#[test]
fn each_subcommand_has_a_manual_page() {
    let folder = tempfile::tempdir().unwrap();
    print(&["man", folder.path().to_str().unwrap()]);
    for name in subcommands() {
        let page = folder.path().join(format!("uniprof-{name}.1"));
        let page = std::fs::read_to_string(page).unwrap();
        for part in [".SH SYNOPSIS", ".SH \"EXIT STATUS\"", "\\fB2\\fR\nfailed"] {
            assert!(page.contains(part), "no {part} in {name}");
        }
    }
}
