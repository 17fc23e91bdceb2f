//! Records of a redacted recording. Each is built field by field from the one that it replaces. Every struct
//! is destructured without `..`, and no text is copied (tests/tidy.rs). So a new field doesn't compile, and a
//! new text is not kept, until it is decided here what may be kept.

use super::rules::GONE;
use super::text::{Text, Texts};
use crate::images::symbols::{Line, SymbolTable};
use crate::stacks::embedded::{Embedded, LineTable};
use uprof::cold::{
    ClockPair, End, ExitCause, Exits, Host, Loss, MappedFile, Mapping, Metadata, ModuleChange,
    ModuleEvent, ProcessTime, Recorder, Sampling, SpaceChange, SpaceEvent, Target, TargetKind,
    TaskChange, TaskEvent, VcpuTime,
};
use uprof::image::{ImageIdentity, Symbol};
use uprof::{Details, Frame, Row, Sample, Span, SpanKind, SpanRow, State, Stop};

/// The metadata without its notes and labels, in which a person may have written anything.
pub(super) fn metadata(texts: &mut Texts, old: &Metadata) -> Metadata {
    let Metadata {
        recorder,
        host,
        target,
        sampling,
        notes: _,
        cost,
        labels: _,
    } = old;
    Metadata {
        recorder: self::recorder(texts, recorder),
        host: self::host(texts, host),
        target: self::target(texts, target),
        sampling: self::sampling(texts, sampling),
        notes: Vec::new(),
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
    let Host {
        name,
        system,
        processor,
        processors,
    } = old;
    Host {
        name: texts.keep(Text::Host, name),
        system: texts.keep(Text::System, system),
        processor: texts.keep(Text::Processor, processor),
        processors: *processors,
    }
}

fn target(texts: &mut Texts, old: &Target) -> Target {
    let Target {
        kind,
        id,
        name,
        arch,
        vcpus,
    } = old;
    Target {
        kind: *kind,
        id: *id,
        name: texts.keep(subject(*kind), name),
        arch: *arch,
        vcpus: *vcpus,
    }
}

fn sampling(texts: &mut Texts, old: &Sampling) -> Sampling {
    let Sampling {
        rate_millihertz,
        trigger,
        most_frames,
        stack_bytes,
        on_cpu_only,
    } = old;
    Sampling {
        rate_millihertz: *rate_millihertz,
        trigger: texts.keep(Text::Trigger, trigger),
        most_frames: *most_frames,
        stack_bytes: *stack_bytes,
        on_cpu_only: *on_cpu_only,
    }
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
    let TaskEvent {
        time_ns,
        task,
        what,
    } = old;
    let what = match what {
        TaskChange::Named(name) if *name == target.name => {
            TaskChange::Named(texts.keep(subject(target.kind), name))
        }
        TaskChange::Named(name) => TaskChange::Named(texts.keep(Text::Thread, name)),
        TaskChange::Ended => TaskChange::Ended,
    };
    TaskEvent {
        time_ns: *time_ns,
        task: *task,
        what,
    }
}

/// An event of an address space.
pub(super) fn module(texts: &mut Texts, old: &ModuleEvent) -> ModuleEvent {
    let ModuleEvent {
        time_ns,
        space,
        what,
    } = old;
    let what = match what {
        ModuleChange::Mapped(old) => ModuleChange::Mapped(mapping(texts, old)),
        ModuleChange::Cleared => ModuleChange::Cleared,
        ModuleChange::CopiedFrom(space) => ModuleChange::CopiedFrom(*space),
    };
    ModuleEvent {
        time_ns: *time_ns,
        space: *space,
        what,
    }
}

fn mapping(texts: &mut Texts, old: &Mapping) -> Mapping {
    let Mapping {
        start,
        length,
        file_offset,
        path,
        build_id,
        file,
    } = old;
    Mapping {
        start: *start,
        length: *length,
        file_offset: *file_offset,
        path: texts.keep(Text::Image, path),
        build_id: build_id.to_vec(),
        file: file.map(self::file),
    }
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
    let ClockPair {
        monotonic_ns,
        realtime_ns,
        guest,
    } = *old;
    ClockPair {
        monotonic_ns,
        realtime_ns,
        guest,
    }
}

/// A number of lost samples.
pub(super) fn loss(old: &Loss) -> Loss {
    let Loss {
        first_ns,
        last_ns,
        task,
        reason,
        count,
    } = *old;
    Loss {
        first_ns,
        last_ns,
        task,
        reason,
        count,
    }
}

/// Processor time.
pub(super) fn time(old: &ProcessTime) -> ProcessTime {
    let ProcessTime {
        space,
        first_ns,
        last_ns,
        own_ns,
        ended_ns,
    } = *old;
    ProcessTime {
        space,
        first_ns,
        last_ns,
        own_ns,
        ended_ns,
    }
}

/// Wall time of a vCPU.
pub(super) fn vcpu_time(old: &VcpuTime) -> VcpuTime {
    let VcpuTime {
        task,
        first_ns,
        last_ns,
        spent,
    } = old;
    VcpuTime {
        task: *task,
        first_ns: *first_ns,
        last_ns: *last_ns,
        spent: spent.to_vec(),
    }
}

/// Exits of a vCPU: numbers of the machine only.
pub(super) fn exits(old: &Exits) -> Exits {
    let Exits {
        task,
        first_ns,
        last_ns,
        cause,
        count,
        seen,
        spent,
        lengths,
    } = old;
    let ExitCause {
        kind,
        reason,
        address,
        argument,
    } = *cause;
    Exits {
        task: *task,
        first_ns: *first_ns,
        last_ns: *last_ns,
        cause: ExitCause {
            kind,
            reason,
            address,
            argument,
        },
        count: *count,
        seen: *seen,
        spent: spent.to_vec(),
        lengths: lengths.to_vec(),
    }
}

/// An address space of a guest.
pub(super) fn space(texts: &mut Texts, old: &SpaceEvent) -> SpaceEvent {
    let SpaceEvent {
        time_ns,
        space,
        root,
        what,
    } = old;
    let what = match what {
        SpaceChange::Named { pid, name } => SpaceChange::Named {
            pid: *pid,
            name: texts.keep(Text::Thread, name),
        },
        SpaceChange::Seen => SpaceChange::Seen,
    };
    SpaceEvent {
        time_ns: *time_ns,
        space: *space,
        root: *root,
        what,
    }
}

/// A sample with `state`, and with an unwound stack in place of memory and registers.
pub(super) fn sample<'c>(
    old: &Row<'_>,
    state: State,
    chain: &'c [Frame],
    stop: Stop,
) -> Sample<'c> {
    let Details {
        cost_ns,
        late_ns,
        root,
        cpu,
        period_ns,
        guest_ip,
    } = old.details;
    Sample {
        time_ns: old.time_ns,
        task: old.task,
        state,
        chain,
        stop,
        details: Details {
            cost_ns,
            late_ns,
            root,
            cpu,
            period_ns,
            guest_ip,
        },
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
    let Span {
        name: _,
        task,
        cpu,
        start_ns,
        length_ns,
        depth,
        complete,
        kind,
        result,
    } = *old;
    Span {
        name,
        task,
        cpu,
        start_ns,
        length_ns,
        depth,
        complete,
        kind,
        result,
    }
}

