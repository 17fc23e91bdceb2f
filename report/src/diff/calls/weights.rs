//! Each question's part of the error rate. It is larger the more time a function takes, so that hundreds of
//! small functions don't hide the large one. The weights are for a slowdown that would just be detected in
//! the largest function (Roeder and Wasserman, Statistical Science 24, 2009). A tenth is divided in
//! proportion to time.

use crate::diff::student;

/// The assumed change of the largest function, in standard errors.
const LARGEST: f64 = 3.0;
/// The part of the error rate that is used. The rest is reserved for what the model of runs omits: variances
/// are estimated from a few runs, and some functions alternate.
pub(super) const GIVEN: f64 = 0.6;
/// The part of the error rate that is divided among all questions by how much they can change.
const FOR_ALL: f64 = 0.1;

/// Computes the part of the error rate of a share, from how much it can change.
pub(super) struct Weights {
    largest: f64,
    /// The strictness of the weights: c in Roeder and Wasserman.
    strict: f64,
    /// The sum of the parts before they are normalized.
    sum: f64,
    leeways: f64,
}

impl Weights {
    pub(super) fn new(leeways: &[f64], error_rate: f64) -> Weights {
        let largest = leeways.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
        let mut weights = Weights {
            largest,
            strict: 0.0,
            sum: 1.0,
            leeways: leeways.iter().sum::<f64>().max(f64::MIN_POSITIVE),
        };
        let (mut low, mut high) = (-5.0, 50.0);
        for _ in 0..60 {
            weights.strict = (low + high) / 2.0;
            let sum: f64 = leeways.iter().map(|leeway| weights.tail(*leeway)).sum();
            weights.sum = sum.max(f64::MIN_POSITIVE);
            if sum > error_rate {
                low = weights.strict
            } else {
                high = weights.strict
            }
        }
        weights
    }

    fn tail(&self, leeway: f64) -> f64 {
        let errors = LARGEST * (leeway / self.largest).sqrt().max(1e-6);
        student::above(errors / 2.0 + self.strict / errors, 1e6)
    }

    pub(super) fn of(&self, leeway: f64) -> f64 {
        let part = (1.0 - FOR_ALL) * self.tail(leeway) / self.sum;
        (part + FOR_ALL * leeway / self.leeways).min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_functions_do_not_hide_a_large_one() {
        let mut leeways = vec![0.2];
        leeways.extend([0.002; 100]);
        let weights = Weights::new(&leeways, 0.05);
        assert!(weights.of(0.2) > 0.5, "{}", weights.of(0.2));
        let sum: f64 = leeways.iter().map(|leeway| weights.of(*leeway)).sum();
        assert!((sum - 1.0).abs() < 1e-9, "{sum}");
        assert!(weights.of(0.002) > 0.0);
    }
}
