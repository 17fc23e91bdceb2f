//! pprof's protobuf (github.com/google/pprof, proto/profile.proto), gzipped or not: profiles of Go programs, gVisor,
//! Parca and Pyroscope, and what `export -f pprof` wrote. Input: the file, which is read three times: its tables, its
//! values, its stacks. Output: samples or waits, whose sum is the sum of the values. Nothing is rounded.

mod wire;
mod tables;

use super::{ImportError, Importer, InputFrame, Origin, SAMPLES_MAX};
use flate2::bufread::MultiGzDecoder;
use std::collections::BTreeSet;
use std::io::{self, BufRead, BufReader, Read};
use tables::{Place, Tables, Threads};
use uprof::Stop;
use uprof::cold::{Mapping, ModuleChange, ModuleEvent};
use wire::{Message, Stream, Value};

/// Most bytes of a file, as it is stored.
const PACKED_BYTES_MAX: u64 = 256 << 20;
/// Most bytes of a file, unpacked.
const UNPACKED_BYTES_MAX: u64 = 1 << 30;
/// How gzip's files begin.
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
/// Types of values that are time in which a thread did not run.
const WAITS: [&str; 3] = ["delay", "off-cpu", "off_cpu"];
/// Labels of a sample that name its thread, the better ones first.
const THREAD_LABELS: [&str; 3] = ["thread", "thread_name", "comm"];
/// Nanoseconds of the units of time.
const UNITS_NS: [(&str, u64); 4] = [
    ("nanoseconds", 1),
    ("microseconds", 1_000),
    ("milliseconds", 1_000_000),
    ("seconds", 1_000_000_000),
];

/// Why a pprof file can't be imported.
#[derive(Debug, thiserror::Error)]
pub enum PprofError {
    /// Reading failed, or it is no sound gzip.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The file ends within a field.
    #[error(
        "it ends in the middle of a field: the download or the copy is incomplete, or it is no pprof file"
    )]
    Cut,
    /// A wire type that protobuf no longer has.
    #[error("a field has wire type {0}: it is no pprof file")]
    WireType(u64),
    /// A number of more than ten bytes.
    #[error("a number is longer than 64 bits: it is no pprof file")]
    LongNumber,
    /// A field is longer than any sound one.
    #[error("a field of {0} bytes; at most 1 MiB are read of a string, a sample or a location")]
    LongField(u64),
    /// The file is too long.
    #[error(
        "it is longer than 256 MiB, or 1 GiB unpacked: split it by time, or choose fewer services or labels"
    )]
    TooLong,
    /// A table is too long.
    #[error("it has more than {1} {0}: split it by time, or choose fewer services or labels")]
    TooMany(&'static str, usize),
    /// A reference to an entry that no table has.
    #[error("it refers to {0} {1}, which it doesn't have: the file is damaged")]
    Missing(&'static str, u64),
    /// Two entries have the same number.
    #[error("{0} {1} is there twice: the file is damaged")]
    Twice(&'static str, u64),
    /// A string is not UTF-8.
    #[error("string {0} is no UTF-8: the file is damaged")]
    NoText(u64),
    /// A sample has too few or too many values.
    #[error(
        "sample {number} has {values} values, and the file has {types} types of them: the file is damaged"
    )]
    Values {
        /// The number of the sample, from 1.
        number: u64,
        /// How many values it has.
        values: usize,
        /// How many it should have.
        types: usize,
    },
    /// A value is negative.
    #[error(
        "sample {0} has a negative value: it is a difference of two profiles; import both, and use `uprof diff`"
    )]
    Negative(u64),
    /// No type of values can be chosen.
    #[error(
        "{wanted}; the file has {types}; --sample-type NAME chooses one that counts or is a time"
    )]
    Type {
        /// What was looked for.
        wanted: String,
        /// The types of the file.
        types: String,
    },
    /// The values of the chosen type are neither counts nor times.
    #[error(
        "{0} is neither a count nor a time, and a recording has nothing else; the file has {1}"
    )]
    Unit(String, String),
    /// More samples than are imported.
    #[error(
        "{0} adds up to {1}, which is more than 10,000,000 samples; choose another type by --sample-type, or a shorter \
         time"
    )]
    Sum(String, u64),
}

