//! speedscope's own format (<https://www.speedscope.app/file-format-schema.json>): one sampled profile for each vCPU
//! or thread, its samples in order of time, weighted with 1 or with the time waited.

use crate::export::{Request, ThreadSample};
use crate::profile::Profile;
use crate::profile::labels::LabelId;
use crate::recording::last_part;
use crate::recording::processes::task_name;
use crate::recording::unit::Unit;
use crate::text::json_writer::JsonWriter;
use serde_json::{Value, json};
use std::io::{self, Write};

/// Writes the file.
pub(crate) fn write(request: &Request<'_, '_>, out: &mut dyn Write) -> io::Result<Profile> {
    let (profile, threads) = request.gather_threads();
    let out = &mut JsonWriter(out);
    let frames = (0..profile.labels.len() as LabelId).map(|label| frame(&profile, label));
    let head = json!({
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "exporter": concat!("uniprof ", env!("CARGO_PKG_VERSION")),
        "name": request.recordings.first().map_or("", |recording| last_part(recording.name())),
        "shared": {"frames": frames.collect::<Vec<Value>>()},
    });
    let head = head.to_string();
    let open = head.strip_suffix('}').unwrap_or(&head);
    write!(out, "{open},\"profiles\":[")?;
    // Each frame is written once: a stack of a thousand frames may occur in a million samples.
    let numbers = 0..profile.labels.len() as LabelId;
    let numbers: Vec<String> = numbers.map(|label| label.to_string()).collect();
    let mut separator = "\n";
    for ((recording, task), samples) in &threads {
        let recording = &request.recordings[*recording];
        let name = format!("{} ({})", task_name(recording, *task, u64::MAX), task.vcpu);
        let name = Value::from(crate::text::printable(&name).into_owned());
        let unit = match profile.unit() {
            Unit::Samples => "none",
            Unit::Sampled | Unit::OffCpu | Unit::Calls | Unit::VcpuTime => "nanoseconds",
        };
        let whole: u64 = samples.iter().map(|sample| sample.weight).sum();
        write!(
            out,
            "{separator}{{\"type\":\"sampled\",\"name\":{name},\"unit\":\"{unit}\",\
             \"startValue\":0,\"endValue\":{whole},\"samples\":["
        )?;
        write_samples(&profile, samples, &numbers, out)?;
        out.write_all(b"],\"weights\":[")?;
        for (index, sample) in samples.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(out, "{comma}{}", sample.weight)?;
        }
        out.write_all(b"]}")?;
        separator = ",\n";
    }
    out.write_all(b"]}\n")?;
    Ok(profile)
}

fn write_samples(
    profile: &Profile,
    samples: &[ThreadSample],
    numbers: &[String],
    out: &mut dyn Write,
) -> io::Result<()> {
    let (mut line, mut stack) = (String::new(), Vec::new());
    for (index, sample) in samples.iter().enumerate() {
        stack.clear();
        stack.extend(profile.tree.outwards(sample.node));
        line.clear();
        line.push_str(if index == 0 { "[" } else { ",[" });
        for (depth, label) in stack.iter().rev().enumerate() {
            line.push_str(if depth == 0 { "" } else { "," });
            line.push_str(&numbers[*label as usize]);
        }
        line.push(']');
        out.write_all(line.as_bytes())?;
    }
    Ok(())
}

fn frame(profile: &Profile, id: LabelId) -> Value {
    let labels = &profile.labels;
    let label = labels.get(id);
    let mut frame = json!({"name": labels.name(id)});
    // speedscope shows only one: the source file if it is known, else the image.
    match (labels.text(label.file), labels.text(label.module)) {
        ("", "") => {}
        ("", module) => frame["file"] = module.into(),
        (file, _) => {
            frame["file"] = file.into();
            if label.line > 0 {
                frame["line"] = label.line.into();
            }
        }
    }
    frame
}
