//! The number of recordings of each side that would show a change of some size, judged by how much the
//! existing runs of this program differ.

use super::estimate::Estimate;
use super::load::{BySpread, SPREADS};
use super::runs::Runs;
use super::series::{Quantity, Series};
use super::student;

/// The number of recordings that would show a change.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Plan {
    /// The function's share of the samples.
    pub share: f64,
    /// Its slowdown, as a part of its time.
    pub slower: f64,
    /// Number of recordings on each side, as long as the existing ones, that would show it with a probability
    /// of 80 %; `None` if it is more than `RECORDINGS_MAX`.
    pub recordings: Option<usize>,
}

/// Shares to plan for.
const SHARES: [f64; 3] = [0.1, 0.25, 0.5];
/// The slowdown to plan for.
const SLOWER: f64 = 0.05;
/// The normal quantile of a power of 80 %.
pub(super) const POWER: f64 = 0.841_621;
/// The most recordings to suggest.
pub(crate) const RECORDINGS_MAX: usize = 100;

/// What the functions of this comparison have in common.
pub(super) struct TypicalFunction {
    parts: BySpread,
    /// Variance within runs, relative to that of independent samples.
    effect: f64,
    /// Number of samples of A and of B.
    totals: [f64; 2],
    recordings: [f64; 2],
    leverage: f64,
}

impl TypicalFunction {
    pub(crate) fn new(series: &Series, estimates: &[Estimate], runs: &Runs) -> TypicalFunction {
        let functions = estimates.iter().zip(&series.items);
        let functions = functions.filter(|(_, item)| item.counted != Quantity::Path);
        let mut effects: Vec<f64> = functions.map(|(one, _)| one.design_effect).collect();
        effects.retain(|effect| effect.is_finite());
        effects.sort_by(f64::total_cmp);
        TypicalFunction {
            parts: runs.parts,
            effect: effects.get(effects.len() / 2).copied().unwrap_or(1.0),
            totals: series.sides.each_ref().map(|side| side.total().max(1.0)),
            recordings: series
                .sides
                .each_ref()
                .map(|side| side.recordings.len().max(1) as f64),
            leverage: runs.leverage,
        }
    }

    /// The change, in addition to the smallest one to report, that these recordings would have shown with a
    /// probability of 80 %. It is for a share with this leeway and this probability of a false positive.
    pub(crate) fn detectable(&self, leeway: f64, allowed: f64) -> f64 {
        let within = leeway * self.effect * (1.0 / self.totals[0] + 1.0 / self.totals[1]);
        let spread = |spread: f64| (within + (spread * leeway).powi(2) * self.leverage).sqrt();
        let typical = Estimate {
            a: 0.0,
            b: 0.0,
            shift: 0.0,
            samples: self.totals,
            errors: SPREADS.map(spread),
            chances: self.parts,
            df: 100.0,
            p: 1.0,
            design_effect: self.effect,
        };
        typical.half(1.0 - allowed) + POWER * typical.error()
    }

    /// The median of the functions' spreads.
    fn middle_spread(&self) -> f64 {
        let mut reached = 0.0;
        let steps = self.parts.iter().zip(SPREADS);
        let mut within = steps.filter(|(part, _)| {
            reached += *part;
            reached >= 0.5
        });
        within.next().map_or(0.0, |(_, spread)| spread)
    }

    /// For some shares, the number of recordings that would show a slowdown of 5 % of a typical function.
    pub(crate) fn plans(&self, least_change: f64, allowed: impl Fn(f64) -> f64) -> Vec<Plan> {
        let plan = |share: f64| {
            let leeway = share * (1.0 - share);
            let after = share * (1.0 + SLOWER) / (1.0 + share * SLOWER);
            let change = after - share - least_change;
            let samples =
                (self.totals[0] + self.totals[1]) / (self.recordings[0] + self.recordings[1]);
            let spread = self.middle_spread().powi(2);
            let of_run = leeway * self.effect / samples + spread * leeway * leeway;
            let is_enough = |recordings: &usize| {
                let count = *recordings as f64;
                // The degrees of freedom from the existing runs of all functions, and from a function's own
                // runs.
                let df = 2.0 * count + 4.0;
                let error = (2.0 * of_run / count).sqrt();
                change >= (student::critical(allowed(leeway), df) + POWER) * error
            };
            Plan {
                share,
                slower: SLOWER,
                recordings: (2..=RECORDINGS_MAX).find(is_enough),
            }
        };
        SHARES.map(plan).to_vec()
    }
}