/// Whether the input may be such a file, by its first bytes.
pub(super) fn fits(head: &[u8]) -> bool {
    let mut bytes = Vec::new();
    // The head of a gzip ends early, which is no reason to refuse it.
    let _ = unpacked(head)
        .take(head.len() as u64)
        .read_to_end(&mut bytes);
    // All writers begin with the types of values; Go's runtime, with time and period before them.
    let mut fields = Message(&bytes);
    let mut field = fields.next();
    while let Ok(Some((9..=14, Value::Number(_)) | (11, Value::Bytes(_)))) = field {
        field = fields.next();
    }
    let Ok(Some((1, Value::Bytes(message)))) = field else {
        return false;
    };
    let mut parts = Message(message);
    while let Ok(part) = parts.next() {
        match part {
            Some((1 | 2, Value::Number(_))) => {}
            Some(_) => return false,
            None => return !message.is_empty(),
        }
    }
    false
}

fn unpacked(file: &[u8]) -> Box<dyn BufRead + '_> {
    if file.starts_with(&GZIP_MAGIC) {
        Box::new(BufReader::new(MultiGzDecoder::new(file)))
    } else {
        Box::new(file)
    }
}

/// Imports the file.
pub(super) fn read(
    input: &mut dyn BufRead,
    importer: &mut Importer<'_>,
) -> Result<(), ImportError> {
    let mut file = Vec::new();
    input.take(PACKED_BYTES_MAX + 1).read_to_end(&mut file)?;
    if file.len() as u64 > PACKED_BYTES_MAX {
        return Err(PprofError::TooLong.into());
    }
    let stream = || Stream::new(unpacked(&file), UNPACKED_BYTES_MAX);
    let tables = Tables::read(&mut stream())?;
    let chosen = Chosen::find(&tables, importer.sample_type.as_deref())?;
    let weighing = Weighing::of(&mut stream(), &tables, &chosen)?;
    if tables.time_ns > 0 {
        importer.realtime_ns = Some(tables.time_ns);
    }
    importer.metadata.sampling.trigger.clone_from(&chosen.name);
    let rate = weighing
        .period_ns
        .and_then(|period_ns| 1_000_000_000_000_u64.checked_div(period_ns));
    importer.metadata.sampling.rate_millihertz = rate.unwrap_or(0);
    let mut stacks = Stacks {
        tables: &tables,
        unnamed: BTreeSet::new(),
        threads: Threads::default(),
    };
    let mut stream = stream();
    let mut sample = InputSample::default();
    while sample.next(&mut stream, &tables)? {
        importer.imported.lines += 1;
        stacks.write(&sample, weighing.weigh(&sample.values), importer)?;
    }
    stacks.map(importer)
}

