//! Where the level of a series changes. Input: values with their variances. Output: the recordings at which a new level
//! begins.
//!
//! Two shapes are looked for: a step, after which all recordings differ from those before, and an excursion, some
//! recordings that differ from those on both sides (circular binary segmentation: Olshen, Venkatraman, Lucito and
//! Wigler, Biostatistics 5, 2004). The statistic is the largest Student's t of all positions. Its probability is at
//! most the sum over the positions (Bonferroni), with one half for each shape. What is found divides the series, and
//! each part is searched again. At last each step is moved to where it divides its neighbours best.

use super::chance::Chance;
use super::shares::Shares;
use crate::diff::student;
use std::collections::BTreeSet;

/// Fewest recordings of a level. Fewer can be an accident of the machine.
pub(super) const LEVEL_MIN: usize = 3;
/// Longest excursion that is looked for. Longer ones show as two steps.
const EXCURSION_MAX: usize = 64;
/// Most levels of parts within parts.
const DEPTH_MAX: usize = 12;

/// Where steps may be, and how much they have to exceed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Search<'s> {
    /// For each recording, whether a level may begin with it.
    pub may_begin: &'s [bool],
    /// The factor of variances by which successive recordings are alike.
    pub inflation: f64,
    /// The smallest change of a share that counts, divided by the slope of the share's value.
    pub least: f64,
    /// What chance finds in such shares; without it, Student's t is believed.
    pub chance: Option<&'s Chance>,
}

/// The best position, or the best two.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Best {
    /// First recordings of new levels.
    pub at: Vec<usize>,
    /// The probability that chance alone finds as much anywhere.
    pub p: f64,
}

/// Sums of weights and of weighted values up to each recording.
struct Sums {
    weights: Vec<f64>,
    values: Vec<f64>,
}

impl Sums {
    fn new(shares: &Shares) -> Sums {
        let mut sums = Sums {
            weights: vec![0.0],
            values: vec![0.0],
        };
        let (mut weight, mut value) = (0.0, 0.0);
        for (one, variance) in shares.values.iter().zip(&shares.variances) {
            weight += 1.0 / variance;
            value += one / variance;
            sums.weights.push(weight);
            sums.values.push(value);
        }
        sums
    }

    /// Weight and weighted value of recordings from `first` to before `end`.
    fn between(&self, first: usize, end: usize) -> (f64, f64) {
        (
            self.weights[end] - self.weights[first],
            self.values[end] - self.values[first],
        )
    }
}

/// Student's t of the difference of two levels, less the smallest difference that counts.
fn t(a: (f64, f64), b: (f64, f64), variance: f64, least: f64) -> f64 {
    let difference = (b.1 / b.0 - a.1 / a.0).abs() - least;
    difference / (variance * (1.0 / a.0 + 1.0 / b.0)).sqrt()
}

