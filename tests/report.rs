//! The program's reporting commands, as a user runs them, over the corpus.

use kit::corpus;
use std::io::Write;
use std::process::{Command, Stdio};
use uniprof_report::export::FORMATS;
use uniprof_report::views::{Needs, VIEWS};

fn uniprof(words: &[&str]) -> Command {
    let mut command = kit::uniprof();
    command.args(words);
    command
}

/// Flags that make a report depend only on the corpus.
fn with_images(command: &mut Command) -> &mut Command {
    command.arg("--no-search");
    command.arg("--elf").arg(corpus("images/calls"))
}

fn output(command: &mut Command) -> (i32, String, String) {
    let std::process::Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

#[test]
fn a_recording_from_a_pipe_gives_the_same_report() {
    let path = corpus("calls.uprof");
    let (status, from_file, _) = output(with_images(uniprof(&["report", "--tree"]).arg(&path)));
    assert_eq!(status, 0);
    let mut child = with_images(&mut uniprof(&["report", "--tree", "-"]))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let bytes = std::fs::read(&path).unwrap();
    child.stdin.take().unwrap().write_all(&bytes).unwrap();
    let piped = child.wait_with_output().unwrap();
    assert_eq!(piped.status.code(), Some(0));
    assert_eq!(String::from_utf8(piped.stdout).unwrap(), from_file);
}

#[test]
fn a_function_that_is_in_no_sample_is_status_1() {
    for view in ["--callers", "--annotate"] {
        let mut command = uniprof(&["report", view, "no_such_function"]);
        let (status, _, said) = output(with_images(command.arg(corpus("calls.uprof"))));
        assert_eq!(status, 1, "{view}: {said}");
        assert!(said.contains("no sample has no_such_function"), "{said}");
    }
}

#[test]
fn an_image_is_one_row_whether_its_functions_are_known_or_not() {
    let mut command = uniprof(&[
        "report",
        "-q",
        "--by",
        "module",
        "--no-search",
        "--image-path",
    ]);
    command
        .arg(corpus("images"))
        .arg(corpus("pack-stack.uprof"));
    let (_, shown, said) = output(&mut command);
    let rows = shown.lines().filter(|line| line.contains("libpack.so"));
    assert_eq!(rows.count(), 1, "{shown}{said}");
}

/// A recording of twelve calls below one, of which one is long, in a new folder.
fn calls_below_one() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let [trace, path] = ["trace.json", "run.uprof"]
        .map(|name| folder.path().join(name).to_str().unwrap().to_owned());
    let call = |name: &str, at_us: u64, us: u64| {
        format!(
            "{{\"name\":\"{name}\",\"ph\":\"X\",\"ts\":{at_us},\"dur\":{us},\"pid\":1,\"tid\":1}}"
        )
    };
    let mut calls = vec![call("main", 0, 1000)];
    for number in 0..12 {
        let us = if number == 11 { 700 } else { 2 };
        calls.push(call(&format!("f{number}"), 20 * number, us));
    }
    std::fs::write(&trace, format!("{{\"traceEvents\":[{}]}}", calls.join(","))).unwrap();
    let (status, _, said) = output(&mut uniprof(&["import", &trace, "-o", &path]));
    assert_eq!(status, 0, "{said}");
    (folder, path)
}

#[test]
fn calls_that_are_not_shown_are_counted() {
    let (_folder, path) = calls_below_one();
    let shown = |words: &[&str]| output(uniprof(&[&["report", "-q"], words].concat()).arg(&path)).1;
    assert!(
        shown(&["--calls"]).ends_with("… and 3 more\n"),
        "{}",
        shown(&["--calls"])
    );
    let all = shown(&["--calls", "--rows", "0"]);
    assert!(
        !all.contains("more") && all.matches("f11").count() == 2,
        "{all}"
    );
    let slow = shown(&["--slowest", "1", "--min-share", "1%"]);
    assert!(
        slow.ends_with("… 11 branches below 1% are not shown\n"),
        "{slow}"
    );
    let slow = shown(&["--slowest", "1", "--depth", "1", "--min-share", "0"]);
    assert!(
        slow.ends_with("… 12 branches too deep are not shown\n"),
        "{slow}"
    );
    let top = shown(&["--top", "--min-share", "50%", "--format", "markdown"]);
    assert!(top.ends_with("\nand 11 below 50%\n"), "{top}");
}

