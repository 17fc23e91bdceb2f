//! Traces of other tools, from their text to every view. The real dumps of Nanos in corpus/traces/ are also
//! counted by awk and read by tests/nanos_ftrace.py, both of which are independent of uniprof.
#![cfg(feature = "report")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The dumps, and the number of CPUs in each.
const DUMPS: [(&str, u32); 2] = [("nanos-ftrace-1cpu", 1), ("nanos-ftrace-2cpu", 2)];

struct Dump {
    folder: tempfile::TempDir,
    text: PathBuf,
    recording: PathBuf,
}

fn in_repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The output of a command, which must succeed.
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

fn uniprof(words: &[&str]) -> Command {
    let mut command = kit::uniprof();
    command.args(words);
    command
}

/// Unpacks a dump and imports it.
fn import(name: &str) -> Dump {
    let folder = tempfile::tempdir().unwrap();
    let packed = std::fs::read(in_repository(&format!("corpus/traces/{name}.txt.zst"))).unwrap();
    let text = folder.path().join(name).with_extension("txt");
    std::fs::write(&text, zstd::decode_all(&packed[..]).unwrap()).unwrap();
    let recording = folder.path().join("run.uprof");
    let mut command = uniprof(&["import", "--format", "nanos-ftrace", "--output"]);
    run(command.arg(&recording).arg(&text));
    Dump {
        folder,
        text,
        recording,
    }
}

/// Counts starts of calls, leaf calls, ends, and calls without an end, as lines of the text.
const COUNT: &str = r#"
/^#/ || NF == 0 { next }
{ split($0, part, ")"); cpu = part[1] + 0 }
/\(\) \{$/ { entries++; open[cpu]++ }
/\(\);$/ { leaves++ }
/\} \/\* .* \*\/$/ { closes++; open[cpu]-- }
END { for (cpu in open) never += open[cpu]; print entries, leaves, closes, never }
"#;

#[test]
fn calls_are_as_many_as_awk_counts() {
    for (name, _) in DUMPS {
        let dump = import(name);
        let counted = run(Command::new("awk").arg(COUNT).arg(&dump.text));
        let counted: Vec<u64> = counted
            .split_whitespace()
            .map(|word| word.parse().unwrap())
            .collect();
        let lines = run(uniprof(&["dump"]).arg(&dump.recording));
        let spans: Vec<&str> = lines
            .lines()
            .filter(|line| line.starts_with("span "))
            .collect();
        let with = |what: &str| spans.iter().filter(|line| line.contains(what)).count() as u64;
        let [entries, leaves, closes, never] = counted[..] else {
            panic!("{counted:?}")
        };
        assert!(
            never > 0 && entries == closes + never,
            "{name}: {counted:?}"
        );
        assert_eq!(spans.len() as u64, entries + leaves, "{name}");
        assert_eq!(with(" complete=yes "), leaves + closes, "{name}");
        assert_eq!(with(" complete=no "), never, "{name}");
        assert_eq!(with(" length=- "), never, "{name}");
        let info = run(uniprof(&["info"]).arg(&dump.recording));
        let calls = format!(
            "{} ({} whole, {never} without an end)",
            entries + leaves,
            leaves + closes
        );
        assert!(info.contains(&calls), "{info}");
        assert!(info.contains("no times: calls are in order"), "{info}");
    }
}

/// Self time (nanoseconds) and number of calls, by CPU and function.
type Functions = BTreeMap<(u32, String), (u64, u64)>;

/// The same from the second reader, without calls that never end.
fn by_second_reader(text: &Path) -> Functions {
    let script = in_repository("tests/nanos_ftrace.py");
    let told = run(Command::new("python3").arg("-B").arg(script).arg(text));
    let mut functions = Functions::new();
    for line in told.lines() {
        let [cpu, own, calls, name] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        if name != "(never end)" {
            let key = (cpu.parse().unwrap(), name.to_owned());
            functions.insert(key, (own.parse().unwrap(), calls.parse().unwrap()));
        }
    }
    functions
}

#[test]
fn own_times_are_those_of_a_second_reader_by_function_and_cpu() {
    for (name, cpus) in DUMPS {
        let dump = import(name);
        let expected = by_second_reader(&dump.text);
        assert!(expected.len() > 80, "{name}");
        for cpu in 0..cpus {
            let mut command = uniprof(&["export", "--format", "csv", "--vcpu", &cpu.to_string()]);
            let csv = run(command.arg("--output").arg("-").arg(&dump.recording));
            let mut lines = csv.lines();
            let head = "function,module,self_ns,total_ns,self_share,total_share,inlined";
            assert_eq!(lines.next(), Some(head), "{name}");
            let found: BTreeMap<&str, u64> = lines
                .map(|line| {
                    let cells: Vec<&str> = line.split(',').collect();
                    (cells[0], cells[2].parse().unwrap())
                })
                .filter(|(_, own)| *own > 0)
                .collect();
            let expected: BTreeMap<&str, u64> = expected
                .iter()
                .filter(|((of, _), (own, _))| *of == cpu && *own > 0)
                .map(|((_, name), (own, _))| (name.as_str(), *own))
                .collect();
            assert_eq!(found, expected, "{name}, CPU {cpu}");
        }
    }
}

