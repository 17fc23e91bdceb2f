//! `dump`: one line for each record, in file order. format-spec.md, section 10, specifies the form; other readers of
//! the format are compared with it, line by line.

mod forms;
mod image;
mod spans;

use crate::text::hexadecimal;
use crate::work;
use forms::{known, put, quoted, task, yes_or_no};
use std::io::{self, Write};
use uprof::cold::{ExitCause, MappedFile, Metadata, ModuleChange, Place, SpaceChange, TaskChange};
use uprof::{
    Block, Codec, Details, Form, Found, FrameKind, Item, Payload, Row, SampleBlock, Shown,
};

/// What the dump contains.
#[derive(Debug, Clone, Copy, Default)]
pub struct DumpOptions {
    /// Only the lines of samples.
    pub samples_only: bool,
}

/// Writes the line of the preamble; `None` if it is damaged.
///
/// # Errors
/// The errors of `out`.
pub fn write_preamble(
    uuid: Option<[u8; 16]>,
    version: Option<(u16, u16)>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let uuid = uuid.map_or("-".to_owned(), |uuid| hexadecimal(&uuid));
    let version = version.map_or("-".to_owned(), |(major, minor)| format!("{major}.{minor}"));
    writeln!(out, "recording uuid={uuid} version={version}")
}

/// Writes the lines of one item of a recording. Returns `true` if the item was intact.
///
/// # Errors
/// The errors of `out`.
pub fn write_item(item: &Item<'_>, options: DumpOptions, out: &mut dyn Write) -> io::Result<bool> {
    match item {
        Item::Damage(_) if options.samples_only => Ok(false),
        Item::Damage(damage) => {
            let (kind, offset, bytes) = (damage.kind.name(), damage.offset, damage.bytes);
            writeln!(out, "damage kind={kind} offset={offset} bytes={bytes}")?;
            Ok(false)
        }
        Item::Block(block) => write_block(block, options, out),
    }
}

fn write_block(block: &Block<'_>, options: DumpOptions, out: &mut dyn Write) -> io::Result<bool> {
    let codec = Codec::from_number(block.codec);
    if !options.samples_only {
        let name = |name: Option<&str>, number: u16| name.map_or(number.to_string(), str::to_owned);
        let kind = block.known_type().map(uprof::BlockType::name);
        writeln!(
            out,
            "block seq={} type={} offset={} stored={} raw={} codec={} samples={} first={} last={}",
            block.sequence,
            name(kind, block.block_type),
            block.offset,
            block.stored().len(),
            block.raw_bytes,
            name(codec.map(Codec::name), u16::from(block.codec)),
            block.samples,
            block.first_ns,
            block.last_ns
        )?;
    }
    if block.known_type().is_none() || codec.is_none() {
        return Ok(!block.critical && codec.is_some());
    }
    match work::payload(block) {
        Ok(Payload::Samples(samples)) => write_samples(block, &samples, options, out),
        Ok(_) if options.samples_only => Ok(true),
        Ok(Payload::Spans(block_spans)) => match spans::write(&block_spans, out)? {
            None => Ok(true),
            Some(fault) => write_error(&block.error(fault).to_string(), options, out),
        },
        Ok(Payload::Image(part)) => image::write(block, &part, out),
        Ok(payload) => write_cold(&payload, out).map(|()| true),
        Err(error) => write_error(&error.to_string(), options, out),
    }
}

fn write_error(message: &str, options: DumpOptions, out: &mut dyn Write) -> io::Result<bool> {
    if !options.samples_only {
        writeln!(out, "error {}", crate::text::printable(message))?;
    }
    Ok(false)
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
            Err(fault) => return write_error(&block.error(fault).to_string(), options, out),
        }
    }
}

