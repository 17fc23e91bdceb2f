//! Correction for tests that aren't independent. A caller and its callees have mostly the same samples, so their
//! probabilities of a false positive don't add up. What they have in common is subtracted along a tree that links
//! each question to one that it is strongly correlated with, which leaves an upper bound for the probability of any
//! false positive (Hunter, Journal of Applied Probability 13, 1976; Worsley, Biometrika 69, 1982). The correlation of
//! two shares follows from the samples that they have in common.

/// Only this many questions, those with the largest probabilities, are part of the tree. That limits time and only
/// makes the bound larger.
const IN_TREE_MAX: usize = 256;
/// The largest correlation that is used.
const TOGETHER_MAX: f64 = 0.99;
/// The most that the probability to divide may grow, as a multiple of the error rate.
const LEVEL_MAX: f64 = 20.0;

/// A stack's samples and the questions that they belong to.
pub(super) struct Stack {
    pub samples: f64,
    pub questions: Vec<usize>,
}

/// The probability to divide by `parts` (whose sum is 1) so that any false positive has a probability of at most
/// `error_rate`. At least `error_rate`.
pub(super) fn level(parts: &[f64], stacks: &[Stack], error_rate: f64) -> f64 {
    let mut order: Vec<usize> = (0..parts.len()).collect();
    order.sort_by(|x, y| parts[*y].total_cmp(&parts[*x]).then(x.cmp(y)));
    order.truncate(IN_TREE_MAX);
    let edges = tree(&together(&order, parts.len(), stacks));
    let any = |level: f64| {
        let chance = |question: usize| (level * parts[question]).min(1.0);
        let sum: f64 = (0..parts.len()).map(chance).sum();
        let reach: Vec<f64> = order.iter().map(|it| quantile(chance(*it) / 2.0)).collect();
        let both = edges
            .iter()
            .map(|(one, other, together)| both(reach[*one], reach[*other], *together));
        sum - both.sum::<f64>()
    };
    let (mut low, mut high) = (error_rate, (error_rate * LEVEL_MAX).min(1.0));
    for _ in 0..30 {
        let middle = (low + high) / 2.0;
        match any(middle) > error_rate {
            true => high = middle,
            false => low = middle,
        }
    }
    low
}

/// The absolute correlation of the shares of each two of `chosen`.
fn together(chosen: &[usize], questions: usize, stacks: &[Stack]) -> Vec<Vec<f64>> {
    let mut places = vec![None; questions];
    for (place, question) in chosen.iter().enumerate() {
        places[*question] = Some(place);
    }
    let mut common = vec![vec![0.0; chosen.len()]; chosen.len()];
    let whole: f64 = stacks.iter().map(|stack| stack.samples).sum();
    for stack in stacks {
        let places: Vec<usize> = stack
            .questions
            .iter()
            .filter_map(|it| places[*it])
            .collect();
        for one in &places {
            for other in &places {
                common[*one][*other] += stack.samples / whole;
            }
        }
    }
    let shares: Vec<f64> = (0..chosen.len()).map(|it| common[it][it]).collect();
    let spread = |share: f64| (share * (1.0 - share)).max(0.0).sqrt();
    for (one, row) in common.iter_mut().enumerate() {
        for (other, value) in row.iter_mut().enumerate() {
            let both = spread(shares[one]) * spread(shares[other]);
            *value = match both > 0.0 {
                true => ((*value - shares[one] * shares[other]) / both).abs(),
                false => 0.0,
            };
        }
    }
    common
}

/// The maximum spanning tree: pairs, and their correlations (Prim's algorithm).
fn tree(together: &[Vec<f64>]) -> Vec<(usize, usize, f64)> {
    let mut edges = Vec::new();
    let mut open: Vec<(usize, usize)> = (1..together.len()).map(|it| (it, 0)).collect();
    let value = |pair: &(usize, usize)| together[pair.0][pair.1];
    while let Some(at) =
        (0..open.len()).max_by(|x, y| value(&open[*x]).total_cmp(&value(&open[*y])).then(y.cmp(x)))
    {
        let (taken, parent) = open.remove(at);
        edges.push((taken, parent, together[taken][parent].min(TOGETHER_MAX)));
        for (question, parent) in &mut open {
            if together[*question][taken] > together[*question][*parent] {
                *parent = taken;
            }
        }
    }
    edges
}

