//! Perfetto's protobuf (ui.perfetto.dev, protos/perfetto/trace/): samples become samples of threads, calls of traces
//! become slices, and wall time of vCPUs becomes counters. All are on one time axis that begins with the first
//! recording.

mod counters;
mod message;
mod stacks;
mod tracks;

use crate::export::call_times::{CallEvent, CallWithResult, put_events};
use crate::export::timeline::{Homes, Timeline, Who};
use crate::export::{Request, ThreadSample, TimelineData};
use crate::profile::Profile;
use crate::recording::unit::Unit;
use crate::recording::warnings::Warning;
use counters::Counter;
use message as pb;
use stacks::{Stacks, name};
use std::collections::BTreeSet;
use std::io::{self, Write};
use tracks::{Thread, Tracks};

/// The sequence of all packets: only packets of one sequence may refer to each other's interned numbers.
const SEQUENCE: u32 = 1;
/// SEQ_INCREMENTAL_STATE_CLEARED and SEQ_NEEDS_INCREMENTAL_STATE: flags of the first packet, and of the
/// others.
const FIRST: u32 = 1;
const LATER: u32 = 2;
/// BUILTIN_CLOCK_REALTIME and BUILTIN_CLOCK_MONOTONIC.
const REALTIME: u32 = 1;
const MONOTONIC: u32 = 3;
/// Types of events.
const SLICE_BEGIN: i32 = 1;
const SLICE_END: i32 = 2;
const INSTANT: i32 = 3;
const COUNTER: i32 = 4;
/// The first number for names of waits.
const WAITS: u64 = 1 << 32;
/// Number of the only field of a trace; each packet is one element.
const PACKET: u32 = 1;

/// Writes the trace.
///
/// # Errors
/// The recordings have no clock in common, or the errors of `out`.
pub(crate) fn write(request: &Request<'_, '_>, out: &mut dyn Write) -> io::Result<Profile> {
    let timeline = Timeline::of(request.recordings).map_err(io::Error::other)?;
    let mut timed = request.gather_timed(false);
    if timed.profile.unit() == Unit::Sampled {
        let warning = Warning::CountedAlike.to_string();
        timed.profile.warnings.push(warning);
    }
    let mut writer = Writer {
        request,
        timed: &timed,
        out,
        tracks: Tracks::default(),
        stacks: Stacks::default(),
        names: BTreeSet::new(),
        kinds: BTreeSet::new(),
    };
    writer.head(&timeline)?;
    let homes = Homes::new(request.recordings, timed.samples.keys());
    for (who, samples) in &timed.samples {
        let thread = writer.thread(*who)?;
        for sample in samples {
            writer.sample(thread, timeline.offsets_ns[who.0], sample)?;
        }
    }
    for (who, calls) in &timed.calls {
        let thread = writer.thread(homes.of(request.recordings, *who))?;
        let track = writer.calls(thread, who.0)?;
        let offset_ns = timeline.offsets_ns[who.0];
        put_events(calls, &mut |event| writer.call(track, offset_ns, event))?;
    }
    for (number, recording) in request.recordings.iter().enumerate() {
        for (task, counters) in counters::of(recording, &request.options.filter) {
            let thread = writer.thread(homes.of(request.recordings, (number, task)))?;
            for counter in counters {
                writer.counter(thread, timeline.offsets_ns[number], &counter)?;
            }
        }
    }
    Ok(timed.profile)
}

struct Writer<'w, 'l> {
    request: &'w Request<'w, 'l>,
    timed: &'w TimelineData,
    out: &'w mut dyn Write,
    tracks: Tracks,
    stacks: Stacks,
    /// Names and categories of calls that were written.
    names: BTreeSet<u64>,
    kinds: BTreeSet<u8>,
}

impl Writer<'_, '_> {
    fn put(&mut self, packet: pb::TracePacket) -> io::Result<()> {
        let packet = pb::TracePacket {
            trusted_packet_sequence_id: Some(SEQUENCE),
            sequence_flags: packet.sequence_flags.or(Some(LATER)),
            ..packet
        };
        let mut bytes = Vec::new();
        prost::encoding::message::encode(PACKET, &packet, &mut bytes);
        self.out.write_all(&bytes)
    }

    fn head(&mut self, timeline: &Timeline) -> io::Result<()> {
        let clock = |clock_id, timestamp| pb::Clock {
            clock_id: Some(clock_id),
            timestamp: Some(timestamp),
        };
        let realtime_ns = timeline.start_realtime_ns.map(|ns| u64::try_from(ns).ok());
        let realtime = realtime_ns.flatten().map(|ns| clock(REALTIME, ns));
        let rates = self.request.recordings.iter();
        let mut rates = rates.map(|one| one.metadata().sampling.rate_millihertz / 1000);
        let frequency = rates.find(|rate| *rate > 0);
        self.put(pb::TracePacket {
            clock_snapshot: Some(pb::ClockSnapshot {
                clocks: std::iter::once(clock(MONOTONIC, 0))
                    .chain(realtime)
                    .collect(),
                primary_trace_clock: Some(MONOTONIC as i32),
            }),
            trace_packet_defaults: Some(pb::TracePacketDefaults {
                timestamp_clock_id: Some(MONOTONIC),
                perf_sample_defaults: frequency.map(|frequency| pb::PerfSampleDefaults {
                    timebase: Some(pb::Timebase {
                        frequency: Some(frequency),
                    }),
                }),
            }),
            sequence_flags: Some(FIRST),
            ..pb::TracePacket::default()
        })
    }

