//! Shortens the names of functions for tables and pictures: removes template arguments and parameters.

use std::borrow::Cow;

/// Names longer than this are shortened in tables.
const SHORT_CHARS_MAX: usize = 80;

/// A long name without template arguments, for tables. Exports and pictures have the whole name.
pub fn short(name: &str) -> Cow<'_, str> {
    if name.chars().count() <= SHORT_CHARS_MAX {
        Cow::Borrowed(name)
    } else {
        bare(name)
    }
}

/// A name without template arguments: `fold<u8, Range<u64>>` becomes `fold<…>`. A type before a path, as in `<Vec<u8>
/// as Clone>::clone`, is kept.
pub(crate) fn bare(name: &str) -> Cow<'_, str> {
    let mut kept = String::with_capacity(name.len());
    // For each open bracket, whether its content is hidden.
    let mut open: Vec<bool> = Vec::new();
    let mut last = ' ';
    let mut rest = name;
    while let Some(letter) = rest.chars().next() {
        let hidden = open.last() == Some(&true);
        if let Some(operator) = operator(rest, last) {
            if !hidden {
                kept.push_str(operator);
            }
            rest = &rest[operator.len()..];
            // Template arguments of the operator may follow.
            last = '_';
            continue;
        }
        rest = &rest[letter.len_utf8()..];
        match letter {
            '<' if hidden => open.push(true),
            '<' => {
                let hides = last.is_alphanumeric() || matches!(last, '_' | ':');
                open.push(hides);
                kept.push_str(if hides { "<…" } else { "<" });
            }
            // The arrow `->` is an operator, or precedes the type of a result.
            '>' if last != '-' => {
                if open.pop().is_none() {
                    // The brackets are not balanced, so the name is kept as it is.
                    return Cow::Borrowed(name);
                }
                if open.last() != Some(&true) {
                    kept.push('>');
                }
            }
            _ if hidden => {}
            _ => kept.push(letter),
        }
        last = letter;
    }
    if open.is_empty() {
        Cow::Owned(kept)
    } else {
        Cow::Borrowed(name)
    }
}

/// Operators of C++ whose names have angle brackets, longer ones first.
const ANGLED: [&str; 11] = [
    "<=>", "<<=", ">>=", "->*", "<<", ">>", "<=", ">=", "->", "<", ">",
];

/// The name of an operator at the start of `rest`, with the space that a demangler puts before its arguments.
fn operator(rest: &str, before: char) -> Option<&str> {
    let symbols = rest.strip_prefix("operator")?;
    let symbol = ANGLED.iter().find(|symbol| symbols.starts_with(**symbol));
    let is_word = before.is_alphanumeric() || before == '_';
    let length = "operator".len() + symbol.filter(|_| !is_word)?.len();
    if rest[length..].starts_with(" <") {
        Some(&rest[..=length])
    } else {
        Some(&rest[..length])
    }
}

/// A name without the parameters of its functions: `push(int, char)` becomes `push(…)`. Parentheses that are part
/// of a name stay: `(anonymous namespace)`, `operator()`.
pub(crate) fn unparenthesized(name: &str) -> Cow<'_, str> {
    let mut kept = String::with_capacity(name.len());
    let mut open: Vec<bool> = Vec::new();
    let mut last = ' ';
    for (at, letter) in name.char_indices() {
        let hidden = open.last() == Some(&true);
        match letter {
            '(' => {
                let names = last.is_alphanumeric() || matches!(last, '_' | '>' | ')' | '}');
                let is_empty = name[at..].starts_with("()");
                let hides = hidden || names && !is_empty;
                if !hidden {
                    kept.push_str(if hides { "(…" } else { "(" });
                }
                open.push(hides);
            }
            ')' => {
                open.pop();
                if open.last() != Some(&true) {
                    kept.push(')');
                }
            }
            _ if hidden => {}
            _ => kept.push(letter),
        }
        last = letter;
    }
    if open.is_empty() {
        Cow::Owned(kept)
    } else {
        Cow::Borrowed(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_lose_their_parameters_only() {
        let types = "core::ops::range::RangeInclusive<u64>, alloc::vec::Vec<alloc::string::String>";
        let shortened = [
            (format!("fold<{types}>"), "fold<…>"),
            (format!("all<{types}>::next<{types}>"), "all<…>::next<…>"),
            (format!("run::<{types}>"), "run::<…>"),
            (
                format!("<Vec<{types}> as Clone>::clone"),
                "<Vec<…> as Clone>::clone",
            ),
            (format!("call<fn(u8) -> u8, {types}>(int)"), "call<…>(int)"),
            (
                format!("bool a::operator< <{types}>(A<{types}>)"),
                "bool a::operator< <…>(A<…>)",
            ),
            (
                format!("A<{types}>::operator->() const"),
                "A<…>::operator->() const",
            ),
            (format!("my_operator<{types}>"), "my_operator<…>"),
            (format!("less<{types}>::operator()"), "less<…>::operator()"),
        ];
        for (long, expected) in &shortened {
            assert_eq!(short(long), *expected);
        }
        let kept = [
            "fold<u8>".to_owned(),
            format!("operator<<{types}>()"),
            format!("unbalanced<{types}, {types}"),
            "a".repeat(200),
        ];
        for name in &kept {
            assert_eq!(short(name), *name);
        }
    }

    #[test]
    fn parameters_go_and_parts_of_names_stay() {
        let cases = [
            ("push(int, char)", "push(…)"),
            ("push()", "push()"),
            (
                "(anonymous namespace)::run(int)",
                "(anonymous namespace)::run(…)",
            ),
            ("operator()(int) const", "operator()(…) const"),
            (
                "run(void (*)(int))::{lambda(int)#1}::go()",
                "run(…)::{lambda(…)#1}::go()",
            ),
            ("odd(int", "odd(int"),
        ];
        for (name, expected) in cases {
            assert_eq!(unparenthesized(name), expected);
        }
    }
}
