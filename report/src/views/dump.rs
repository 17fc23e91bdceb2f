//! `dump`: one line a record, in file order; format-spec.md, "Dump text", states the form, which
//! does not change within a major version of the format.
//!
//! A line is a word and then `name=value` pairs with a space between them. Numbers are decimal,
//! addresses, registers and identities lower-case hexadecimal without a prefix; what is not known
//! is `-`. Texts are quoted, with `\"`, `\\` and, for every byte outside printable ASCII, `\xHH`.

use std::fmt::Write as _;
use std::io::{self, Write};
use uprof::cold::{EndReason, LossReason, ModuleChange, TaskChange};
use uprof::{Block, Found, FrameKind, Item, Payload, Row, SampleBlock};

/// What to write.
#[derive(Debug, Clone, Copy, Default)]
pub struct DumpOptions {
    /// Lines of samples only.
    pub samples_only: bool,
}

/// Writes the lines of one item of a recording; `true` if it was sound.
///
/// # Errors
/// What `out` returns.
pub fn write_item(item: &Item<'_>, options: DumpOptions, out: &mut dyn Write) -> io::Result<bool> {
    match item {
        Item::Damage(damage) => {
            let samples = damage
                .samples
                .map_or("-".to_owned(), |samples| samples.to_string());
            let (offset, bytes) = (damage.offset, damage.bytes);
            let what = quoted(&damage.to_string());
            if !options.samples_only {
                writeln!(
                    out,
                    "damage offset={offset} bytes={bytes} samples={samples} what={what}"
                )?;
            }
            Ok(false)
        }
        Item::Block(block) => write_block(block, options, out),
    }
}

fn write_block(block: &Block<'_>, options: DumpOptions, out: &mut dyn Write) -> io::Result<bool> {
    if !options.samples_only {
        let kind = block.known_type().map_or("unknown", uprof::BlockType::name);
        writeln!(
            out,
            "block sequence={} type={kind} offset={} bytes={} raw={} first={} last={} samples={}",
            block.sequence,
            block.offset,
            block.file_bytes(),
            block.raw_bytes,
            block.first_ns,
            block.last_ns,
            block.samples
        )?;
    }
    match block.payload() {
        Ok(Payload::Samples(samples)) => write_samples(block, &samples, options, out),
        Ok(_) if options.samples_only => Ok(true),
        Ok(payload) => write_cold(&payload, out).map(|()| true),
        Err(error) => {
            if !options.samples_only {
                writeln!(out, "fault what={}", quoted(&error.to_string()))?;
            }
            Ok(false)
        }
    }
}

fn write_samples(
    block: &Block<'_>,
    samples: &SampleBlock,
    options: DumpOptions,
    out: &mut dyn Write,
) -> io::Result<bool> {
    let mut rows = samples.rows();
    let mut line = String::new();
    loop {
        match rows.next_row() {
            Ok(Some(row)) => {
                line.clear();
                put_sample(&mut line, samples, &row);
                line.push('\n');
                out.write_all(line.as_bytes())?;
            }
            Ok(None) => return Ok(true),
            Err(fault) => {
                if !options.samples_only {
                    let what = block.error(fault).to_string();
                    writeln!(out, "fault what={}", quoted(&what))?;
                }
                return Ok(false);
            }
        }
    }
}

fn put_sample(line: &mut String, block: &SampleBlock, row: &Row<'_>) {
    let known = |value: Option<u64>| value.map_or("-".to_owned(), |value| value.to_string());
    put(
        line,
        format_args!(
            "sample time={} task={}/{} state={} stop={} cost={} late={} frames=",
            row.time_ns,
            row.task.space,
            row.task.vcpu,
            row.state.name(),
            row.stop.name(),
            known(row.cost_ns),
            known(row.late_ns)
        ),
    );
    let mut separator = "";
    for frame in block.chain(row.node) {
        let kind = match frame.kind {
            FrameKind::Exact => "e",
            FrameKind::Return => "r",
        };
        let found = match frame.found {
            Found::FramePointer => "f",
            Found::Cfi => "c",
            Found::Scan => "s",
        };
        put(
            line,
            format_args!("{separator}{:x}:{kind}{found}", frame.address),
        );
        separator = ",";
    }
    if separator.is_empty() {
        line.push('-');
    }
    line.push_str(" registers=");
    let mut separator = "";
    for (number, value) in row.registers.iter().flat_map(|registers| registers.iter()) {
        put(line, format_args!("{separator}{number}:{value:x}"));
        separator = ",";
    }
    if separator.is_empty() {
        line.push('-');
    }
    match row.stack {
        Some(stack) => {
            let sum = crc32fast::hash(stack.bytes);
            put(
                line,
                format_args!(" stack={:x}+{}:{sum:08x}", stack.address, stack.bytes.len()),
            );
        }
        None => line.push_str(" stack=-"),
    }
}

fn put(line: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a `String` can't fail.
    let _ = line.write_fmt(text);
}

