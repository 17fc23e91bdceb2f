//! Whether recordings were made alternately, A B A B, so that load on the machine affects both sides alike.

use crate::recording::Recording;
use std::ops::Range;

/// Whether the recordings were made alternately; false if one has no time.
pub(super) fn in_turns(a: &[&Recording], b: &[&Recording]) -> bool {
    let times = [a, b].map(|side| {
        let times = side.iter().map(|one| {
            let start = one.start_realtime_ns()?;
            Some(start..start.saturating_add((one.seconds() * 1e9) as i64))
        });
        times.collect::<Option<Vec<_>>>()
    });
    match times {
        [Some(a), Some(b)] => by_times([a, b]),
        _ => false,
    }
}

/// Whether each pair, the first of A with the first of B and so on, is over before the next begins.
fn by_times(mut times: [Vec<Range<i64>>; 2]) -> bool {
    let [a, b] = &mut times;
    if a.len() != b.len() || a.len() < 2 {
        return false;
    }
    [&mut *a, b]
        .into_iter()
        .for_each(|side| side.sort_by_key(|time| time.start));
    let pairs = a.iter().zip(b.iter());
    let spans: Vec<Range<i64>> = pairs
        .map(|(a, b)| a.start.min(b.start)..a.end.max(b.end))
        .collect();
    spans.windows(2).all(|two| two[0].end <= two[1].start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_pairs_that_follow_each_other() {
        let times = |starts: &[i64]| starts.iter().map(|start| *start..start + 5).collect();
        let are = |a: &[i64], b: &[i64]| by_times([times(a), times(b)]);
        assert!(are(&[0, 20], &[10, 30]));
        assert!(are(&[20, 0], &[10, 30]));
        // All of A, then all of B.
        assert!(!are(&[0, 10], &[20, 30]));
        assert!(!are(&[0], &[10]));
        assert!(!are(&[0, 20], &[10]));
    }
}