/// The type of values that is imported.
struct Chosen {
    /// Its place in a sample's values.
    index: usize,
    /// `cpu/nanoseconds`.
    name: String,
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
    fn find(tables: &Tables, asked: Option<&str>) -> Result<Chosen, PprofError> {
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
struct Weighing<'c> {
    chosen: &'c Chosen,
    /// What a count or a running time is divided by.
    divisor: u64,
    /// Nanoseconds that a sample stands for, if they are known.
    period_ns: Option<u64>,
}

/// What a sample of the file stands for.
#[derive(Clone, Copy)]
enum Stands {
    Samples(u64),
    /// Time (nanoseconds) and number of waits.
    Waits(u64, u64),
}

impl<'c> Weighing<'c> {
    fn of(
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
                // One sample is as long as the period, if all values are multiples of it.
                let is_period = unit_ns.is_some_and(|(_, unit_ns)| *unit_ns == value_ns)
                    && period > 0
                    && divisor.is_multiple_of(period);
                weighing.divisor = if is_period { period } else { divisor.max(1) };
                Some(weighing.divisor.saturating_mul(value_ns))
            }
            Measure::Count => stated_ns,
            Measure::Waits(..) => None,
        };
        if all / weighing.divisor > SAMPLES_MAX {
            return Err(PprofError::Sum(chosen.name.clone(), all));
        }
        Ok(weighing)
    }

    fn weigh(&self, values: &[u64]) -> Stands {
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

/// A sample of the file.
#[derive(Debug, Default)]
struct InputSample {
    /// From 1.
    number: u64,
    /// Ids of the locations, innermost first.
    locations: Vec<u64>,
    values: Vec<u64>,
    /// The name of its thread; empty if unknown.
    thread: String,
}

impl InputSample {
    /// Reads the next one; `false` at the end.
    fn next(
        &mut self,
        stream: &mut Stream<impl BufRead>,
        tables: &Tables,
    ) -> Result<bool, PprofError> {
        while let Some((number, value)) = stream.next()? {
            if let (2, Value::Bytes(message)) = (number, value) {
                self.number += 1;
                self.read(message, tables)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn read(&mut self, message: &[u8], tables: &Tables) -> Result<(), PprofError> {
        self.locations.clear();
        self.values.clear();
        self.thread.clear();
        let mut best = THREAD_LABELS.len();
        let mut fields = Message(message);
        while let Some((number, value)) = fields.next()? {
            match (number, value) {
                (1, value) => value.numbers(&mut self.locations)?,
                (2, value) => value.numbers(&mut self.values)?,
                (3, Value::Bytes(label)) => {
                    let [key, text] = value_text(label)?;
                    let key = tables.text(key)?;
                    let rank = THREAD_LABELS.iter().position(|known| *known == key);
                    if let Some(rank) = rank.filter(|rank| *rank < best && text != 0) {
                        best = rank;
                        self.thread.clear();
                        self.thread.push_str(tables.text(text)?);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Key and text of a label, as strings of the table.
fn value_text(label: &[u8]) -> Result<[u64; 2], PprofError> {
    let mut found = [0; 2];
    let mut fields = Message(label);
    while let Some((number, value)) = fields.next()? {
        if let 1 | 2 = number {
            found[number as usize - 1] = value.number();
        }
    }
    Ok(found)
}

/// Writes the stacks of samples.
struct Stacks<'t> {
    tables: &'t Tables,
    /// Mappings with code that the file doesn't name.
    unnamed: BTreeSet<u32>,
    threads: Threads,
}

impl<'t> Stacks<'t> {
    fn write(
        &mut self,
        sample: &InputSample,
        stands: Stands,
        importer: &mut Importer<'_>,
    ) -> Result<(), ImportError> {
        if let Stands::Samples(0) | Stands::Waits(0, _) = stands {
            return Ok(());
        }
        let mut frames = Vec::new();
        for id in &sample.locations {
            let place = self.tables.place(*id)?;
            self.frames(&place, &mut frames)?;
        }
        let mut vcpu = 0;
        if !sample.thread.is_empty() {
            let (number, is_new) = self.threads.number(&sample.thread);
            vcpu = number;
            if is_new {
                importer.name_task(vcpu, 0, &sample.thread)?;
            }
        }
        let origin = Origin {
            time_ns: None,
            vcpu,
            // The format has no word for a stack that is cut.
            stop: Stop::Complete,
        };
        match stands {
            Stands::Samples(count) => importer.stack(&frames, origin, count),
            Stands::Waits(time_ns, count) => importer.waits(&frames, origin, (time_ns, count)),
        }
    }

    /// Adds the frames of a location, innermost first.
    fn frames(
        &mut self,
        place: &Place<'t>,
        frames: &mut Vec<InputFrame<'t>>,
    ) -> Result<(), ImportError> {
        let path = match place.mapping {
            Some(mapping) => self.tables.image(mapping)?.1,
            None => "",
        };
        let mut is_named = false;
        for name in self.tables.names(place) {
            let name = name?;
            if !name.is_empty() {
                is_named = true;
                frames.push(InputFrame::Named(path, name, 0));
            }
        }
        if !is_named && place.address != 0 {
            self.unnamed.extend(place.mapping);
            frames.push(InputFrame::Exact(place.address));
        } else if !is_named {
            frames.push(InputFrame::Named(path, "[unknown]", 0));
        }
        Ok(())
    }

    /// Writes the mappings of the code without names, which `--elf` can then name.
    fn map(self, importer: &mut Importer<'_>) -> Result<(), ImportError> {
        for index in self.unnamed {
            let (mapping, path, build_id) = self.tables.image(index)?;
            let length = mapping.limit.saturating_sub(mapping.start);
            if length == 0 || path.is_empty() {
                continue;
            }
            let mapped = Mapping {
                start: mapping.start,
                length,
                file_offset: mapping.file_offset,
                path: path.to_owned(),
                build_id: from_hexadecimal(build_id).unwrap_or_default(),
                file: None,
            };
            importer.writer()?.modules(&[ModuleEvent {
                time_ns: 0,
                space: 0,
                what: ModuleChange::Mapped(mapped),
            }])?;
        }
        Ok(())
    }
}

/// The bytes of a build-id; `None` if it is no hexadecimal number.
fn from_hexadecimal(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    let bytes = pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
    bytes.collect()
}
