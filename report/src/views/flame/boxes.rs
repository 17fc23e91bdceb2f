//! Additions to inferno's SVG: names that are shortened better, and colours for dark screens. inferno cuts
//! names at their end, which is the most specific part in C++ and Rust.

use super::escape;
use crate::text::screen::{cut_end, width};
use crate::text::{bare, unparenthesized};
use std::borrow::Cow;

/// Colours for dark screens.
const DARK: &str = include_str!("dark.css");
/// A script that shortens names for the window's width and for zoomed boxes.
const NAMES: &str = include_str!("names.js");
/// The width of inferno's pictures before a script runs (pixels).
const WIDTH: f64 = 1200.0;
const LETTER_SIZE: f64 = 12.0;
/// The height of the key's line (pixels).
const KEY_HEIGHT: f64 = 18.0;

/// The drawing with this package's names and colours. A letter's width is `letter_width` times its size.
/// `None` if the drawing doesn't look like inferno's.
pub(super) fn finished(svg: &str, letter_width: f64, key: &[(&str, String)]) -> Option<String> {
    let (head, rest) = svg.split_once("<svg id=\"frames\"")?;
    let head = with_key(head, LETTER_SIZE * letter_width, key)?;
    let (frames, rest) = rest.split_once('>')?;
    let boxes = rest.strip_suffix("</svg></svg>")?;
    let mut drawing = String::with_capacity(svg.len() + 8192);
    drawing.push_str(&head);
    // Before the boxes and after inferno's script. It runs when the picture is loaded.
    drawing.push_str(&format!(
        "<style type=\"text/css\">\n{DARK}</style><script type=\"text/ecmascript\"><![CDATA[\n{NAMES}]]></script>\
         <svg id=\"frames\" y=\"{KEY_HEIGHT}\"{frames}>"
    ));
    for group in boxes.split_inclusive("</g>") {
        match labelled(group, LETTER_SIZE * letter_width) {
            Some(group) => drawing.push_str(&group),
            None => drawing.push_str(group),
        }
    }
    drawing.push_str("</svg></svg>");
    Some(drawing)
}

/// The head of the picture with a line for the key below the titles. Everything below is moved down.
fn with_key(head: &str, letter_pixels: f64, key: &[(&str, String)]) -> Option<String> {
    let height = head.split_once("viewBox=\"0 0 1200 ")?.1.split_once('"')?.0;
    let height: f64 = height.parse().ok()?;
    let mut head = head
        .replace(
            &format!("height=\"{height}\""),
            &format!("height=\"{}\"", height + KEY_HEIGHT),
        )
        .replace(
            &format!(" 1200 {height}\""),
            &format!(" 1200 {}\"", height + KEY_HEIGHT),
        );
    // The line on the box under the pointer is below the boxes, or above them if they hang.
    for id in ["details", "matched"] {
        let (before, rest) = head.split_once(&format!("<text id=\"{id}\""))?;
        let (attributes, rest) = rest.split_once(" y=\"")?;
        let (y, rest) = rest.split_once('"')?;
        let y = y.parse::<f64>().ok()? + KEY_HEIGHT;
        head = format!("{before}<text id=\"{id}\"{attributes} y=\"{y:.2}\"{rest}");
    }
    head.push_str("<g id=\"key\">");
    let mut x = 10.0;
    for (text, colour) in key {
        head.push_str(&format!(
            "<rect x=\"{x:.0}\" y=\"58\" width=\"10\" height=\"10\" fill=\"{colour}\"/>\
             <text x=\"{:.0}\" y=\"67\">{text}</text>",
            x + 14.0
        ));
        x += 30.0 + letter_pixels.max(7.5) * width(text) as f64;
    }
    head.push_str("\n</g>");
    Some(head)
}

