"""Cold records (§6, §8) and image tables (§7): payloads enter, lines of dump text leave."""

from .numbers import Bincode, Bytes, Malformed, known, quote, task_text, wrapping

# Tables of names; a number is a place in the list.
TARGET_KINDS = ["synthetic", "process", "xen-domain", "gdb-stub", "qemu", "imported"]
ARCHITECTURES = ["x86_64", "aarch64"]
LOSS_REASONS = ["ring-full", "kernel-buffer", "read-failed", "deadline", "events-lost", "damaged"]
END_REASONS = ["duration", "stopped", "target-ended", "target-crashed", "source-failed",
               "input-ended", "cut"]
MACHINES = {62: "x86_64", 183: "aarch64"}

# Limits (§11).
MOST_SYMBOLS = 262144
MOST_IMAGE_SECTIONS = 66
MOST_INDEX_ENTRIES = 32768


def read_sections(payload, what, most=None):
    """`varint tag, varint length, length bytes` up to the payload's end (§6.2, §7)."""
    sections, source = {}, Bytes(payload, what)
    while source.left():
        tag, length = source.varint(), source.varint()
        if tag in sections or len(sections) == most:
            source.fail(f"section {tag} stands twice, or is one of more than {most}")
        sections[tag] = source.take(length)
    return sections


def metadata_lines(payload):
    """§6.2. A missing section has empty texts and zeros, which is what zero bytes decode to."""
    sections = read_sections(payload, "metadata")

    def section(tag, what):
        return Bincode(sections.get(tag, bytes(16)), what)

    recorder = section(1, "recorder")
    yield (f"recorder program={quote(recorder.string())}"
           f" command_line=[{','.join(map(quote, recorder.vec(Bincode.string)))}]")
    host = section(2, "host")
    yield (f"host name={quote(host.string())} system={quote(host.string())}"
           f" processor={quote(host.string())} processors={host.u32()}")
    target = section(3, "target")
    yield (f"target kind={target.variant(TARGET_KINDS)} id={target.integer()}"
           f" name={quote(target.string())} arch={target.variant(ARCHITECTURES)}"
           f" vcpus={target.u32()}")
    sampling = section(4, "sampling")
    yield (f"sampling rate_millihertz={sampling.integer()} trigger={quote(sampling.string())}"
           f" most_frames={sampling.u32()} stack_bytes={sampling.u32()}"
           f" on_cpu_only={'yes' if sampling.flag() else 'no'}")
    yield from section(5, "notes").vec(
        lambda note: f"note name={quote(note.string())} value={quote(note.string())}")


def task_line(record):
    """§6.3."""
    start = f"task time={record.integer()} task={task_text(record.task())}"
    if record.variant(["named", "ended"]) == "ended":
        return f"{start} ended"
    return f"{start} named={quote(record.string())}"


def module_line(record):
    """§6.4."""
    start = f"module time={record.integer()} space={record.u32()}"
    what = record.variant(["mapped", "cleared", "copied_from"])
    if what == "cleared":
        return f"{start} cleared"
    if what == "copied_from":
        return f"{start} copied_from={record.u32()}"
    return (f"{start} mapped start={record.integer():x} length={record.integer():x}"
            f" file_offset={record.integer():x} path={quote(record.string())}"
            f" build_id={record.byte_vec().hex()}")


def clock_line(record):
    """§6.5."""
    return (f"clock monotonic={record.integer()} realtime={record.i64()}"
            f" guest={known(record.option(Bincode.integer))}")


def loss_line(record):
    """§6.6."""
    return (f"loss first={record.integer()} last={record.integer()}"
            f" task={known(record.option(Bincode.task), task_text)}"
            f" reason={record.variant(LOSS_REASONS)} count={record.integer()}")


def span_line(record):
    """§6.7."""
    return (f"span task={task_text(record.task())} start={known(record.option(Bincode.integer))}"
            f" duration={record.integer()} depth={record.u32()} name={quote(record.string())}")


def end_lines(record):
    """§6.8: the line of the end and those of its totals."""
    line = (f"end time={record.integer()} reason={record.variant(END_REASONS)}"
            f" message={quote(record.string())}")
    totals = record.vec(lambda total: f"total name={quote(total.string())} value={total.integer()}")
    return "\n".join([line] + totals)


def entry_line(record):
    """§8."""
    return (f"entry offset={record.integer()} type={record.integer(2)} first={record.integer()}"
            f" last={record.integer()} samples={record.u32()}")


def image_lines(payload):
    sections = read_sections(payload, "image", MOST_IMAGE_SECTIONS)
    if next(iter(sections), None) != 1:
        raise Malformed("image: the identity is not the first section")
    identity = Bytes(sections[1], "identity")
    path = identity.text(identity.varint())
    build_id = identity.take(identity.varint())
    machine, load_bias = identity.varint(), identity.varint()
    origin = identity.text(identity.varint())
    yield (f"image path={quote(path)} build_id={build_id.hex()}"
           f" machine={MACHINES.get(machine, machine)} load_bias={load_bias:x} origin={quote(origin)}")
    if 2 in sections:
        yield from symbol_lines(Bytes(sections[2], "symbols"))


def symbol_lines(symbols):
    count = symbols.varint()
    if count > min(MOST_SYMBOLS, symbols.left()):
        symbols.fail(f"{count} symbols (at most {MOST_SYMBOLS}) in {symbols.left()} bytes")
    steps, sizes, lengths = ([symbols.varint() for _ in range(count)] for _ in range(3))
    address = 0
    for step, size, length in zip(steps, sizes, lengths):
        address = wrapping(address + step)
        yield f"symbol address={address:x} size={size} name={quote(symbols.text(length))}"


def vec_of(read, **limit):
    """Reads the payload that is a Vec of records."""
    return lambda payload: Bincode(payload, "records").vec(read, **limit)


COLD_PAYLOADS = {
    "metadata": metadata_lines,
    "tasks": vec_of(task_line),
    "modules": vec_of(module_line),
    "clocks": vec_of(clock_line),
    "losses": vec_of(loss_line),
    "spans": vec_of(span_line),
    "end": vec_of(end_lines),
    "index": vec_of(entry_line, most=MOST_INDEX_ENTRIES),
}
