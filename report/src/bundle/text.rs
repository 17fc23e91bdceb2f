//! What a redacted recording keeps of a text. Input: a text, and what kind it is of. Output: what of it may be given
//! away. Every text of a redacted recording goes through [`Text::kept`] or is one that uniprof itself made.

use crate::recording::{first_word, last_part};

/// Replaces removed text where a field must not be empty.
pub(super) const GONE: &str = "[redacted]";
/// Bytes that Linux keeps of a thread's name. What is longer may be a command line.
pub(super) const THREAD_NAME_BYTES: usize = 15;

/// What a text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Text {
    /// A function's name: the last part of each path in it, as of a Go package or a script.
    Function,
    /// The path of an image: its last part; of memory that a program has named, not that name.
    Image,
    /// The path of a source file: its last part.
    Source,
    /// The name of a thread or process, as Linux keeps it: no path, no argument, no value.
    Task,
    /// A system call: its name.
    SystemCall,
    /// Words of a program about what it does: as of a function, without quoted texts and values.
    Words,
}

impl Text {
    /// What of `text` is kept.
    pub(super) fn kept(self, text: &str) -> String {
        match self {
            Text::Function => function(text),
            Text::Image => image(text),
            Text::Source => path(text).to_owned(),
            Text::Task => task(text).to_owned(),
            Text::SystemCall => {
                let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
                text.chars().take_while(|letter| is_name(*letter)).collect()
            }
            Text::Words => function(&without_values(text)),
        }
    }
}

fn function(text: &str) -> String {
    let mut kept = String::new();
    for piece in text.split_inclusive(char::is_whitespace) {
        let word = piece.trim_end();
        match word.contains("://") {
            true => kept.push_str(address(word)),
            false => kept.extend(word.split_inclusive(is_mark).map(without_folders)),
        }
        kept.push_str(&piece[word.len()..]);
    }
    kept
}

/// Stands between names in the name of a function: `pkg.F[host/path/pkg.T]`.
fn is_mark(letter: char) -> bool {
    "()[]{}<>,;*&\"'`|".contains(letter)
}

/// The last part of the path in `piece`, with the mark that it ends with.
fn without_folders(piece: &str) -> &str {
    let name = piece.trim_end_matches(is_mark);
    let (folders, last) = name.split_at(name.rfind(['/', '\\']).map_or(0, |at| at + 1));
    let is_operator = folders.ends_with("operator/") && !folders[..folders.len() - 1].contains('/');
    if folders.is_empty() && !is_person(name) || is_operator {
        return piece;
    }
    if last.is_empty() || is_person(last) {
        return GONE;
    }
    let kept = last.find('?').unwrap_or(last.len());
    match kept < last.len() {
        true => &last[..kept],
        false => &piece[folders.len()..],
    }
}

/// Whether this is someone's address, and not a symbol's version such as `memcpy@GLIBC_2.14`.
fn is_person(name: &str) -> bool {
    let host = name.rsplit_once('@').map(|(_, host)| host);
    host.is_some_and(|host| host.contains('.') && host.starts_with(|one: char| one.is_lowercase()))
}

/// Of an address `scheme://user:password@host/path?query`, the last part of the path.
fn address(word: &str) -> &str {
    let behind = word.split_once("://").map_or("", |(_, behind)| behind);
    let path = behind.split_once('/').map_or("", |(_, path)| path);
    let path = path.split(['?', '#']).next().unwrap_or("");
    match last_part(path) {
        "" => GONE,
        last => last,
    }
}

/// The last part of a path.
fn path(text: &str) -> &str {
    match text.contains("://") {
        true => address(text),
        false => last_part(text.split('?').next().unwrap_or("")),
    }
}

fn image(text: &str) -> String {
    // Names of memory are set by the program (prctl(2), PR_SET_VMA_ANON_NAME; memfd_create(2)).
    match text {
        text if text.starts_with("[anon:") => "[anon]".to_owned(),
        text if text.starts_with("/memfd:") || text.starts_with("memfd:") => "memfd".to_owned(),
        text => path(text).to_owned(),
    }
}

/// A name as the system keeps it. What is longer or begins with a path is a command line.
fn task(name: &str) -> &str {
    let is_command = name.len() > THREAD_NAME_BYTES || name.starts_with(['/', '.', '~']);
    let name = match is_command {
        true => last_part(first_word(name)),
        false => name,
    };
    if name.contains("://") {
        return GONE;
    }
    // What follows may be a value, a person's host.
    let end = name.find(['=', '@', '?']).map_or(name.len(), |at| at + 1);
    let name = &name[..end];
    let ends = name
        .char_indices()
        .map(|(at, letter)| at + letter.len_utf8());
    let end = ends.take_while(|end| *end <= THREAD_NAME_BYTES).last();
    &name[..end.unwrap_or(0)]
}

