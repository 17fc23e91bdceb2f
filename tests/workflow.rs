//! The steps of the workflow in docs/, run in a shell as GitHub's runner starts it, on a repository with a
//! pull request that makes one function slower.

#![cfg(all(feature = "record", feature = "report"))]

use std::path::Path;
use std::process::{Command, Output};

const WORKFLOW: &str = include_str!("../docs/pull-request.yml");

const RELEASE: &str = include_str!("../.github/workflows/release.yml");

/// Four functions. One of them does `times` as much work. With two, shares alone wouldn't show which of them
/// changed.
fn source(times: u32) -> String {
    let function = |name: &str, rounds: u32| {
        format!("PLAIN uint64_t {name}(uint64_t n) {{ return mix(n, {rounds}) + 1; }}\n")
    };
    let functions = [
        ("parse", 20_000),
        ("check", 15_000),
        ("sort", 15_000),
        ("store", 10_000 * times),
    ];
    let functions = functions
        .map(|(name, rounds)| function(name, rounds))
        .concat();
    format!(
        "#include <stdint.h>\n\
         #define PLAIN __attribute__((noinline, noclone))\n\
         PLAIN uint64_t mix(uint64_t n, int rounds) {{\n\
         for (int i = 0; i < rounds; i++) n ^= n << 13, n ^= n >> 7;\n\
         return n; }}\n{functions}\
         int main(void) {{\n\
         uint64_t n = 88172645463325252u;\n\
         for (int i = 0; i < 8000; i++) n = store(sort(check(parse(n))));\n\
         return n == 0; }}\n"
    )
}

/// Names and scripts of the steps of a workflow that have a script.
fn steps(workflow: &str) -> Vec<(String, String)> {
    let mut steps: Vec<(String, String)> = Vec::new();
    for line in workflow.lines() {
        if let Some(name) = line.strip_prefix("      - name: ") {
            steps.push((name.to_owned(), String::new()));
        } else if let Some(command) = line.strip_prefix("          ")
            && let Some((_, script)) = steps.last_mut()
        {
            script.push_str(command);
            script.push('\n');
        }
    }
    steps
}

fn run(folder: &Path, script: &str) -> Output {
    let programs = kit::program();
    let programs = programs.parent().unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    Command::new("bash")
        .args(["--noprofile", "--norc", "-eo", "pipefail", "-c", script])
        .current_dir(folder.join("repository"))
        .env(
            "PATH",
            format!(
                "{}:{}:{path}",
                folder.join("bin").display(),
                programs.display()
            ),
        )
        .env("RUNNER_TEMP", folder.join("temp"))
        .env("GITHUB_BASE_REF", "main")
        .env("GITHUB_STEP_SUMMARY", folder.join("summary.md"))
        .output()
        .unwrap()
}

#[test]
fn a_pull_request_that_makes_a_function_slower_is_told_so() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for name in ["repository", "temp", "bin"] {
        std::fs::create_dir(folder.join(name)).unwrap();
    }
    // A test must not change the settings of the machine.
    let sudo = folder.join("bin/sudo");
    std::fs::write(&sudo, "#!/bin/sh\necho \"would run: $*\"\n").unwrap();
    let made = run(
        folder,
        &format!(
            "chmod +x ../bin/sudo; git init -q -b main .; git config user.name t; git config user.email t@t\n\
             printf 'bench: bench.c\\n\\tgcc -g -O1 -fno-omit-frame-pointer -o $@ $<\\n' >Makefile\n\
             cat >bench.c <<'EOF'\n{}EOF\n\
             git add . && git commit -qm base && git update-ref refs/remotes/origin/main HEAD\n\
             git checkout -qb change\ncat >bench.c <<'EOF'\n{}EOF\n\
             git commit -qam change",
            source(1),
            source(2)
        ),
    );
    assert!(made.status.success(), "{made:?}");
    let mut compared = None;
    for (name, script) in steps(WORKFLOW) {
        let output = run(folder, &script);
        if name == "Compare" {
            compared = Some(output);
        } else {
            assert!(output.status.success(), "{name}: {output:?}");
        }
    }
    let compared = compared.expect("a step that compares");
    let said = String::from_utf8_lossy(&compared.stdout).into_owned();
    assert_eq!(compared.status.code(), Some(1), "{compared:?}");
    let starts = |line: &str| said.lines().any(|told| told.starts_with(line));
    assert!(starts("::warning title=uniprof::store (total): "), "{said}");
    assert!(
        starts("::error title=uniprof::any>+5%25 is broken by "),
        "{said}"
    );
    assert!(!starts("::warning title=uniprof::parse"), "{said}");
    let summary = std::fs::read_to_string(folder.join("summary.md")).unwrap();
    let certain = summary.split("<details>").next().unwrap();
    assert!(
        certain.starts_with("**`") && certain.contains(" % more of the samples"),
        "{summary}"
    );
    assert!(
        certain.contains("| total | `store  [bench]` |"),
        "{summary}"
    );
}

