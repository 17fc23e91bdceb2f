//! Words that messages of the recorder and reports have in common, so that both say the same of the same samples:
//! durations, shares, and warnings.

use super::due::LATE_NS;
use std::fmt::Display;

/// A duration, with its unit: the one in which it is less than a thousand, as rounded.
pub fn duration(time_ns: u64) -> String {
    let time = time_ns as f64;
    match time_ns {
        0..1_000 => format!("{time_ns} ns"),
        1_000..999_950 => format!("{:.1} us", time / 1e3),
        999_950..999_950_000 => format!("{:.1} ms", time / 1e6),
        _ => format!("{:.2} s", time / 1e9),
    }
}

/// `part` of `whole` as a percentage with one decimal.
pub fn share(part: u64, whole: u64) -> String {
    match whole {
        0 => "-".to_owned(),
        _ => format!("{:.1}%", part as f64 * 100.0 / whole as f64),
    }
}

/// The warning of late samples: `part` is how many, and their share.
pub fn late(part: impl Display) -> String {
    format!(
        "taken late, {} or more after their deadline: {part}: they may show what the guest did next",
        duration(LATE_NS)
    )
}

/// The warning of a gap: the processor time that samples stand for, and what `counter` counted.
pub fn gap(sampled_ns: u64, counted_ns: u64, counter: &str) -> String {
    format!(
        "the samples stand for {} of the {} of processor time that {counter} counted ({})",
        duration(sampled_ns),
        duration(counted_ns),
        share(sampled_ns, counted_ns)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_has_its_unit() {
        let all = [7, 1_500, 30_120_000, 61_230_000_000].map(duration);
        assert_eq!(all, ["7 ns", "1.5 us", "30.1 ms", "61.23 s"]);
        let edges = [999, 999_949, 999_950, 999_949_999, 999_950_000].map(duration);
        assert_eq!(
            edges,
            ["999 ns", "999.9 us", "1.0 ms", "999.9 ms", "1.00 s"]
        );
    }

    #[test]
    fn a_share_of_nothing_is_none() {
        assert_eq!([share(1, 3), share(0, 0)], ["33.3%", "-"]);
    }

    #[test]
    fn a_gap_says_both_times() {
        assert_eq!(
            gap(1_500_000_000, 2_000_000_000, "Xen"),
            "the samples stand for 1.50 s of the 2.00 s of processor time that Xen counted (75.0%)"
        );
    }
}
