//! Parts of a recording that a server takes. Input: samples. Output: pprof profiles of at most a slice of time, each
//! small enough for every server's limits. Never an empty one.

use super::{Part, Request, Slicing, hash};
use crate::export::pprof::{self, message as pb};
use crate::profile::Profile;
use crate::profile::filter::Filter;
use crate::profile::gather::{self, By, Options, Sampled};
use crate::profile::tree::NodeId;
use crate::recording::{Recording, Unit};
use crate::{export, work};
use prost::Message;
use std::collections::BTreeMap;
use std::io;

/// Most stacks of a part. Pyroscope refuses more than 16,000 by default.
const STACKS_MAX: usize = 8_000;
/// Most bytes of a part, unpacked. Pyroscope never accepts more than its burst of 2 MB, nginx 1 MB of packed ones.
const PART_BYTES_MAX: usize = 1 << 20;
/// Between the times of parts of the same slice. Servers count two profiles of a series in one millisecond once.
const PART_NS: i64 = 1_000_000;
/// Output bytes per step of work.
const BYTES_PER_STEP: usize = 4;

type Stack = (NodeId, u64);

/// Passes the parts to `each`, in order of time.
pub(super) fn parts(
    request: &Request<'_, '_>,
    each: &mut dyn FnMut(Part<'_>) -> io::Result<()>,
) -> io::Result<Profile> {
    let recording = request.recording;
    let uuid = recording.uuid().ok_or_else(|| {
        io::Error::other("it has no identity, which a server needs; `uniprof recover` gives it one")
    })?;
    let options = Options {
        by: By::Declared,
        filter: Filter {
            unit: request.is_off_cpu.then_some(Unit::OffCpu),
            ..Filter::default()
        },
        ..Options::default()
    };
    let mut stacks: BTreeMap<(u64, NodeId), u64> = BTreeMap::new();
    let slice_ns = slice_ns(recording, request.slicing);
    let mut take = |sampled: &Sampled, _: &Profile| {
        let slice = slice_ns.map_or(0, |slice_ns| sampled.since_ns / slice_ns);
        *stacks.entry((slice, sampled.node)).or_default() += sampled.weight.amount;
    };
    let recordings = [recording];
    let profile = gather::gather_with(
        &recordings,
        request.tables,
        &options,
        request.progress,
        Some(&mut take),
    );
    let mut division = Division {
        export: export::Request {
            recordings: &recordings,
            tables: request.tables,
            options: &options,
            progress: request.progress,
            marks: false,
            fold: false,
            identify: false,
        },
        common: pprof::Common::of(&recordings, &Filter::default()),
        recording,
        slicing: request.slicing,
        profile: &profile,
        uuid,
        each,
    };
    let mut slice: Vec<Stack> = Vec::new();
    let mut number = 0;
    // Servers drop zeros.
    for ((next, node), amount) in stacks.into_iter().filter(|(_, amount)| *amount > 0) {
        if next != number {
            division.slice(number, &slice)?;
            slice.clear();
            number = next;
        }
        slice.push((node, amount));
    }
    division.slice(number, &slice)?;
    Ok(profile)
}

/// The length of slices (nanoseconds); `None` if there is only one.
fn slice_ns(recording: &Recording, slicing: Slicing) -> Option<u64> {
    match slicing {
        Slicing::Every(slice_ns) if recording.is_timed() && slice_ns > 0 => Some(slice_ns),
        Slicing::Every(_) | Slicing::Interval(_) => None,
    }
}

struct Division<'a, 'l> {
    export: export::Request<'a, 'l>,
    common: pprof::Common<'a>,
    recording: &'a Recording,
    slicing: Slicing,
    profile: &'a Profile,
    uuid: [u8; 16],
    each: &'a mut dyn FnMut(Part<'_>) -> io::Result<()>,
}

impl Division<'_, '_> {
    /// Passes on the parts of one slice.
    fn slice(&mut self, number: u64, stacks: &[Stack]) -> io::Result<()> {
        let mut part = 0;
        for stacks in stacks.chunks(STACKS_MAX) {
            self.divide(number, &mut part, stacks)?;
        }
        Ok(())
    }

