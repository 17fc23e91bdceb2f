//! The tables of docs/ name tests, and constants with their values. This test checks that they exist, so that
//! no row outlives the test or constant that it names.

mod sources;

use sources::{root, sources};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// All functions, constants and public fields in the sources, by name, and the values of constants as they
/// are written.
#[derive(Default)]
struct Sources {
    names: BTreeSet<String>,
    tests: BTreeSet<String>,
    values: BTreeMap<String, Vec<String>>,
}

fn read_sources() -> Sources {
    let mut found = Sources::default();
    let name = |text: &str| -> String {
        let is_part = |letter: &char| letter.is_alphanumeric() || *letter == '_';
        text.chars().take_while(is_part).collect()
    };
    let folders = [
        "src", "tests", "agent", "format", "linux", "record", "report", "fuzz",
    ];
    for file in folders
        .iter()
        .flat_map(|folder| sources(&root().join(folder)))
    {
        let text = std::fs::read_to_string(file).unwrap();
        for keyword in ["fn ", "const ", "static ", "pub "] {
            found.names.extend(text.split(keyword).skip(1).map(name));
        }
        let tests = text.split("#[test]").skip(1);
        let tests = tests.filter_map(|text| Some(name(text.split_once("fn ")?.1)));
        found.tests.extend(tests);
        for text in text.split("const ").skip(1) {
            let value = text
                .split_once(';')
                .and_then(|(text, _)| text.split_once(" = "));
            if let Some((_, value)) = value {
                found
                    .values
                    .entry(name(text))
                    .or_default()
                    .push(value.into());
            }
        }
    }
    found
}

/// The value of an expression of numbers, `*`, `+` and `<<`; `None` for any other.
fn value(text: &str) -> Option<u64> {
    let by = |sign, join: fn(u64, u64) -> Option<u64>| {
        let (left, right) = text.rsplit_once(sign)?;
        join(value(left)?, value(right)?)
    };
    if text.contains("<<") {
        return by("<<", |left, right| {
            left.checked_shl(u32::try_from(right).ok()?)
        });
    }
    if text.contains('+') {
        return by("+", u64::checked_add);
    }
    if text.contains('*') {
        return by("*", u64::checked_mul);
    }
    text.trim().replace('_', "").parse().ok()
}

/// The forms in which a page may state `value`, which is a number of bytes, nanoseconds or items.
fn said(value: u64) -> Vec<String> {
    let digits = value.to_string();
    let grouped = digits.as_bytes().rchunks(3).rev();
    let grouped: Vec<&str> = grouped
        .map(|three| str::from_utf8(three).unwrap())
        .collect();
    let mut said = vec![grouped.join(",")];
    let units = [(1 << 10, "KiB"), (1 << 20, "MiB"), (1 << 30, "GiB")];
    let times = [(1_000, "µs"), (1_000_000, "ms"), (1_000_000_000, "s")];
    for (unit, name) in units.into_iter().chain(times) {
        if value.is_multiple_of(unit) {
            said.push(format!("{} {name}", value / unit));
        }
    }
    if value.is_power_of_two() {
        said.push(format!("2^{}", value.ilog2()));
    }
    said
}

/// Whether `text` has the number `said`, and not as a part of another number.
fn has_number(text: &str, said: &str) -> bool {
    text.match_indices(said).any(|(at, _)| {
        let is_digit = |letter: Option<char>| letter.is_some_and(|letter| letter.is_ascii_digit());
        let (before, behind) = (&text[..at], &text[at + said.len()..]);
        let before = before.strip_suffix(',').unwrap_or(before);
        let behind = behind.strip_prefix(',').unwrap_or(behind);
        !is_digit(before.chars().next_back()) && !is_digit(behind.chars().next())
    })
}

