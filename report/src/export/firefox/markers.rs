//! Calls of a trace as markers: one for each call, from its start to its end.

use crate::export::call_times::{CallEvent, CallWithResult, TaskCalls, put_events};
use fxprof_processed_profile as fx;
use std::io;
use uprof::SpanKind;

/// Creates markers for calls.
pub(super) struct Markers<'n> {
    names: &'n [String],
}

/// A call.
struct CallMarker {
    name: fx::StringHandle,
    /// The description of the call.
    told: fx::StringHandle,
}

impl fx::StaticSchemaMarker for CallMarker {
    const UNIQUE_MARKER_TYPE_NAME: &'static str = "Call";
    const DESCRIPTION: Option<&'static str> = Some("A call of a trace");
    const CHART_LABEL: Option<&'static str> = Some("{marker.name}");
    const TABLE_LABEL: Option<&'static str> = Some("{marker.name} {marker.data.call}");
    const FIELDS: &'static [fx::StaticSchemaMarkerField] = &[fx::StaticSchemaMarkerField {
        key: "call",
        label: "Call",
        format: fx::MarkerFieldFormat::String,
        flags: fx::MarkerFieldFlags::SEARCHABLE,
    }];

    fn name(&self, _: &mut fx::Profile) -> fx::StringHandle {
        self.name
    }

    fn category(&self, _: &mut fx::Profile) -> fx::CategoryHandle {
        fx::CategoryHandle::OTHER
    }

    fn string_field_value(&self, _: u32) -> fx::StringHandle {
        self.told
    }

    fn number_field_value(&self, _: u32) -> f64 {
        0.0
    }
}

impl<'n> Markers<'n> {
    /// Markers for calls with these names.
    pub(super) fn new(names: &'n [String]) -> Self {
        Markers { names }
    }

    /// Adds the calls of a thread, whose recording begins at `offset_ns`.
    ///
    /// # Errors
    /// It has none of its own.
    pub(super) fn add(
        &mut self,
        made: &mut fx::Profile,
        thread: fx::ThreadHandle,
        offset_ns: u64,
        calls: &TaskCalls,
    ) -> io::Result<()> {
        let time =
            |ns: u64| fx::Timestamp::from_nanos_since_reference(offset_ns.saturating_add(ns));
        let mut open: Vec<(CallWithResult<'_>, u64)> = Vec::new();
        put_events(calls, &mut |event| {
            let (told, timing) = match event {
                CallEvent::Begin(told, at_ns) => {
                    open.push((told, at_ns));
                    return Ok(());
                }
                CallEvent::Instant(told, at_ns) => (told, fx::MarkerTiming::Instant(time(at_ns))),
                CallEvent::End(at_ns) => match open.pop() {
                    Some((told, since_ns)) => (
                        told,
                        fx::MarkerTiming::Interval(time(since_ns), time(at_ns)),
                    ),
                    None => return Ok(()),
                },
            };
            let marker = self.marker(made, told);
            made.add_marker(thread, timing, marker);
            Ok(())
        })?;
        for (told, since_ns) in open {
            let marker = self.marker(made, told);
            made.add_marker(
                thread,
                fx::MarkerTiming::IntervalStart(time(since_ns)),
                marker,
            );
        }
        Ok(())
    }

    fn marker(
        &self,
        made: &mut fx::Profile,
        CallWithResult { call, result }: CallWithResult<'_>,
    ) -> CallMarker {
        let kind = match call.kind {
            SpanKind::Syscall => "system call",
            kind => kind.name(),
        };
        let told = match (result, call.is_complete(), call.length_ns()) {
            (Some(result), ..) => format!("{kind}, returned {result}"),
            (None, true, _) => kind.to_owned(),
            (None, false, None) => format!("{kind}, its end is not in the trace"),
            (None, false, Some(_)) => format!("{kind}, its beginning is not in the trace"),
        };
        let name = self.names.get(call.name as usize);
        CallMarker {
            name: made.intern_string(name.map_or("", |name| name)),
            told: made.intern_string(&told),
        }
    }
}
