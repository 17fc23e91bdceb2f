//! Gathers recordings, one after another, so that none is kept. Input: recordings in any order. Output: the samples
//! of each function in each, in the order that is asked for.

use super::identity::{Identity, Sighting};
use super::order::Order;
use super::{Point, TrendError, TrendOptions};
use crate::profile::Profile;
use crate::profile::filter::Filter;
use crate::profile::gather::{By, Options, gather_with};
use crate::profile::tree::NodeId;
use crate::recording::{Recording, Unit, last_part};
use crate::stacks::Tables;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Most functions that are counted.
const FUNCTIONS_MAX: usize = 100_000;
/// Most recordings.
pub const RECORDINGS_MAX: usize = 10_000;
/// A function is counted from the first recording on in which it has this part of the smallest share that is
/// asked about, or half of the smallest change, whichever is less: what is not counted is taken for none.
const NOTICED: f64 = 0.1;

/// A function, and its samples by recording.
#[derive(Debug)]
pub(super) struct Counted {
    pub name: String,
    /// The file name of its image in the last recording that was added.
    pub module: String,
    pub own: bool,
    /// Number of a recording, in the order in which they were added, and samples.
    pub counts: Vec<(u32, f64)>,
}

/// Recordings as they are added.
#[derive(Debug, Default)]
pub struct Collector {
    pub(super) options: TrendOptions,
    pub(super) unit: Option<Unit>,
    pub(super) points: Vec<Point>,
    pub(super) functions: Vec<Counted>,
    numbers: HashMap<Identity, usize>,
    identities: HashSet<[u8; 16]>,
    /// Whether functions were left out because there are too many.
    pub(super) is_full: bool,
}

impl Collector {
    /// A collector without recordings.
    pub fn new(options: TrendOptions) -> Collector {
        Collector {
            options,
            ..Collector::default()
        }
    }

    /// Adds a recording.
    ///
    /// # Errors
    /// It can't be one of the series: it has no samples, or no place in the order, or is there already.
    pub fn add(
        &mut self,
        recording: &Recording,
        tables: &Tables<'_>,
        progress: &dyn Fn(u64, u64),
    ) -> Result<(), TrendError> {
        if recording
            .uuid()
            .is_some_and(|it| self.identities.contains(&it))
        {
            return Err(TrendError::Twice);
        }
        let labels = &recording.metadata().labels;
        let label = |key: &str| {
            let found = labels.iter().find(|(known, _)| known == key);
            found.map(|(_, value)| value.clone())
        };
        let label = match &self.options.order {
            Order::Label(key) => Some(label(key).ok_or_else(|| TrendError::NoLabel(key.clone()))?),
            Order::Time | Order::Given => label("version"),
        };
        if self.options.order == Order::Time && recording.start_realtime_ns().is_none() {
            return Err(TrendError::NoTime);
        }
        let how = Options {
            by: By::Function,
            by_recording: false,
            filter: Filter {
                unit: self.options.gather.filter.unit.or(self.unit),
                ..self.options.gather.filter.clone()
            },
            ..self.options.gather.clone()
        };
        let profile = gather_with(&[recording], tables, &how, progress, None);
        let samples = profile.account.counted_samples();
        if samples == 0 {
            return Err(TrendError::NoSample);
        }
        let unit = profile.unit();
        let first = *self.unit.get_or_insert(unit);
        // Shares are alike, whatever a sample counts as.
        if first != unit && !(first.is_sampled() && unit.is_sampled()) {
            return Err(TrendError::OtherUnit(unit.what(), first.what()));
        }
        self.identities.extend(recording.uuid());
        let name = recording.name();
        let point = Point {
            name: if self.options.identify {
                name
            } else {
                last_part(name)
            }
            .to_owned(),
            start_realtime_ns: recording.start_realtime_ns(),
            label,
            samples: samples as f64,
            is_incomplete: profile.account.is_incomplete(),
        };
        let sightings = sightings(recording, &profile, samples as f64);
        self.push(point, sightings)
    }

