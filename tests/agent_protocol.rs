//! The tables of docs/agent-protocol.md agree with the sources of both sides. Neither side depends on the
//! other.

use std::path::Path;

fn source(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// The rows of the table below this heading, as cells.
fn rows(page: &str, heading: &str) -> Vec<Vec<String>> {
    let (_, section) = page.split_once(heading).unwrap();
    let section = section.split("\n#").next().unwrap();
    let rows = section
        .lines()
        .filter(|line| line.starts_with("| ") && !line.contains("offset |"));
    rows.map(|line| {
        line.trim_matches('|')
            .split('|')
            .map(|cell| cell.trim().to_owned())
            .collect()
    })
    .collect()
}

#[test]
fn both_sides_have_the_kinds_of_the_page() {
    let page = source("docs/agent-protocol.md");
    let (agent, recorder) = (
        source("agent/src/message.rs"),
        source("record/src/backends/agent/message.rs"),
    );
    let kinds = rows(&page, "## 3. Kinds");
    assert_eq!(kinds.len(), 12, "11 kinds below the table's head");
    for row in &kinds[1..] {
        let [number, name, from, _] = &row[..] else {
            panic!("{row:?}")
        };
        let constant = format!("{}: u8 = {number};", name.to_uppercase());
        assert!(recorder.contains(&constant), "record: no {constant}");
        if from == "agent" {
            assert!(agent.contains(&constant), "agent: no {constant}");
        } else {
            let number = number.trim_start_matches("0x0");
            let name = format!("{}{}", name[..1].to_uppercase(), &name[1..]);
            assert!(
                agent.contains(&format!("{number} => Request::{name}")),
                "agent: no {name}"
            );
        }
    }
}

/// Each field begins where the previous one ends, so that the page is complete.
#[test]
fn the_offsets_of_the_page_have_no_holes() {
    let page = source("docs/agent-protocol.md");
    let sections = [
        "### 4.1", "### 4.2", "### 4.3", "### 5.1", "### 5.2", "### 6.1", "### 6.2", "### 6.3",
        "### 7.2",
    ];
    let mut fields = 0;
    for section in sections {
        let mut next = 0;
        for row in rows(&page, section).iter().filter(|row| !row[0].is_empty()) {
            let at: u32 = row[0]
                .parse()
                .unwrap_or_else(|_| panic!("{section}: {row:?}"));
            assert_eq!(at, next, "{section}: {row:?}");
            next = at + row[1].parse().unwrap_or(0);
            fields += 1;
        }
    }
    assert!(fields > 40, "{fields}");
}

#[test]
fn neither_side_uses_code_of_the_other() {
    let dependencies = |manifest: &str| {
        let (_, behind) = manifest.split_once("\n[dependencies]").unwrap();
        behind.split("\n[").next().unwrap().trim().to_owned()
    };
    assert_eq!(dependencies(&source("agent/Cargo.toml")), "");
    assert!(!dependencies(&source("record/Cargo.toml")).contains("uniprof-agent"));
}
