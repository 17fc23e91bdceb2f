//! One time axis for several recordings. Input: recordings. Output: the position of each on the axis, or why
//! it can't be known. A clock is never guessed. A recording of uniprof has CLOCK_MONOTONIC of the machine
//! that recorded, and pairs of it and the time of day. An imported one has the clock that its format states
//! (format-spec.md, section 15.2).

use crate::recording::{Recording, last_part};
use std::collections::BTreeMap;
use uprof::Task;
use uprof::cold::TargetKind;

/// The positions of recordings on the axis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeline {
    /// Start of each recording, in nanoseconds from the start of the first one.
    pub offsets_ns: Vec<u64>,
    /// Start of the first one, in nanoseconds since 1970-01-01 00:00 UTC; `None` if it is unknown.
    pub start_realtime_ns: Option<i64>,
}

/// Why recordings have no time axis in common.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TimelineError {
    /// This one does not overlap any other.
    #[error("{0} was not made at the time of any other: export it alone")]
    Apart(String),
    /// This one has no times.
    #[error("{0} has an order and no times: export it alone")]
    Untimed(String),
    /// The clock of this one is unknown, or is not that of the others.
    #[error(
        "{0} doesn't say which clock its times are of, or has no clock in common with the others: import it with \
         --clock, or export it alone"
    )]
    NoCommonClock(String),
}

/// A thread, with the number of the recording that knows most about it.
pub(crate) type Who = (usize, Task);

impl Timeline {
    /// Each recording starts at 0, without a common axis.
    pub(crate) fn apart(recordings: &[&Recording]) -> Timeline {
        let first = recordings.first();
        Timeline {
            offsets_ns: vec![0; recordings.len()],
            start_realtime_ns: first.and_then(|one| one.start_realtime_ns()),
        }
    }

    /// Positions by the clock that the recordings have in common.
    ///
    /// # Errors
    /// Why they have no common clock, or that they were made at different times.
    pub fn of(recordings: &[&Recording]) -> Result<Timeline, TimelineError> {
        if recordings.len() < 2 {
            return Ok(Timeline::apart(recordings));
        }
        let starts = starts(recordings)?;
        let ranges: Vec<(i128, i128)> = recordings
            .iter()
            .zip(&starts.at_ns)
            .map(|(one, start)| (*start, start + i128::from(one.end_ns() - one.start_ns())))
            .collect();
        for (number, (start, end)) in ranges.iter().enumerate() {
            let mut others = ranges
                .iter()
                .enumerate()
                .filter(|(other, _)| *other != number);
            if !others.any(|(_, other)| other.0 <= *end && *start <= other.1) {
                return Err(TimelineError::Apart(name(recordings[number])));
            }
        }
        let first = starts.at_ns.iter().min().copied().unwrap_or(0);
        let offset = |start: &i128| u64::try_from(start - first).unwrap_or(u64::MAX);
        Ok(Timeline {
            offsets_ns: starts.at_ns.iter().map(offset).collect(),
            start_realtime_ns: i64::try_from(first).ok().filter(|_| starts.are_realtime),
        })
    }
}

struct Starts {
    /// Start of each recording on the common clock (nanoseconds).
    at_ns: Vec<i128>,
    are_realtime: bool,
}

fn starts(recordings: &[&Recording]) -> Result<Starts, TimelineError> {
    if let Some(one) = recordings.iter().find(|one| !one.is_timed()) {
        return Err(TimelineError::Untimed(name(one)));
    }
    let monotonic = |one: &Recording| i128::from(one.start_ns());
    // The difference between the time of day and the monotonic clock of the machine that recorded.
    let bridge = recordings.iter().find_map(|one| {
        let realtime_ns = one.start_realtime_ns().filter(|_| one.is_monotonic())?;
        Some(i128::from(realtime_ns) - monotonic(one))
    });
    let realtime = |one: &&Recording| {
        let own = one.start_realtime_ns().map(i128::from);
        let by_bridge = bridge.filter(|_| one.is_monotonic());
        own.or_else(|| by_bridge.map(|between| monotonic(one) + between))
    };
    let all: Option<Vec<i128>> = recordings.iter().map(realtime).collect();
    if let Some(at_ns) = all {
        return Ok(Starts {
            at_ns,
            are_realtime: true,
        });
    }
    if recordings.iter().all(|one| one.is_monotonic()) {
        return Ok(Starts {
            at_ns: recordings.iter().map(|one| monotonic(one)).collect(),
            are_realtime: false,
        });
    }
    let unknown = recordings.iter().find(|one| realtime(one).is_none());
    let which = unknown.map_or(String::new(), |one| name(one));
    Err(TimelineError::NoCommonClock(which))
}

fn name(recording: &Recording) -> String {
    last_part(recording.name()).to_owned()
}

/// Homes of threads that a trace knows only by number: the process that was recorded at the same time.
pub(crate) struct Homes(BTreeMap<u32, Who>);

impl Homes {
    /// The homes, from the threads of recorded processes.
    pub(crate) fn new<'t>(
        recordings: &[&Recording],
        threads: impl Iterator<Item = &'t Who>,
    ) -> Homes {
        let of_process =
            |who: &&Who| recordings[who.0].metadata().target.kind == TargetKind::Process;
        let known = threads.filter(of_process);
        Homes(known.map(|who| (who.1.vcpu, *who)).collect())
    }

    /// The thread that these calls belong to.
    pub(crate) fn of(&self, recordings: &[&Recording], who: Who) -> Who {
        let is_trace = recordings[who.0].metadata().target.kind == TargetKind::Imported;
        let known = self.0.get(&who.1.vcpu).filter(|_| is_trace);
        let same = known.filter(|known| who.1.space == 0 || who.1.space == known.1.space);
        same.copied().unwrap_or(who)
    }
}
