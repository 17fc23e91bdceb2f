//! The commands of both sides, from the command line: after `--`, with `--vs` between them, or two quoted strings as a
//! shell reads them.

use anyhow::bail;

/// A command of one side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SideCommand {
    /// Program and arguments.
    pub words: Vec<String>,
    /// As it was written.
    pub text: String,
}

/// Characters that only a shell interprets.
const FOR_SHELL: &str = "|&;<>()$`\\\"'*?[]#~={}\n!";

impl SideCommand {
    /// Reads a quoted string. A shell runs it, unless it is only words.
    fn of_text(text: &str) -> SideCommand {
        let words: Vec<String> = if text.contains(|letter| FOR_SHELL.contains(letter)) {
            ["sh", "-c", text].map(str::to_owned).to_vec()
        } else {
            text.split_whitespace().map(str::to_owned).collect()
        };
        SideCommand {
            words,
            text: text.to_owned(),
        }
    }

    fn of_words(words: &[String]) -> SideCommand {
        SideCommand {
            words: words.to_vec(),
            text: words.join(" "),
        }
    }
}

/// The word between the commands.
const BETWEEN: &str = "--vs";

/// The commands of two quoted strings.
///
/// # Errors
/// One of them is empty.
pub fn of_texts(texts: [&str; 2]) -> anyhow::Result<[SideCommand; 2]> {
    if texts.iter().any(|text| text.trim().is_empty()) {
        bail!("a command is empty; write uniprof compare './old ARGS' './new ARGS'");
    }
    Ok(texts.map(SideCommand::of_text))
}

/// The commands of the words after `--`.
///
/// # Errors
/// There aren't two commands with one `--vs` between them.
pub fn of_words(words: &[String]) -> anyhow::Result<[SideCommand; 2]> {
    let sides: Vec<&[String]> = words.split(|word| word == BETWEEN).collect();
    match sides[..] {
        [a, b] if !a.is_empty() && !b.is_empty() => Ok([a, b].map(SideCommand::of_words)),
        [_] => bail!("two commands are compared; write -- ./old ARGS --vs ./new ARGS"),
        _ => bail!(
            "--vs stands once, between two commands: -- ./old ARGS --vs ./new ARGS; if it is an argument of a \
             command, quote both commands: uniprof compare './old ARGS' './new ARGS'"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read_as_they_are_written() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let [a, b] = of_words(&words("./old -n 5 --vs ./new -n 6")).unwrap();
        assert_eq!((a.text.as_str(), a.words.len()), ("./old -n 5", 3));
        assert_eq!(b.words, words("./new -n 6"));
        for odd in ["./old", "./old --vs", "--vs ./new", "a --vs b --vs c"] {
            assert!(of_words(&words(odd)).is_err(), "{odd}");
        }
        let [a, b] = of_texts(["./old  -n 5", "./new | wc -l"]).unwrap();
        assert_eq!(a.words, words("./old -n 5"));
        assert_eq!(b.words, ["sh", "-c", "./new | wc -l"]);
        assert!(of_texts(["./old", " "]).is_err());
    }
}
