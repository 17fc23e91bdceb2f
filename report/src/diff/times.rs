//! Wall and processor time of the runs of both sides. Input: one time for each run, in the order in which they were
//! made. Output: B's time as a part of A's, with an interval.
//!
//! Neighbouring runs of A and B are a pair, since they share the load of the machine. The interval is Student's, of the
//! mean difference of their logarithms. If the sides have other numbers of runs, they are no pairs, and the
//! interval is Welch's (Biometrika 34, 1947).

use super::sentence::{WIDE, sides_of};
use super::student;
use crate::recording::Recording;
use crate::recording::processes;
use uprof::cold::EndReason;

/// Wall and processor time of a run, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RunTime {
    /// From the start of the recording to its end.
    pub wall: f64,
    /// As the kernel or the hypervisor counted it; `None` if nobody did.
    pub processor: Option<f64>,
}

impl RunTime {
    /// The times of a recorded run; `None` if the recording has no times, or doesn't go on to the end of the run.
    pub fn of(recording: &Recording) -> Option<RunTime> {
        let end = recording.end()?;
        // A signal ends a run as well.
        let is_whole = matches!(
            end.reason,
            EndReason::TargetEnded | EndReason::TargetCrashed
        );
        if !recording.is_timed() || !is_whole {
            return None;
        }
        let counted = processes::due(recording).map(|due| due.counted_ns as f64 / 1e9);
        Some(RunTime {
            wall: recording.seconds(),
            processor: counted.filter(|seconds| *seconds > 0.0),
        })
    }
}

/// An interval that ends beyond so many times the ratio says nothing.
const MOST_SAID: f64 = 100.0;
/// Most decimals of an end: a number near 1 has no more.
const DIGITS_MAX: usize = 16;

/// B's time as a part of A's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimeRatio {
    /// Mean seconds of a run of A and of B.
    pub seconds: [f64; 2],
    /// The geometric mean of the ratios.
    pub ratio: f64,
    /// The interval of the ratio; from 0 to infinity with too few runs.
    pub interval: (f64, f64),
    /// Its confidence.
    pub confidence: f64,
}

impl TimeRatio {
    /// Compares times, in seconds; `None` if a side has none. `is_paired` if the sides were run in turns.
    pub fn new(sides: [&[f64]; 2], is_paired: bool, confidence: f64) -> Option<TimeRatio> {
        if sides
            .iter()
            .any(|side| side.is_empty() || side.iter().any(|time| *time <= 0.0))
        {
            return None;
        }
        let [a, b] = sides.map(|side| side.iter().map(|time| time.ln()).collect::<Vec<f64>>());
        let (difference, error, df) = if is_paired && a.len() == b.len() {
            let pairs: Vec<f64> = a.iter().zip(&b).map(|(a, b)| b - a).collect();
            let (mean, variance) = moments(&pairs);
            let count = pairs.len() as f64;
            (mean, (variance / count).sqrt(), count - 1.0)
        } else {
            let [(mean_a, of_a), (mean_b, of_b)] = [(moments(&a), &a), (moments(&b), &b)]
                .map(|((mean, variance), side)| (mean, (variance / side.len() as f64, side.len())));
            let square = of_a.0 + of_b.0;
            let parts = [of_a, of_b].map(|(square, count)| square * square / (count as f64 - 1.0));
            let df = square * square / parts.iter().sum::<f64>();
            (mean_b - mean_a, square.sqrt(), df)
        };
        // A single run shows nothing of how runs differ.
        let half = if df >= 1.0 && error > 0.0 {
            student::critical(1.0 - confidence, df) * error
        } else if df >= 1.0 {
            0.0
        } else {
            f64::INFINITY
        };
        Some(TimeRatio {
            seconds: sides.map(|side| side.iter().sum::<f64>() / side.len() as f64),
            ratio: difference.exp(),
            interval: ((difference - half).exp(), (difference + half).exp()),
            confidence,
        })
    }

    /// Whether the time certainly changed.
    pub fn is_certain(&self) -> bool {
        self.interval.0 > 1.0 || self.interval.1 < 1.0
    }

    /// Whether a change by this part, in either direction, is excluded.
    pub fn excludes(&self, part: f64) -> bool {
        self.interval.0 > 1.0 - part && self.interval.1 < 1.0 + part
    }

    /// `0.930 ± 0.010`, or `between 1.01 and 1.60`: numbers that are on the same side of 1 as the interval.
    pub fn words(&self) -> String {
        let half = (self.interval.1 - self.interval.0) / 2.0;
        let (low, high) = self.interval;
        let sides = sides_of((low, high), 1.0);
        let is_seen = |ends: (f64, f64), one: f64| sides_of(ends, one) == sides;
        let [middle, around] = [self.ratio, half].map(|value| (value * 1e3).round());
        if half <= WIDE * self.ratio && is_seen((middle - around, middle + around), 1e3) {
            format!("{:.3} ± {half:.3}", self.ratio)
        } else if high < MOST_SAID * self.ratio {
            let digits = (2..DIGITS_MAX).find(|digits| {
                let one = 10_f64.powi(*digits as i32);
                is_seen(((low * one).round(), (high * one).round()), one)
            });
            let digits = digits.unwrap_or(DIGITS_MAX);
            format!("between {low:.digits$} and {high:.digits$}")
        } else {
            format!("about {:.2}, of too few runs to say how exact,", self.ratio)
        }
    }
}