#[test]
fn the_table_of_calls_says_how_many_how_long_and_where() {
    let dump = import("nanos-ftrace-2cpu");
    let table = run(uniprof(&["report", "--calls", "--rows", "0"]).arg(&dump.recording));
    let expected = by_second_reader(&dump.text);
    let mut calls: BTreeMap<&str, u64> = BTreeMap::new();
    for ((_, name), (_, count)) in &expected {
        *calls.entry(name).or_default() += count;
    }
    let found: BTreeMap<&str, u64> = table
        .lines()
        .skip_while(|line| !line.ends_with("function, and its longest call"))
        .skip(1)
        .take_while(|line| !line.is_empty())
        .map(|line| {
            let count = line.split_whitespace().next().unwrap().parse().unwrap();
            let name = line.rsplit_once("  (").unwrap().0;
            (name.rsplit("  ").next().unwrap(), count)
        })
        .collect();
    assert_eq!(found, calls, "{table}");
    for part in [
        "in order, CPU 1",
        "without an end",
        "\nCPU 0: ",
        "\nCPU 1: ",
    ] {
        assert!(table.contains(part), "{part}: {table}");
    }
    drop(dump.folder);
}

#[test]
fn a_dump_cut_anywhere_tells_what_is_wrong_and_loses_nothing_else() {
    let dump = import("nanos-ftrace-2cpu");
    let text = std::fs::read(&dump.text).unwrap();
    let cut = dump.folder.path().join("cut.txt");
    // The cut is in the middle of a name.
    let end = text.len() / 2;
    let end = end
        + text[end..]
            .windows(3)
            .position(|part| part == b"();")
            .unwrap()
        - 2;
    std::fs::write(&cut, &text[..end]).unwrap();
    let mut command = uniprof(&["import", "-f", "nanos-ftrace", "-o"]);
    let output = command
        .arg(dump.folder.path().join("cut.uprof"))
        .arg(&cut)
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    let lines = text[..end].iter().filter(|byte| **byte == b'\n').count() + 1;
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains(&format!("line {lines}: a line is cut")),
        "{said}"
    );
}

#[test]
fn what_is_no_trace_is_refused_with_what_was_tried() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("none.uprof");
    let mut command = uniprof(&["import", "-f", "nanos-ftrace", "-o"]);
    let output = command
        .arg(&out)
        .arg(in_repository("README.md"))
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("no call was found") && said.contains("begins with no CPU"),
        "{said}"
    );
    assert!(!out.exists());
}

#[test]
fn lines_of_stacks_that_are_not_understood_are_told_by_the_status() {
    let folder = tempfile::tempdir().unwrap();
    let (text, out) = (
        folder.path().join("stacks.txt"),
        folder.path().join("run.uprof"),
    );
    std::fs::write(&text, "main;work 3\nmain;work three\n").unwrap();
    let import = |flags: &[&str]| {
        let mut command = uniprof(&["import", "-f", "folded", "-o"]);
        let output = command.arg(&out).args(flags).arg(&text).output().unwrap();
        (output.status.code(), kit::text(&output.stderr))
    };
    let (status, said) = import(&["--clock", "monotonic"]);
    assert_eq!(status, Some(2), "{said}");
    assert!(said.contains("--clock is for traces"), "{said}");
    assert!(!out.exists());
    let (status, said) = import(&[]);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("1 lines were not understood"), "{said}");
    run(uniprof(&["report"]).arg(&out));
}

/// Every view and export of a recording of calls says that its numbers are times.
#[test]
fn views_and_exports_are_in_time() {
    let dump = import("nanos-ftrace-2cpu");
    let top = run(uniprof(&["report", "--top"]).arg(&dump.recording));
    assert!(
        top.starts_with("1") || top.contains(" in calls of 7503 calls"),
        "{top}"
    );
    let folded = run(uniprof(&["export", "-f", "folded", "-o", "-"]).arg(&dump.recording));
    let microseconds: u64 = folded
        .lines()
        .map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap())
        .sum();
    let own: u64 = by_second_reader(&dump.text)
        .values()
        .map(|(own, _)| own)
        .sum();
    let stacks = folded.lines().count() as u64;
    assert!(
        microseconds.abs_diff(own / 1000) <= stacks,
        "{microseconds} us, {own} ns"
    );
    for view in ["--tree", "--flame=-", "--html=-"] {
        let text = run(uniprof(&["report", view]).arg(&dump.recording));
        assert!(text.contains("context_switch_finish"), "{view}");
    }
    let page = run(uniprof(&["report", "--cpus=-"]).arg(&dump.recording));
    let bars = page.split("<main").nth(1).unwrap();
    assert_eq!(bars.matches("<div class=\"bar\">").count(), 2, "{page}");
    assert!(
        page.matches("<input type=\"checkbox\"").count() == 25,
        "{page}"
    );
    for format in ["pprof", "speedscope", "json", "firefox"] {
        let out = dump.folder.path().join(format);
        run(uniprof(&["export", "-f", format, "-o"])
            .arg(&out)
            .arg(&dump.recording));
        assert!(std::fs::metadata(&out).unwrap().len() > 1000, "{format}");
    }
}

