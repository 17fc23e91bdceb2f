//! Records of a redacted recording. Each is built field by field from the one that it replaces. Every struct
//! is destructured without `..`, most by `kept!`, and no text is copied (tests/tidy.rs). So a new field doesn't
//! compile, and a new text is not kept, until it is decided here what may be kept.

use super::rules::GONE;
use super::text::{Text, Texts, note};
use crate::images::symbols::{Line, SymbolTable};
use crate::stacks::embedded::{Embedded, LineTable};
use uprof::cold::{
    ClockPair, End, ExitCause, Exits, Host, Loss, MappedFile, Mapping, Metadata, ModuleChange,
    ModuleEvent, ProcessTime, Recorder, Sampling, SpaceChange, SpaceEvent, Target, TargetKind,
    TaskChange, TaskEvent, VcpuTime,
};
use uprof::image::{ImageIdentity, Symbol};
use uprof::{Details, Frame, Row, Sample, Span, SpanKind, SpanRow, State, Stop};

/// A record whose named fields are kept as they are. Those after `and` have the value of the variable of that
/// name. A field that is in neither list doesn't compile.
macro_rules! kept {
    ($old:expr => $Record:ident { $($field:ident),* $(,)? } $(and $($other:ident),*)?) => {{
        let $Record { $($field,)* $($($other: _),*)? } = $old;
        $Record { $($field: *$field,)* $($($other),*)? }
    }};
}

/// The metadata without its labels and those of its notes in which a person may have written anything.
pub(super) fn metadata(texts: &mut Texts, old: &Metadata) -> Metadata {
    let Metadata {
        recorder,
        host,
        target,
        sampling,
        notes,
        cost,
        labels: _,
    } = old;
    let notes = notes.iter().filter_map(|(name, value)| note(name, value));
    Metadata {
        recorder: self::recorder(texts, recorder),
        host: self::host(texts, host),
        target: self::target(texts, target),
        sampling: self::sampling(texts, sampling),
        notes: notes.collect(),
        cost: *cost,
        labels: Vec::new(),
    }
}

fn recorder(texts: &mut Texts, old: &Recorder) -> Recorder {
    let Recorder {
        program,
        command_line,
    } = old;
    // Even the number of arguments is private.
    let first = command_line.first().map_or("", String::as_str);
    Recorder {
        program: texts.keep(Text::Recorder, program),
        command_line: vec![texts.keep(Text::Argument, first)],
    }
}

fn host(texts: &mut Texts, old: &Host) -> Host {
    let name = texts.keep(Text::Host, &old.name);
    let system = texts.keep(Text::System, &old.system);
    let processor = texts.keep(Text::Processor, &old.processor);
    kept!(old => Host { processors } and name, system, processor)
}

fn target(texts: &mut Texts, old: &Target) -> Target {
    let name = texts.keep(subject(old.kind), &old.name);
    kept!(old => Target { kind, id, arch, vcpus } and name)
}

fn sampling(texts: &mut Texts, old: &Sampling) -> Sampling {
    let trigger = texts.keep(Text::Trigger, &old.trigger);
    kept!(old => Sampling { rate_millihertz, most_frames, stack_bytes, on_cpu_only } and trigger)
}

/// The role of a target's name.
fn subject(kind: TargetKind) -> Text {
    match kind {
        TargetKind::Process => Text::Command,
        _ => Text::Guest,
    }
}

/// An event of a task. If its name is the target's, it is the name of a command line.
pub(super) fn task(texts: &mut Texts, target: &Target, old: &TaskEvent) -> TaskEvent {
    let what = match &old.what {
        TaskChange::Named(name) if *name == target.name => {
            TaskChange::Named(texts.keep(subject(target.kind), name))
        }
        TaskChange::Named(name) => TaskChange::Named(texts.keep(Text::Thread, name)),
        TaskChange::Ended => TaskChange::Ended,
    };
    kept!(old => TaskEvent { time_ns, task } and what)
}

/// An event of an address space.
pub(super) fn module(texts: &mut Texts, old: &ModuleEvent) -> ModuleEvent {
    let what = match &old.what {
        ModuleChange::Mapped(old) => ModuleChange::Mapped(mapping(texts, old)),
        ModuleChange::Cleared => ModuleChange::Cleared,
        ModuleChange::CopiedFrom(space) => ModuleChange::CopiedFrom(*space),
    };
    kept!(old => ModuleEvent { time_ns, space } and what)
}

fn mapping(texts: &mut Texts, old: &Mapping) -> Mapping {
    let path = texts.keep(Text::Image, &old.path);
    let build_id = old.build_id.to_vec();
    let file = old.file.map(self::file);
    kept!(old => Mapping { start, length, file_offset } and path, build_id, file)
}

/// Device and inode could identify the machine, so it is only kept whether there was a file.
fn file(old: MappedFile) -> MappedFile {
    let MappedFile {
        device_major: _,
        device_minor: _,
        inode: _,
        contents,
    } = old;
    MappedFile::anywhere(contents)
}

/// Clocks that were read together.
pub(super) fn clocks(old: &ClockPair) -> ClockPair {
    kept!(old => ClockPair { monotonic_ns, realtime_ns, guest })
}

