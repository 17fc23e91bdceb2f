//! Words that the documents and `--help` must not use: they are unnatural, or the field has its own word
//! (docs/glossary.md).

use kit::root;
use std::path::PathBuf;

/// A word, and its replacement.
const WORST: &[(&str, &str)] = &[
    ("tells", "reports, shows, says"),
    ("told", "reported, shown, said"),
    ("stand still", "be paused"),
    ("stands still", "is paused"),
    ("standing still", "paused"),
    ("stood still", "was paused"),
    ("let go", "resumed"),
    ("lets go", "resumes"),
    ("trouble", "parse error, or what it is"),
    ("can't be had", "missing, unavailable"),
    ("not to be had", "missing, unavailable"),
    ("calls nothing", "leaf function"),
    ("leaves its processor", "is switched out"),
    ("left the processor", "was switched out"),
    ("held against", "compared with"),
    ("of which", "a new sentence"),
    ("upon which", "a new sentence"),
    ("in that case it", "a new sentence"),
    ("in vain", "fails, does nothing"),
    ("is none of", "says what there is instead"),
    ("are none of", "says what there is instead"),
    ("steering characters", "control characters"),
    ("made code", "JIT code"),
    ("mended", "fixed"),
    ("but for", "except"),
    ("anew", "again"),
    ("once more", "again"),
    ("lives of", "boots of"),
    ("worth telling", "worth reporting"),
    ("follows upon", "follows, repeats"),
    ("whose place", "whose position, or which it is"),
];

/// All documents of the project.
fn documents() -> Vec<PathBuf> {
    let (mut open, mut found) = (vec![root().to_owned()], Vec::new());
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            let is_ours = !["target", ".git", "tests/out"]
                .iter()
                .any(|built| path.ends_with(built));
            if path.is_dir() && is_ours {
                open.push(path);
            } else if path.extension().is_some_and(|ending| ending == "md") {
                found.push(path);
            }
        }
    }
    found
}

/// The sentences of a page, without blocks of code and texts between backticks.
fn prose(page: &str) -> String {
    let mut is_code = false;
    let lines = page.lines().filter(|line| {
        let is_fence = line.starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence && !line.starts_with("    ")
    });
    let text = lines.collect::<Vec<_>>().join("\n");
    text.split('`').step_by(2).collect::<Vec<_>>().join(" ")
}

/// The words of the list that occur in `text`, each with its replacement.
fn found(text: &str) -> Vec<String> {
    let words: Vec<String> = text
        .split(|letter: char| !letter.is_alphanumeric() && !['\'', '-'].contains(&letter))
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect();
    let text = format!(" {} ", words.join(" "));
    let found = WORST
        .iter()
        .filter(|(word, _)| text.contains(&format!(" {word} ")));
    found
        .map(|(word, instead)| format!("“{word}”: {instead}"))
        .collect()
}

#[test]
fn documents_use_the_words_of_the_field() {
    let text = "A sample `tells` who.\n    told\n```\nanew\n```\nNobody is\nTOLD. Foretold.";
    assert_eq!(found(&prose(text)), ["“told”: reported, shown, said"]);
    let pages = documents();
    let wrong = pages.iter().flat_map(|page| {
        let found = found(&prose(&std::fs::read_to_string(page).unwrap()));
        let name = page.strip_prefix(root()).unwrap().display().to_string();
        found.into_iter().map(move |word| format!("{name}: {word}"))
    });
    let wrong: Vec<String> = wrong.collect();
    assert!(pages.len() > 50 && wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn help_uses_the_words_of_the_field() {
    let help = |arguments: &[&str]| {
        let output = kit::uniprof().args(arguments).output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    };
    let all = help(&["--help"]);
    let commands = all.lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands = commands.take_while(|line| line.starts_with("  "));
    let mut asked = 0;
    let mut wrong = found(&all);
    for command in commands.filter_map(|line| line.split_whitespace().next()) {
        let found = found(&help(&[command, "--help"]));
        wrong.extend(found.into_iter().map(|word| format!("{command}: {word}")));
        asked += 1;
    }
    assert!(asked > 10 && wrong.is_empty(), "of {asked}: {wrong:#?}");
}