/// The rows, as cells, of the tables in `page` whose last column is called `test`.
fn rows(page: &str) -> Vec<Vec<String>> {
    let text = std::fs::read_to_string(root().join(page)).unwrap();
    let mut rows = Vec::new();
    let (mut in_table, mut counts) = (false, false);
    for line in text.lines() {
        if !line.starts_with('|') {
            in_table = false;
            continue;
        }
        let cells = line.trim_matches('|').split('|');
        let cells: Vec<String> = cells.map(|cell| cell.trim().to_owned()).collect();
        if !in_table {
            (in_table, counts) = (true, cells.last().is_some_and(|last| last == "test"));
        } else if counts {
            rows.push(cells);
        }
    }
    rows
}

/// The texts between backticks; of `Vcpus::MOST` only the last component.
fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    let names = cell.split('`').skip(1).step_by(2);
    names.map(|name| name.rsplit("::").next().unwrap_or(name))
}

#[test]
fn tests_and_limits_named_in_a_table_are_there_and_are_what_it_says() {
    let sources = read_sources();
    let mut compared = 0;
    for (page, least) in [
        ("docs/reliability.md", 30),
        ("docs/limits.md", 60),
        ("docs/security.md", 12),
    ] {
        let mut named = 0;
        for cells in rows(page) {
            let (tests, cells) = cells.split_last().unwrap();
            let row = format!("{page}, {:?}", cells[0]);
            for test in quoted(tests) {
                assert!(sources.tests.contains(test), "{row}: no test {test}");
                named += 1;
            }
            let Some((constants, cells)) = cells.split_last().filter(|_| page.contains("limits"))
            else {
                continue;
            };
            assert!(
                quoted(constants).next().is_none() || quoted(tests).next().is_some(),
                "{row}: no test goes past it"
            );
            let says = cells.join(" ");
            for constant in quoted(constants) {
                assert!(sources.names.contains(constant), "{row}: no {constant}");
                let values = sources.values.get(constant).into_iter().flatten();
                let values: Option<Vec<u64>> = values.map(|text| value(text)).collect();
                // If several items have this name, the page means one of them.
                let Some(values) = values.filter(|values| !values.is_empty()) else {
                    continue;
                };
                let all = values.iter().copied().flat_map(said);
                assert!(
                    !says.contains(|letter: char| letter.is_ascii_digit())
                        || all.clone().any(|number| has_number(&says, &number)),
                    "{row}: {constant} is none of {:?}",
                    all.collect::<Vec<_>>()
                );
                compared += 1;
            }
        }
        assert!(named >= least, "{page} names only {named}");
    }
    assert!(compared > 80, "{compared}");
}

