//! Simulated series of recordings, of which the truth is known: for a test, and for an example that gives them to
//! other programs.
//!
//! A series has 40 recordings of 60,000 samples, a minute at 997 Hz, of 24 functions. In each recording each
//! function's time is multiplied by a factor of its own with a standard deviation of 1 %, normal or with the tails
//! of Student's t with three degrees of freedom. The sampler draws from the shares that follow. A planted step is
//! the first function, with a fifth of the time, that takes longer from a random recording on that isn't among the
//! first or the last six.

use fastrand::Rng;
use uniprof_report::trend::{Collector, Identity, Point, Sighting, Trend, TrendOptions};

/// Recordings of a series.
pub const RECORDINGS: usize = 40;
const SAMPLES: f64 = 60_000.0;
const EDGE: usize = 6;
/// Parts of the time, in thousandths.
pub const FUNCTIONS: [f64; 24] = [
    200.0, 150.0, 120.0, 100.0, 80.0, 60.0, 50.0, 40.0, 30.0, 30.0, 20.0, 20.0, 20.0, 10.0, 10.0,
    10.0, 10.0, 10.0, 8.0, 5.0, 5.0, 5.0, 4.0, 3.0,
];

/// A standard normal number.
pub fn normal(random: &mut Rng) -> f64 {
    let radius = (-2.0 * (1.0 - random.f64()).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.f64()).cos()
}

/// Student's t with three degrees of freedom.
pub fn tailed(random: &mut Rng) -> f64 {
    let squares: f64 = (0..3).map(|_| normal(random).powi(2)).sum();
    normal(random) / (squares / 3.0).sqrt()
}

/// The number of samples of a function that is expected to have `mean`: Poisson's distribution, which is almost normal.
pub fn drawn(random: &mut Rng, mean: f64) -> f64 {
    (mean + mean.sqrt() * normal(random)).round().max(0.0)
}

/// A function of the program itself.
pub fn sighting(name: String) -> Sighting {
    Sighting {
        identity: Identity::new(name, "app".to_owned()),
        module: "app".to_owned(),
        own: true,
    }
}

/// The recording from which on the first function of a series is slow.
pub fn step(seed: u64) -> usize {
    EDGE + Rng::with_seed(!seed).usize(0..RECORDINGS - 2 * EDGE + 1)
}

/// A series in which function `f0` takes `slower` more from the recording `at` on.
pub fn series(seed: u64, draw: fn(&mut Rng) -> f64, (at, slower): (usize, f64)) -> Trend {
    let mut random = Rng::with_seed(seed);
    let mut collector = Collector::new(TrendOptions::default());
    for number in 0..RECORDINGS {
        let times = FUNCTIONS.iter().enumerate().map(|(function, time)| {
            let is_slow = function == 0 && number >= at;
            let factor = if is_slow { 1.0 + slower } else { 1.0 };
            time * factor * (0.01 * draw(&mut random)).exp()
        });
        let times: Vec<f64> = times.collect();
        let whole: f64 = times.iter().sum();
        let counts = times
            .iter()
            .map(|time| drawn(&mut random, time / whole * SAMPLES));
        push(&mut collector, number, &counts.collect::<Vec<_>>());
    }
    collector.finish().unwrap()
}

/// Adds the recording `number`, in which the functions have so many samples.
pub fn push(collector: &mut Collector, number: usize, counts: &[f64]) {
    let point = Point {
        name: format!("{number}.uprof"),
        start_realtime_ns: Some(number as i64),
        samples: counts.iter().sum(),
        ..Point::default()
    };
    let functions = counts.iter().enumerate();
    let functions = functions.map(|(it, count)| (sighting(format!("f{it}")), *count));
    collector.push(point, functions).unwrap();
}
