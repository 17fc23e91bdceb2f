//! Looks at what we drew as a strict reader would: well-formed XML whose only scripts are the drawing
//! library's own and the one that cuts names, and text that can't steer a terminal.

use std::io::{self, Write};

/// Draws, and checks the picture.
///
/// # Panics
/// If it is not well-formed, or names of the recording have become markup.
pub fn check_drawn(draw: impl FnOnce(&mut dyn Write) -> io::Result<()>) {
    let mut out = Vec::new();
    draw(&mut out).expect("memory takes all");
    let text = String::from_utf8(out).expect("a picture is UTF-8");
    if let Err(problem) = check(&text, &ELEMENTS) {
        panic!("the picture is broken: {problem}");
    }
}

/// Writes a page, and checks it: what it is made of is well-formed XML, too.
///
/// # Panics
/// If it is not, or names of the recording have become markup.
pub fn check_page(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) {
    let mut out = Vec::new();
    write(&mut out).expect("memory takes all");
    let mut text = String::from_utf8(out).expect("a page is UTF-8");
    // Of its own style and script, the first and the last, the text is no XML.
    for (start, end) in [("<style>", "</style>"), ("<script>", "</script>")] {
        let found = text.find(start).zip(text.rfind(end));
        let (from, to) = found.expect("a page has a style and a script");
        text.replace_range(from + start.len()..to, "");
    }
    let elements = [&ELEMENTS[..], &PAGE_ELEMENTS].concat();
    if let Err(problem) = check(&text, &elements) {
        panic!("the page is broken: {problem}");
    }
}

/// Elements that pictures are made of. What is not in the list can't have come from us.
const ELEMENTS: [&str; 14] = [
    "svg",
    "g",
    "a",
    "rect",
    "text",
    "title",
    "style",
    "script",
    "defs",
    "linearGradient",
    "stop",
    "path",
    "line",
    "tspan",
];

/// What else a page is made of.
const PAGE_ELEMENTS: [&str; 35] = [
    "b", "bdi", "body", "button", "code", "dd", "details", "div", "dl", "dt", "em", "footer", "h1",
    "h2", "head", "header", "html", "i", "input", "li", "meta", "nav", "output", "p", "section",
    "span", "summary", "table", "tbody", "td", "template", "th", "thead", "tr", "ul",
];

fn check(text: &str, elements: &[&str]) -> Result<(), String> {
    if let Some(letter) = text.chars().find(|letter| !is_xml(*letter)) {
        return Err(format!("{:#x} is no character of XML", letter as u32));
    }
    let mut open: Vec<&str> = Vec::new();
    let mut scripts = 0;
    let mut rest = text;
    while let Some(at) = rest.find('<') {
        check_references(&rest[..at])?;
        rest = &rest[at..];
        let skipped = [
            ("<![CDATA[", "]]>"),
            ("<!--", "-->"),
            ("<?", "?>"),
            ("<!DOCTYPE", ">"),
        ];
        if let Some((start, end)) = skipped.iter().find(|(start, _)| rest.starts_with(start)) {
            let end_at = rest[start.len()..].find(end).ok_or("an end is missing")?;
            if *start == "<!--" && rest[4..4 + end_at].contains("--") {
                return Err("-- in a comment".into());
            }
            rest = &rest[start.len() + end_at + end.len()..];
            continue;
        }
        let (tag, after) = split_tag(rest)?;
        rest = after;
        if let Some(name) = tag.strip_prefix('/') {
            if open.pop() != Some(name.trim_end()) {
                return Err(format!("</{name}> ends nothing"));
            }
            continue;
        }
        let body = tag.strip_suffix('/').unwrap_or(tag);
        let name = body.split_ascii_whitespace().next().unwrap_or_default();
        if !elements.contains(&name) {
            return Err(format!("<{name}> is none of ours"));
        }
        scripts += usize::from(name == "script");
        check_references(body)?;
        if body.len() == tag.len() {
            open.push(name);
        }
    }
    check_references(rest)?;
    match (open.last(), scripts) {
        (Some(name), _) => Err(format!("<{name}> has no end")),
        (None, 0..=2) => Ok(()),
        (None, _) => Err(format!("{scripts} scripts")),
    }
}

/// The inside of the tag that `text` begins with, and what follows it.
fn split_tag(text: &str) -> Result<(&str, &str), String> {
    let mut quote = None;
    for (at, letter) in text.char_indices().skip(1) {
        match (quote, letter) {
            (None, '"' | '\'') => quote = Some(letter),
            (Some(open), _) if open == letter => quote = None,
            (_, '<') => return Err("< inside a tag".into()),
            (None, '>') => return Ok((&text[1..at], &text[at + 1..])),
            _ => {}
        }
    }
    Err("a tag has no end".into())
}

/// Each `&` begins a reference.
fn check_references(text: &str) -> Result<(), String> {
    for part in text.split('&').skip(1) {
        let name = part.split_once(';').map(|(name, _)| name);
        let known = ["lt", "gt", "amp", "quot", "apos"];
        let sound = |name: &str| {
            let digits = name
                .strip_prefix('#')
                .map(|text| text.trim_start_matches('x'));
            known.contains(&name)
                || digits.is_some_and(|text| u32::from_str_radix(text, 16).is_ok())
        };
        if !name.is_some_and(sound) {
            return Err("& without a reference".into());
        }
    }
    Ok(())
}

/// XML 1.0, section 2.2.
fn is_xml(letter: char) -> bool {
    matches!(letter, '\t' | '\n' | '\r' | '\u{20}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}')
        || letter >= '\u{10000}'
}

/// Writes text, and checks it.
///
/// # Panics
/// If it is not UTF-8 or could steer a terminal.
pub fn check_written(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) {
    let mut out = Vec::new();
    write(&mut out).expect("memory takes all");
    check_text(&out);
}

/// Text of ours has no control characters but ends of lines and tabs.
///
/// # Panics
/// If it has.
pub fn check_text(bytes: &[u8]) {
    let text = std::str::from_utf8(bytes).expect("text is UTF-8");
    let steering = |letter: &char| letter.is_control() && !matches!(letter, '\n' | '\t');
    let found = text.chars().find(steering);
    assert_eq!(found, None, "a control character in a text");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_pictures_are_found() {
        let sound = "<svg a=\"&lt;'&#39;\"><!-- x --><g/><text>a &amp; b</text></svg>";
        assert_eq!(check(sound, &ELEMENTS), Ok(()));
        for broken in [
            "<svg><text></svg>",
            "<svg><text>a & b</text></svg>",
            "<svg a=\"<\"></svg>",
            "<svg><b></b></svg>",
            "<svg>\u{1b}</svg>",
            "<svg><script></script><script></script><script></script></svg>",
            "<svg",
            "<svg><!-- a -- b --></svg>",
        ] {
            assert!(check(broken, &ELEMENTS).is_err(), "{broken}");
        }
    }
}