    /// Passes on some stacks: as one part if they are small enough, otherwise by halves.
    fn divide(&mut self, slice: u64, part: &mut u32, stacks: &[Stack]) -> io::Result<()> {
        let made = pprof::of_stacks(&self.export, self.profile, &self.common, stacks);
        let bytes = made.encoded_len();
        work::take(bytes.div_ceil(BYTES_PER_STEP) as u64);
        if bytes > PART_BYTES_MAX && stacks.len() > 1 {
            let (first, last) = stacks.split_at(stacks.len() / 2);
            self.divide(slice, part, first)?;
            return self.divide(slice, part, last);
        }
        let profile = self.complete(made, slice, *part);
        let id = self.id(slice, *part);
        *part += 1;
        (self.each)(Part {
            recording: self.recording,
            id,
            profile,
        })
    }

    /// Adds the times and the units as servers name them.
    fn complete(&self, mut made: pb::Profile, slice: u64, part: u32) -> pb::Profile {
        let whole_ns = self.common.longest_ns;
        if let Some(slice_ns) = slice_ns(self.recording, self.slicing) {
            let since_ns = slice.saturating_mul(slice_ns);
            let length_ns = whole_ns.saturating_sub(since_ns).clamp(1, slice_ns);
            made.duration_nanos = i64::try_from(length_ns).unwrap_or(i64::MAX);
            let since_ns = i64::try_from(since_ns).unwrap_or(i64::MAX);
            made.time_nanos = match made.time_nanos {
                0 => 0,
                start_ns => start_ns.saturating_add(since_ns),
            };
        }
        if made.time_nanos != 0 {
            made.time_nanos = made.time_nanos.saturating_add(i64::from(part) * PART_NS);
        }
        let mut text = |text: &str| {
            made.string_table.push(text.to_owned());
            made.string_table.len() as i64 - 1
        };
        let unit = self.profile.unit();
        let (kind, nanoseconds) = (text(self.kind()), text("nanoseconds"));
        let time = pb::ValueType {
            kind,
            unit: nanoseconds,
        };
        match unit {
            // Their value is a sum of times, each of another length.
            Unit::OffCpu | Unit::Calls | Unit::VcpuTime => {
                made.sample_type = vec![time];
                (made.period_type, made.period) = (None, 0);
            }
            Unit::Sampled => {
                made.sample_type = vec![time];
                (made.period_type, made.period) = (Some(time), 1);
            }
            Unit::Samples if made.period > 0 => {
                let (samples, count) = (text("samples"), text("count"));
                made.sample_type = vec![pb::ValueType {
                    kind: samples,
                    unit: count,
                }];
                made.period_type = Some(time);
            }
            Unit::Samples => {}
        }
        made
    }

    /// What was measured, as servers name it.
    fn kind(&self) -> &'static str {
        match self.profile.unit() {
            Unit::OffCpu => "off_cpu",
            Unit::Calls => "calls",
            Unit::VcpuTime => "vcpu_time",
            Unit::Samples | Unit::Sampled => "cpu",
        }
    }

    /// The id of a part. It begins as that of the recording.
    fn id(&self, slice: u64, part: u32) -> [u8; 16] {
        // Those of intervals have no length in common, and the times of each are its own.
        let [length, number] = match self.slicing {
            Slicing::Every(slice_ns) => [slice_ns, slice],
            Slicing::Interval([first_ns, last_ns]) => [first_ns, last_ns],
        };
        let words = [
            self.uuid.as_slice(),
            &length.to_le_bytes(),
            &number.to_le_bytes(),
            &part.to_le_bytes(),
            self.kind().as_bytes(),
        ];
        let mut id = self.uuid;
        id[8..].copy_from_slice(&hash(&words).to_be_bytes());
        // The variant of RFC 9562, and its version 8: made by a rule of ours.
        id[6] = (id[6] & 0x0f) | 0x80;
        id[8] = (id[8] & 0x3f) | 0x80;
        id
    }
}