fn write_cold(payload: &Payload, out: &mut dyn Write) -> io::Result<()> {
    match payload {
        Payload::Metadata(found) => {
            let command = found.recorder.command_line.join(" ");
            let (target, host, sampling) = (&found.target, &found.host, &found.sampling);
            writeln!(
                out,
                "metadata program={} command={} host={} system={} processor={} processors={} \
                 target={} kind={} id={} arch={} vcpus={} rate_millihertz={} trigger={} \
                 most_frames={} stack_bytes={} on_cpu_only={}",
                quoted(&found.recorder.program),
                quoted(&command),
                quoted(&host.name),
                quoted(&host.system),
                quoted(&host.processor),
                host.processors,
                quoted(&target.name),
                quoted(target.kind.name()),
                target.id,
                target.arch.name(),
                target.vcpus,
                sampling.rate_millihertz,
                quoted(&sampling.trigger),
                sampling.most_frames,
                sampling.stack_bytes,
                u8::from(sampling.on_cpu_only)
            )?;
            for (name, value) in &found.notes {
                writeln!(out, "note name={} value={}", quoted(name), quoted(value))?;
            }
            Ok(())
        }
        Payload::Tasks(events) => events.iter().try_for_each(|event| {
            let (time, task) = (event.time_ns, event.task);
            let what = match &event.what {
                TaskChange::Named(name) => format!("named={}", quoted(name)),
                TaskChange::Ended => "ended=1".to_owned(),
            };
            writeln!(
                out,
                "task time={time} task={}/{} {what}",
                task.space, task.vcpu
            )
        }),
        Payload::Modules(events) => events.iter().try_for_each(|event| {
            let what = module_change(&event.what);
            writeln!(
                out,
                "module time={} space={} {what}",
                event.time_ns, event.space
            )
        }),
        Payload::Clocks(pairs) => pairs.iter().try_for_each(|pair| {
            let guest = pair.guest.map_or("-".to_owned(), |guest| guest.to_string());
            let (monotonic, realtime) = (pair.monotonic_ns, pair.realtime_ns);
            writeln!(
                out,
                "clock monotonic={monotonic} realtime={realtime} guest={guest}"
            )
        }),
        Payload::Losses(losses) => losses.iter().try_for_each(|loss| {
            let task = loss
                .task
                .map(|task| format!("{}/{}", task.space, task.vcpu));
            writeln!(
                out,
                "loss first={} last={} task={} reason={} count={}",
                loss.first_ns,
                loss.last_ns,
                task.as_deref().unwrap_or("-"),
                reason(loss.reason),
                loss.count
            )
        }),
        other => write_rare(other, out),
    }
}

fn write_rare(payload: &Payload, out: &mut dyn Write) -> io::Result<()> {
    match payload {
        Payload::Spans(spans) => spans.iter().try_for_each(|span| {
            let start = span
                .start_ns
                .map_or("-".to_owned(), |start| start.to_string());
            writeln!(
                out,
                "span task={}/{} start={start} duration={} depth={} name={}",
                span.task.space,
                span.task.vcpu,
                span.duration_ns,
                span.depth,
                quoted(&span.name)
            )
        }),
        Payload::Image(part) => {
            let identity = &part.identity;
            writeln!(
                out,
                "image path={} build_id={} arch={} load_bias={:x} origin={} symbols={}",
                quoted(&identity.path),
                hexadecimal(&identity.build_id),
                identity.arch.name(),
                identity.load_bias,
                quoted(&identity.origin),
                part.symbols().count()
            )
        }
        Payload::End(end) => {
            let reason = end_reason(end.reason);
            let message = quoted(&end.message);
            writeln!(
                out,
                "end time={} reason={reason} message={message}",
                end.time_ns
            )?;
            end.totals.iter().try_for_each(|(name, value)| {
                writeln!(out, "total name={} value={value}", quoted(name))
            })
        }
        Payload::Index(entries) => writeln!(out, "index entries={}", entries.len()),
        Payload::Unknown(number) => writeln!(out, "unknown type={number}"),
        _ => Ok(()),
    }
}

fn module_change(what: &ModuleChange) -> String {
    match what {
        ModuleChange::Mapped(mapping) => format!(
            "start={:x} length={:x} file_offset={:x} path={} build_id={}",
            mapping.start,
            mapping.length,
            mapping.file_offset,
            quoted(&mapping.path),
            hexadecimal(&mapping.build_id)
        ),
        ModuleChange::Cleared => "cleared=1".to_owned(),
        ModuleChange::CopiedFrom(parent) => format!("copied_from={parent}"),
    }
}

fn end_reason(reason: EndReason) -> &'static str {
    match reason {
        EndReason::Duration => "duration",
        EndReason::Stopped => "stopped",
        EndReason::TargetEnded => "target-ended",
        EndReason::TargetCrashed => "target-crashed",
        EndReason::SourceFailed => "source-failed",
        EndReason::InputEnded => "input-ended",
    }
}

fn reason(reason: LossReason) -> &'static str {
    match reason {
        LossReason::RingFull => "ring-full",
        LossReason::KernelBuffer => "kernel-buffer",
        LossReason::ReadFailed => "read-failed",
        LossReason::Deadline => "deadline",
        LossReason::EventsLost => "events-lost",
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    match bytes.is_empty() {
        true => "-".to_owned(),
        false => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}

fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for byte in text.bytes() {
        match byte {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            b' '..=b'~' => out.push(char::from(byte)),
            _ => put(&mut out, format_args!("\\x{byte:02x}")),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_texts_are_one_ascii_line() {
        assert_eq!(quoted("a \"b\"\\\n\u{e9}"), r#""a \"b\"\\\x0a\xc3\xa9""#);
    }
}
