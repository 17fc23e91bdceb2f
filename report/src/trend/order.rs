//! The order of recordings. Input: their times and labels. Output: their order, and where a level may begin.

use super::Point;
use std::cmp::Ordering;
use std::collections::HashMap;

/// What recordings are in order of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Order {
    /// Their start.
    #[default]
    Time,
    /// The value of this label. Values that are versions are in their order; others in the order in which they first
    /// appear. A level begins with a value.
    Label(String),
    /// The order in which they are added.
    Given,
}

impl Order {
    /// The numbers of `points` in their order.
    pub(crate) fn of(&self, points: &[Point]) -> Vec<usize> {
        let mut numbers: Vec<usize> = (0..points.len()).collect();
        let start = |number: &usize| points[*number].start_realtime_ns;
        match self {
            Order::Given => {}
            Order::Time => numbers.sort_by_key(start),
            Order::Label(_) => {
                numbers.sort_by_key(start);
                let value = |number: &usize| value_of(&points[*number]);
                let mut firsts: HashMap<&str, usize> = HashMap::new();
                for (at, number) in numbers.iter().enumerate() {
                    firsts.entry(value(number)).or_insert(at);
                }
                if are_versions(points) {
                    numbers.sort_by(|a, b| by_version(value(a), value(b)));
                } else {
                    numbers.sort_by_key(|number| firsts[value(number)]);
                }
            }
        }
        numbers
    }

    /// For each of `points`, which are in order, whether a level may begin with it.
    pub(crate) fn may_begin(&self, points: &[Point]) -> Vec<bool> {
        let are_versions = are_versions(points);
        let differ = |a: &str, b: &str| {
            if are_versions {
                by_version(a, b) != Ordering::Equal
            } else {
                a != b
            }
        };
        let is_new =
            |at: usize| at == 0 || differ(value_of(&points[at - 1]), value_of(&points[at]));
        let any = !matches!(self, Order::Label(_));
        (0..points.len()).map(|at| any || is_new(at)).collect()
    }
}

/// The value of the label that the order is by.
fn value_of(point: &Point) -> &str {
    point.label.as_deref().unwrap_or_default()
}

/// Whether all of `points` have versions, which are then in their order.
fn are_versions(points: &[Point]) -> bool {
    points.iter().all(|point| is_version(value_of(point)))
}

/// Whether a text is a version: `12`, `v1.4`, `1.4.2-rc1`; not the hash of a commit.
fn is_version(text: &str) -> bool {
    let text = without_v(text);
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let first = text.split('.').next().unwrap_or_default();
    let is_dotted = first.len() < text.len();
    is_number || is_dotted && !first.is_empty() && first.bytes().all(|byte| byte.is_ascii_digit())
}

/// Compares numbers within texts as numbers. A text goes before one that goes on, but not if it goes on with `-`, which
/// marks what precedes a version: `1.4-rc1` before `1.4`, and `1.4` before `1.4+abc`.
fn by_version(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (without_v(a), without_v(b));
    loop {
        let order = next_rank(a).cmp(&next_rank(b));
        if order != Ordering::Equal || a.is_empty() {
            return order;
        }
        let (of_a, of_b) = (part(a), part(b));
        let order = match (number(of_a), number(of_b)) {
            (Some(x), Some(y)) => x.len().cmp(&y.len()).then(x.cmp(y)),
            _ => of_a.cmp(of_b),
        };
        if order != Ordering::Equal {
            return order;
        }
        (a, b) = (&a[of_a.len()..], &b[of_b.len()..]);
    }
}

/// The order of how a text goes on: with `-`, not at all, or otherwise.
fn next_rank(text: &str) -> u8 {
    match text.bytes().next() {
        Some(b'-') => 0,
        None => 1,
        Some(_) => 2,
    }
}

/// A version without the `v` that some have.
fn without_v(text: &str) -> &str {
    text.strip_prefix('v').unwrap_or(text)
}

/// The digits at the start of a text, or all before the next digit.
fn part(text: &str) -> &str {
    let is_digit = |letter: char| letter.is_ascii_digit();
    let starts_with_digit = text.starts_with(is_digit);
    let end = text.find(|letter| is_digit(letter) != starts_with_digit);
    &text[..end.unwrap_or(text.len())]
}

/// Digits without leading zeros.
fn number(part: &str) -> Option<&str> {
    part.starts_with(|letter: char| letter.is_ascii_digit())
        .then(|| part.trim_start_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ordered(order: &Order, values: &[&str]) -> Vec<String> {
        let point = |(at, value): (usize, &&str)| Point {
            start_realtime_ns: Some(at as i64),
            label: Some((*value).to_owned()),
            ..Point::default()
        };
        let points: Vec<Point> = values.iter().enumerate().map(point).collect();
        let numbers = order.of(&points).into_iter();
        numbers.map(|number| values[number].to_owned()).collect()
    }

    #[test]
    fn versions_are_in_their_order_and_hashes_in_that_of_time() {
        let by = Order::Label("version".to_owned());
        let versions = ["1.10", "v1.9", "1.9.1", "2.1", "1.10-rc2", "1.9", "v2.0"];
        let expected = ["v1.9", "1.9", "1.9.1", "1.10-rc2", "1.10", "v2.0", "2.1"];
        assert_eq!(ordered(&by, &versions), expected);
        let hashes = ["9f31", "1a2b", "9f31", "77aa"];
        assert_eq!(ordered(&by, &hashes), ["9f31", "9f31", "1a2b", "77aa"]);
        assert_eq!(ordered(&Order::Time, &hashes), hashes);
        let points: Vec<Point> = ["a", "a", "b"]
            .map(|value| Point {
                label: Some(value.to_owned()),
                ..Point::default()
            })
            .to_vec();
        assert_eq!(by.may_begin(&points), [true, false, true]);
        assert_eq!(Order::Time.may_begin(&points), [true; 3]);
        let mut versions = points;
        for (point, version) in versions.iter_mut().zip(["v1.9", "1.9", "1.10"]) {
            point.label = Some(version.to_owned());
        }
        assert_eq!(by.may_begin(&versions), [true, false, true]);
    }

    #[test]
    fn versions_have_one_order_whatever_follows_them() {
        let sorted = ["1.4-", "1.4-rc1", "1.4", "1.4+abc", "1.4.1", "1.4a", "1.10"];
        for (at, a) in sorted.iter().enumerate() {
            for (other, b) in sorted.iter().enumerate() {
                assert_eq!(by_version(a, b), at.cmp(&other), "{a} {b}");
            }
        }
    }
}