/// What `gh` of the tests does: it lists one earlier comment if `$EARLIER` is set, and keeps what it is called with.
const GH: &str = r#"#!/bin/sh
case "$*" in
*--jq*) test -z "$EARLIER" || echo 77 ;;
*) echo "$*" >>"$CALLS" ;;
esac
"#;

#[test]
fn the_action_compares_comments_and_gates() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for name in ["repository", "temp", "bin"] {
        std::fs::create_dir(folder.join(name)).unwrap();
    }
    let gh = folder.join("bin/gh");
    std::fs::write(&gh, GH).unwrap();
    std::fs::set_permissions(&gh, std::fs::Permissions::from_mode(0o755)).unwrap();
    let action = kit::root().join("packaging/action");
    let counting = |rounds: u32| format!("i=0; while [ $i -lt {rounds} ]; do i=$((i+1)); done");
    let (before, after) = (counting(100_000), counting(400_000));
    // As the action's steps set them; what stands here is what action.yml names.
    let names = [
        "BEFORE", "AFTER", "FAIL_IF", "DETECT", "MOST", "NAME", "BODY", "NUMBER", "STATUS",
    ];
    let described = std::fs::read_to_string(action.join("action.yml")).unwrap();
    for name in names {
        assert!(described.contains(&format!("{name}: ${{{{ ")), "{name}");
    }
    let outputs = folder.join("outputs");
    let compared = run(
        folder,
        &format!(
            "export BEFORE='{before}' AFTER='{after}' FAIL_IF='any>+5%' DETECT=50% MOST=6 NAME=counting\n\
             export GITHUB_OUTPUT='{}'\n'{}'",
            outputs.display(),
            action.join("compare").display()
        ),
    );
    assert!(compared.status.success(), "{compared:?}");
    let outputs = std::fs::read_to_string(outputs).unwrap();
    let output = |name: &str| {
        let mut lines = outputs.lines();
        let found = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        found.unwrap_or_else(|| panic!("no {name} in {outputs}"))
    };
    // It takes four times as long, although its shares are the same.
    assert_eq!(output("status"), "1", "{outputs}");
    assert!(output("verdict").starts_with("**"), "{outputs}");
    assert!(std::fs::metadata(output("page")).unwrap().len() > 10_000);
    let summary = std::fs::read_to_string(folder.join("summary.md")).unwrap();
    let body = std::fs::read_to_string(output("body")).unwrap();
    assert_eq!(body, format!("<!-- uniprof counting -->\n{summary}"));
    let calls = folder.join("calls");
    for (earlier, request) in [
        ("", "POST repos/o/r/issues/5/comments"),
        ("x", "PATCH repos/o/r/issues/comments/77"),
    ] {
        let commented = run(
            folder,
            &format!(
                "export EARLIER='{earlier}' CALLS='{}' GITHUB_REPOSITORY=o/r NUMBER=5 BODY='{}'\n'{}'",
                calls.display(),
                output("body"),
                action.join("comment").display()
            ),
        );
        assert!(commented.status.success(), "{commented:?}");
        let called = std::fs::read_to_string(&calls).unwrap();
        let last = called.lines().last().unwrap();
        let expected = format!("api --method {request} --field body=@{}", output("body"));
        assert_eq!(last, expected);
    }
}

#[test]
fn the_release_workflow_fits_the_repository() {
    let steps = steps(RELEASE);
    let script = |name: &str| {
        let found = steps.iter().find(|(step, _)| step == name);
        &found.unwrap_or_else(|| panic!("no step {name}")).1
    };
    let all: String = steps.iter().map(|(_, script)| script.as_str()).collect();
    let words = all.split(|letter: char| letter.is_whitespace() || letter == '"');
    let files: Vec<&str> = words
        .filter(|word| word.starts_with("packaging/"))
        .collect();
    assert_eq!(files, ["packaging/release"]);
    assert!(kit::root().join(files[0]).is_file());
    let manifest = std::fs::read_to_string(kit::root().join("Cargo.toml")).unwrap();
    assert!(manifest.contains("\"fuzz/targets\"") && manifest.contains("\"tests/kit\""));
    let publish = script("Publish the crates");
    for excluded in ["uniprof-fuzz-targets", "uniprof-test-kit"] {
        assert!(
            publish.contains(&format!("--exclude {excluded}")),
            "{publish}"
        );
    }
    let is_version = |tag: &str| {
        let mut shell = Command::new("bash");
        shell.args([
            "-eo",
            "pipefail",
            "-c",
            script("Check that the tag is the version"),
        ]);
        shell.current_dir(kit::root()).env("GITHUB_REF_NAME", tag);
        shell.status().unwrap().success()
    };
    assert!(is_version(concat!("v", env!("CARGO_PKG_VERSION"))));
    assert!(!is_version("v9.9.9"));
}
