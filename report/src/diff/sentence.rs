//! The verdict of a comparison as one sentence: the first line of every form.

use super::listing::{Fragment, Listing, Row};
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
    let text = |fragment: &Fragment| match fragment {
        Fragment::Words(words) => words.clone(),
        Fragment::Function(name) => quoted(&short(name)),
    };
    let sentence = |fragments: &Vec<Fragment>| fragments.iter().map(text).collect::<String>();
    let sentences = listing.lead.iter().map(sentence);
    let of_rows = of_rows(&listing.rows, listing.has_changed_time, quoted);
    let sentences = sentences.chain([of_rows]);
    sentences.collect::<Vec<String>>().join(" ")
}

fn of_rows(rows: &[Row], has_changed_time: bool, quoted: &dyn Fn(&str) -> String) -> String {
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
        return if has_changed_time {
            "No change of a function is certain.".to_owned()
        } else {
            "No change is certain.".to_owned()
        };
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

/// An interval of more than this part of the ratio of both sides on each side is shown by its ends, since it isn't
/// symmetric.
pub(super) const WIDE: f64 = 0.3;

/// On which sides of `middle` an interval is: all above it, all below it, or neither.
pub(super) fn sides_of((low, high): (f64, f64), middle: f64) -> (bool, bool) {
    (low > middle, high < middle)
}

/// The interval of a change by a part of the value before, such as 0.58 for 58 % more, to follow its size in percent:
/// `± 9.0`, or `between 21 and 150 %`, or `at least 21 %`. Its ends are in the direction of the change.
pub(crate) fn interval(change: f64, (low, high): (f64, f64)) -> String {
    let (low, high) = if change < 0.0 {
        (-high, -low)
    } else {
        (low, high)
    };
    let half = (high - low) / 2.0;
    // Rounded, as a reader adds them up.
    let [size, around] = [change, half].map(|part| percent(part).parse::<f64>().unwrap_or(0.0));
    let shown = (size - around, size + around);
    if half <= WIDE * (1.0 + change) && sides_of(shown, 0.0) == sides_of((low, high), 0.0) {
        return format!("± {}", percent(half));
    }
    let signed = |part: f64| format!("{}{}", if part < 0.0 { "-" } else { "" }, percent(part));
    if high.is_infinite() {
        format!("at least {} %", signed(low))
    } else {
        format!("between {} and {} %", signed(low), signed(high))
    }
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
            assert_eq!(of_rows(rows, false, &code), expected);
        }
        assert_eq!(
            of_rows(&all[3..], true, &code),
            "No change of a function is certain."
        );
    }

    #[test]
    fn intervals_agree_with_the_verdict_and_have_the_digits_that_they_deserve() {
        let cases = [
            (0.58, (0.49, 0.67), "± 9.0"),
            (-0.052, (-0.062, -0.042), "± 1.0"),
            // Narrow, but the rounded numbers would reach zero.
            (0.05, (0.0004, 0.0996), "between 0.0 and 10.0 %"),
            (3.98, (0.404, 9.3), "between 40 and 930 %"),
            (-0.6, (-0.8, -0.3), "between 30 and 80 %"),
            (0.5, (-0.03, 2.3), "between -3.0 and 230 %"),
            (3.98, (0.404, f64::INFINITY), "at least 40 %"),
        ];
        for (change, ends, expected) in cases {
            assert_eq!(interval(change, ends), expected);
        }
    }
}
