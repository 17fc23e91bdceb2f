//! Labels of recordings: `service=web`. In: a word of the command line. Out: a key and a value, never an empty one.

use anyhow::bail;

/// A key and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    key: String,
    value: String,
}

/// Longest key (bytes).
const KEY_BYTES_MAX: usize = 64;
/// Longest value (bytes).
const VALUE_BYTES_MAX: usize = 256;
/// What of a process's attributes becomes labels: not its host, user or command line.
#[cfg(all(feature = "record", feature = "report"))]
const PUBLISHED: [&str; 2] = ["service.", "deployment."];

impl Label {
    /// Parses `KEY=VALUE`.
    ///
    /// # Errors
    /// The key or the value is missing, is too long, or has other characters.
    pub fn parse(text: &str) -> anyhow::Result<Label> {
        let Some((key, value)) = text.split_once('=') else {
            bail!("a label is KEY=VALUE, such as service=web");
        };
        Label::of(key, value)
    }

    fn of(key: &str, value: &str) -> anyhow::Result<Label> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/".contains(&byte);
        if key.is_empty() || key.len() > KEY_BYTES_MAX || !key.bytes().all(is_plain) {
            bail!("a key has 1 to {KEY_BYTES_MAX} letters, digits, or . _ - /");
        }
        if value.is_empty() || value.len() > VALUE_BYTES_MAX || value.contains(char::is_control) {
            bail!("a value has 1 to {VALUE_BYTES_MAX} bytes and no control characters");
        }
        Ok(Label {
            key: key.to_owned(),
            value: value.to_owned(),
        })
    }

    /// The labels as they are recorded. Of two with the same key, the later one counts.
    pub fn pairs(labels: &[Label]) -> Vec<(String, String)> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        for Label { key, value } in labels {
            match pairs.iter_mut().find(|(known, _)| known == key) {
                Some(pair) => pair.1.clone_from(value),
                None => pairs.push((key.clone(), value.clone())),
            }
        }
        pairs
    }

    /// Adds what a process publishes as attributes of its service and deployment, except for keys that are there:
    /// `service.name` as `service`, `service.version` as `version`, others under their names. What can't be a label is
    /// left out.
    #[cfg(all(feature = "record", feature = "report"))]
    pub fn add_published(pairs: &mut Vec<(String, String)>, attributes: Vec<(String, String)>) {
        for (name, value) in attributes {
            let key = match name.as_str() {
                "service.name" => "service",
                "service.version" => "version",
                name if PUBLISHED.iter().any(|start| name.starts_with(start)) => name,
                _ => continue,
            };
            let is_known = pairs.iter().any(|(known, _)| known == key);
            if let Some(Label { key, value }) = Label::of(key, &value).ok().filter(|_| !is_known) {
                pairs.push((key, value));
            }
        }
    }

    /// Whether all that are `wanted` are among a recording's labels.
    #[cfg(feature = "report")]
    pub fn are_in(wanted: &[Label], labels: &[(String, String)]) -> bool {
        let is_in = |one: &Label| {
            let mut labels = labels.iter();
            labels.any(|(key, value)| *key == one.key && *value == one.value)
        };
        wanted.iter().all(is_in)
    }

    /// The error if none of the recordings has all that are `wanted`.
    #[cfg(feature = "report")]
    pub fn none_of(wanted: &[Label], recordings: usize) -> anyhow::Error {
        let wanted: Vec<String> = wanted.iter().map(Label::to_string).collect();
        anyhow::anyhow!(
            "none of {recordings} recordings has the label {}; `uniprof info FILE` shows those of a recording",
            wanted.join(" and ")
        )
    }
}

impl std::fmt::Display for Label {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}={}", self.key, self.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_have_a_key_and_a_value_and_the_later_one_counts() {
        let parsed =
            ["service=web", "version=1=2", "service=db"].map(|text| Label::parse(text).unwrap());
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(
            Label::pairs(&parsed),
            [pair("service", "db"), pair("version", "1=2")]
        );
        for wrong in ["service", "=web", "service=", "a b=c", "a=b\nc"] {
            assert!(Label::parse(wrong).is_err(), "{wrong}");
        }
        let long = format!("{}=x", "k".repeat(KEY_BYTES_MAX + 1));
        assert!(Label::parse(&long).is_err());
    }
}