/// The times of B's runs as parts of those of A's. Of recordings that don't go on to the end of a run, none is known.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Times {
    /// Wall time.
    pub wall: Option<TimeRatio>,
    /// Processor time.
    pub processor: Option<TimeRatio>,
}

impl Times {
    /// Compares the times of recordings, at this confidence each. `is_paired` if the sides were run in turns.
    pub fn of(sides: [&[&Recording]; 2], is_paired: bool, confidence: f64) -> Times {
        let [a, b] = sides.map(|side| {
            let times = side.iter().map(|one| RunTime::of(one));
            times.collect::<Option<Vec<RunTime>>>()
        });
        let Some((a, b)) = a.zip(b) else {
            return Times::default();
        };
        let ratio = |time: &dyn Fn(&RunTime) -> Option<f64>| {
            let times = |side: &[RunTime]| side.iter().map(time).collect::<Option<Vec<f64>>>();
            TimeRatio::new([&times(&a)?, &times(&b)?], is_paired, confidence)
        };
        Times {
            wall: ratio(&|time| Some(time.wall)),
            processor: ratio(&|time| time.processor),
        }
    }

    /// Whether one of them certainly changed.
    pub(super) fn has_changed(&self) -> bool {
        let known = [self.wall, self.processor];
        known.iter().flatten().any(TimeRatio::is_certain)
    }
}

/// The mean and the variance of one value.
fn moments(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count.max(1.0);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, squares / (count - 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_take_out_what_both_sides_share() {
        let load = [1.0, 1.4, 0.9, 1.2, 1.1, 1.3];
        let noise = [0.001, -0.002, 0.002, -0.001, 0.0015, -0.0005];
        let a: Vec<f64> = load.iter().map(|load| 2.0 * load).collect();
        let b: Vec<f64> = load
            .iter()
            .zip(noise)
            .map(|(load, noise)| 1.86 * load * (1.0 + noise))
            .collect();
        let paired = TimeRatio::new([&a, &b], true, 0.99).unwrap();
        assert!(
            paired.is_certain() && (paired.ratio - 0.93).abs() < 0.002,
            "{paired:?}"
        );
        assert!(
            paired.words().starts_with("0.930 ± 0.00"),
            "{}",
            paired.words()
        );
        assert!(!paired.excludes(0.05) && paired.excludes(0.1));
        let apart = TimeRatio::new([&a, &b], false, 0.99).unwrap();
        assert!(!apart.is_certain(), "{apart:?}");
    }

    #[test]
    fn too_few_runs_are_not_certain_of_anything() {
        for sides in [[&[1.0][..], &[2.0]], [&[1.0, 1.0], &[2.0]]] {
            let ratio = TimeRatio::new(sides, true, 0.95).unwrap();
            assert!(!ratio.is_certain() && !ratio.excludes(5.0), "{ratio:?}");
        }
        let two = TimeRatio::new([&[1.0, 1.3], &[1.2, 0.9]], false, 0.999).unwrap();
        assert!(two.interval.1.is_finite() && !two.is_certain(), "{two:?}");
        assert!(
            two.words().ends_with("too few runs to say how exact,"),
            "{}",
            two.words()
        );
        assert_eq!(TimeRatio::new([&[], &[1.0]], true, 0.95), None);
        assert_eq!(TimeRatio::new([&[0.0], &[1.0]], true, 0.95), None);
    }

    #[test]
    fn words_are_on_the_same_side_of_1_as_the_interval() {
        let words = |ratio: f64, interval: (f64, f64)| {
            let ratio = TimeRatio {
                seconds: [1.0, ratio],
                ratio,
                interval,
                confidence: 0.95,
            };
            ratio.words()
        };
        for (ratio, interval, expected) in [
            (0.93, (0.92, 0.94), "0.930 ± 0.010"),
            (1.001, (0.998, 1.004), "1.001 ± 0.003"),
            // An interval that isn't symmetric, and one too near 1 for three digits.
            (1.27, (1.012, 1.596), "between 1.01 and 1.60"),
            (0.9998, (0.9996, 0.99993), "between 0.9996 and 0.9999"),
            (1.2, (0.7, 2.1), "between 0.70 and 2.10"),
            (1.0, (1.0, 1.0), "1.000 ± 0.000"),
        ] {
            assert_eq!(words(ratio, interval), expected);
        }
    }
}
