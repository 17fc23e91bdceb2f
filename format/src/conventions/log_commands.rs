//! Texts that a build runner executes as commands if they are in a log. A name in a recording may be one.
//!
//! Sources: GitHub's runner, `ActionCommand.cs` (`::name key=value::data` at the start of a line, `##[name]data`
//! anywhere); Azure's agent, `Command.cs` (`##vso[area.event]data` anywhere).

use std::borrow::Cow;

/// Texts that begin a command at any position, each without its second `#`. The case of letters doesn't matter.
const ANYWHERE: [&str; 2] = ["[", "vso["];

/// `text` with a space in each command, which makes it harmless. Lines are handled one by one.
pub fn without_commands(text: &str) -> Cow<'_, str> {
    let is_clean = !text.contains("##") && !text.contains("::");
    if is_clean || !text.split('\n').any(has_command) {
        return Cow::Borrowed(text);
    }
    let lines: Vec<String> = text.split('\n').map(broken).collect();
    Cow::Owned(lines.join("\n"))
}

/// Whether `text`, which follows a `##`, makes that a command.
pub fn command_behind(text: &str) -> bool {
    ANYWHERE.iter().any(|one| {
        text.get(..one.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(one))
    })
}

fn has_command(line: &str) -> bool {
    (0..line.len()).any(|at| begins_command(line, at))
}

/// Whether a command begins at the byte `at` of `line`. It begins with its second `#`, or with a word that may be
/// wrapped to the start of a line of its own.
fn begins_command(line: &str, at: usize) -> bool {
    let bytes = line.as_bytes();
    match bytes[at] {
        b'#' => at > 0 && bytes[at - 1] == b'#' && command_behind(&line[at + 1..]),
        b':' => begins_word(&line[..at]) && is_named_command(&line[at..]),
        _ => false,
    }
}

/// Whether what follows `before` begins a word.
fn begins_word(before: &str) -> bool {
    let last = before.as_bytes().last();
    last.is_none_or(u8::is_ascii_whitespace)
}

/// Whether a word that begins so is a command: `::name::`.
fn is_named_command(word: &str) -> bool {
    word.starts_with("::") && word[2..].contains("::")
}

fn broken(line: &str) -> String {
    let mut out = String::with_capacity(line.len() + 8);
    for (at, letter) in line.char_indices() {
        match letter {
            '#' if begins_command(line, at) => out.push_str(" #"),
            // Of more than two colons, those after the new space would be a command again.
            ':' if begins_word(&out) && is_named_command(&line[at..]) => out.push_str(": "),
            letter => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_broken_up_and_other_texts_are_left() {
        for (text, wanted) in [
            ("##[set-output name=x]y", "# #[set-output name=x]y"),
            ("a ##[add-mask]b", "a # #[add-mask]b"),
            ("a##vso[task.x]b", "a# #vso[task.x]b"),
            ("##VsO[x]##[y]", "# #VsO[x]# #[y]"),
            ("###[x]", "## #[x]"),
            (
                "::set-output name=a::b;main",
                ": :set-output name=a::b;main",
            ),
            ("  ::stop-commands::x", "  : :stop-commands::x"),
            ("a\n::x::\nb", "a\n: :x::\nb"),
            ("a ::b::c", "a : :b::c"),
            (":::a::b", ": : :a::b"),
            (":::::a", ": : :::a"),
            ("é::b::c", "é::b::c"),
        ] {
            let broken = without_commands(text);
            assert_eq!(broken, wanted);
            assert!(!broken.split('\n').any(has_command), "{broken}");
        }
        for text in [
            "",
            "std::vec::Vec",
            "::operator new",
            "# [x]",
            "#[derive(A)]",
            "## title",
            "##é[",
        ] {
            assert!(matches!(without_commands(text), Cow::Borrowed(_)), "{text}");
        }
    }
}