/// The longest call of the text comes first in `--slowest`, with its callees.
#[test]
fn the_slowest_calls_are_told_with_what_they_called() {
    let dump = import("nanos-ftrace-2cpu");
    let told = run(uniprof(&["report", "--slowest", "2"]).arg(&dump.recording));
    let ranks: Vec<&str> = told
        .lines()
        .filter(|line| line.starts_with("1. ") || line.starts_with("2. "))
        .collect();
    assert_eq!(ranks.len(), 2, "{told}");
    assert!(
        ranks[0].starts_with("1. 105.1 ms, call ") && ranks[0].ends_with(", CPU 1"),
        "{told}"
    );
    let of = |function: &str| {
        let mut command = uniprof(&["report", "--slowest", "1", "--focus", function]);
        run(command.arg(&dump.recording))
    };
    let writes = of("^write$");
    let tree: Vec<&str> = writes
        .lines()
        .skip_while(|line| !line.ends_with("function"))
        .skip(1)
        .collect();
    let names = tree
        .iter()
        .map(|line| line.split_whitespace().last().unwrap());
    assert_eq!(
        names.take(2).collect::<Vec<_>>(),
        ["write", "file_write"],
        "{writes}"
    );
    // Its self time and the self times of all its callees add up to its duration.
    let expected = run(Command::new("awk")
        .arg("/} \\/\\* write \\*\\/$/ { gsub(/[^0-9. ]/, \" \"); if ($2 > most) most = $2 } END { print most }")
        .arg(&dump.text));
    let milliseconds: f64 = expected.trim().parse::<f64>().unwrap() / 1000.0;
    assert!(
        writes.contains(&format!("1. {milliseconds:.1} ms")),
        "{expected}: {writes}"
    );
}

/// The hash that a browser computes of a text, computed by coreutils.
fn hash(of: &str) -> String {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), of).unwrap();
    let line = "sha256sum < \"$0\" | cut -c -64 | tr a-f A-F | basenc --base16 --decode | base64";
    run(Command::new("sh").args(["-c", line]).arg(file.path()))
}

/// The page of bars may apply its own style only.
#[test]
fn a_page_of_bars_allows_its_own_style_and_no_script() {
    let dump = import("nanos-ftrace-2cpu");
    let page = run(uniprof(&["report", "--cpus=-"]).arg(&dump.recording));
    let (_, rest) = page.split_once("<style>").unwrap();
    let (style, rest) = rest.split_once("</style>").unwrap();
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{}'; base-uri",
        hash(style).trim()
    );
    assert!(
        page.contains(&policy),
        "write the hash of the style into STYLE_HASH: {policy}"
    );
    assert!(!rest.contains("<style") && !page.contains("<script") && !page.contains(" style="));
    // A rule for each switch hides its function in all bars.
    for switch in 0..25 {
        assert!(style.contains(&format!(
            "#f{switch}:not(:checked) ~ .bars .f{switch} {{ display: none; }}"
        )));
    }
}

