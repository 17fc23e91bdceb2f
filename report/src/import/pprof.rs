//! pprof's protobuf (github.com/google/pprof, proto/profile.proto), gzipped or not: profiles of Go programs, gVisor,
//! Parca and Pyroscope, and what `export -f pprof` wrote. Input: the file, which is read three times: its tables, its
//! values, its stacks. Output: samples or waits, whose sum is the sum of the values. Nothing is rounded.

mod error;
mod wire;
mod tables;
mod sample;
mod weights;

use super::{ImportError, Importer, InputFrame, Origin};
pub use error::PprofError;
use flate2::bufread::MultiGzDecoder;
use sample::InputSample;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use tables::{Place, Tables, Threads};
use uprof::Stop;
use uprof::cold::{Mapping, ModuleEvent};
use weights::{Chosen, Stands, Weighing};
use wire::{Message, Stream, Value};

/// Most bytes of a file, as it is stored.
const PACKED_BYTES_MAX: u64 = 256 << 20;
/// Most bytes of a file, unpacked.
const UNPACKED_BYTES_MAX: u64 = 1 << 30;
/// How gzip's files begin.
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

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
        shared: tables.shared(),
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

/// Writes the stacks of samples.
struct Stacks<'t> {
    tables: &'t Tables,
    /// For each mapping, whether an address of it may be another image's, too.
    shared: Vec<bool>,
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
        let is_shared = place.mapping.is_some_and(|it| self.shared[it as usize]);
        if !is_named && place.address != 0 && !is_shared {
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
            let event = ModuleEvent::mapped(0, 0, mapped);
            importer.writer()?.modules(&[event])?;
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
