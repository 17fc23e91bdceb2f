//! What a value of a sample stands for: samples or waits. Input: the types of values, and all values. Output: exact
//! numbers; what can't be exact is refused.

use super::PprofError;
use super::sample::InputSample;
use super::tables::Tables;
use super::wire::Stream;
use crate::import::importer::SAMPLES_MAX;
use std::io::BufRead;

/// Types of values that are time in which a thread did not run.
const WAITS: [&str; 3] = ["delay", "off-cpu", "off_cpu"];
/// Nanoseconds of the units of time.
const UNITS_NS: [(&str, u64); 4] = [
    ("nanoseconds", 1),
    ("microseconds", 1_000),
    ("milliseconds", 1_000_000),
    ("seconds", 1_000_000_000),
];

/// The type of values that is imported.
pub(super) struct Chosen {
    /// Its place in a sample's values.
    index: usize,
    /// `cpu/nanoseconds`.
    pub(super) name: String,
    measure: Measure,
}

enum Measure {
    /// A number of samples.
    Count,
    /// Running time, in units of so many nanoseconds.
    Time(u64),
    /// Time in which a thread waits. The place of the number of waits, if there is one.
    Waits(u64, Option<usize>),
}

impl Chosen {
    pub(super) fn find(tables: &Tables, asked: Option<&str>) -> Result<Chosen, PprofError> {
        let types = tables.types()?;
        let names: Vec<String> = types
            .iter()
            .map(|[kind, unit]| format!("{kind}/{unit}"))
            .collect();
        let index = match asked {
            Some(asked) => (types.iter().zip(&names))
                .position(|([kind, _], name)| *kind == asked || name == asked),
            None => ([
                "samples/count",
                "cpu/nanoseconds",
                "off-cpu/nanoseconds",
                "delay/nanoseconds",
            ]
            .iter())
            .find_map(|usual| names.iter().position(|name| name == usual)),
        };
        let Some(index) = index else {
            let wanted = match asked {
                Some(asked) => format!("no type of its values is called {asked}"),
                None => "it has neither samples/count nor cpu/nanoseconds".to_owned(),
            };
            let types = names.join(", ");
            return Err(PprofError::Type { wanted, types });
        };
        let [kind, unit] = types[index];
        let unit_ns = UNITS_NS.iter().find(|(name, _)| *name == unit);
        let measure = match unit_ns {
            Some((_, unit_ns)) if WAITS.contains(&kind) => {
                let count = types.iter().position(|it| *it == ["contentions", "count"]);
                Measure::Waits(*unit_ns, count)
            }
            Some((_, unit_ns)) => Measure::Time(*unit_ns),
            None if unit == "count" => Measure::Count,
            None => return Err(PprofError::Unit(names[index].clone(), names.join(", "))),
        };
        Ok(Chosen {
            index,
            name: names[index].clone(),
            measure,
        })
    }
}

/// How values become samples, exactly.
pub(super) struct Weighing<'c> {
    chosen: &'c Chosen,
    /// What a count or a running time is divided by.
    divisor: u64,
    /// Nanoseconds that a sample stands for, if they are known.
    pub(super) period_ns: Option<u64>,
}

/// What a sample of the file stands for.
#[derive(Clone, Copy)]
pub(super) enum Stands {
    Samples(u64),
    /// Time (nanoseconds) and number of waits.
    Waits(u64, u64),
}

impl<'c> Weighing<'c> {
    pub(super) fn of(
        stream: &mut Stream<impl BufRead>,
        tables: &Tables,
        chosen: &'c Chosen,
    ) -> Result<Self, PprofError> {
        let types = tables.types()?.len();
        let mut weighing = Weighing {
            chosen,
            divisor: 1,
            period_ns: None,
        };
        let (mut divisor, mut all) = (0, 0_u64);
        let mut sample = InputSample::default();
        while sample.next(stream, tables)? {
            let (number, values) = (sample.number, sample.values.len());
            if values != types {
                return Err(PprofError::Values {
                    number,
                    values,
                    types,
                });
            }
            let value = sample.values[chosen.index];
            if (value as i64) < 0 {
                return Err(PprofError::Negative(number));
            }
            divisor = greatest_common_divisor(divisor, value);
            let (Stands::Samples(count) | Stands::Waits(_, count)) = weighing.weigh(&sample.values);
            all = all.saturating_add(count);
        }
        let period = tables.period;
        let unit = tables.period_unit()?;
        let unit_ns = UNITS_NS.iter().find(|(name, _)| *name == unit);
        let stated_ns = unit_ns.map(|(_, unit_ns)| period.saturating_mul(*unit_ns));
        weighing.period_ns = match chosen.measure {
            Measure::Time(value_ns) => {
                // One sample is as long as the period, if all values are multiples of it. A period of one unit says
                // no more than the unit.
                let is_period = unit_ns.is_some_and(|(_, unit_ns)| *unit_ns == value_ns)
                    && period > 1
                    && divisor.is_multiple_of(period);
                weighing.divisor = if is_period { period } else { divisor.max(1) };
                Some(weighing.divisor.saturating_mul(value_ns))
            }
            Measure::Count => stated_ns,
            Measure::Waits(..) => None,
        };
        if all / weighing.divisor > SAMPLES_MAX {
            let counted = match chosen.measure {
                Measure::Waits(_, Some(_)) => "contentions/count",
                _ => chosen.name.as_str(),
            };
            return Err(PprofError::Sum(counted.to_owned(), all));
        }
        Ok(weighing)
    }

    pub(super) fn weigh(&self, values: &[u64]) -> Stands {
        let value = values[self.chosen.index];
        match self.chosen.measure {
            Measure::Waits(unit_ns, count) => Stands::Waits(
                value.saturating_mul(unit_ns),
                count.map_or(1, |index| values[index]).max(1),
            ),
            Measure::Count | Measure::Time(_) => Stands::Samples(value / self.divisor),
        }
    }
}

fn greatest_common_divisor(mut left: u64, mut right: u64) -> u64 {
    while right > 0 {
        (left, right) = (right, left % right);
    }
    left
}