/// A number of lost samples.
pub(super) fn loss(old: &Loss) -> Loss {
    kept!(old => Loss { first_ns, last_ns, task, reason, count })
}

/// Processor time.
pub(super) fn time(old: &ProcessTime) -> ProcessTime {
    kept!(old => ProcessTime { space, first_ns, last_ns, own_ns, ended_ns })
}

/// Wall time of a vCPU.
pub(super) fn vcpu_time(old: &VcpuTime) -> VcpuTime {
    let spent = old.spent.to_vec();
    kept!(old => VcpuTime { task, first_ns, last_ns } and spent)
}

/// Exits of a vCPU: numbers of the machine only.
pub(super) fn exits(old: &Exits) -> Exits {
    let cause = kept!(&old.cause => ExitCause { kind, reason, address, argument });
    let (spent, lengths) = (old.spent.to_vec(), old.lengths.to_vec());
    kept!(old => Exits { task, first_ns, last_ns, count, seen } and cause, spent, lengths)
}

/// An address space of a guest.
pub(super) fn space(texts: &mut Texts, old: &SpaceEvent) -> SpaceEvent {
    let what = match &old.what {
        SpaceChange::Named { pid, name } => SpaceChange::Named {
            pid: *pid,
            name: texts.keep(Text::Thread, name),
        },
        SpaceChange::Seen => SpaceChange::Seen,
    };
    kept!(old => SpaceEvent { time_ns, space, root } and what)
}

/// A sample with `state`, and with an unwound stack in place of memory and registers.
pub(super) fn sample<'c>(
    old: &Row<'_>,
    state: State,
    chain: &'c [Frame],
    stop: Stop,
) -> Sample<'c> {
    Sample {
        time_ns: old.time_ns,
        task: old.task,
        state,
        chain,
        stop,
        details: kept!(&old.details => Details { cost_ns, late_ns, root, cpu, period_ns, guest_ip }),
        registers: None,
        stack: None,
        wait: old.wait,
    }
}

/// The role of a call's name.
pub(super) fn called(kind: SpanKind) -> Text {
    match kind {
        SpanKind::Function => Text::Function,
        SpanKind::Syscall => Text::Syscall,
        SpanKind::Slice => Text::Label,
    }
}

/// A call with its new name.
pub(super) fn span<'n>(old: &SpanRow, name: &'n str) -> Span<&'n str> {
    kept!(old => Span { task, cpu, start_ns, length_ns, depth, complete, kind, result } and name)
}

/// A symbol with its new name.
pub(super) fn symbol<'n>(old: &Symbol<'_>, name: &'n str) -> Symbol<'n> {
    kept!(old => Symbol { address, size_bytes } and name)
}

/// The identity of the image that a table belongs to.
pub(super) fn identity(texts: &mut Texts, old: &ImageIdentity) -> ImageIdentity {
    let path = texts.keep(Text::Image, &old.path);
    let origin = texts.keep(Text::Origin, &old.origin);
    let build_id = old.build_id.to_vec();
    kept!(old => ImageIdentity { arch, load_bias } and path, build_id, origin)
}

/// The tables of an image, without its file, and without unwind rules and missed callers, because the stacks are
/// already unwound.
pub(super) fn embedded(texts: &mut Texts, old: Embedded) -> Embedded {
    let Embedded {
        identity,
        segments,
        symbols,
        lines,
        rules: _,
        image: _,
        callers: _,
    } = old;
    let symbols: Vec<_> = symbols
        .iter()
        .map(|(start, end, name)| {
            let name = texts.keep(Text::Function, name);
            (start.0, end.0.saturating_sub(start.0), name)
        })
        .collect();
    let symbols = symbols.iter();
    let symbols = symbols.map(|(address, size_bytes, name)| (*address, *size_bytes, name.as_str()));
    let symbols = SymbolTable::from_symbols(symbols);
    let mut kept = LineTable::default();
    for (address, found) in lines.iter() {
        let found: Vec<Line> = found.iter().map(|found| line(texts, found)).collect();
        kept.insert(address, &found);
    }
    Embedded {
        identity: self::identity(texts, &identity),
        segments,
        symbols,
        lines: kept,
        rules: Default::default(),
        image: None,
        callers: Vec::new(),
    }
}

fn line(texts: &mut Texts, old: &Line) -> Line {
    let (function, file) = (old.function.as_deref(), old.file.as_deref());
    let function = function.map(|name| texts.keep(Text::Function, name));
    let file = file.map(|path| texts.keep(Text::Source, path));
    kept!(old => Line { line, start_line, discriminator } and function, file)
}

/// The end record without its message, which names the command or the guest. Only totals that uniprof itself
/// writes are kept.
pub(super) fn end(texts: &mut Texts, old: &End) -> End {
    let End {
        time_ns,
        reason,
        message: _,
        totals,
    } = old;
    let totals = totals.iter();
    let totals = totals.map(|(name, total)| (texts.keep(Text::Total, name), *total));
    End {
        time_ns: *time_ns,
        reason: *reason,
        message: String::from(reason.name()),
        totals: totals.filter(|(name, _)| name != GONE).collect(),
    }
}
