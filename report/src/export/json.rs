//! A whole profile as one JSON object, for scripts: its account, all labels, and all stacks with their
//! counts.

use crate::export::Request;
use crate::profile::Profile;
use crate::profile::labels::LabelId;
use crate::profile::tree::NodeId;
use crate::profile::vcpu_times::Spent;
use crate::recording::{Recording, Unit, last_part};
use crate::text::hexadecimal;
use crate::text::json_writer::JsonWriter;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::io::{self, Write};
use uprof::cold::Place;

/// Incremented when the meaning of a field changes.
const VERSION: u32 = 1;

/// Writes the object: `format`, `version`, `recordings`, `account`, `labels` (by number) and
/// `stacks`, each with `frames` (label numbers, outermost first) and `count` in the `unit` of the account.
pub(crate) fn write(request: &Request<'_, '_>, out: &mut dyn Write) -> io::Result<Profile> {
    let profile = request.gather(request.options, None);
    let out = &mut JsonWriter(out);
    let recordings: Vec<Value> = request
        .recordings
        .iter()
        .map(|one| about(one, request.identify))
        .collect();
    let head = json!({
        "format": "uniprof-profile",
        "version": VERSION,
        "recordings": recordings,
        "account": account(&profile),
    });
    // Written piece by piece, to avoid a second copy of millions of stacks in memory.
    let head = head.to_string();
    let open = head.strip_suffix('}').unwrap_or(&head);
    write!(out, "{open},\"labels\":[")?;
    for label in 0..profile.labels.len() as LabelId {
        let separator = if label == 0 { "\n" } else { ",\n" };
        write!(out, "{separator}{}", label_value(&profile, label))?;
    }
    out.write_all(b"],\"stacks\":[")?;
    let mut separator = "\n";
    let nodes = profile.tree.nodes().iter().enumerate();
    for (number, node) in nodes.filter(|(_, node)| node.count > 0) {
        let mut frames: Vec<LabelId> = profile.tree.outwards(number as NodeId).collect();
        frames.reverse();
        let stack = json!({"frames": frames, "count": node.count});
        write!(out, "{separator}{stack}")?;
        separator = ",\n";
    }
    out.write_all(b"]")?;
    if profile.unit() == Unit::VcpuTime {
        write_vcpus(&profile, out)?;
    }
    out.write_all(b"}\n")?;
    Ok(profile)
}

/// Writes `vcpu_times`, an object for each vCPU, and `exits`, one for each function and reason, in no order of meaning.
fn write_vcpus(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let spent = |spent: &Spent| -> Map<String, Value> {
        let places = Place::ALL.iter().zip(spent);
        let places = places.map(|(place, ns)| (format!("{}_ns", place.name()), json!(ns)));
        places.collect()
    };
    let times = &profile.vcpu_times.rows;
    let times = times.iter().map(|row| {
        json!({
            "recording": row.recording,
            "vcpu": row.task.vcpu,
            "wall_ns": row.wall_ns,
            "spent": spent(&row.spent),
        })
    });
    write!(out, ",\"vcpu_times\":{}", Value::Array(times.collect()))?;
    let mut exits: Vec<_> = profile.exits.by_both.iter().collect();
    exits.sort_by_key(|(key, _)| **key);
    out.write_all(b",\"exits\":[")?;
    for (number, ((function, reason), sum)) in exits.into_iter().enumerate() {
        let exits = json!({
            "function": function,
            "reason": profile.labels.text(*reason),
            "count": sum.count,
            "seen": sum.seen,
            "spent": spent(&sum.spent),
            "mean_ns": sum.mean_ns(),
            "p99_ns": sum.percentile_ns(0.99),
        });
        write!(out, "{}{exits}", if number == 0 { "\n" } else { ",\n" })?;
    }
    let interrupted = &profile.exits.interrupted;
    let interrupted = json!({"count": interrupted.count, "spent": spent(&interrupted.spent)});
    write!(out, "],\"interrupted_by_the_recorder\":{interrupted}")
}

/// A recording as a few fields. Its host and path are included only with `identify`.
pub(crate) fn about(recording: &Recording, identify: bool) -> Value {
    let metadata = recording.metadata();
    let (name, target) = if identify {
        (recording.name(), metadata.target.name.as_str())
    } else {
        (last_part(recording.name()), recording.subject())
    };
    let uuid = recording.uuid().map(|uuid| hexadecimal(&uuid));
    json!({
        "name": name,
        "uuid": uuid,
        "target": target,
        "labels": metadata.labels.iter().cloned().collect::<BTreeMap<_, _>>(),
        "target_kind": metadata.target.kind.name(),
        "host": identify.then_some(&metadata.host.name),
        "architecture": metadata.target.arch.name(),
        "started_ns_since_1970": recording.start_realtime_ns(),
        "seconds": recording.is_timed().then(|| recording.seconds()),
        "rate_hz": metadata.sampling.rate_millihertz as f64 / 1000.0,
    })
}

/// The profile's account.
pub(crate) fn account(profile: &Profile) -> Value {
    let account = &profile.account;
    let by_state: BTreeMap<_, _> = account
        .by_state
        .iter()
        .map(|(it, n)| (it.name(), n))
        .collect();
    let cut: BTreeMap<_, _> = account.cut.iter().map(|(it, n)| (it.name(), n)).collect();
    let lost: BTreeMap<_, _> = account.lost.iter().map(|(it, n)| (it.name(), n)).collect();
    json!({
        "unit": account.unit.name(),
        "read": account.read,
        "counted": account.counted,
        "filtered": account.outside.saturating_add(account.unfocused),
        "other_states": by_state,
        "cut_stacks": cut,
        "late": account.late,
        "without_frames": account.empty,
        "callers_that_may_be_missing": account.lacking,
        "lost": lost,
        "lost_with_damage": account.damaged,
        "damaged_places": account.damages,
        "undecodable": account.undecoded,
        "unfinished_recordings": account.unfinished,
        "seconds": (!account.untimed).then_some(account.seconds),
    })
}

fn label_value(profile: &Profile, id: LabelId) -> Value {
    let labels = &profile.labels;
    let label = labels.get(id);
    json!({
        "name": labels.name(id),
        "module": labels.text(label.module),
        "file": labels.text(label.file),
        "line": label.line,
        "kernel": label.kernel,
        "inlined": label.inlined,
        "unknown": label.unknown,
    })
}