    /// Adds a recording whose samples were counted elsewhere.
    ///
    /// # Errors
    /// There are too many.
    pub fn push(
        &mut self,
        point: Point,
        functions: impl IntoIterator<Item = (Sighting, f64)>,
    ) -> Result<(), TrendError> {
        if self.points.len() >= RECORDINGS_MAX {
            return Err(TrendError::TooMany(RECORDINGS_MAX));
        }
        let number = self.points.len() as u32;
        let (share, change) = (self.options.least_share, self.options.least_change);
        let least = (share * NOTICED).min(change / 2.0) * point.samples;
        for (sighting, samples) in functions {
            let Sighting {
                identity,
                module,
                own,
            } = sighting;
            let known = self.numbers.get(&identity).copied();
            let index = match known {
                Some(index) => index,
                None if samples < least => continue,
                None if self.functions.len() >= FUNCTIONS_MAX => {
                    self.is_full = true;
                    continue;
                }
                None => {
                    self.functions.push(Counted {
                        name: identity.name.clone(),
                        module: String::new(),
                        own,
                        counts: Vec::new(),
                    });
                    self.numbers.insert(identity, self.functions.len() - 1);
                    self.functions.len() - 1
                }
            };
            let function = &mut self.functions[index];
            function.module = module;
            function.counts.push((number, samples));
        }
        self.points.push(point);
        Ok(())
    }
}

/// The functions of a recording with their own samples.
fn sightings(recording: &Recording, profile: &Profile, samples: f64) -> Vec<(Sighting, f64)> {
    let command = recording.metadata().target.name.as_str();
    let program = last_part(command.split_whitespace().next().unwrap_or_default());
    let nodes = profile.tree.nodes().iter().enumerate().skip(1);
    let mut own: BTreeMap<u32, u64> = BTreeMap::new();
    for (number, node) in nodes.filter(|(_, node)| node.count > 0) {
        *own.entry(profile.tree.label(number as NodeId)).or_default() += node.count;
    }
    // A count of 1 is a sample, or a wait of mean length.
    let one = (profile.account.counted as f64 / samples).max(1.0);
    let mut found: HashMap<Identity, (Sighting, f64)> = HashMap::new();
    for (label, amount) in own {
        let Some(sighting) = Sighting::of(&profile.labels, label, program) else {
            continue;
        };
        let identity = sighting.identity.clone();
        found.entry(identity).or_insert((sighting, 0.0)).1 += amount as f64 / one;
    }
    let mut found: Vec<(Sighting, f64)> = found.into_values().collect();
    found.sort_by(|a, b| a.0.identity.cmp(&b.0.identity));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trend::html;

    fn functions(count: usize) -> impl Iterator<Item = (Sighting, f64)> {
        let sighting = |number: usize| Sighting {
            identity: Identity::new(format!("f{number}"), String::new()),
            module: String::new(),
            own: true,
        };
        (0..count).map(move |number| (sighting(number), 1.0))
    }

    fn point(name: &str) -> Point {
        Point {
            name: name.to_owned(),
            samples: 1000.0,
            ..Point::default()
        }
    }

    #[test]
    fn recordings_beyond_the_most_are_refused() {
        let mut collector = Collector::new(TrendOptions::default());
        for _ in 0..RECORDINGS_MAX {
            collector.push(point(""), functions(0)).unwrap();
        }
        let refused = collector.push(point(""), functions(0));
        assert_eq!(refused, Err(TrendError::TooMany(RECORDINGS_MAX)));
    }

    #[test]
    fn functions_beyond_the_most_are_left_out() {
        let mut collector = Collector::new(TrendOptions::default());
        collector.push(point(""), functions(FUNCTIONS_MAX)).unwrap();
        assert!(!collector.is_full);
        collector
            .push(point(""), functions(FUNCTIONS_MAX + 1))
            .unwrap();
        assert!(collector.is_full && collector.functions.len() == FUNCTIONS_MAX);
    }

    #[test]
    fn functions_of_a_page_of_a_trend() {
        let page = |count: usize| {
            let mut collector = Collector::new(TrendOptions {
                order: Order::Given,
                ..TrendOptions::default()
            });
            for _ in 0..6 {
                collector
                    .push(point("</td><script>"), functions(count))
                    .unwrap();
            }
            let mut out = Vec::new();
            html::write(&collector.finish().unwrap(), "<script>", &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        let (full, over) = (page(html::FUNCTIONS_MAX), page(html::FUNCTIONS_MAX + 1));
        for page in [&full, &over] {
            assert_eq!(page.matches("<tr class=").count(), html::FUNCTIONS_MAX);
            assert_eq!(page.matches("<script>").count(), 1);
            // The legend is long, and whole.
            assert!(page.contains("Own samples, in percent of all. "), "{page}");
            assert!(page.contains("at most 5% did not.</p>"), "{page}");
        }
        let left_out = "more functions are left out";
        assert!(!full.contains(left_out) && over.contains(left_out));
    }
}