#[test]
fn where_flags_leave_out_all_calls_or_waits_that_is_said() {
    let (_folder, path) = calls_below_one();
    let (status, _, said) = output(uniprof(&["report", "--calls", "--from", "1h"]).arg(&path));
    assert_eq!(status, 1, "{said}");
    let none = "none of 13 calls is among those that the flags choose";
    assert!(said.contains(none) && !said.contains("import"), "{said}");
    let mut command = uniprof(&["report", "--off-cpu", "--min-wait", "1h"]);
    let (_, _, said) = output(with_images(command.arg(corpus("off-cpu.uprof"))));
    assert!(
        said.contains("waits is among those that the flags choose"),
        "{said}"
    );
    // Of a recording without any, it is said how to record them.
    let mut command = uniprof(&["report", "--off-cpu", "--from", "1ms"]);
    let (_, _, said) = output(with_images(command.arg(corpus("calls.uprof"))));
    assert!(said.contains("records where threads wait"), "{said}");
}

#[test]
fn quiet_says_only_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let drawing = folder.path().join("flame.svg");
    let flag = format!("--flame={}", drawing.display());
    for (words, said) in [
        (&["report", &flag][..], "flame.svg written"),
        (&["export", "-f", "folded"], "samples in"),
    ] {
        let mut command = uniprof(words);
        let whole = output(with_images(command.arg(corpus("calls.uprof"))));
        assert!(whole.2.contains(said), "{words:?}: {}", whole.2);
        let quiet = output(command.arg("-q"));
        assert_eq!((quiet.0, quiet.1), (whole.0, whole.1), "{words:?}");
        assert!(!quiet.2.contains(said), "{words:?}: {}", quiet.2);
    }
    let mut failing = uniprof(&["-q", "report", "no-such-file"]);
    let (status, _, said) = output(&mut failing);
    assert!(status == 2 && said.contains("no-such-file"), "{said}");
}

#[test]
fn every_view_and_export_runs_and_a_reader_that_goes_away_is_no_error() {
    let path = corpus("calls.uprof");
    let mut all: Vec<Vec<&str>> = vec![
        vec!["report", "--format", "markdown"],
        vec!["report", "--format", "github"],
        vec!["report", "--tree", "--reverse", "--min-share", "1%"],
        vec!["report", "--annotate", "steps", "--asm"],
    ];
    // The corpus recording has no calls, and no vCPU. Such cases have a test of their own (tests/first_words.rs).
    let empty = [Needs::Calls, Needs::EachCall, Needs::VcpuTime];
    let views = VIEWS.iter().filter(|view| !empty.contains(&view.needs));
    let flags = views.map(|view| kit::commands::view_flag(view, "steps"));
    let flags: Vec<String> = flags.collect();
    all.extend(flags.iter().map(|flag| vec!["report", flag]));
    let formats = FORMATS.iter().filter(|format| format.is_file());
    let formats = formats.map(|format| format.name);
    all.extend(formats.map(|format| vec!["export", "--format", format]));
    for words in &all {
        let mut child = with_images(uniprof(words).arg(&path))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // The reader has gone before anything was read.
        drop(child.stdout.take());
        let ended = child.wait_with_output().unwrap();
        let errors = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(ended.status.code(), Some(0), "{words:?}: {errors}");
        assert!(!errors.contains("roken pipe"), "{words:?}: {errors}");
        let read = with_images(uniprof(words).arg(&path)).output().unwrap();
        assert_eq!(read.status.code(), Some(0), "{words:?}");
        // A few functions of calls.uprof have lines: a profile for compilers has three lines.
        let least = if words.contains(&"llvm-profile") {
            30
        } else {
            100
        };
        assert!(read.stdout.len() > least, "{words:?}");
    }
}