/// The issue form asks for a redacted bundle. Its description must agree with the program's.
#[test]
fn the_issue_form_tells_what_a_redacted_bundle_holds() {
    let form = std::fs::read_to_string(root().join(".github/ISSUE_TEMPLATE/bug.yml")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run.uprof");
    std::fs::copy(root().join("corpus/calls-stack.uprof"), &run).unwrap();
    let output = kit::uniprof()
        .args(["bundle", "--redact"])
        .arg(&run)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(folder.path().join("run.redacted.uprof").exists(), "{said}");
    assert!(form.contains("`uniprof bundle --redact run.uprof` writes `run.redacted.uprof`"));
    let flat = form.split_whitespace().collect::<Vec<_>>().join(" ");
    let (_, told) = flat.split_once("It holds: ").unwrap();
    let (holds, lacks) = told.split_once("It does not hold: ").unwrap();
    // A word of the program, and the corresponding one of the form.
    for (left, word) in [
        ("left: target:", "process ids"),
        ("processors of type", "processor model"),
        ("left: host: Linux", "system and its version"),
        ("names of threads", "names of threads"),
        ("times;", "times"),
        ("addresses of code", "addresses"),
        ("build-ids", "build-ids"),
        ("names of images", "names and build-ids of images"),
        (
            "names of functions and source files",
            "names of functions, source file names",
        ),
        ("names of system calls", "names of system calls"),
        ("the first word", "the first word"),
    ] {
        assert!(
            said.contains(left) && holds.contains(word),
            "{left}, {word}: {said}"
        );
    }
    for (removed, word) in [
        ("removed: raw stack bytes", "memory"),
        ("removed: registers", "registers"),
        ("removed: folders", "folders of files and packages"),
        ("queries", "queries"),
        ("values", "values behind `=`"),
        ("quoted texts", "quoted texts"),
        ("user@host", "`user@host`"),
        ("removed: host name", "host name"),
        ("command lines", "command line"),
        ("notes", "notes"),
        ("names of guests", "names of guests"),
    ] {
        assert!(
            said.contains(removed) && lacks.contains(word),
            "{removed}, {word}: {said}"
        );
    }
}

/// Files and folders of the project, without build output.
fn project_files() -> Vec<PathBuf> {
    let (mut open, mut found) = (vec![root().to_owned()], Vec::new());
    while let Some(folder) = open.pop() {
        let entries = std::fs::read_dir(folder).into_iter().flatten();
        for path in entries.map(|entry| entry.unwrap().path()) {
            let mut is_built = ["target", ".git", "tests/out"].iter();
            if is_built.any(|built| path == root().join(built)) {
                continue;
            }
            if path.is_dir() {
                open.push(path.clone());
            }
            found.push(path);
        }
    }
    found
}

/// Pages name files and folders by their whole path or by its end. In pages for developers, everything that
/// looks like a path is one of the project; other pages also name paths of other machines.
#[test]
fn files_that_pages_name_are_there() {
    let all = project_files();
    let (mut named, mut missing) = (0, Vec::new());
    for page in pages() {
        let is_for_developers = page.ends_with("ARCHITECTURE.md")
            || page.ends_with("benches/README.md")
            || page.parent().unwrap().ends_with("docs/decisions");
        let text = std::fs::read_to_string(&page).unwrap();
        for name in text.split('`').skip(1).step_by(2) {
            // The agent's page names files of its users' guests.
            let is_source = name.ends_with(".rs") && !page.ends_with("agent/README.md");
            let is_path = is_source || (is_for_developers && name.contains('/'));
            if !is_path || name.starts_with('/') || name.contains([' ', '{', '*', ':', '(', '\n']) {
                continue;
            }
            named += 1;
            if !all.iter().any(|file| file.ends_with(name)) {
                missing.push(format!("{}: {name}", page.display()));
            }
        }
    }
    assert!(
        named > 100 && missing.is_empty(),
        "of {named}: {missing:#?}"
    );
}

#[test]
fn the_map_of_the_code_is_short() {
    let map = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let words = map.split_whitespace().count();
    assert!(words <= 1500, "ARCHITECTURE.md has {words} words");
}

/// A decision states its date, and the index has the same date.
#[test]
fn decisions_are_dated_and_in_the_index() {
    let folder = root().join("docs/decisions");
    let index = std::fs::read_to_string(folder.join("README.md")).unwrap();
    let mut decisions = 0;
    for page in pages_in("docs/decisions") {
        let name = page.file_name().unwrap().to_str().unwrap();
        if name == "README.md" {
            continue;
        }
        let text = std::fs::read_to_string(&page).unwrap();
        let title = text.lines().next().unwrap().trim_start_matches("# ");
        let date = text.lines().nth(2).unwrap();
        assert!(name.starts_with(&format!("{date}-")), "{name} is of {date}");
        let line = format!("- [{title}]({name}), {date}\n");
        assert!(index.contains(&line), "the index lacks {line}");
        decisions += 1;
    }
    assert_eq!(decisions, index.matches("\n- [").count());
}

/// The pages that a reader starts with, and the pages that they link to.
fn pages() -> Vec<PathBuf> {
    let others = [
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "format-spec.md",
        "agent/README.md",
        "benches/README.md",
    ];
    let folders = ["docs", "docs/decisions"].iter();
    let pages = folders.flat_map(|folder| pages_in(folder));
    pages.chain(others.map(|page| root().join(page))).collect()
}

fn pages_in(folder: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root().join(folder)).unwrap();
    let pages = entries.map(|entry| entry.unwrap().path());
    pages
        .filter(|page| page.extension().is_some_and(|ending| ending == "md"))
        .collect()
}

#[test]
fn the_readme_is_short() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let lines = readme.lines().count();
    assert!(lines <= 150, "README.md has {lines} lines");
}