fn put_sample(line: &mut String, block: &SampleBlock, row: &Row<'_>) {
    put(
        line,
        format_args!(
            "sample time={} task={} state={} stop={}",
            row.time_ns,
            task(Some(row.task)),
            row.state.name(),
            row.stop.name()
        ),
    );
    put_details(line, &row.details, Shown::Always);
    line.push_str(" chain=");
    let mut separator = "";
    for frame in block.chain(row.node) {
        let kind = match frame.kind {
            FrameKind::Exact => 'e',
            FrameKind::Return => 'r',
        };
        let found = match frame.found {
            Found::FramePointer => 'f',
            Found::Cfi => 'c',
            Found::Scan => 's',
            Found::TrapFrame => 't',
        };
        put(
            line,
            format_args!("{separator}{:x}:{kind}{found}", frame.address),
        );
        separator = ",";
    }
    line.push_str(if separator.is_empty() {
        "- regs="
    } else {
        " regs="
    });
    separator = "";
    for (number, value) in row.registers.iter().flat_map(|registers| registers.iter()) {
        put(line, format_args!("{separator}{number}:{value:x}"));
        separator = ",";
    }
    line.push_str(if separator.is_empty() {
        "- stack="
    } else {
        " stack="
    });
    match row.stack {
        Some(stack) => {
            let sum = crc32fast::hash(stack.bytes);
            put(
                line,
                format_args!("{:x}+{}:{sum:08x}", stack.address, stack.bytes.len()),
            );
        }
        None => line.push('-'),
    }
    if let Some(wait) = row.wait {
        let (off_cpu, waits) = (wait.time_ns, wait.count);
        put(line, format_args!(" off_cpu={off_cpu} waits={waits}"));
    }
    put_details(line, &row.details, Shown::IfKnown);
}

/// Appends the attributes of a sample that `shown` selects.
fn put_details(line: &mut String, details: &Details, shown: Shown) {
    details.each(|index, value| {
        let detail = &Details::ALL[index];
        if detail.shown != shown {
            return;
        }
        let name = detail.column.name();
        match (value, detail.form) {
            (Some(value), Form::Decimal) => put(line, format_args!(" {name}={value}")),
            (Some(value), Form::Hexadecimal) => put(line, format_args!(" {name}={value:x}")),
            (None, _) if shown == Shown::Always => put(line, format_args!(" {name}=-")),
            (None, _) => {}
        }
    });
}

fn cause(cause: &ExitCause) -> String {
    let hex = |number: Option<u64>| number.map_or("-".into(), |it| format!("{it:x}"));
    format!(
        "kind={} reason={:x} address={} argument={}",
        cause.kind.name(),
        cause.reason,
        hex(cause.address),
        hex(cause.argument)
    )
}