    fn thread(&mut self, who: Who) -> io::Result<Thread> {
        let (thread, new) = self.tracks.thread(self.request.recordings, who);
        for descriptor in new {
            self.track(descriptor)?;
        }
        Ok(thread)
    }

    /// The track of a trace's calls in a thread.
    fn calls(&mut self, thread: Thread, trace: usize) -> io::Result<u64> {
        let (uuid, new) = (self.tracks).calls(self.request.recordings, thread, trace);
        new.map_or(Ok(()), |descriptor| self.track(descriptor))?;
        Ok(uuid)
    }

    fn track(&mut self, descriptor: pb::TrackDescriptor) -> io::Result<()> {
        self.put(pb::TracePacket {
            track_descriptor: Some(descriptor),
            ..pb::TracePacket::default()
        })
    }

    fn sample(&mut self, thread: Thread, offset_ns: u64, sample: &ThreadSample) -> io::Result<()> {
        let profile = &self.timed.profile;
        let mut data = pb::InternedData::default();
        let callstack_iid = Some(self.stacks.number(profile, sample.node, &mut data));
        let mut packet = pb::TracePacket {
            timestamp: Some(offset_ns.saturating_add(sample.since_ns)),
            ..pb::TracePacket::default()
        };
        let label = profile.tree.label(sample.node);
        if profile.unit().is_sampled() {
            packet.perf_sample = Some(pb::PerfSample {
                pid: Some(thread.pid),
                tid: Some(thread.tid),
                callstack_iid,
                // MODE_KERNEL and MODE_USER.
                cpu_mode: Some(if profile.labels.get(label).kernel {
                    1
                } else {
                    2
                }),
            });
        } else {
            // Above all numbers of names of calls.
            let iid = WAITS + u64::from(label);
            let name_iid = Some(self.event_name(iid, profile.labels.name(label), &mut data));
            packet.track_event = Some(pb::TrackEvent {
                kind: Some(INSTANT),
                name_iid,
                track_uuid: Some(thread.uuid),
                debug_annotations: vec![number("off_cpu_ns", sample.weight as i64)],
                callstack_iid,
                ..pb::TrackEvent::default()
            });
        }
        packet.interned_data = (data != pb::InternedData::default()).then_some(data);
        self.put(packet)
    }

    fn call(&mut self, track: u64, offset_ns: u64, event: CallEvent<'_>) -> io::Result<()> {
        let (kind, told, at_ns) = match event {
            CallEvent::Begin(told, at_ns) => (SLICE_BEGIN, Some(told), at_ns),
            CallEvent::Instant(told, at_ns) => (INSTANT, Some(told), at_ns),
            CallEvent::End(at_ns) => (SLICE_END, None, at_ns),
        };
        let mut data = pb::InternedData::default();
        let mut track_event = pb::TrackEvent {
            kind: Some(kind),
            track_uuid: Some(track),
            ..pb::TrackEvent::default()
        };
        if let Some(told) = told {
            self.describe(told, &mut track_event, &mut data);
        }
        self.put(pb::TracePacket {
            timestamp: Some(offset_ns.saturating_add(at_ns)),
            track_event: Some(track_event),
            interned_data: (data != pb::InternedData::default()).then_some(data),
            ..pb::TracePacket::default()
        })
    }

    fn counter(&mut self, thread: Thread, offset_ns: u64, counter: &Counter) -> io::Result<()> {
        let descriptor = (self.tracks).counter(thread, counter.name, counter.unit);
        let track_uuid = descriptor.uuid;
        self.track(descriptor)?;
        for (since_ns, value) in &counter.points {
            self.put(pb::TracePacket {
                timestamp: Some(offset_ns.saturating_add(*since_ns)),
                track_event: Some(pb::TrackEvent {
                    kind: Some(COUNTER),
                    track_uuid,
                    double_counter_value: Some(*value),
                    ..pb::TrackEvent::default()
                }),
                ..pb::TracePacket::default()
            })?;
        }
        Ok(())
    }

    fn describe(
        &mut self,
        CallWithResult { call, result }: CallWithResult<'_>,
        event: &mut pb::TrackEvent,
        data: &mut pb::InternedData,
    ) {
        let text = self.timed.names.get(call.name as usize);
        let text = text.map_or("", |text| text);
        // Interned numbers begin at 1.
        event.name_iid = Some(self.event_name(u64::from(call.name) + 1, text, data));
        let kind = call.kind.number();
        let category = u64::from(kind) + 1;
        if self.kinds.insert(kind) {
            data.event_categories.push(name(category, call.kind.name()));
        }
        event.category_iids.push(category);
        let told = &mut event.debug_annotations;
        told.extend(result.map(|result| number("result", result)));
        let lacks = |what: &str| pb::DebugAnnotation {
            name: Some(what.to_owned()),
            bool_value: Some(true),
            int_value: None,
        };
        match (call.is_complete(), call.length_ns()) {
            (true, _) => {}
            (false, None) => told.push(lacks("end_not_in_the_trace")),
            (false, Some(_)) => told.push(lacks("beginning_not_in_the_trace")),
        }
    }

    /// The number of an event's name, which is written on its first use.
    fn event_name(&mut self, iid: u64, text: &str, data: &mut pb::InternedData) -> u64 {
        if self.names.insert(iid) {
            data.event_names.push(name(iid, text));
        }
        iid
    }
}

fn number(what: &str, value: i64) -> pb::DebugAnnotation {
    pb::DebugAnnotation {
        name: Some(what.to_owned()),
        int_value: Some(value),
        bool_value: None,
    }
}
