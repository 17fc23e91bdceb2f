//! Bundles, end to end. A program without frame pointers is recorded with raw stacks. Its bundle is moved to
//! a folder from which no image can be found, and must give the same bytes as the recording with its images.
//! The redacted bundle must contain nothing that redaction promises to remove.

use std::path::Path;
use std::process::{Command, Output};
use uprof::cold::{End, EndReason, Metadata};
use uprof::{Span, SpanKind, Task, Writer};

/// Calls that a chain of frame pointers can't follow, and a secret on the stack.
const SOURCE: &str = r#"
#include <string.h>
static volatile unsigned long sink;
static inline __attribute__((always_inline)) unsigned long inlined(unsigned long x)
{
    for (unsigned long i = 0; i < 50; i++)
        x = x * 31 + sink;
    return x;
}
__attribute__((noinline)) unsigned long leaf(unsigned long x)
{
    for (unsigned long i = 0; i < 2000; i++)
        sink += inlined(x + i);
    return sink;
}
__attribute__((noinline)) unsigned long middle(unsigned long x)
{
    volatile char secret[64];
    const char *text = "the-secret-on-the-stack";
    for (unsigned long i = 0; i < strlen(text); i++)
        secret[i] = text[i];
    return leaf(x) + (unsigned long)secret[x % 8];
}
__attribute__((noinline)) unsigned long outer(unsigned long x)
{
    return middle(x) + middle(x + 1);
}
int main(void)
{
    for (unsigned long round = 0;; round++)
        sink += outer(round);
}
"#;

fn uniprof(folder: &Path, words: &[&str]) -> Output {
    let output = kit::uniprof().args(words).current_dir(folder).output();
    let output = output.unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code().is_some_and(|code| code < 2),
        "uniprof {words:?}: {said}"
    );
    output
}

/// Records the program in a folder whose name must not show; `None` if this machine doesn't allow it.
fn record(folder: &Path) -> Option<()> {
    let home = folder.join("home-of-bob");
    std::fs::create_dir(&home).unwrap();
    std::fs::write(home.join("private-app.c"), SOURCE).unwrap();
    let flags = [
        "-O2",
        "-g",
        "-fomit-frame-pointer",
        "-fno-optimize-sibling-calls",
    ];
    let source = home.join("private-app.c");
    let built = Command::new("gcc")
        .args(flags)
        .arg("-o")
        .arg(home.join("app"))
        .arg(&source)
        .status();
    if !built.is_ok_and(|status| status.success()) {
        eprintln!("skipped: there is no gcc to build a program with");
        return None;
    }
    let program = home.join("app").display().to_string();
    let words = [
        "record",
        "-F",
        "499",
        "-d",
        "1s",
        "--stack=16K",
        "--no-embed",
        "-o",
        "run.uprof",
    ];
    let output = kit::uniprof()
        .args(words)
        .args(["--", &program, "--password=hunter2"])
        .current_dir(folder)
        .output()
        .unwrap();
    if !output.status.success() {
        eprintln!(
            "skipped: cannot record here: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        return None;
    }
    Some(())
}

/// What `go tool pprof` reads in an export, without the start lines of functions, which a bundle can't store.
/// `None` if this machine has no go.
fn pprof(folder: &Path, flags: &[&str]) -> Option<String> {
    let words = [
        "export",
        "--format",
        "pprof",
        "run.uprof",
        "-o",
        "run.pb.gz",
    ];
    uniprof(folder, &[&words, flags].concat());
    let mut go = Command::new("go");
    go.args(["tool", "pprof", "-symbolize=none", "-raw", "run.pb.gz"]);
    let Ok(output) = go.current_dir(folder).env("HOME", folder).output() else {
        println!("skipped: no go here to run `go tool pprof` (Debian's golang-go has it)");
        return None;
    };
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let words = text.split_whitespace();
    let kept: Vec<&str> = words.filter(|word| !word.starts_with("s=")).collect();
    assert!(kept.len() > 100, "{text}");
    Some(kept.join(" "))
}

#[test]
fn a_bundle_far_from_its_images_gives_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    if record(folder).is_none() {
        return;
    }
    uniprof(folder, &["bundle", "run.uprof", "-o", "far.uprof"]);
    let tree = uniprof(folder, &["report", "run.uprof", "--tree"]).stdout;
    let tree = String::from_utf8(tree).unwrap();
    for name in ["leaf", "inlined", "middle", "outer", "main"] {
        assert!(tree.contains(name), "no {name} in {tree}");
    }
    // The file has the same name, so that only the folder differs.
    let far = folder.join("far");
    std::fs::create_dir(&far).unwrap();
    std::fs::rename(folder.join("far.uprof"), far.join("run.uprof")).unwrap();
    let outputs: [&[&str]; 5] = [
        &["report", "run.uprof", "--tree"],
        &["report", "run.uprof", "--top", "--by", "line"],
        &["report", "run.uprof", "--flame=-"],
        &["export", "--format", "json", "run.uprof", "-o", "-"],
        &["export", "--format", "folded", "run.uprof", "-o", "-"],
    ];
    let near: Vec<Vec<u8>> = outputs
        .iter()
        .map(|words| uniprof(folder, words).stdout)
        .collect();
    let near_pprof = pprof(folder, &[]);
    std::fs::rename(folder.join("home-of-bob"), folder.join("gone")).unwrap();
    assert_eq!(near_pprof, pprof(&far, &["--no-search"]));
    for (words, near) in outputs.iter().zip(&near) {
        let mut words = words.to_vec();
        words.push("--no-search");
        let far = uniprof(&far, &words).stdout;
        assert!(!near.is_empty());
        assert!(
            *near == far,
            "{words:?} differs: {} and {} bytes",
            near.len(),
            far.len()
        );
    }
}