#[test]
fn links_lead_to_files_and_headings_that_are_there() {
    let mut followed = 0;
    for page in pages() {
        let text = std::fs::read_to_string(&page).unwrap();
        let targets = text.split("](").skip(1);
        for target in targets.filter_map(|rest| rest.split([')', ' ']).next()) {
            if target.contains("://") || target.is_empty() {
                continue;
            }
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let path = match file {
                "" => page.clone(),
                file => page.parent().unwrap().join(file),
            };
            let shown = page.display();
            assert!(path.exists(), "{shown}: no {target}");
            if !heading.is_empty() {
                let there = std::fs::read_to_string(&path).unwrap();
                let mut headings = there.lines().filter(|line| line.starts_with('#'));
                let is_there = headings.any(|line| anchor(line) == heading);
                assert!(is_there, "{shown}: no heading {target}");
            }
            followed += 1;
        }
    }
    assert!(followed > 40, "{followed}");
}

/// The anchor that GitHub gives a heading.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text.chars().filter_map(|letter| match letter {
        ' ' => Some('-'),
        '-' | '_' => Some(letter),
        letter => letter.is_alphanumeric().then_some(letter),
    });
    kept.collect()
}

/// docs/record.md begins with a table of what can be recorded. Each row names the test that shows it.
#[test]
fn what_can_be_recorded_is_shown_by_something() {
    let page = std::fs::read_to_string(root().join("docs/record.md")).unwrap();
    let mut lines = page.lines().take(40);
    let heading = lines.find(|line| line.ends_with("| shown by |"));
    assert!(
        heading.is_some(),
        "docs/record.md has no such table at its beginning"
    );
    let rows: Vec<&str> = lines
        .skip(1)
        .take_while(|line| line.starts_with('|'))
        .collect();
    for row in &rows {
        let shown_by = row.trim_matches('|').rsplit('|').next().unwrap();
        let commands = shown_by.split('`').skip(1).step_by(2);
        let links = shown_by
            .split("](")
            .skip(1)
            .filter_map(|rest| Some(format!("docs/{}", rest.split(')').next()?)));
        let mut files = commands
            .filter_map(|command| command.split(' ').next_back())
            .map(str::to_owned)
            .chain(links)
            .peekable();
        assert!(files.peek().is_some(), "nothing shows it: {row}");
        for file in files {
            assert!(root().join(&file).is_file(), "there is no {file}: {row}");
        }
    }
    assert!(rows.len() >= 8, "{rows:?}");
}

/// With `--help` appended, a command's flags are parsed but nothing is done.
#[test]
fn commands_of_the_pages_are_understood() {
    let (mut asked, mut wrong) = (0, Vec::new());
    for page in pages() {
        let text = std::fs::read_to_string(&page).unwrap();
        for line in text.lines().filter(|line| line.starts_with("    ")) {
            let (line, _) = line.split_once(" #").unwrap_or((line, ""));
            let commands = [" | ", " >", "; ", "&&"].iter();
            let commands = commands.fold(line.to_owned(), |line, end| line.replace(end, "\n"));
            for command in commands.lines() {
                let words: Vec<&str> = command.split_whitespace().collect();
                let program = |word: &&str| ["uniprof", "./uniprof"].contains(word);
                let Some(at) = words.iter().position(program) else {
                    continue;
                };
                let own = words[at + 1..].iter().take_while(|word| **word != "--");
                let own: Vec<&str> = own.map(|word| word.trim_matches('\'')).collect();
                let is_word = |word: &&str| word.bytes().all(|letter| letter.is_ascii_lowercase());
                if !own.first().is_some_and(is_word) {
                    continue;
                }
                let mut uniprof = kit::uniprof();
                let output = uniprof.args(&own).arg("--help").output().unwrap();
                asked += 1;
                if !output.status.success() {
                    let said = String::from_utf8_lossy(&output.stderr).into_owned();
                    wrong.push(format!("{}: {}: {said}", page.display(), line.trim()));
                }
            }
        }
    }
    assert!(asked > 50 && wrong.is_empty(), "of {asked}: {wrong:#?}");
}
