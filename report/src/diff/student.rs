//! Student's t distribution: probabilities and quantiles, by the regularised incomplete beta
//! function (NIST Digital Library of Mathematical Functions, 8.17, continued fraction 8.17.22).

/// The probability of a larger |t|, with `df` degrees of freedom.
pub(crate) fn two_sided(t: f64, df: f64) -> f64 {
    if !t.is_finite() {
        return if t.is_nan() { 1.0 } else { 0.0 };
    }
    incomplete_beta(df / (df + t * t), df / 2.0, 0.5).clamp(0.0, 1.0)
}

/// The probability of a larger t, with `df` degrees of freedom.
pub(crate) fn above(t: f64, df: f64) -> f64 {
    let tail = two_sided(t, df) / 2.0;
    if t < 0.0 { 1.0 - tail } else { tail }
}

/// The t that |t| exceeds with probability `alpha`.
pub(crate) fn critical(alpha: f64, df: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    while two_sided(high, df) > alpha && high < 1e9 {
        high *= 2.0;
    }
    for _ in 0..80 {
        let middle = (low + high) / 2.0;
        if two_sided(middle, df) > alpha {
            low = middle
        } else {
            high = middle
        }
    }
    high
}

fn incomplete_beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return x.clamp(0.0, 1.0);
    }
    // The fraction converges quickly only on one side of the mean.
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - incomplete_beta(1.0 - x, b, a);
    }
    let front = a * x.ln() + b * (1.0 - x).ln() + ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b);
    front.exp() / a * fraction(x, a, b)
}

/// Lentz's method, with steps of two terms.
fn fraction(x: f64, a: f64, b: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let guard = |value: f64| if value.abs() < TINY { TINY } else { value };
    let mut c = 1.0;
    let mut d = 1.0 / guard(1.0 - (a + b) * x / (a + 1.0));
    let mut result = d;
    for step in 1..300 {
        let m = f64::from(step);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        d = 1.0 / guard(1.0 + even * d);
        c = guard(1.0 + even / c);
        result *= d * c;
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        d = 1.0 / guard(1.0 + odd * d);
        c = guard(1.0 + odd / c);
        result *= d * c;
        if (d * c - 1.0).abs() < 1e-14 {
            break;
        }
    }
    result
}

/// Stirling's series after shifting the argument up (DLMF 5.11.1).
fn ln_gamma(x: f64) -> f64 {
    let mut shift = 0.0;
    let mut x = x;
    while x < 12.0 {
        shift -= x.ln();
        x += 1.0;
    }
    let inverse = 1.0 / x;
    let square = inverse * inverse;
    let tail = inverse / 12.0
        * (1.0 - square * (1.0 / 30.0 - square * (1.0 / 105.0 - square * (1.0 / 140.0))));
    shift + (x - 0.5) * x.ln() - x + 0.5 * (2.0 * std::f64::consts::PI).ln() + tail
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of any printed table of the distribution.
    #[test]
    fn quantiles_are_those_of_the_tables() {
        let table = [
            (0.05, 1.0, 12.706_2),
            (0.05, 10.0, 2.228_14),
            (0.01, 30.0, 2.750_0),
            (0.001, 60.0, 3.460_2),
            (0.05, 1e6, 1.959_97),
        ];
        for (alpha, df, t) in table {
            let found = critical(alpha, df);
            assert!(
                (found - t).abs() < 1e-3 * t,
                "{alpha} {df}: {found}, not {t}"
            );
            assert!((two_sided(t, df) - alpha).abs() < 1e-3 * alpha.max(0.05));
        }
    }
}
