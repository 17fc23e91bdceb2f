//! The verdict of a comparison as one sentence: the first line of every form.

use super::listing::{Listing, Row};
use crate::text::{percent, printable, short};
use crate::views::markdown::code;

/// Most changes that the sentence names.
const NAMED_MAX: usize = 2;

/// The verdict on a comparison. It names functions by their own time, if that changed, because
/// the time of their callers changed with it.
pub fn verdict(listing: &Listing<'_>) -> String {
    with_lead(listing, &|name| format!("`{}`", printable(name)))
}

/// The same for Markdown.
pub(super) fn verdict_in_markdown(listing: &Listing<'_>) -> String {
    with_lead(listing, &code)
}

fn with_lead(listing: &Listing<'_>, quoted: &dyn Fn(&str) -> String) -> String {
    let sentences = listing.lead.iter().cloned();
    let sentences = sentences.chain([of_rows(&listing.rows, quoted)]);
    sentences.collect::<Vec<String>>().join(" ")
}

fn of_rows(rows: &[Row], quoted: &dyn Fn(&str) -> String) -> String {
    let certain: Vec<&Row> = rows.iter().filter(|row| row.certain).collect();
    let own: Vec<&Row> = certain
        .iter()
        .copied()
        .filter(|row| row.is_own_time)
        .collect();
    let told = if own.is_empty() { &certain } else { &own };
    let named = told.iter().take(NAMED_MAX);
    let named = named.map(|row| format!("{} {}", quoted(&short(&row.function)), row.verb));
    let named: Vec<String> = named.collect();
    let Some(first) = named.first() else {
        return "No change is certain.".to_owned();
    };
    let rest = certain.len() - named.len();
    let others = match rest {
        0 => "no other change is certain".to_owned(),
        1 => "1 more change is certain".to_owned(),
        _ => format!("{rest} more changes are certain"),
    };
    match named.get(1) {
        None => format!("{first}, certain; {others}."),
        Some(second) => format!("{first}, and {second}, both certain; {others}."),
    }
}

/// A change by a part of the value in A, such as 0.58 for 58 % more, with its interval.
pub(super) fn by(relative: f64, (low, high): (f64, f64)) -> (String, String) {
    (
        percent(relative) + " %",
        format!("± {}", percent((high - low) / 2.0)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(function: &str, certain: bool, is_own_time: bool) -> Row {
        Row {
            certain,
            is_own_time,
            function: function.to_owned(),
            verb: "takes more".to_owned(),
            ..Row::default()
        }
    }

    #[test]
    fn the_sentence_names_what_changed_itself_and_counts_the_rest() {
        let all = [
            row("main", true, false),
            row("parse", true, true),
            row("hash", true, true),
            row("walk", false, true),
        ];
        let cases: [(&[Row], &str); 4] = [
            (&all[3..], "No change is certain."),
            (
                &all[2..],
                "`hash` takes more, certain; no other change is certain.",
            ),
            (
                &all[..1],
                "`main` takes more, certain; no other change is certain.",
            ),
            (
                &all,
                "`parse` takes more, and `hash` takes more, both certain; 1 more change is certain.",
            ),
        ];
        for (rows, expected) in cases {
            assert_eq!(of_rows(rows, &code), expected);
        }
    }

    #[test]
    fn sizes_have_the_digits_that_they_deserve() {
        assert_eq!(
            by(0.58, (0.49, 0.67)),
            ("58 %".to_owned(), "± 9.0".to_owned())
        );
        assert_eq!(
            by(-0.052, (-0.062, -0.042)),
            ("5.2 %".to_owned(), "± 1.0".to_owned())
        );
    }
}
