//! Tables on terminals of 80 and 120 columns: no line is wider, and numbers and names are aligned. The
//! screens are stored in tests/out/screens/ for inspection.

#![cfg(feature = "report")]

use kit::corpus;
use nix::pty::{Winsize, openpty};
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};
use uprof::cold::{End, EndReason, Mapping, Metadata, ModuleChange, ModuleEvent, TargetKind};
use uprof::image::{ImageIdentity, ImagePart, Symbol};
use uprof::{Arch, Frame, Sample, Task, Writer};

/// The output of a command on a terminal of this size, and its exit status.
fn on_terminal(columns: u16, rows: u16, command: &mut Command) -> (i32, String) {
    let size = Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let pair = openpty(&size, None).unwrap();
    let child = command
        .env("TERM", "xterm")
        .stdin(Stdio::null())
        .stdout(Stdio::from(pair.slave))
        .stderr(Stdio::null())
        .spawn();
    let mut child = child.unwrap();
    // The command holds the other end of the terminal.
    command.stdout(Stdio::null());
    let screen = read(pair.master);
    (child.wait().unwrap().code().unwrap(), screen)
}

/// All output that is written to a terminal. A read error is its end.
fn read(terminal: OwnedFd) -> String {
    let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
    let mut terminal = File::from(terminal);
    while let Ok(length @ 1..) = terminal.read(&mut piece) {
        bytes.extend_from_slice(&piece[..length]);
    }
    String::from_utf8(bytes).unwrap().replace("\r\n", "\n")
}

fn uniprof(words: &[&str]) -> Command {
    let mut command = kit::uniprof();
    command.args(words);
    for variable in ["COLUMNS", "NO_COLOR", "PAGER", "UNIPROF_PAGER", "LESS"] {
        command.env_remove(variable);
    }
    command
}

/// A command without pager and colours.
fn plain(words: &[&str]) -> Command {
    let mut command = uniprof(words);
    command.env("NO_COLOR", "1").env("PAGER", "");
    command
}

/// Long names of C++ and Rust, a name in another script, and a recursive function.
const NAMES: [&str; 8] = [
    "main",
    "std::_Hashtable<std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char>>, \
     std::pair<std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char>> const, Order>, \
     std::allocator<int>>::_M_find_before_node(unsigned long, std::__cxx11::basic_string<char> const&) const",
    "<core::iter::adapters::map::Map<alloc::vec::IntoIter<alloc::string::String>, \
     orders::parse::{closure#0}> as core::iter::traits::iterator::Iterator>::fold::<usize>",
    "walk",
    "处理网络接收队列并且把每一个数据包交给上层协议处理的非常长的函数名称和更多的字",
    "orders::pricing::discounts::seasonal::tables::lookup_with_fallback_to_previous_year",
    "bool std::operator< <char, std::char_traits<char>, std::allocator<char>>(std::string const&, std::string const&)",
    "memcpy",
];

/// Writes a recording of the functions above. `more` samples are in the last one.
fn write(path: &Path, more: u64) -> std::io::Result<()> {
    let mut metadata = Metadata::default();
    metadata.recorder.program = "uniprof test".into();
    metadata.recorder.command_line =
        "uniprof record --frequency 99 --duration 30s --output /a/long/path/to/a/\
                                      recording.uprof -- ./orders --input a --output b"
            .split(' ')
            .map(str::to_owned)
            .collect();
    metadata.target.kind = TargetKind::Process;
    metadata.target.name = "orders".into();
    metadata.sampling.rate_millihertz = 99_000;
    let mut writer = Writer::create(File::create(path)?, [7; 16], &metadata, 1_000)?;
    let task = Task { space: 7, vcpu: 7 };
    let module =
        "/usr/lib/x86_64-linux-gnu/a/folder/whose/name/is/long/liborders-of-the-year.so.6.0.30";
    writer.modules(&[ModuleEvent {
        time_ns: 1_000,
        space: 7,
        what: ModuleChange::Mapped(Mapping {
            start: 0x40_0000,
            length: 0x10_0000,
            path: module.into(),
            build_id: vec![1; 20],
            ..Mapping::default()
        }),
    }])?;
    let mut image = ImagePart::new(ImageIdentity {
        path: module.into(),
        build_id: vec![1; 20],
        arch: Arch::X86_64,
        load_bias: 0,
        origin: "test".into(),
    });
    for (number, name) in NAMES.iter().enumerate() {
        image.push(Symbol {
            address: 0x1000 + 0x100 * number as u64,
            size_bytes: 0x100,
            name,
        });
    }
    writer.image_part(&image, 1_000)?;
    let mut time_ns = 2_000;
    let mut put = |stack: &[u64], count: u64| -> std::io::Result<()> {
        let frames = stack.iter().rev().enumerate().map(|(depth, function)| {
            let address = 0x40_1010 + 0x100 * function;
            match depth {
                0 => Frame::exact(address),
                _ => Frame::return_address(address),
            }
        });
        let chain: Vec<Frame> = frames.collect();
        for _ in 0..count {
            time_ns += 10_000_000;
            writer.sample(&Sample::bare(time_ns, task, &chain))?;
        }
        Ok(())
    };
    let deep: Vec<u64> = [0].into_iter().chain([3; 200]).chain([6]).collect();
    put(&deep, 300)?;
    // Each function calls two others, thirty levels deep.
    let mut branching = vec![0, 1];
    for level in 0..30 {
        branching.push([2, 4, 5, 1][level % 4]);
        put(&branching, 4)?;
        put(&[&branching[..], &[7]].concat(), 4 + more)?;
    }
    put(&[0, 2, 4], 40)?;
    put(&[0, 5, 7], 1)?;
    writer.finish(&End {
        time_ns: time_ns + 1_000,
        reason: EndReason::TargetEnded,
        message:
            "the target ended, which is said in a sentence that is longer than a narrow terminal"
                .into(),
        totals: vec![],
    })?;
    Ok(())
}