/// A box with its name in it. Shorter forms of the name are stored beside it, for the script.
fn labelled(group: &str, letter_pixels: f64) -> Option<String> {
    let inner = group.strip_prefix("<g><title>")?;
    let (title, rest) = inner.split_once("</title>")?;
    let (rect, rest) = rest.split_once("<text")?;
    let place = rest.split_once('>')?.0;
    let percent = rect.split_once(" width=\"")?.1.split_once('%')?.0;
    let room = percent.parse::<f64>().ok()? / 100.0 * WIDTH;
    let whole = unescaped(title.rsplit_once(" (")?.0);
    let forms = forms(&whole);
    let label = if room < 2.0 * LETTER_SIZE {
        Cow::Borrowed("")
    } else {
        // inferno leaves three pixels before a name.
        fit(&whole, &forms, ((room - 3.0) / letter_pixels) as usize)
    };
    // Semicolons can separate the forms, because a semicolon in a name would have ended its frame.
    let attribute = if forms.is_empty() {
        String::new()
    } else {
        format!(" fg:forms=\"{}\"", escape(&forms.join(";")))
    };
    let label = escape(&label);
    Some(format!(
        "<g{attribute}><title>{title}</title>{rect}<text{place}>{label}</text></g>"
    ))
}

/// The first form that fits; if none does, as much of the last form as fits.
fn fit<'n>(whole: &'n str, forms: &'n [String], columns: usize) -> Cow<'n, str> {
    let mut all = [whole].into_iter().chain(forms.iter().map(String::as_str));
    let found = all.clone().find(|form| width(form) <= columns);
    match found {
        Some(form) => Cow::Borrowed(form),
        None => cut_end(all.next_back().unwrap_or(whole), columns),
    }
}

/// Shorter forms of a name: without template arguments and parameters; then only the last two components of
/// its path; then only the last one.
fn forms(whole: &str) -> Vec<String> {
    let templates = bare(whole);
    let short = unparenthesized(&templates);
    let mut forms = vec![short.to_string()];
    let parts = parts(&short);
    // A component that means nothing alone stays with the one before: arguments, closures, operators.
    let is_alone = |part: &&str| !part.starts_with(['<', '{']) && !part.starts_with("operator");
    let last = parts.iter().rposition(is_alone).unwrap_or(0);
    for first in [last.saturating_sub(1), last] {
        forms.push(without_parameters(&parts[first..].join("::")));
    }
    forms.dedup();
    forms.retain(|form| form != whole && !form.is_empty());
    forms
}

/// The components of a path, separated by colons outside of brackets.
fn parts(path: &str) -> Vec<&str> {
    let (mut parts, mut start, mut open) = (Vec::new(), 0, 0_usize);
    for (at, letter) in path.char_indices() {
        match letter {
            '<' | '(' | '{' => open += 1,
            '>' | ')' | '}' => open = open.saturating_sub(1),
            ':' if open == 0 && at >= start && path[at..].starts_with("::") => {
                parts.push(&path[start..at]);
                start = at + 2;
            }
            _ => {}
        }
    }
    parts.push(&path[start..]);
    parts
}

/// The name without its parameters: `find(…) const` becomes `find`, but `operator()` stays.
fn without_parameters(name: &str) -> String {
    let end = match name.split_once("(…)") {
        Some((before, _)) if !before.contains('{') => before,
        _ => name,
    };
    let end = end.strip_suffix("::<…>").unwrap_or(end);
    match end.strip_suffix("()") {
        Some(before) if !before.ends_with("operator") => before.to_owned(),
        _ => end.to_owned(),
    }
}

/// The text of an XML element, as inferno escapes it.
fn unescaped(text: &str) -> String {
    let text = text.replace("&lt;", "<").replace("&gt;", ">");
    let text = text.replace("&quot;", "\"").replace("&apos;", "'");
    text.replace("&amp;", "&")
}

#[cfg(test)]
mod tests {
    use super::*;
    use inferno::flamegraph;

    fn drawn(lines: &[&str]) -> String {
        let mut svg = Vec::new();
        let mut options = flamegraph::Options::default();
        flamegraph::from_lines(&mut options, lines.iter().copied(), &mut svg).unwrap();
        finished(
            &String::from_utf8(svg).unwrap(),
            0.62,
            &[("kernel", "red".to_owned())],
        )
        .unwrap()
    }