/// The probability that two normal variables with this correlation are both beyond these bounds, on either side; by
/// Simpson's rule over the first.
fn both(one: f64, other: f64, together: f64) -> f64 {
    const STEPS: usize = 96;
    const REACH: f64 = 6.0;
    let left = (1.0 - together * together).sqrt();
    let width = REACH / STEPS as f64;
    let term = |step: usize| {
        let at = one + width * step as f64;
        let times = match step {
            0 | STEPS => 1.0,
            odd if odd % 2 == 1 => 4.0,
            _ => 2.0,
        };
        let density = (-at * at / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
        let beyond = above((other - together * at) / left) + above((other + together * at) / left);
        times * density * beyond
    };
    2.0 * (0..=STEPS).map(term).sum::<f64>() * width / 3.0
}

/// The upper tail of the normal distribution, to 1e-7 (Abramowitz and Stegun, 26.2.17).
fn above(at: f64) -> f64 {
    let part = 1.0 / (1.0 + 0.231_641_9 * at.abs());
    let series = [
        0.319_381_53,
        -0.356_563_782,
        1.781_477_937,
        -1.821_255_978,
        1.330_274_429,
    ];
    let sum = series
        .iter()
        .rev()
        .fold(0.0, |sum, factor| (sum + factor) * part);
    let tail = sum * (-at * at / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    if at < 0.0 { 1.0 - tail } else { tail }
}

/// The normal quantile with this upper tail (at most 0.5), to 5e-4 (Abramowitz and Stegun, 26.2.23).
fn quantile(chance: f64) -> f64 {
    let t = (-2.0 * chance.clamp(1e-300, 0.5).ln()).sqrt();
    let above = 2.515_517 + t * (0.802_853 + t * 0.010_328);
    let below = 1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308));
    (t - above / below).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::super::student;
    use super::*;

    #[test]
    fn the_normal_distribution_is_that_of_the_tables() {
        for at in [-1.0, 0.0, 0.5, 1.96, 3.0] {
            assert!((above(at) - student::above(at, 1e9)).abs() < 1e-6, "{at}");
        }
        for (chance, wanted) in [(0.025, 1.960), (0.005, 2.576), (0.000_5, 3.291)] {
            assert!((quantile(chance) - wanted).abs() < 1e-3, "{chance}");
        }
        // Independent ones, and ones that are nearly the same.
        let alone = 2.0 * above(2.0);
        assert!((both(2.0, 2.0, 0.0) - alone * alone).abs() < 1e-5);
        let same = both(2.0, 2.0, TOGETHER_MAX);
        assert!((0.8..1.0).contains(&(same / alone)), "{same} of {alone}");
    }

    /// Two hundred questions in `chains` chains of callers, each with nearly all samples of the next.
    fn chained(chains: usize) -> f64 {
        let length = 200 / chains;
        let mut stacks = vec![Stack {
            samples: 100_000.0,
            questions: Vec::new(),
        }];
        for chain in 0..chains {
            for depth in 0..length {
                let questions = (chain * length..=chain * length + depth).collect();
                let innermost = depth + 1 == length;
                let samples = if innermost { 1000.0 } else { 1.0 };
                stacks.push(Stack { samples, questions });
            }
        }
        level(&[1.0 / 200.0; 200], &stacks, 0.05)
    }

    #[test]
    fn callers_of_one_path_are_hardly_more_than_one_question() {
        let (apart, chained) = (chained(200), chained(20));
        assert!((0.05..0.053).contains(&apart), "{apart}");
        assert!((0.15..0.5).contains(&chained), "{chained}");
    }
}