/// Columns of a text: East Asian letters have two, and all other letters here have one.
fn columns_of(text: &str) -> usize {
    let columns = |letter: char| 1 + usize::from(('\u{2e80}'..='\u{9fff}').contains(&letter));
    text.chars().map(columns).sum()
}

/// The column at which the last heading of a table, and the names in its rows, begin.
fn name_column(screen: &str, heading: &str) -> Option<usize> {
    let line = screen.lines().find(|line| line.ends_with(heading))?;
    Some(columns_of(line) - heading.len())
}

/// Checks that rows have two blanks before the column of names, and text on both sides of them.
fn check_columns(name: &str, screen: &str) {
    let Some(column) = name_column(screen, "function") else {
        return;
    };
    let rows = screen
        .lines()
        .skip_while(|line| !line.ends_with("function"));
    let is_row = |line: &&str| line.contains('%') || line.contains(" to ");
    let rows = rows
        .skip(1)
        .filter(|line| !line.starts_with('…'))
        .take_while(is_row);
    let mut count = 0;
    for row in rows {
        let letters: Vec<char> = row.chars().collect();
        let blanks = letters[column - 2..column]
            .iter()
            .all(|letter| *letter == ' ');
        // In a diff, the word before may be shorter than its column; in a tree, a branch may have ended.
        let number = name.starts_with("diff") || letters[column - 3] != ' ';
        let named = name.starts_with("tree") || name == "callers" || letters[column] != ' ';
        assert!(blanks && number && named, "{name}: {row:?} in\n{screen}");
        count += 1;
    }
    assert!(count > 2, "{name} has no rows:\n{screen}");
}

#[test]
fn no_table_is_wider_than_its_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let paths = ["before.uprof", "after.uprof"].map(|name| folder.path().join(name));
    write(&paths[0], 0).unwrap();
    write(&paths[1], 3).unwrap();
    let [before, after] = paths.each_ref().map(|path| path.to_str().unwrap());
    let (calls, image) = (corpus("calls.uprof"), corpus("images/calls"));
    let (calls, image) = (calls.to_str().unwrap(), image.to_str().unwrap());
    let pid = format!("pid:{}", std::process::id());
    let mut tables: Vec<(&str, Vec<&str>)> = vec![
        ("top", vec!["report", before]),
        ("tree", vec!["report", "--tree", before]),
        (
            "tree-whole",
            vec!["report", "--tree", "--recursion", "whole", before],
        ),
        (
            "tree-reverse",
            vec!["report", "--tree", "--reverse", before],
        ),
        ("callers", vec!["report", "--callers", "memcpy", before]),
        ("annotate", vec!["report", "--annotate", "lookup", before]),
        (
            "annotate-asm",
            vec![
                "report",
                "--annotate",
                "steps",
                "--asm",
                "--elf",
                image,
                calls,
            ],
        ),
        ("diff", vec!["diff", before, after]),
        ("diff-paths", vec!["diff", "--paths", before, after]),
        ("info", vec!["info", before]),
    ];
    if cfg!(feature = "record") {
        tables.push(("doctor", vec!["doctor"]));
        tables.push(("doctor-pid", vec!["doctor", &pid]));
        tables.push(("doctor-qemu", vec!["doctor", "qemu:/nonexistent"]));
    }
    let out = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/out/screens");
    std::fs::create_dir_all(&out).unwrap();
    for (name, words) in &tables {
        for columns in [80, 120] {
            let (_, screen) = on_terminal(columns, 40, &mut plain(words));
            std::fs::write(out.join(format!("{name}-{columns}.txt")), &screen).unwrap();
            assert!(!screen.contains('\u{1b}'), "{name}: {screen:?}");
            assert!(!screen.is_empty(), "{name} shows nothing");
            for line in screen.lines() {
                let wide = columns_of(line);
                assert!(
                    wide <= usize::from(columns),
                    "{name}: {wide} of {columns}: {line}"
                );
            }
            check_columns(name, &screen);
        }
    }
    // Without a terminal, names are complete, and --width sets a width.
    let piped = |words: &[&str]| plain(words).env("COLUMNS", "80").output().unwrap();
    let whole = String::from_utf8(piped(&["report", before]).stdout).unwrap();
    assert!(
        whole.contains(NAMES[5]) && whole.contains("liborders-of-the-year.so.6.0.30"),
        "{whole}"
    );
    let narrow = piped(&["report", "--width", "80", before]).stdout;
    assert_eq!(narrow, std::fs::read(out.join("top-80.txt")).unwrap());
    // On a terminal, COLUMNS is used.
    let (_, set) = on_terminal(120, 40, plain(&["report", before]).env("COLUMNS", "80"));
    assert_eq!(set.as_bytes(), narrow);
}