#[test]
fn a_brief_report_has_one_page_with_lines_doubts_and_commands() {
    let path = corpus("calls-stack.uprof");
    let brief = output(with_images(uniprof(&["report", "--brief"]).arg(&path)));
    assert_eq!(brief.0, 0, "{}", brief.2);
    assert!(
        brief.1.lines().count() <= 60 && brief.1.len() < 16 << 10,
        "{}",
        brief.1
    );
    for wanted in [
        "99.7%  99.9%  steps  [calls]  calls.c:17",
        "steps (calls.c:17) < often (calls.c:20) < work (calls.c:43)",
        "uniprof report --callers steps calls-stack.uprof ",
    ] {
        assert!(brief.1.contains(wanted), "{wanted} is not in {}", brief.1);
    }
    let sections = [
        "Hottest functions",
        "Hottest paths",
        "What is uncertain",
        "What to ask next",
    ];
    let at: Vec<usize> = sections
        .iter()
        .filter_map(|section| brief.1.find(section))
        .collect();
    assert!(at.len() == sections.len() && at.is_sorted(), "{}", brief.1);
    // What a damaged recording lacks is among the doubts.
    let folder = tempfile::tempdir().unwrap();
    let cut = folder.path().join("cut.uprof");
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&cut, &bytes[..bytes.len() - 100]).unwrap();
    let (status, text, _) = output(with_images(uniprof(&["report", "--brief"]).arg(&cut)));
    let doubts = text.split("What is uncertain").nth(1).unwrap();
    assert!(
        status == 1 && doubts.contains("the recording has no end"),
        "{doubts}"
    );
}

/// Its page is what a script or an assistant reads, and a person has both streams on one terminal.
#[test]
fn a_brief_report_gives_each_warning_once() {
    let path = corpus("xen.uprof");
    let warning = "100.0% of the samples are in burn alone";
    for (view, on_standard_error) in [("--brief", 0), ("--tree", 1)] {
        let (_, text, said) = output(uniprof(&["report", view]).arg(&path));
        let count = |text: &str| text.matches(warning).count();
        let counts = (count(&text), count(&said));
        assert_eq!(
            counts,
            (1 - on_standard_error, on_standard_error),
            "{view}: {text}{said}"
        );
    }
}

#[test]
fn a_page_is_written_beside_the_recording_and_takes_the_filters() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("slow.uprof");
    std::fs::copy(corpus("calls.uprof"), &path).unwrap();
    let page = |flags: &[&str]| {
        let mut command = uniprof(&["report", "--html"]);
        let (status, text, errors) = output(with_images(command.arg(&path).args(flags)));
        assert_eq!((status, text.as_str()), (0, ""), "{errors}");
        assert!(errors.contains("slow.html written"), "{errors}");
        std::fs::read_to_string(folder.path().join("slow.html")).unwrap()
    };
    let whole = page(&[]);
    let (_, top, _) = output(with_images(uniprof(&["report", "--top"]).arg(&path)));
    let counted = top.lines().next().unwrap();
    assert!(whole.contains(&format!("<li>{counted}</li>")), "{counted}");
    assert!(whole.contains("<bdi>often</bdi>") && !whole.contains("Samples are missing"));
    let narrow = page(&["--focus", "^seldom$"]);
    assert!(narrow.contains("<bdi>seldom</bdi>") && !narrow.contains("<bdi>often</bdi>"));
    assert!(narrow.contains("left out by filters"));
    assert!(narrow.contains("<li>chosen by --focus &#39;^seldom$&#39;</li>"));
    assert!(!whole.contains("chosen by"));
    let flags = ["--state", "all", "--from", "200ms", "--by", "module"];
    assert!(page(&flags).contains("<li>chosen by --state all --from 0.2s --by module</li>"));
    // tests/consumers/page.test.mjs checks how the page opens then.
    assert!(page(&["--reverse"]).contains("<li>chosen by --reverse</li>"));
}

