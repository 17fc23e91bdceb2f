//! Help, completions and manual pages: every subcommand has them, with an example.

use std::path::Path;
use std::process::Command;

fn print(arguments: &[&str]) -> String {
    let output = kit::uniprof().args(arguments).output().unwrap();
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

/// The completions of the last of `words`, requested as the script of `shell` does.
fn offered(shell: &str, words: &[&str], folder: &Path) -> Vec<String> {
    let output = kit::uniprof()
        .args(["--", "uniprof"])
        .args(words)
        .current_dir(folder)
        .env("UNIPROF_COMPLETE", shell)
        .env("_CLAP_IFS", "\n")
        .env("_CLAP_COMPLETE_INDEX", words.len().to_string())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let offered = String::from_utf8_lossy(&output.stdout).into_owned();
    offered.lines().map(String::from).collect()
}

#[test]
fn completions_know_subcommands_and_flags_in_every_shell() {
    let here = Path::new(".");
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = print(&["completions", shell]);
        assert!(script.contains("UNIPROF_COMPLETE"), "{shell}: {script}");
        let has = |words: &[&str], word: &str| {
            let offered = offered(shell, words, here);
            assert!(
                offered.iter().any(|it| it.starts_with(word)),
                "{shell}: {offered:?}"
            );
        };
        has(&["rec"], "record");
        has(&["record", "--freq"], "--frequency");
    }
}

/// A folder with two recordings and other files. One recording has functions of every sort.
fn folder_with_recordings() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let stacks = "main;parse_all 5\nmain;core::fold<u8, $(touch pwned)> 3\n$(touch pwned);`id` 2\n";
    std::fs::write(folder.path().join("stacks.folded"), stacks).unwrap();
    let into = folder.path().join("run.uprof");
    let stacks = folder.path().join("stacks.folded");
    print(&[
        "import",
        "-f",
        "folded",
        "-o",
        into.to_str().unwrap(),
        stacks.to_str().unwrap(),
    ]);
    for name in ["other.uprof", "$(touch pwned).uprof", "two words.uprof"] {
        std::fs::copy(&into, folder.path().join(name)).unwrap();
    }
    folder
}

#[test]
fn completions_offer_recordings_functions_and_targets() {
    let folder = folder_with_recordings();
    let offered = |words: &[&str]| offered("bash", words, folder.path());
    let recordings = |words: &[&str]| {
        let mut found = offered(words);
        found.retain(|word| !word.starts_with('-'));
        found
    };
    assert_eq!(recordings(&["report", ""]), ["other.uprof", "run.uprof"]);
    assert_eq!(recordings(&["info", "ru"]), ["run.uprof"]);
    let both = ["run.uprof,other.uprof", "run.uprof,run.uprof"];
    assert_eq!(recordings(&["diff", "run.uprof,"]), both);
    for view in ["--callers", "--annotate"] {
        assert_eq!(
            offered(&["report", view, ""]),
            ["parse_all", "core::fold", "main"],
            "what a shell would run is left out"
        );
    }
    if cfg!(feature = "record") {
        let own = format!("pid:{}", std::process::id());
        assert_eq!(offered(&["record", &own]), [own.as_str()]);
        let forms = offered(&["doctor", ""]);
        assert!(forms.contains(&"qemu:".to_owned()), "{forms:?}");
    }
}

/// The words that bash completes with the script of uniprof, for a command line that it split into `words`.
fn offered_in_bash(words: &[&str], folder: &Path) -> Vec<String> {
    let own = kit::program();
    let path = std::env::var("PATH").unwrap();
    let script = "source <(uniprof completions bash)\nCOMP_WORDS=(uniprof \"$@\")\nCOMP_CWORD=$#\n\
                  compopt() { :; }\n_uniprof\nprintf '%s\\n' \"${COMPREPLY[@]}\"";
    let output = Command::new("bash")
        .args(["-c", script, "bash"])
        .args(words)
        .current_dir(folder)
        .env(
            "PATH",
            format!("{}:{path}", own.parent().unwrap().display()),
        )
        .output()
        .unwrap();
    assert!(output.stderr.is_empty(), "{output:?}");
    let offered = String::from_utf8(output.stdout).unwrap();
    offered.lines().map(String::from).collect()
}

#[test]
fn bash_gets_whole_words_and_nothing_that_it_would_run() {
    let folder = folder_with_recordings();
    let offered = |words: &[&str]| offered_in_bash(words, folder.path());
    assert_eq!(offered(&["report", "oth"]), ["other.uprof"]);
    assert_eq!(offered(&["report", "--callers", "par"]), ["parse_all"]);
    assert_eq!(
        offered(&["report", "--rows", "=", "1", "oth"]),
        ["other.uprof"]
    );
    assert_eq!(
        offered(&["report", "--callers", "core", "::", "fo"]),
        ["fold"]
    );
    if cfg!(feature = "record") {
        let pid = std::process::id().to_string();
        assert_eq!(offered(&["record", "pid", ":", &pid]), [pid.as_str()]);
        assert!(offered(&["doctor", "pid", ":"]).contains(&pid));
    }
    assert!(!folder.path().join("pwned").exists());
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