#[test]
fn bundles_count_the_calls_that_a_gap_lost() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut writer = Writer::create(Vec::new(), [1; 16], &Metadata::default(), 0).unwrap();
    let span = Span {
        name: "main",
        task: Task { space: 7, vcpu: 7 },
        cpu: None,
        start_ns: Some(10),
        length_ns: Some(5),
        depth: 0,
        complete: true,
        kind: SpanKind::Function,
        result: None,
    };
    writer.span(&span).unwrap();
    writer.flush().unwrap();
    writer.spans_before(Some(9));
    writer.span(&span).unwrap();
    let end = End {
        time_ns: 30,
        reason: EndReason::InputEnded,
        message: String::new(),
        totals: Vec::new(),
    };
    std::fs::write(folder.join("run.uprof"), writer.finish(&end).unwrap()).unwrap();
    for more in [&[] as &[&str], &["--redact"]] {
        let words = ["bundle", "run.uprof", "-o", "copy.uprof"];
        uniprof(folder, &[&words[..], more].concat());
        let info = uniprof(folder, &["info", "copy.uprof"]).stdout;
        let info = String::from_utf8(info).unwrap();
        assert!(info.contains("8 calls gone"), "{more:?}: {info}");
    }
}

#[test]
fn a_redacted_bundle_holds_nothing_that_it_promises_to_remove() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    if record(folder).is_none() {
        return;
    }
    let said = uniprof(
        folder,
        &["bundle", "run.uprof", "--redact", "-o", "public.uprof"],
    )
    .stderr;
    let said = String::from_utf8(said).unwrap();
    assert!(
        said.contains("removed: raw stack bytes") && said.contains("left: "),
        "{said}"
    );
    let bytes = std::fs::read(folder.join("public.uprof")).unwrap();
    let mut text = String::from_utf8_lossy(&bytes).into_owned();
    let dumped = String::from_utf8(uniprof(folder, &["dump", "public.uprof"]).stdout).unwrap();
    text.push_str(&dumped);
    // The line is checked by its position: a short name may occur in compressed bytes by chance.
    let host = dumped.lines().find(|line| line.starts_with("host "));
    assert!(
        host.is_some_and(|host| host.starts_with("host name=\"[redacted]\" ")),
        "{host:?}"
    );
    let temporary = folder.file_name().unwrap().to_str().unwrap();
    for gone in ["home-of-bob", "hunter2", "the-secret", temporary] {
        assert!(!text.contains(gone), "{gone} is still there");
    }
    assert!(
        text.contains(" regs=- stack=-"),
        "a sample has registers or stack bytes"
    );
    assert!(!text.contains(" stack=7f"), "a sample has stack bytes");
    let tree = |file: &str| {
        let output = uniprof(folder, &["report", file, "--tree", "--no-search"]);
        String::from_utf8(output.stdout).unwrap()
    };
    let tree = tree("public.uprof");
    for name in ["leaf", "inlined", "middle", "outer", "main"] {
        assert!(tree.contains(name), "no {name} in {tree}");
    }
}