impl Search<'_> {
    /// The most significant step or excursion of all recordings; `None` if there is no position for one.
    pub(crate) fn best(&self, shares: &Shares) -> Option<Best> {
        let sums = Sums::new(shares);
        self.best_between(shares, &sums, 0, shares.values.len())
    }

    /// The positions of all steps, each with a probability of at most `allowed` in its part.
    pub(crate) fn all(&self, shares: &Shares, allowed: f64) -> Vec<usize> {
        let sums = Sums::new(shares);
        let mut found = BTreeSet::new();
        let mut parts = vec![(0, shares.values.len(), 0)];
        while let Some((first, end, depth)) = parts.pop() {
            let best = self.best_between(shares, &sums, first, end);
            let Some(best) = best.filter(|best| best.p <= allowed && depth < DEPTH_MAX) else {
                continue;
            };
            let mut from = first;
            for at in best.at.iter().chain([&end]) {
                parts.push((from, *at, depth + 1));
                from = *at;
            }
            found.extend(best.at);
        }
        self.settled(found.into_iter().collect(), &sums, shares)
    }

    fn best_between(&self, shares: &Shares, sums: &Sums, first: usize, end: usize) -> Option<Best> {
        let variance = |steps: &[usize]| shares.scale(steps) * self.inflation;
        let begins = (first + LEVEL_MIN)..(end + 1).saturating_sub(LEVEL_MIN);
        let begins: Vec<usize> = begins.filter(|at| self.may_begin[*at]).collect();
        let mut step = (f64::NEG_INFINITY, 0);
        let (mut arc, mut arcs) = ((f64::NEG_INFINITY, [0, 0]), 0);
        let whole = sums.between(first, end);
        for (number, at) in begins.iter().enumerate() {
            let [before, after] = [sums.between(first, *at), sums.between(*at, end)];
            step = larger(step, (t(before, after, variance(&[*at]), self.least), *at));
            for back in begins[number + 1..]
                .iter()
                .filter(|back| *back - at >= LEVEL_MIN)
            {
                if back - at > EXCURSION_MAX {
                    break;
                }
                let inside = sums.between(*at, *back);
                let outside = (whole.0 - inside.0, whole.1 - inside.1);
                arc = larger(
                    arc,
                    (
                        t(inside, outside, variance(&[*at, *back]), self.least),
                        [*at, *back],
                    ),
                );
                arcs += 1;
            }
        }
        let shapes = if arcs > 0 { 2.0 } else { 1.0 };
        let probability = |t: f64, positions: usize| {
            let one = student::two_sided(t.max(0.0), shares.degrees());
            let p = (shapes * positions as f64 * one).min(1.0);
            self.chance.map_or(p, |chance| chance.p(p))
        };
        let of_step = Best {
            at: vec![step.1],
            p: probability(step.0, begins.len()),
        };
        let of_arc = Best {
            at: arc.1.to_vec(),
            p: probability(arc.0, arcs),
        };
        match (begins.len(), arcs) {
            (0, _) => None,
            (_, 1..) if of_arc.p < of_step.p => Some(of_arc),
            _ => Some(of_step),
        }
    }

    /// `steps`, each moved to where it divides the recordings between its neighbours best.
    fn settled(&self, mut steps: Vec<usize>, sums: &Sums, shares: &Shares) -> Vec<usize> {
        let count = shares.values.len();
        for number in 0..steps.len() {
            let first = if number == 0 { 0 } else { steps[number - 1] };
            let end = steps.get(number + 1).copied().unwrap_or(count);
            let begins = (first + LEVEL_MIN)..(end + 1).saturating_sub(LEVEL_MIN);
            let mut best = (f64::NEG_INFINITY, steps[number]);
            for at in begins.filter(|at| self.may_begin[*at]) {
                let [before, after] = [sums.between(first, at), sums.between(at, end)];
                best = larger(best, (t(before, after, 1.0, 0.0), at));
            }
            steps[number] = best.1;
        }
        steps
    }
}

fn larger<Position>(a: (f64, Position), b: (f64, Position)) -> (f64, Position) {
    if b.0 > a.0 { b } else { a }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(levels: &[(usize, f64)]) -> Shares {
        let noise = [2.0, -9.0, 5.0, -1.0, 8.0, -6.0, 3.0];
        let all = levels
            .iter()
            .flat_map(|(count, level)| vec![*level; *count]);
        let counts: Vec<f64> = all.zip(noise.iter().cycle()).map(|(a, b)| a + b).collect();
        let wholes = vec![10_000.0; counts.len()];
        Shares::new(&counts, &wholes)
    }

    fn found(levels: &[(usize, f64)], may_begin: impl Fn(usize) -> bool) -> Vec<usize> {
        let shares = shares(levels);
        let may_begin: Vec<bool> = (0..shares.values.len()).map(may_begin).collect();
        let search = Search {
            may_begin: &may_begin,
            inflation: 1.0,
            least: 0.0,
            chance: None,
        };
        search.all(&shares, 0.01)
    }

    #[test]
    fn steps_and_excursions_are_found_where_they_are() {
        assert!(found(&[(40, 1000.0)], |_| true).is_empty());
        assert_eq!(found(&[(20, 1000.0), (20, 1200.0)], |_| true), [20]);
        let back = [(20, 1000.0), (4, 1400.0), (16, 1000.0)];
        assert_eq!(found(&back, |_| true), [20, 24]);
        let stairs = [(10, 1000.0), (10, 1200.0), (10, 1500.0), (10, 1100.0)];
        assert_eq!(found(&stairs, |_| true), [10, 20, 30]);
        assert!(found(&[(2, 1000.0), (2, 2000.0)], |_| true).is_empty());
    }

    #[test]
    fn a_level_begins_only_where_it_may() {
        let steps = [(20, 1000.0), (20, 1200.0)];
        assert_eq!(found(&steps, |at| at == 18), [18]);
        assert!(found(&steps, |_| false).is_empty());
    }
}
