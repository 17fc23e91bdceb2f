//! What was planted in a function beside what a profile shows of it.

use uniprof_report::profile::hot_functions::HotFunction;

/// Samples, and those that show the plant in its function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// All samples of the runs.
    pub samples: u64,
    /// Those in which the plant's address has the function's name.
    pub seen: u64,
}

/// A function that was slowed down.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// Its name.
    pub function: String,
    /// The path of its image.
    pub image: String,
    /// Its share of the samples without a plant, 0 to 1.
    pub share: f64,
    /// Runs with it slowed down.
    pub runs: u32,
    /// How often a thread span in it.
    pub spins: u32,
    /// Processor time of these runs, in nanoseconds.
    pub cpu_ns: u64,
    /// The part of it that was planted.
    pub planted_ns: u64,
    /// What the profile shows.
    pub tally: Tally,
    /// What the other profiler shows.
    pub beside: Option<Tally>,
    /// Why it could not be slowed down.
    pub reason: Option<String>,
}

/// All findings about a program.
#[derive(Debug)]
pub struct Certificate {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The share that was to be planted.
    pub share: f64,
    /// Samples a second.
    pub frequency: f64,
    /// The other profiler's name.
    pub peer: Option<&'static str>,
    /// One for each function.
    pub findings: Vec<Finding>,
    /// What else is worth knowing.
    pub warnings: Vec<String>,
}

impl Certificate {
    /// Whether the profile shows each plant.
    pub fn is_right(&self) -> bool {
        self.findings
            .iter()
            .all(|finding| finding.is_covered() == Some(true))
    }
}

/// Fewest samples that a plant has to have in a profile that is right. With fewer, the interval may reach down to zero.
const EXPECTED_MIN: f64 = 10.0;

/// The quantile of the normal distribution for intervals of 95 %.
const QUANTILE: f64 = 1.959_964;

impl Tally {
    /// The share of the samples that show the plant; `None` without samples.
    pub fn share(self) -> Option<f64> {
        (self.samples > 0).then(|| self.seen as f64 / self.samples as f64)
    }

    /// The interval of 95 % for the share: that of a binomial distribution by Wilson (Probable Inference, the Law of
    /// Succession, and Statistical Inference, 1927).
    pub fn interval(self) -> Option<(f64, f64)> {
        let share = self.share()?;
        let samples = self.samples as f64;
        let square = QUANTILE * QUANTILE / samples;
        let middle = share + square / 2.0;
        let half = QUANTILE * ((share * (1.0 - share) + square / 4.0) / samples).sqrt();
        let bound = |value: f64| (value / (1.0 + square)).clamp(0.0, 1.0);
        Some((bound(middle - half), bound(middle + half)))
    }

    /// Whether the interval has this share in it.
    pub fn covers(self, share: f64) -> Option<bool> {
        let (low, high) = self.interval()?;
        Some((low..=high).contains(&share))
    }
}

impl Finding {
    /// A function with this share of the samples, that was not slowed down yet.
    pub fn new(function: &HotFunction, share: f64) -> Finding {
        Finding {
            function: function.name.clone(),
            image: function.image.clone(),
            share,
            runs: 0,
            spins: 0,
            cpu_ns: 0,
            planted_ns: 0,
            tally: Tally::default(),
            beside: None,
            reason: None,
        }
    }

    /// The share of the processor time that was planted; `None` if nothing was.
    pub fn planted(&self) -> Option<f64> {
        (self.planted_ns > 0 && self.cpu_ns > 0)
            .then(|| self.planted_ns as f64 / self.cpu_ns as f64)
    }

    /// Whether so much was planted that a profile without it would be wrong.
    pub fn is_enough(&self) -> bool {
        let expected = self.planted().unwrap_or(0.0) * self.tally.samples as f64;
        expected >= EXPECTED_MIN
    }

    /// Whether the profile's interval has the plant in it; `None` if too little was planted.
    pub fn is_covered(&self) -> Option<bool> {
        let planted = self.planted().filter(|_| self.is_enough());
        self.tally.covers(planted?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_those_of_wilson() {
        let tally = |seen, samples| Tally { samples, seen };
        // Newcombe, Statistics in Medicine 17 (1998), table I, method 3.
        for (seen, samples, low, high) in [
            (81, 263, 0.2553, 0.3662),
            (15, 148, 0.0624, 0.1605),
            (0, 20, 0.0, 0.1611),
            (1, 29, 0.0061, 0.1718),
        ] {
            let (found_low, found_high) = tally(seen, samples).interval().unwrap();
            assert!((found_low - low).abs() < 1e-4 && (found_high - high).abs() < 1e-4);
        }
        assert_eq!(tally(0, 0).interval(), None);
        assert_eq!(tally(100, 1000).covers(0.1), Some(true));
        assert_eq!(tally(100, 1000).covers(0.13), Some(false));
    }
}
