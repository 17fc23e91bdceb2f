//! Processes and threads as Perfetto's tracks. Processes and threads with known numbers keep them, in the first
//! recording that has them: numbers are all that Perfetto tells processes apart by. vCPUs, threads whose process is
//! unknown in a trace, and later recordings of a number get numbers above all those of Linux.

use super::message as pb;
use crate::export::timeline::Who;
use crate::recording::processes::{name_at, task_name};
use crate::recording::{Recording, last_part};
use crate::text::printable;
use std::collections::BTreeMap;
use uprof::cold::TargetKind;

/// PID_MAX_LIMIT of Linux, which is above all numbers of its threads.
const FIRST_MADE: u32 = 1 << 22;

/// A thread's track.
#[derive(Debug, Clone, Copy)]
pub(super) struct Thread {
    pub(super) uuid: u64,
    pub(super) pid: u32,
    pub(super) tid: u32,
}

/// The tracks of a trace.
#[derive(Default)]
pub(super) struct Tracks {
    /// Tracks of processes, by recording and address space.
    processes: BTreeMap<(usize, u32), (u64, u32)>,
    threads: BTreeMap<Who, Thread>,
    /// Tracks of calls, by thread and the trace that they are of.
    calls: BTreeMap<(u64, usize), u64>,
    /// The recording that each number of Linux belongs to.
    owners: BTreeMap<u32, usize>,
    made: u32,
    uuids: u64,
}

impl Tracks {
    /// The track of a thread. New tracks are written.
    pub(super) fn thread(
        &mut self,
        recordings: &[&Recording],
        who: Who,
    ) -> (Thread, Vec<pb::TrackDescriptor>) {
        if let Some(known) = self.threads.get(&who) {
            return (*known, Vec::new());
        }
        let recording = recordings[who.0];
        let mut new = Vec::new();
        let (parent, pid) = match self.processes.get(&(who.0, who.1.space)) {
            Some(known) => *known,
            None => self.add_process(recordings, who, &mut new),
        };
        let thread = Thread {
            uuid: self.uuid(),
            pid,
            tid: self.number(recordings, who.0, who.1.vcpu),
        };
        self.threads.insert(who, thread);
        let name = task_name(recording, who.1, u64::MAX);
        new.push(pb::TrackDescriptor {
            uuid: Some(thread.uuid),
            parent_uuid: Some(parent),
            thread: Some(pb::ThreadDescriptor {
                pid: Some(pid as i32),
                tid: Some(i64::from(thread.tid)),
                thread_name: Some(printable(&name).into_owned()),
            }),
            ..pb::TrackDescriptor::default()
        });
        (thread, new)
    }

    /// The track of a trace's calls in a thread: the thread's own for the first trace. The calls of another would end
    /// those of the first, and get one below it.
    pub(super) fn calls(
        &mut self,
        recordings: &[&Recording],
        thread: Thread,
        trace: usize,
    ) -> (u64, Option<pb::TrackDescriptor>) {
        if let Some(known) = self.calls.get(&(thread.uuid, trace)) {
            return (*known, None);
        }
        let mut of_thread = self
            .calls
            .range((thread.uuid, 0)..=(thread.uuid, usize::MAX));
        let is_first = of_thread.next().is_none();
        let uuid = if is_first { thread.uuid } else { self.uuid() };
        self.calls.insert((thread.uuid, trace), uuid);
        let descriptor = (!is_first).then(|| pb::TrackDescriptor {
            uuid: Some(uuid),
            parent_uuid: Some(thread.uuid),
            name: Some(printable(last_part(recordings[trace].name())).into_owned()),
            ..pb::TrackDescriptor::default()
        });
        (uuid, descriptor)
    }

    /// A track of numbers below a thread's.
    pub(super) fn counter(
        &mut self,
        thread: Thread,
        name: &str,
        unit: &str,
    ) -> pb::TrackDescriptor {
        pb::TrackDescriptor {
            uuid: Some(self.uuid()),
            parent_uuid: Some(thread.uuid),
            name: Some(name.to_owned()),
            counter: Some(pb::CounterDescriptor {
                unit_name: Some(unit.to_owned()),
            }),
            ..pb::TrackDescriptor::default()
        }
    }

    fn add_process(
        &mut self,
        recordings: &[&Recording],
        who: Who,
        new: &mut Vec<pb::TrackDescriptor>,
    ) -> (u64, u32) {
        let (recording, space) = (recordings[who.0], who.1.space);
        let found = (self.uuid(), self.number(recordings, who.0, space));
        self.processes.insert((who.0, space), found);
        let mut name = match recording.metadata().target.kind {
            TargetKind::Process => name_at(recording, space, u64::MAX),
            TargetKind::Imported if space > 0 => format!("{} ({space})", recording.subject()),
            _ => recording.subject().to_owned(),
        };
        if !recording.is_timed() {
            name.push_str(" (in order: there are no times)");
        }
        new.push(pb::TrackDescriptor {
            uuid: Some(found.0),
            process: Some(pb::ProcessDescriptor {
                pid: Some(found.1 as i32),
                process_name: Some(printable(&name).into_owned()),
            }),
            ..pb::TrackDescriptor::default()
        });
        found
    }

    fn uuid(&mut self) -> u64 {
        self.uuids += 1;
        self.uuids
    }

    fn number(&mut self, recordings: &[&Recording], recording: usize, own: u32) -> u32 {
        let is_process = recordings[recording].metadata().target.kind == TargetKind::Process;
        let is_known = is_process && own > 0 && own < FIRST_MADE;
        if is_known && *self.owners.entry(own).or_insert(recording) == recording {
            return own;
        }
        self.made += 1;
        FIRST_MADE + self.made
    }
}
