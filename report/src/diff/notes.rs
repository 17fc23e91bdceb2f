//! Describes what is compared, and warns of what makes the comparison weaker than it looks.

use super::matching::Kind;
use super::series::{Quantity, Series};
use crate::profile::Filter;
use crate::profile::vcpu_times::{VcpuTimes, has_any, hypervisor};
use crate::recording::account::Account;
use crate::recording::unit::Unit;
use crate::recording::warnings::Warning;
use crate::recording::{Recording, last_part};
use crate::text::calendar::calendar;
use crate::text::hexadecimal;
use std::collections::BTreeSet;
use uprof::cold::{Metadata, Place};
use uprof::words::{duration, share};

/// A recording in one line: name, target, build-id and date; with `identify`, also its path and host.
pub(super) fn describe(recording: &Recording, identify: bool) -> String {
    let metadata = recording.metadata();
    let name = if identify {
        recording.name()
    } else {
        last_part(recording.name())
    };
    let mut parts = vec![name.to_owned()];
    if !metadata.target.name.is_empty() {
        parts.push(recording.subject().to_owned());
    }
    parts.extend(build_id(recording).map(|id| format!("build {id}")));
    parts.extend(
        recording
            .start_realtime_ns()
            .map(|ns| format!("{} UTC", calendar(ns))),
    );
    if identify && !metadata.host.name.is_empty() {
        parts.push(format!("on {}", metadata.host.name));
    }
    parts.push(if recording.is_timed() {
        format!("{:.1} s", recording.seconds())
    } else {
        "no times in what was imported".to_owned()
    });
    parts.join(", ")
}

/// The build-id of the program itself: the first image that is neither a kernel nor a library.
fn build_id(recording: &Recording) -> Option<String> {
    let modules = recording.spaces().modules().iter();
    let mut programs = modules.filter(|module| {
        let is_library = module.path.contains(".so") || module.path.starts_with('[');
        !is_library && !module.build_id.is_empty()
    });
    let id = &programs.next()?.build_id;
    Some(hexadecimal(&id[..id.len().min(6)]))
}

/// Differences between the sides that are not changes of the program.
pub(super) fn warnings(
    sides: [&[&Recording]; 2],
    accounts: &[Account; 2],
    identify: bool,
) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let hosts = sides.map(|side| {
        let names = side.iter().map(|one| one.metadata().host.name.as_str());
        names.collect::<BTreeSet<&str>>()
    });
    if hosts[0] != hosts[1] && !identify {
        warnings.push(Warning::OtherHosts);
    }
    let mut differ = |what: &'static str, of: &dyn Fn(&Metadata) -> String| {
        let [in_a, in_b] = sides.map(|side| {
            let values = side.iter().map(|one| of(one.metadata()));
            values.collect::<BTreeSet<String>>()
        });
        if in_a != in_b {
            let words = |set: BTreeSet<String>| set.into_iter().collect::<Vec<_>>().join(", ");
            let sides = [words(in_a), words(in_b)];
            warnings.push(Warning::Differ { what, sides });
        }
    };
    differ("requested rates", &|metadata| {
        format!("{} Hz", metadata.sampling.rate_millihertz as f64 / 1000.0)
    });
    differ("triggers", &|metadata| metadata.sampling.trigger.clone());
    differ("hosts", &|metadata| {
        if identify {
            metadata.host.name.clone()
        } else {
            String::new()
        }
    });
    differ("processors", &|metadata| {
        format!("{} × {}", metadata.host.processors, metadata.host.processor)
    });
    differ("systems", &|metadata| metadata.host.system.clone());
    differ("architectures", &|metadata| {
        metadata.target.arch.name().to_owned()
    });
    let [length_a, length_b] =
        [0, 1].map(|side| accounts[side].seconds / sides[side].len().max(1) as f64);
    let is_timed = !accounts.iter().any(|account| account.untimed);
    if is_timed && length_a.max(length_b) > 1.5 * length_a.min(length_b) {
        warnings.push(Warning::OtherLengths([length_a, length_b]));
    }
    let [rate_a, rate_b] = accounts.each_ref().map(|account| {
        if account.seconds > 0.0 {
            account.counted as f64 / account.seconds
        } else {
            0.0
        }
    });
    let unit = accounts[0].unit;
    // For calls, the rates themselves are compared.
    if is_timed && unit != Unit::Calls && rate_a.max(rate_b) > 1.2 * rate_a.min(rate_b) {
        let sides = [rate_a, rate_b].map(|rate| match unit {
            Unit::Samples => format!("{rate:.1}"),
            Unit::Sampled | Unit::OffCpu | Unit::Calls | Unit::VcpuTime => duration(rate as u64),
        });
        warnings.push(Warning::OtherLoad { unit, sides });
    }
    if sides.iter().all(|side| side.len() == 1) {
        warnings.push(Warning::SingleRuns);
    }
    for (side, account) in ["A", "B"].into_iter().zip(accounts) {
        if account.is_incomplete() {
            let missing = account.missing();
            warnings.push(Warning::IncompleteSide { side, missing });
        }
        let rows = account.counted_samples();
        if rows < 1000 {
            let unit = account.unit;
            warnings.push(Warning::FewRows { side, rows, unit });
        }
    }
    warnings
}

