"""Cold records (§6): payloads enter, lines of dump text leave."""

from .numbers import Bincode, Malformed, known, quote, read_sections, task_text

# Tables of names; a number is a place in the list.
TARGET_KINDS = ["synthetic", "process", "xen-domain", "gdb-stub", "qemu", "imported", "agent", "kvm"]
ARCHITECTURES = ["x86_64", "aarch64"]
LOSS_REASONS = ["ring-full", "kernel-buffer", "read-failed", "deadline", "events-lost", "damaged",
                "waits-lost", "calls-lost", "exits-lost"]
END_REASONS = ["duration", "stopped", "target-ended", "target-crashed", "source-failed",
               "input-ended", "cut"]
PLACES = ["guest", "hypervisor", "monitor", "ready", "halted", "paused", "unknown"]
EXIT_KINDS = ["vmx", "svm", "arm", "xen-hypercall", "xen-trap", "recorder"]


def recorder_lines(record):
    program, arguments = record.string(), record.vec(Bincode.string)
    return [f"recorder program={quote(program)} command_line=[{','.join(map(quote, arguments))}]"]


def host_lines(record):
    return [f"host name={quote(record.string())} system={quote(record.string())}"
            f" processor={quote(record.string())} processors={record.u32()}"]


def target_lines(record):
    return [f"target kind={record.variant(TARGET_KINDS)} id={record.integer()}"
            f" name={quote(record.string())} arch={record.variant(ARCHITECTURES)}"
            f" vcpus={record.u32()}"]


def sampling_lines(record):
    return [f"sampling rate_millihertz={record.integer()} trigger={quote(record.string())}"
            f" most_frames={record.u32()} stack_bytes={record.u32()}"
            f" on_cpu_only={'yes' if record.flag() else 'no'}"]


def note_lines(record):
    return record.vec(lambda note: f"note name={quote(note.string())} value={quote(note.string())}")


def cost_lines(record):
    return [f"cost of={record.variant(['freeze', 'work'])}"]


def label_lines(record):
    return record.vec(lambda label: f"label key={quote(label.string())} value={quote(label.string())}")


METADATA_SECTIONS = {1: recorder_lines, 2: host_lines, 3: target_lines, 4: sampling_lines,
                     5: note_lines, 6: cost_lines, 7: label_lines}


def metadata_lines(payload):
    """§6.2. A missing section has empty texts and zeros, which is what zero bytes decode to; but cost
    has no line then."""
    found = {tag: [] if tag == 6 else read(Bincode(bytes(16), ""))
             for tag, read in METADATA_SECTIONS.items()}
    for tag, section in read_sections(payload, "metadata"):
        if tag in METADATA_SECTIONS:
            found[tag] = METADATA_SECTIONS[tag](Bincode(section, f"metadata section {tag}"))
    return [line for lines in found.values() for line in lines]


def task_line(record):
    """§6.3."""
    start = f"task time={record.integer()} task={task_text(record.task())}"
    if record.variant(["named", "ended"]) == "ended":
        return f"{start} ended"
    return f"{start} named={quote(record.string())}"


def module_line(record):
    """§6.4."""
    start = f"module time={record.integer()} space={record.u32()}"
    what = record.variant(["mapped", "cleared", "copied_from", "mapped_file"])
    if what == "cleared":
        return f"{start} cleared"
    if what == "copied_from":
        return f"{start} copied_from={record.u32()}"
    line = (f"{start} mapped start={record.integer():x} length={record.integer():x}"
            f" file_offset={record.integer():x} path={quote(record.string())}"
            f" build_id={record.byte_vec().hex()}")
    if what == "mapped_file":
        line += (f" device={record.u32()}:{record.u32()} inode={record.integer()}"
                 f" contents={known(record.option(contents_text))}")
    return line


def contents_text(record):
    return f"{record.integer()}:{record.u32():08x}"


def clock_line(record):
    """§6.5."""
    return (f"clock monotonic={record.integer()} realtime={record.i64()}"
            f" guest={known(record.option(Bincode.integer))}")


def loss_line(record):
    """§6.6."""
    return (f"loss first={record.integer()} last={record.integer()}"
            f" task={known(record.option(Bincode.task), task_text)}"
            f" reason={record.variant(LOSS_REASONS)} count={record.integer()}")


def time_line(record):
    """§6.9."""
    return (f"process_time space={record.u32()} first={record.integer()} last={record.integer()}"
            f" own={record.integer()} ended={record.integer()}")


def spent_text(record):
    """Places with their times, in both of §6.11 and §6.12."""
    pairs = record.vec(lambda pair: (pair.variant(PLACES), pair.integer()))
    return "".join(f" {place}={time_ns}" for place, time_ns in pairs)


def vcpu_time_line(record):
    """§6.11."""
    return (f"vcpu_time task={task_text(record.task())} first={record.integer()} last={record.integer()}"
            f"{spent_text(record)}")


def cause_text(record):
    """Cause of §6.12."""
    def address(value):
        return f"{value:x}"
    return (f"kind={record.variant(EXIT_KINDS)} reason={record.integer():x}"
            f" address={known(record.option(Bincode.integer), address)}"
            f" argument={known(record.option(Bincode.integer), address)}")


def exits_line(record):
    """§6.12."""
    line = (f"exits task={task_text(record.task())} first={record.integer()} last={record.integer()}"
            f" {cause_text(record)}"
            f" count={record.integer()} seen={record.integer()}{spent_text(record)}")
    lengths = record.vec(lambda pair: f"{pair.integer()}:{pair.integer()}")
    return f"{line} lengths={','.join(lengths)}"


def handled_line(record):
    """§6.14."""
    return (f"handled time={record.integer()} thread={record.u32()} task={task_text(record.task())}"
            f" place={record.variant(PLACES)} {cause_text(record)}")


def code_line(record):
    """§6.10."""
    return (f"code time={record.integer()} space={record.u32()} address={record.integer():x}"
            f" bytes={record.byte_vec().hex()}")


def space_line(record):
    """§6.7."""
    line = f"space time={record.integer()} space={record.u32()} root={record.integer():x}"
    if record.variant(["seen", "named"]) == "seen":
        return f"{line} seen"
    return f"{line} pid={record.u32()} named={quote(record.string())}"


def end_lines(payload):
    """§6.8. There is one end; of more, the first counts."""
    ends = Bincode(payload, "end").vec(end_record)
    if not ends:
        raise Malformed("end: there is no record")
    return ends[0]


def end_record(record):
    line = (f"end time={record.integer()} reason={record.variant(END_REASONS)}"
            f" message={quote(record.string())}")
    totals = record.vec(lambda total: f"total name={quote(total.string())} value={total.integer()}")
    return [line] + totals


def vec_of(read):
    """Reads the payload that is a Vec of records."""
    return lambda payload: Bincode(payload, "records").vec(read)


COLD_PAYLOADS = {
    "metadata": metadata_lines,
    "tasks": vec_of(task_line),
    "modules": vec_of(module_line),
    "clocks": vec_of(clock_line),
    "losses": vec_of(loss_line),
    "times": vec_of(time_line),
    "vcpu-times": vec_of(vcpu_time_line),
    "exits": vec_of(exits_line),
    "monitor": lambda payload: [f"monitor bytes={len(payload)}"],
    "handled": vec_of(handled_line),
    "code": vec_of(code_line),
    "spaces": vec_of(space_line),
    "end": end_lines,
}