/// A symbol with its new name.
pub(super) fn symbol<'n>(old: &Symbol<'_>, name: &'n str) -> Symbol<'n> {
    let Symbol {
        address,
        size_bytes,
        name: _,
    } = *old;
    Symbol {
        address,
        size_bytes,
        name,
    }
}

/// The identity of the image that a table belongs to.
pub(super) fn identity(texts: &mut Texts, old: &ImageIdentity) -> ImageIdentity {
    let ImageIdentity {
        path,
        build_id,
        arch,
        load_bias,
        origin,
    } = old;
    ImageIdentity {
        path: texts.keep(Text::Image, path),
        build_id: build_id.to_vec(),
        arch: *arch,
        load_bias: *load_bias,
        origin: texts.keep(Text::Origin, origin),
    }
}

/// The tables of an image, without its file and without unwind rules, because the stacks are already unwound.
pub(super) fn embedded(texts: &mut Texts, old: Embedded) -> Embedded {
    let Embedded {
        identity,
        segments,
        symbols,
        lines,
        rules: _,
        image: _,
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
    }
}

fn line(texts: &mut Texts, old: &Line) -> Line {
    let Line {
        function,
        file,
        line,
        start_line,
        discriminator,
    } = old;
    let function = function.as_deref();
    let file = file.as_deref();
    Line {
        function: function.map(|name| texts.keep(Text::Function, name)),
        file: file.map(|path| texts.keep(Text::Source, path)),
        line: *line,
        start_line: *start_line,
        discriminator: *discriminator,
    }
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