#[test]
fn filters_narrow_and_nonsense_is_refused_with_a_remedy() {
    let path = corpus("calls.uprof");
    let counted = |flags: &[&str]| {
        let mut command = uniprof(&["export", "-f", "json"]);
        let (status, json, errors) = output(with_images(command.arg(&path).args(flags)));
        assert_eq!(status, 0, "{errors}");
        let read: serde_json::Value = serde_json::from_str(&json).unwrap();
        read["account"]["counted"].as_u64().unwrap()
    };
    let all = counted(&[]);
    let first = counted(&["--to", "200ms"]);
    let rest = counted(&["--from", "0.2"]);
    assert_eq!(first + rest, all);
    assert!(first > 0 && rest > 0);
    assert!(counted(&["--focus", "deep"]) < all);
    assert_eq!(
        counted(&["--focus", "deep"]) + counted(&["--ignore", "deep"]),
        all
    );
    assert_eq!(counted(&["--thread", "no such thread"]), 0);
    let (status, _, errors) = output(uniprof(&["report", "--from", "soon"]).arg(&path));
    assert_eq!(status, 2);
    assert!(
        errors.contains("--from") && errors.contains("500ms"),
        "{errors}"
    );
    let (status, _, errors) = output(uniprof(&["report", "--focus", "("]).arg(&path));
    assert_eq!(status, 2, "{errors}");
    let (status, _, errors) = output(&mut uniprof(&["report", "no/such.uprof"]));
    assert_eq!(status, 2);
    assert!(errors.contains("no/such.uprof: No such file"), "{errors}");
    let (status, _, errors) = output(uniprof(&["report", "--elf", "/etc/hostname"]).arg(&path));
    assert_eq!(status, 2);
    assert!(errors.contains("/etc/hostname"), "{errors}");
    for (words, part) in [
        (
            &["report", "--html=-", "--flame=-"][..],
            "name a file: --flame=FILE",
        ),
        (&["report", "--top", "--html=-"], "name a file: --html=FILE"),
        (&["report", "--calls", "--off-cpu"], "cannot be used with"),
        (
            &["report", "--listing", "--state", "all"],
            "cannot be used with",
        ),
        (&["report", "--time", "--idle"], "cannot be used with"),
        (
            &["report", "--exits", "--min-wait", "1ms"],
            "cannot be used with",
        ),
        (
            &["export", "-f", "json", "--marks"],
            "--marks is for -f folded",
        ),
        (
            &["export", "-f", "pprof", "--by", "line"],
            "--by is for -f firefox",
        ),
        (
            &["export", "-f", "firefox", "--by-thread"],
            "--by-thread and --processes apart are for -f folded",
        ),
    ] {
        let (status, text, errors) = output(uniprof(words).arg(&path));
        assert_eq!((status, text.as_str()), (2, ""), "{words:?}: {errors}");
        assert!(errors.contains(part), "{words:?}: {errors}");
    }
    let mut waits = uniprof(&["export", "-f", "folded", "--off-cpu"]);
    let (status, text, errors) = output(waits.arg(&path));
    assert_eq!((status, text.as_str()), (1, ""), "{errors}");
    assert!(errors.contains("uniprof record --off-cpu"), "{errors}");
    assert!(!errors.contains("the numbers are"), "{errors}");
    let out = "--flame=no/such/folder/x.svg";
    let (status, _, errors) = output(with_images(uniprof(&["report", out]).arg(&path)));
    assert_eq!(status, 2);
    assert!(
        errors.contains("cannot write no/such/folder/x.svg"),
        "{errors}"
    );
}

