//! The output of `perf script` (tools/perf/Documentation/perf-script.txt, fields comm, tid, time, event, ip, sym,
//! symoff, dso): one paragraph for each sample, innermost frame first. The number before the event is the sample's
//! weight: 1, or nanoseconds off-CPU.

use crate::export::Request;
use crate::profile::Profile;
use crate::profile::gather::Sampled;
use crate::profile::labels::LabelId;
use crate::recording::Recording;
use crate::recording::processes;
use crate::recording::processes::task_name;
use crate::recording::unit::Unit;
use crate::text::hexadecimal::put_hexadecimal;
use crate::text::printable;
use std::io::{self, Write};

/// Writes the text, sample by sample.
pub(crate) fn write(request: &Request<'_, '_>, out: &mut dyn Write) -> io::Result<Profile> {
    let mut result = Ok(());
    let mut line = String::new();
    let mut take = |sampled: &Sampled, profile: &Profile| {
        if result.is_ok() {
            line.clear();
            let recording = request.recordings[sampled.recording];
            put_sample(&mut line, recording, sampled, profile);
            result = out.write_all(line.as_bytes());
        }
    };
    let profile = request.gather(&request.placed(), Some(&mut take));
    result.map(|()| profile)
}

fn put_sample(line: &mut String, recording: &Recording, sampled: &Sampled, profile: &Profile) {
    let time_ns = sampled.since_ns.saturating_add(recording.start_ns());
    let comm = task_name(recording, sampled.task, time_ns);
    let comm = printable(&comm).replace(char::is_whitespace, "_");
    let task = sampled.task;
    let pid = processes::pid_at(recording, sampled.space, time_ns);
    let (seconds, micros) = (time_ns / 1_000_000_000, time_ns / 1_000 % 1_000_000);
    let event = match (sampled.unit, recording.metadata().sampling.trigger.as_str()) {
        // The event's name in perf.
        (Unit::OffCpu, _) => "offcpu-time",
        (Unit::Calls, _) => "call-time",
        (Unit::VcpuTime, _) => "vcpu-time",
        (Unit::Samples | Unit::Sampled, "") => "samples",
        (Unit::Samples | Unit::Sampled, trigger) => trigger,
    };
    let event =
        printable(event).replace(|letter: char| letter.is_whitespace() || letter == ':', "-");
    line.push_str(&format!(
        "{comm} {}/{} {seconds}.{micros:06}: {} {event}: \n",
        pid.unwrap_or(task.space),
        task.vcpu,
        sampled.weight.amount
    ));
    for label in profile.tree.outwards(sampled.node) {
        put_frame(line, profile, label);
    }
    line.push('\n');
}

fn put_frame(line: &mut String, profile: &Profile, id: LabelId) {
    let labels = &profile.labels;
    let label = labels.get(id);
    let address = label.offset.wrapping_add(u64::from(label.is_return));
    let module = match (label.inlined, labels.text(label.module)) {
        (true, _) => "inlined",
        (false, "") => "[unknown]",
        (false, module) => module,
    };
    line.push('\t');
    put_hexadecimal(line, address, 16);
    line.push(' ');
    line.push_str(if label.unknown {
        "[unknown]"
    } else {
        labels.name(id)
    });
    if !label.unknown && !label.inlined {
        line.push_str("+0x");
        put_hexadecimal(line, label.into_bytes, 1);
    }
    for text in [" (", module, ")\n"] {
        line.push_str(text);
    }
}