fn write_cold(payload: &Payload, out: &mut dyn Write) -> io::Result<()> {
    match payload {
        Payload::Metadata(metadata) => write_metadata(metadata, out),
        Payload::Tasks(events) => events.iter().try_for_each(|event| {
            let what = match &event.what {
                TaskChange::Named(name) => format!("named={}", quoted(name)),
                TaskChange::Ended => "ended".to_owned(),
            };
            writeln!(
                out,
                "task time={} task={} {what}",
                event.time_ns,
                task(Some(event.task))
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
            let (monotonic, realtime) = (pair.monotonic_ns, pair.realtime_ns);
            let guest = known(pair.guest);
            writeln!(
                out,
                "clock monotonic={monotonic} realtime={realtime} guest={guest}"
            )
        }),
        Payload::Losses(losses) => losses.iter().try_for_each(|loss| {
            writeln!(
                out,
                "loss first={} last={} task={} reason={} count={}",
                loss.first_ns,
                loss.last_ns,
                task(loss.task),
                loss.reason.name(),
                loss.count
            )
        }),
        Payload::Times(times) => times.iter().try_for_each(|time| {
            writeln!(
                out,
                "process_time space={} first={} last={} own={} ended={}",
                time.space, time.first_ns, time.last_ns, time.own_ns, time.ended_ns
            )
        }),
        Payload::VcpuTimes(times) => times.iter().try_for_each(|time| {
            writeln!(
                out,
                "vcpu_time task={} first={} last={}{}",
                task(Some(time.task)),
                time.first_ns,
                time.last_ns,
                spent(&time.spent)
            )
        }),
        Payload::Monitor(bytes) => writeln!(out, "monitor bytes={}", bytes.len()),
        Payload::Handled(handled) => handled.iter().try_for_each(|handled| {
            writeln!(
                out,
                "handled time={} thread={} task={} place={} {}",
                handled.time_ns,
                handled.thread,
                task(Some(handled.task)),
                handled.place.name(),
                cause(&handled.cause)
            )
        }),
        Payload::Exits(exits) => exits.iter().try_for_each(|exits| {
            let lengths = exits.lengths.iter();
            let lengths: Vec<_> = lengths.map(|(ns, n)| format!("{ns}:{n}")).collect();
            writeln!(
                out,
                "exits task={} first={} last={} {} count={} seen={}{} lengths={}",
                task(Some(exits.task)),
                exits.first_ns,
                exits.last_ns,
                cause(&exits.cause),
                exits.count,
                exits.seen,
                spent(&exits.spent),
                lengths.join(",")
            )
        }),
        Payload::Code(code) => code.iter().try_for_each(|code| {
            writeln!(
                out,
                "code time={} space={} address={:x} bytes={}",
                code.time_ns,
                code.space,
                code.address,
                hexadecimal(&code.bytes)
            )
        }),
        Payload::Spaces(events) => events.iter().try_for_each(|event| {
            let what = match &event.what {
                SpaceChange::Seen => "seen".to_owned(),
                SpaceChange::Named { pid, name } => format!("pid={pid} named={}", quoted(name)),
            };
            writeln!(
                out,
                "space time={} space={} root={:x} {what}",
                event.time_ns, event.space, event.root
            )
        }),
        Payload::End(end) => {
            let (reason, message) = (end.reason.name(), quoted(&end.message));
            writeln!(
                out,
                "end time={} reason={reason} message={message}",
                end.time_ns
            )?;
            let mut totals = end.totals.iter();
            totals.try_for_each(|(name, value)| {
                writeln!(out, "total name={} value={value}", quoted(name))
            })
        }
        Payload::Samples(_) | Payload::Spans(_) | Payload::Image(_) | Payload::Unknown(_) => Ok(()),
    }
}

/// Nanoseconds by place, each with a space before it.
fn spent(spent: &[(Place, u64)]) -> String {
    let all = spent
        .iter()
        .map(|(place, ns)| format!(" {}={ns}", place.name()));
    all.collect()
}

fn write_metadata(metadata: &Metadata, out: &mut dyn Write) -> io::Result<()> {
    let Metadata {
        recorder,
        host,
        target,
        sampling,
        notes,
        cost,
        labels,
    } = metadata;
    let words: Vec<String> = recorder
        .command_line
        .iter()
        .map(|word| quoted(word))
        .collect();
    let (program, words) = (quoted(&recorder.program), words.join(","));
    writeln!(out, "recorder program={program} command_line=[{words}]")?;
    writeln!(
        out,
        "host name={} system={} processor={} processors={}",
        quoted(&host.name),
        quoted(&host.system),
        quoted(&host.processor),
        host.processors
    )?;
    writeln!(
        out,
        "target kind={} id={} name={} arch={} vcpus={}",
        target.kind.name(),
        target.id,
        quoted(&target.name),
        target.arch.name(),
        target.vcpus
    )?;
    writeln!(
        out,
        "sampling rate_millihertz={} trigger={} most_frames={} stack_bytes={} on_cpu_only={}",
        sampling.rate_millihertz,
        quoted(&sampling.trigger),
        sampling.most_frames,
        sampling.stack_bytes,
        yes_or_no(sampling.on_cpu_only)
    )?;
    let mut notes = notes.iter();
    notes.try_for_each(|(name, value)| {
        writeln!(out, "note name={} value={}", quoted(name), quoted(value))
    })?;
    if let Some(cost) = cost {
        writeln!(out, "cost of={}", cost.name())?;
    }
    let mut labels = labels.iter();
    labels.try_for_each(|(key, value)| {
        writeln!(out, "label key={} value={}", quoted(key), quoted(value))
    })
}

fn module_change(what: &ModuleChange) -> String {
    match what {
        ModuleChange::Mapped(mapping) => format!(
            "mapped start={:x} length={:x} file_offset={:x} path={} build_id={}{}",
            mapping.start,
            mapping.length,
            mapping.file_offset,
            quoted(&mapping.path),
            hexadecimal(&mapping.build_id),
            mapping.file.map(mapped_file).unwrap_or_default()
        ),
        ModuleChange::Cleared => "cleared".to_owned(),
        ModuleChange::CopiedFrom(parent) => format!("copied_from={parent}"),
    }
}

fn mapped_file(file: MappedFile) -> String {
    let MappedFile {
        device_major,
        device_minor,
        inode,
        contents,
    } = file;
    let contents = contents.map_or("-".to_owned(), |contents| {
        format!("{}:{:08x}", contents.size_bytes, contents.crc)
    });
    format!(" device={device_major}:{device_minor} inode={inode} contents={contents}")
}