/// `text` without what is quoted in it, and without what follows an equals sign up to a space.
fn without_values(text: &str) -> String {
    let mut kept = String::new();
    let (mut quote, mut is_value) = (None, false);
    for letter in text.chars() {
        match quote {
            Some(end) if letter == end => quote = None,
            Some(_) => {}
            None if matches!(letter, '"' | '\'' | '`') => {
                quote = Some(letter);
                kept.push_str(GONE);
            }
            None => {
                is_value &= !letter.is_whitespace();
                if !is_value {
                    kept.push(letter);
                }
                is_value |= letter == '=';
            }
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_keeps_its_name_and_no_path() {
        for (text, kept) in [
            ("main.main", "main.main"),
            ("gitlab.example/team/project/pkg.(*T).Run", "pkg.(*T).Run"),
            (
                "pkg.F[go.shape.*gitlab.example/team/x.T]",
                "pkg.F[go.shape.*x.T]",
            ),
            ("a/b.F[c/d.T,e/f.U]", "b.F[d.T,f.U]"),
            ("load file:///home/ann/app.js:1:2", "load app.js:1:2"),
            ("load https://ann:PASSWORD@host", "load [redacted]"),
            ("load https://ann:PASS/WORD@host/a.js?token=x", "load a.js"),
            ("GET https://host/list?user=ann#top", "GET list"),
            ("~run C:\\Users\\ann\\app.js:3", "~run app.js:3"),
            ("Lcom/acme/secret/Job;::run", "Job;::run"),
            ("App\\Models\\User::find", "User::find"),
            ("run /home/ann/", "run [redacted]"),
            ("mail ann@example.com", "mail [redacted]"),
            ("memcpy@GLIBC_2.14", "memcpy@GLIBC_2.14"),
            ("memcpy@plt", "memcpy@plt"),
            ("ns::operator/(ns::T const&)", "ns::operator/(ns::T const&)"),
            ("ns::T::operator/=", "ns::T::operator/="),
            (
                "<a::B as c::D>::e::{closure#0}",
                "<a::B as c::D>::e::{closure#0}",
            ),
            ("", ""),
        ] {
            assert_eq!(Text::Function.kept(text), kept, "{text}");
        }
    }

    #[test]
    fn images_and_sources_keep_the_last_part() {
        for (text, kept) in [
            ("/opt/acme/lib.so", "lib.so"),
            ("C:\\acme\\app.dll", "app.dll"),
            ("/srv/lib.so?token=x", "lib.so"),
            ("https://ann:PASSWORD@host/app.wasm?token=x", "app.wasm"),
            ("[anon:ann's heap]", "[anon]"),
            ("/memfd:ann (deleted)", "memfd"),
            ("[vdso]", "[vdso]"),
        ] {
            assert_eq!(Text::Image.kept(text), kept, "{text}");
        }
        assert_eq!(Text::Source.kept("/home/ann/src/main.go"), "main.go");
        assert_eq!(Text::Source.kept("webpack://acme/./src/a.ts?1f"), "a.ts");
    }

    #[test]
    fn tasks_and_system_calls_keep_no_value() {
        for (text, kept) in [
            ("kworker/u8:0", "kworker/u8:0"),
            ("TOKEN=abcdef", "TOKEN="),
            ("ann@host", "ann@"),
            ("http://h/x", GONE),
            ("/usr/bin/env A=1", "env"),
            ("a name of many bytes", "a"),
        ] {
            assert_eq!(Text::Task.kept(text), kept, "{text}");
        }
        assert_eq!(Text::SystemCall.kept("write(1, \"SELECT\")"), "write");
        assert_eq!(Text::SystemCall.kept("openat"), "openat");
    }

    #[test]
    fn words_keep_no_quotes_and_no_values() {
        for (text, kept) in [
            (
                "SELECT * FROM t WHERE name = 'ann'",
                "SELECT * FROM t WHERE name = [redacted]",
            ),
            (
                "query id=7 token=\"a b\" done",
                "query id= token=[redacted] done",
            ),
            ("v8.compile", "v8.compile"),
        ] {
            assert_eq!(Text::Words.kept(text), kept, "{text}");
        }
    }
}
