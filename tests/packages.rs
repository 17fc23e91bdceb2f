//! The files that are published as crates: sources and their documents, but no binaries.

use std::path::Path;
use std::process::Command;

/// The published packages, and their folders.
const PACKAGES: &[(&str, &str)] = &[
    ("uniprof", "."),
    ("uprof", "format"),
    ("uniprof-linux", "linux"),
    ("uniprof-agent", "agent"),
    ("uniprof-record", "record"),
    ("uniprof-report", "report"),
];
/// The files that cargo adds to those of the folder.
const OF_CARGO: &[&str] = &[".cargo_vcs_info.json", "Cargo.lock", "Cargo.toml.orig"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn listed(package: &str) -> Vec<String> {
    let output = Command::new(env!("CARGO"))
        .args([
            "package",
            "--list",
            "--allow-dirty",
            "--offline",
            "-p",
            package,
        ])
        .current_dir(root())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let names = String::from_utf8(output.stdout).unwrap();
    names.lines().map(str::to_owned).collect()
}

#[test]
fn a_crate_holds_no_binary_and_nothing_of_the_corpus() {
    for (package, folder) in PACKAGES {
        let names = listed(package);
        assert!(
            names.iter().any(|name| name.starts_with("src/")),
            "{names:?}"
        );
        for name in names
            .iter()
            .filter(|name| !OF_CARGO.contains(&name.as_str()))
        {
            let from_tests = name.starts_with("corpus/") || name.ends_with(".uprof");
            assert!(!from_tests, "{package} holds {name}");
            let bytes = std::fs::read(root().join(folder).join(name)).unwrap();
            let is_text = std::str::from_utf8(&bytes).is_ok_and(|text| !text.contains('\0'));
            assert!(is_text, "{package} holds {name}, which is no text");
        }
    }
}

#[test]
fn the_program_s_crate_is_its_sources_and_documents() {
    let names = listed("uniprof");
    for name in &names {
        let folder = name.split_once('/').map_or("", |(folder, _)| folder);
        let belongs = ["", "src", "docs", "packaging"].contains(&folder);
        assert!(belongs, "{name} is in the crate");
    }
    for needed in [
        "Cargo.lock",
        "LICENSE-MIT",
        "LICENSE-APACHE",
        "README.md",
        "src/main.rs",
    ] {
        assert!(
            names.iter().any(|name| name == needed),
            "no {needed} in {names:?}"
        );
    }
}

#[test]
fn the_coming_version_has_its_section_in_the_changelog() {
    let text = std::fs::read_to_string(root().join("CHANGELOG.md")).unwrap();
    let section = concat!("\n## ", env!("CARGO_PKG_VERSION"));
    assert_eq!(text.matches(section).count(), 1, "no {section:?}");
}