#[test]
fn calls_are_compared_with_calls_and_never_with_samples() {
    let dump = import("nanos-ftrace-1cpu");
    let trace = dump.recording.to_str().unwrap();
    let told = run(&mut uniprof(&["diff", "--explain", trace, trace]));
    assert!(told.contains("No change is certain."), "{told}");
    assert!(told.contains("there are no calls a second"), "{told}");
    // The options that apply to times: the flame graph, and rules without points.
    let flame = dump.folder.path().join("diff.svg");
    let flame = format!("--flame={}", flame.display());
    let rule = [
        "--fail-if",
        "any>+1%",
        "--fail-if",
        "syscall_handler>+1%",
        &flame,
    ];
    run(uniprof(&["diff", trace, trace]).args(rule));
    let refused = |words: &[&str]| {
        let output = uniprof(words).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let samples = in_repository("corpus/calls.uprof");
    let why = refused(&["diff", samples.to_str().unwrap(), trace]);
    assert!(why.contains("calls.uprof holds samples and"), "{why}");
    assert!(why.contains("record both sides in the same way"), "{why}");
    let why = refused(&["diff", trace, trace, "--paths"]);
    assert!(why.contains("--paths is of shares of samples"), "{why}");
    let why = refused(&["diff", trace, trace, "--fail-if", "any>+1pp"]);
    assert!(why.contains("points are of shares of samples"), "{why}");
}

/// A log as strace -f -ttt -T writes it.
const LOG: &str = "\
100  1700000000.000100 openat(AT_FDCWD, \"/etc/hosts\", O_RDONLY) = 3 <0.000010>
100  1700000000.000200 read(3, \"x\", 4096) = 1 <0.000040>
101  1700000000.000250 openat(AT_FDCWD, \"/nowhere\", O_RDONLY) = -1 ENOENT (No such file or directory) <0.000005>
101  1700000000.000300 mmap(NULL, 8192, PROT_READ, MAP_PRIVATE, 3, 0) = 0x7f0000001000 <0.000003>
100  1700000000.000400 openat(AT_FDCWD, \"/shadow\", O_RDONLY) = -1 EACCES (Permission denied) <0.000005>
100  1700000000.000500 exit_group(0) = ?
";

#[test]
fn system_calls_are_counted_with_their_errors_and_listed_as_strace_does() {
    let folder = tempfile::tempdir().unwrap();
    let [log, recording] = ["log.txt", "run.uprof"].map(|name| folder.path().join(name));
    std::fs::write(&log, LOG).unwrap();
    run(uniprof(&["import", "-o"]).arg(&recording).arg(&log));
    let report = |words: &[&str]| run(uniprof(&["report"]).args(words).arg(&recording));
    let table = report(&["--syscalls"]);
    let rows: Vec<Vec<&str>> = table
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let row = |name: &str| {
        rows.iter()
            .find(|row| row.contains(&name))
            .unwrap_or_else(|| panic!("{name}: {table}"))
    };
    let expected = [
        "3", "2", "20.0", "us", "31.7%", "6.7", "us", "10.0", "us", "openat", "(ENOENT", "1,",
        "EACCES", "1)",
    ];
    assert_eq!(row("openat"), &expected, "{table}");
    assert_eq!(row("exit_group")[..2], ["1", "0"]);
    let thread = rows.iter().find(|row| row.contains(&"101")).unwrap();
    assert_eq!(thread[..5], ["2", "1", "8.0", "us", "12.7%"], "{table}");
    let calls = |words: &[&str]| {
        let text = report(&[&["--listing"], words].concat());
        let lines = text.lines().filter(|line| line.contains("thread 10"));
        lines
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect::<Vec<_>>()
    };
    let all = [
        "0.000000 s 10.0 us thread 100 openat = 3",
        "0.000100 s 40.0 us thread 100 read = 1",
        "0.000150 s 5.0 us thread 101 openat = -1 ENOENT",
        "0.000200 s 3.0 us thread 101 mmap = 0x7f0000001000",
        "0.000300 s 5.0 us thread 100 openat = -1 EACCES",
        "0.000400 s - thread 100 exit_group (without an end)",
    ];
    assert_eq!(calls(&[]), all);
    assert_eq!(calls(&["--from", "150us", "--to", "300us"]), all[2..4]);
    assert_eq!(calls(&["--thread", "101"]), all[2..4]);
    assert_eq!(calls(&["--focus", "^openat$"]), [all[0], all[2], all[4]]);
    // One that begins inside of a call begins with its first time.
    let first = "100  1700000000.000050 <... read resumed>\"x\", 1) = 1\n";
    std::fs::write(&log, format!("{first}{LOG}")).unwrap();
    run(uniprof(&["import", "-o"]).arg(&recording).arg(&log));
    let table = report(&["--syscalls"]);
    let read = table.lines().find(|line| line.contains(" read"));
    assert!(
        read.is_some_and(|row| row.trim_start().starts_with("2 ")),
        "{table}"
    );
    let info = run(uniprof(&["info"]).arg(&recording));
    assert!(info.contains("length          400.0 us"), "{info}");
    assert!(
        info.contains("started         2023-11-14 22:13:20 UTC"),
        "{info}"
    );
    // A trace without durations has no times to show.
    std::fs::write(
        &log,
        "[2] openat(-100, \"/etc/hosts\", 0x0, 0x0) = ENOENT\n",
    )
    .unwrap();
    run(uniprof(&["import", "-f", "syscalls", "-o"])
        .arg(&recording)
        .arg(&log));
    let table = report(&["--syscalls"]);
    let row = table
        .lines()
        .find(|line| line.contains("(ENOENT 1)"))
        .unwrap();
    let words: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(words[..6], ["1", "1", "-", "-", "-", "-"], "{table}");
}
