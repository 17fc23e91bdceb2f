//! What a server's answer means. Input: the status and the body that it sent. Output: whether the profile is accepted,
//! refused, or worth another attempt, in words with a remedy. Never more of the body than a line.

use super::Protocol;
use crate::text::printable;

/// What a server answered.
#[derive(Debug, Clone, Copy)]
pub struct Answer<'a> {
    /// Status of HTTP.
    pub status: u16,
    /// Type of the body; empty without one.
    pub content_type: &'a str,
    /// Where a redirect leads; empty without one.
    pub location: &'a str,
    /// The body, or its beginning.
    pub body: &'a [u8],
}

/// What follows from an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The profile is there.
    Accepted {
        /// What the server has to say about it.
        warning: Option<String>,
    },
    /// This profile will never be accepted; others may be.
    Refused(String),
    /// Another attempt may succeed.
    Later(String),
    /// The address or the credentials are wrong: no profile will be accepted.
    Unusable(String),
}

/// What a refusal says, and what to do. Pyroscope's words.
const REMEDIES: &[(&str, &str)] = &[
    (
        "outside of ingestion window",
        "push sooner after recording, or raise the server's validation.reject-older-than (1 h by default); compare the \
         clocks if it was just recorded",
    ),
    (
        "label names; limit",
        "record with fewer labels, or raise the server's limit",
    ),
    ("label name too long", "record with a shorter label"),
    ("label value too long", "record with a shorter label"),
    (
        "duplicate label name",
        "record without one of the two labels",
    ),
    (
        "active series limit",
        "record with fewer different values of labels, or raise the server's limit",
    ),
    (
        "size limit",
        "push with a shorter --every, or raise the server's limit",
    ),
    (
        "size exceeds limit",
        "push with a shorter --every, or raise the server's limit",
    ),
    (
        "samples count limit",
        "push with a shorter --every, or raise the server's limit",
    ),
];

/// Longest text of a server that is quoted (characters).
const TEXT_LENGTH_MAX: usize = 300;

impl Protocol {
    /// What an answer of its server means.
    pub fn judge(&self, answer: &Answer<'_>) -> Verdict {
        let status = answer.status;
        let text = self.quote(answer);
        match status {
            200..=299 if answer.content_type.starts_with("text/") => Verdict::Unusable(format!(
                "it answers with a page ({}), as no server of {} does; check the URL",
                line(answer.content_type),
                self.name
            )),
            200..=299 => (self.accepted)(answer.body),
            300..=399 => Verdict::Unusable(format!(
                "it redirects to {} ({status}), where nothing is sent; if you trust that, name it with --to",
                if answer.location.is_empty() {
                    "nowhere".to_owned()
                } else {
                    line(answer.location)
                }
            )),
            401 | 403 => Verdict::Unusable(format!(
                "it refuses the credentials ({status}{text}); put those that it wants into --header-file, such as \
                 `Authorization: Bearer TOKEN` or `X-Scope-OrgID: TENANT`"
            )),
            _ if (self.retries)(status) => {
                Verdict::Later(format!("{status}{text}{}", remedy(status, &text)))
            }
            400 | 408 | 409 | 413 | 422 | 425 | 500 | 506..=599 => {
                Verdict::Refused(format!("{status}{text}{}", remedy(status, &text)))
            }
            _ => Verdict::Unusable(format!(
                "it takes no profiles there ({status}{text}); check the URL, and --format: it is {}, by default at {}",
                self.name, self.path
            )),
        }
    }

    /// The server's words, with a colon before them.
    fn quote(&self, answer: &Answer<'_>) -> String {
        let own = (self.text)(answer.body);
        let plain = || String::from_utf8_lossy(answer.body).into_owned();
        let is_page = answer.content_type.starts_with("text/html");
        let text = own.unwrap_or_else(|| if is_page { String::new() } else { plain() });
        match line(&text) {
            text if text.is_empty() => text,
            text => format!(": {text}"),
        }
    }
}

fn remedy(status: u16, text: &str) -> String {
    let known = REMEDIES.iter().find(|(words, _)| text.contains(words));
    let advice = match (known, status) {
        (Some((_, advice)), _) => *advice,
        (None, 413) => "push with a shorter --every, or raise the server's limit",
        (None, _) => return String::new(),
    };
    format!("; {advice}")
}

/// A text of a server on one line.
pub(super) fn line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let whole = words.join(" ");
    let mut short: String = printable(&whole).chars().take(TEXT_LENGTH_MAX).collect();
    if short.len() < whole.len() && short.chars().count() == TEXT_LENGTH_MAX {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_answers_are_cut() {
        assert_eq!(line(" one\n two\t "), "one two");
        let long = line(&"é".repeat(TEXT_LENGTH_MAX + 1));
        assert_eq!(long.chars().count(), TEXT_LENGTH_MAX + 1);
        assert!(long.ends_with('…'));
        assert!(!line("a\u{1b}[31mb").contains('\u{1b}'));
    }
}