#[test]
fn a_damaged_recording_reports_what_is_left_and_says_so() {
    let whole = std::fs::read(corpus("calls.uprof")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut.uprof");
    std::fs::write(&path, &whole[..whole.len() * 9 / 10]).unwrap();
    for words in [
        &["report", "--top"][..],
        &["report", "--html=-"],
        &["info"],
        &["export", "-f", "folded"],
        &["dump"],
    ] {
        let (status, _, errors) = output(uniprof(words).arg(&path));
        assert_eq!(status, 1, "{words:?}: {errors}");
    }
    let (_, text, _) = output(uniprof(&["report", "--top"]).arg(&path));
    assert!(
        text.contains("damaged") || text.contains("no end"),
        "{text}"
    );
    let (_, page, _) = output(uniprof(&["report", "--html=-"]).arg(&path));
    assert!(page.contains("<h2>Samples are missing</h2>"), "{page}");
}

#[test]
fn a_diff_names_both_sides_and_fails_only_when_told_to() {
    let (a, b) = (corpus("calls.uprof"), corpus("calls-stack.uprof"));
    let folder = tempfile::tempdir().unwrap();
    let svg = folder.path().join("d.svg");
    let flame = format!("--flame={}", svg.display());
    let mut command = uniprof(&["diff", "--paths", "--explain", &flame]);
    let (status, text, errors) = output(with_images(command.arg(&a).arg(&b)));
    assert_eq!(status, 0, "{errors}");
    for part in [
        "calls.uprof",
        "calls-stack.uprof",
        "would have shown",
        "two or more recordings",
    ] {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
    for picture in [svg.clone(), folder.path().join("d-widths-of-A.svg")] {
        assert!(std::fs::read_to_string(picture).unwrap().contains("</svg>"));
    }
    // Both outputs would go to standard output.
    let mut command = uniprof(&["diff", "--json", "--html=-"]);
    let (status, _, errors) = output(with_images(command.arg(&a).arg(&b)));
    assert!(status == 2 && errors.contains("--html=FILE"), "{errors}");
    let mut command = uniprof(&["diff", "--flame=-"]);
    let (status, _, errors) = output(with_images(command.arg(&a).arg(&b)));
    assert!(status == 2 && errors.contains("--flame=FILE"), "{errors}");
    let page = folder.path().join("d.html");
    let html = format!("--html={}", page.display());
    let mut command = uniprof(&["diff", &html]);
    let (status, text, errors) = output(with_images(command.arg(&a).arg(&b)));
    assert_eq!(status, 0, "{errors}");
    assert!(text.contains("--explain: which, and why.") && errors.contains("d.html written"));
    let mut command = uniprof(&["diff", "--html=-"]);
    let (_, alone, _) = output(with_images(command.arg(&a).arg(&b)));
    assert_eq!(alone, std::fs::read_to_string(page).unwrap());
    let rule = |rule: &str| {
        let mut command = uniprof(&["diff", "--fail-if", rule]);
        output(with_images(command.arg(&a).arg(&a))).0
    };
    assert_eq!(rule("any>+0%"), 0);
    assert_eq!(rule("any>+0"), 2);
    let sets = format!("{},{}", a.display(), b.display());
    let mut command = uniprof(&["diff", "--json", &sets, &sets]);
    let (status, json, errors) = output(with_images(&mut command));
    assert_eq!(status, 0, "{errors}");
    let read: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(read["certain"], 0);
    assert_eq!(read["a"].as_array().unwrap().len(), 2);
    assert!(!read["changes"].as_array().unwrap().is_empty());
}

#[test]
fn instructions_are_asked_for_by_a_flag_and_count_as_the_table_does() {
    let path = corpus("calls.uprof");
    let run = |threads: &str, words: &[&str]| {
        let mut command = uniprof(words);
        let command = command.env("RAYON_NUM_THREADS", threads).arg(&path);
        output(with_images(command))
    };
    let (status, lines, _) = run("1", &["report", "--annotate", "steps"]);
    assert_eq!(status, 0);
    assert!(!lines.contains("AT&T"), "{lines}");
    let asm = ["report", "--annotate", "steps", "--asm"];
    let (status, report, _) = run("1", &asm);
    assert_eq!(status, 0);
    assert_eq!(run("2", &asm).1, report);
    let top = std::fs::read_to_string(corpus("golden/calls.top.txt")).unwrap();
    let row = top.lines().find(|line| line.ends_with("steps  [calls]"));
    let counted = row.unwrap().split_whitespace().next().unwrap().parse();
    let own = report.lines().filter_map(|line| {
        let place = line.split_whitespace().find(|word| word.starts_with("+0x"));
        place.and_then(|_| line.get(..9)?.trim().parse::<u64>().ok())
    });
    assert_eq!(Ok(own.sum::<u64>()), counted, "{report}");
    let (status, _, errors) = run("1", &["report", "--asm"]);
    assert_eq!(status, 2);
    assert!(errors.contains("--annotate"), "{errors}");
}