    #[test]
    fn names_are_cut_where_it_hurts_least() {
        let long = "std::map<std::string, std::vector<std::pair<int, Order&&>>>::find(std::string const&) const";
        let plain = "a_function_of_c_whose_name_is_long_and_which_ends_with_what_tells";
        let svg = drawn(&[
            &format!("{long};x 1"),
            &format!("{long};y 20"),
            &format!("{plain} 4"),
            &format!("wide;{long} 100"),
        ]);
        let find = "fg:forms=\"std::map&lt;…&gt;::find(…) const;map&lt;…&gt;::find;find\"";
        assert_eq!(svg.matches(find).count(), 2, "{svg}");
        assert!(
            svg.contains(">std::map&lt;…&gt;::find(…) const</text>"),
            "{svg}"
        );
        // A hundred columns have room for the whole name.
        assert!(svg.contains(&format!(">{}</text>", escape(long))));
        assert!(svg.contains(">a_f…</text>"), "{svg}");
        // The name that is searched, and shown below the boxes, is the whole one.
        assert_eq!(
            svg.matches(&format!("<title>{} (", escape(long))).count(),
            2
        );
    }

    #[test]
    fn forms_end_with_what_tells_most() {
        let cases = [
            ("memcpy", ""),
            ("price(Order&)", "price(…);price"),
            ("receive()", "receive"),
            (
                "<alloc::vec::IntoIter<u8> as core::iter::Iterator>::fold::<usize>",
                "<alloc::vec::IntoIter<…> as core::iter::Iterator>::fold::<…>;\
                 <alloc::vec::IntoIter<…> as core::iter::Iterator>::fold;fold",
            ),
            (
                "core::iter::Map<A, B>::next",
                "core::iter::Map<…>::next;Map<…>::next;next",
            ),
            ("app::run::{closure#0}", "run::{closure#0}"),
            (
                "void std::loop<A>(A, int)",
                "void std::loop<…>(…);void std::loop<…>;loop<…>",
            ),
            (
                "std::less<A>::operator()(A const&) const",
                "std::less<…>::operator()(…) const;std::less<…>::operator();less<…>::operator()",
            ),
            ("odd<", ""),
        ];
        for (whole, expected) in cases {
            assert_eq!(forms(whole).join(";"), expected, "{whole}");
        }
    }

    #[test]
    fn the_key_has_a_line_of_its_own() {
        let mut plain = Vec::new();
        flamegraph::from_lines(
            &mut flamegraph::Options::default(),
            ["main;f 3"],
            &mut plain,
        )
        .unwrap();
        let plain = String::from_utf8(plain).unwrap();
        let number = |svg: &str, before: &str| -> f64 {
            let rest = svg.split_once(before).unwrap().1;
            rest.split_once('"').unwrap().0.parse().unwrap()
        };
        let svg = drawn(&["main;f 3"]);
        for before in [
            "width=\"1200\" height=\"",
            "viewBox=\"0 0 1200 ",
            "width=\"100%\" height=\"",
            "id=\"details\" fill=\"rgb(0,0,0)\" x=\"10\" y=\"",
        ] {
            assert_eq!(
                number(&svg, before),
                number(&plain, before) + KEY_HEIGHT,
                "{before}"
            );
        }
        assert!(
            svg.contains("fill=\"red\"/><text x=\"24\" y=\"67\">kernel</text>"),
            "{svg}"
        );
    }

    #[test]
    fn inferno_still_writes_what_is_taken_apart() {
        let svg = drawn(&["main;f 3", "main;g 5"]);
        assert_eq!(svg.matches("</text></g>").count(), 4);
        for label in ["all", "main", "f", "g"] {
            assert!(
                svg.contains(&format!(">{label}</text></g>")),
                "{label}: {svg}"
            );
        }
        // Our function replaces inferno's of the same name, and our style applies to these ids.
        let theirs = svg.find("function update_text_for_elements").unwrap();
        assert!(theirs < svg.rfind("function update_text_for_elements").unwrap());
        for name in [
            "background",
            "title",
            "details",
            "unzoom",
            "search",
            "matched",
        ] {
            assert!(svg.contains(&format!("id=\"{name}\"")), "{name}: {svg}");
        }
        assert!(svg.contains("prefers-color-scheme: dark"));
        assert_eq!(finished("<svg></svg>", 0.62, &[]), None);
    }
}