/// A smaller share of a side is not mentioned.
const LEAST_UNMATCHED: f64 = 0.01;

/// The share of each side that can't be matched.
pub(super) fn unmatched(series: &Series) -> Option<Warning> {
    let parts = [0, 1].map(|side| {
        let own = |stack: &Vec<usize>| {
            stack.iter().any(|item| {
                let item = &series.items[*item];
                let kind = series.functions[item.function as usize].kind;
                item.counted == Quantity::Own && matches!(kind, Kind::Pooled | Kind::Unmatched)
            })
        };
        let is_unmatched: Vec<bool> = series.stacks.iter().map(own).collect();
        let cells = series.sides[side]
            .recordings
            .iter()
            .flat_map(|it| &it.cells);
        let unmatched: f64 = cells
            .filter(|cell| is_unmatched[cell.stack])
            .map(|cell| cell.count)
            .sum();
        unmatched / series.sides[side].total().max(1.0)
    });
    (parts[0].max(parts[1]) >= LEAST_UNMATCHED).then_some(Warning::Unmatched(parts))
}

/// The least difference of a share that is worth a sentence.
const LEAST_POINTS: f64 = 0.1;

/// A sentence for each place where the vCPUs of one side spent another share of their wall time, if both sides have it.
pub(super) fn wall_times(sides: [&[&Recording]; 2], filter: &Filter) -> Vec<String> {
    if !sides.iter().all(|side| side.iter().any(|one| has_any(one))) {
        return Vec::new();
    }
    let [a, b] = sides.map(|side| {
        let mut times = VcpuTimes::default();
        for (number, recording) in side.iter().enumerate() {
            times.add(number, recording, filter);
        }
        times.total()
    });
    let kind = sides[0].first().map(|one| one.metadata().target.kind);
    let by = kind.map_or("KVM", hypervisor);
    let places = Place::ALL.iter().zip(a.1.iter().zip(b.1));
    let sentences = places.filter_map(|(place, (in_a, in_b))| {
        let share_of = |ns: u64, wall_ns: u64| ns as f64 * 100.0 / wall_ns.max(1) as f64;
        let points = share_of(in_b, b.0) - share_of(*in_a, a.0);
        let what = match place {
            Place::Guest => "in guest code",
            Place::Hypervisor => "handling exits in the hypervisor",
            Place::Monitor => "handling exits in the monitor",
            Place::Ready => "waiting for a processor",
            Place::Halted => "halted",
            Place::Paused => "paused by the recorder",
            Place::Unknown => "at an unknown place",
        };
        (points.abs() >= LEAST_POINTS).then(|| {
            format!(
                "vCPUs spent {} / {} of their wall time {}: {points:+.1} points, not tested (--time does)",
                share(*in_a, a.0),
                share(in_b, b.0),
                what.replace("the hypervisor", by)
            )
        })
    });
    sentences.collect()
}