#[test]
fn colours_are_for_terminals_that_want_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.uprof");
    write(&path, 0).unwrap();
    let path = path.to_str().unwrap();
    let report: &[&str] = &["report", "--no-pager", path];
    let is_colored = |command: &mut Command| on_terminal(80, 40, command).1.contains("\u{1b}[31m");
    assert!(is_colored(&mut uniprof(report)));
    assert!(!is_colored(uniprof(report).env("NO_COLOR", "1")));
    assert!(!is_colored(uniprof(report).args(["--color", "never"])));
    let output = uniprof(report).output().unwrap();
    assert!(!output.stdout.contains(&0x1b));
    let output = uniprof(report)
        .args(["--color", "always"])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    // Red from 5 %, green from 0.5 %, no colour below.
    let row = |name: &str| text.lines().find(|line| line.contains(name)).unwrap();
    assert!(row("bool std::operator<").contains("\u{1b}[31m"), "{text}");
    let small = row(NAMES[5]);
    assert!(small.contains("\u{1b}["), "{small}");
    let plain: String = text
        .replace("\u{1b}[31m", "")
        .replace("\u{1b}[32m", "")
        .replace("\u{1b}[m", "");
    assert!(!plain.contains('\u{1b}'), "{plain:?}");
    assert_eq!(plain.as_bytes(), uniprof(report).output().unwrap().stdout);
}

#[test]
fn what_is_longer_than_the_screen_goes_to_a_pager() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.uprof");
    write(&path, 0).unwrap();
    let path = path.to_str().unwrap();
    let paged = folder.path().join("paged");
    let pager = format!("cat >'{}'", paged.display());
    let info: &[&str] = &["report", "--tree", path];
    let plain = on_terminal(80, 40, plain(info).arg("--color=always"));
    assert_eq!(plain.0, 0);

    // The pager gets the whole output, with colours.
    let (status, screen) = on_terminal(80, 10, uniprof(info).env("PAGER", &pager));
    assert_eq!((status, screen.as_str()), (0, ""));
    assert_eq!(std::fs::read_to_string(&paged).unwrap(), plain.1);
    std::fs::remove_file(&paged).unwrap();
    let less = format!("printf '%s' \"$LESS\"; {pager}");
    let (_, screen) = on_terminal(80, 10, uniprof(info).env("PAGER", less));
    assert_eq!(screen, "FRX");
    std::fs::remove_file(&paged).unwrap();
    // An interrupt is handled by the pager: the program that started it stays until it ends.
    let interrupted = format!("kill -INT $PPID; sleep 0.1; {pager}");
    let (status, _) = on_terminal(80, 10, uniprof(info).env("PAGER", interrupted));
    assert_eq!(status, 0);
    assert_eq!(std::fs::read_to_string(&paged).unwrap(), plain.1);
    std::fs::remove_file(&paged).unwrap();
    // UNIPROF_PAGER has precedence.
    let both = [("PAGER", "false"), ("UNIPROF_PAGER", &pager)];
    on_terminal(80, 10, uniprof(info).envs(both));
    assert!(paged.exists());
    std::fs::remove_file(&paged).unwrap();

    // There is no pager if the output fits, without a terminal, or if it is switched off.
    let shown = |rows, command: &mut Command| {
        let (status, screen) = on_terminal(80, rows, command);
        assert!(status == 0 && !paged.exists());
        screen
    };
    assert_eq!(shown(4000, uniprof(info).env("PAGER", &pager)), plain.1);
    assert_eq!(
        shown(10, uniprof(info).env("PAGER", &pager).arg("--no-pager")),
        plain.1
    );
    for none in ["", "cat", " "] {
        assert_eq!(
            shown(10, uniprof(info).env("PAGER", none)),
            plain.1,
            "{none:?}"
        );
    }
    let piped = uniprof(info).env("PAGER", &pager).output().unwrap();
    assert!(piped.status.success() && !paged.exists() && !piped.stdout.is_empty());

    // A pager that doesn't exist, or that quits at once, is no error. The status remains that of the report.
    assert_eq!(
        shown(10, uniprof(info).env("PAGER", "no-such-pager-here")),
        plain.1
    );
    assert_eq!(shown(10, uniprof(info).env("PAGER", "true")), "");
    assert_eq!(
        shown(10, uniprof(info).env("PAGER", "head -n 1"))
            .lines()
            .count(),
        1
    );
    let unknown = ["report", "--tree", "--callers", "no_such_function", path];
    assert_eq!(
        on_terminal(80, 10, uniprof(&unknown).env("PAGER", "true")).0,
        1
    );
}
