"""Sample blocks (§5): a payload enters, lines of dump text leave, row by row.

A row that can't be decoded ends the block with Malformed; the rows before it are good.
"""

import zlib

from .columns import COLUMNS
from .numbers import Absent, Bytes, Malformed, known, task_text, wrapping

# Tables of names; a number is a place in the list.
STATES = ["running", "blocked", "offline", "paused", "ready"]
STOPS = ["complete", "not-walked", "depth-limit", "window-end", "time-budget", "cycle",
         "bad-frame-pointer", "unreadable-memory", "unsaid", "bad-unwind-rule", "moved"]
FRAME_KINDS = ["e", "r"]
FOUND = ["f", "c", "s", "t"]

# Columns (§5.1), by name. Rows without a column of these stand for zeros; the others' is empty.
ROW_COLUMNS = [name for name, column in COLUMNS.items() if column.has_entry_per_row]
REGISTER = 64
CRITICAL = 1
# Numbers that rows have beside their stacks; where they stand in a line.
ALWAYS = [column for column in COLUMNS.values() if column.dump == "always"]
IF_KNOWN = [column for column in COLUMNS.values() if column.dump == "if known"]

# Limits (§11).
MOST_SAMPLES = 16384
MOST_COLUMNS = 256
MOST_TASKS = MOST_MASKS = 16384
MOST_NODES = 262144
MOST_FRAMES = 1024
MOST_SUCCESSORS = 32
MOST_STACK_BYTES = 256 << 10
MOST_BLOCK_STACK_BYTES = 64 << 20


def read_directory(payload, name_of):
    """The columns of a payload by number (§5.1); `name_of` gives a number's name, or None."""
    directory = Bytes(payload, "column directory")
    count = directory.varint()
    if count > MOST_COLUMNS:
        directory.fail(f"{count} columns (at most {MOST_COLUMNS})")
    entries = [(directory.varint(), directory.varint(), directory.varint()) for _ in range(count)]
    columns = {}
    for number, flags, length in entries:
        if number > 0xFFFF or number in columns:
            directory.fail(f"column id {number} is beyond 16 bits or stands twice")
        name = name_of(number)
        if flags & CRITICAL and name is None:
            directory.fail(f"critical column {number} is not known")
        columns[number] = Bytes(directory.take(length), f"column {name or number}")
    return columns


def read_columns(payload):
    """The columns of a sample block by name, with what a left out one stands for (§5.1)."""
    columns = read_directory(payload, column_name)
    named = {column_name(number): column for number, column in columns.items()}
    for name in [*COLUMNS, *(REGISTER + number for number in range(64))]:
        absent = Absent() if name in ROW_COLUMNS else Bytes(b"", f"absent column {name}")
        named.setdefault(name, absent)
    return named


def column_name(number):
    """What a column is called here; a register's is its number, and None is not known."""
    if REGISTER <= number < REGISTER + 64:
        return number
    return next((name for name, column in COLUMNS.items() if column.number == number), None)


def read_list(column, read, most):
    """A table's entries, up to the end of its column."""
    entries = []
    while column.left():
        if len(entries) == most:
            column.fail(f"more than {most} entries")
        entries.append(read(column))
    return entries


def read_task(column):
    task = (column.varint(), column.varint())
    if max(task) >= 1 << 32:
        column.fail("an address space or vCPU is beyond 32 bits")
    return task


def frame_kind(value):
    """What an address is and how its frame was found, as two letters (§5.2, §10)."""
    kind, found = value & 15, value >> 4
    if kind >= len(FRAME_KINDS) or found >= len(FOUND):
        raise Malformed(f"column node-kind: unknown value {value:#04x}")
    return FRAME_KINDS[kind] + FOUND[found]


class StackTable:
    """The forest whose paths are the block's chains (§5.2)."""

    def __init__(self, columns):
        self.columns = columns
        self.successors = {}  # caller -> the frames (address, kind) found below it
        self.frames, self.parents, self.chains = [], [], []
        path = []  # of the node before: its node numbers and frames, outermost first
        while columns["node-step"].left():
            node, step = len(self.frames), columns["node-step"].varint()
            up = step >> 1
            if up > len(path) or len(path) - up >= MOST_FRAMES or node == MOST_NODES:
                columns["node-step"].fail(f"node {node} goes {up} up from depth {len(path)}")
            del path[len(path) - up:]
            parent, caller = path[-1] if path else (-1, None)
            frame = self.frame(caller)
            path.append((node, frame))
            self.parents.append(parent)
            self.frames.append(f"{frame[0]:x}:{frame_kind(frame[1])}")
            if step & 1:
                self.chains.append(node)

    def frame(self, caller):
        """The next node's frame; None is the caller of outermost frames."""
        known_ones = self.successors.setdefault(caller, [])
        place = self.columns["node-place"].varint()
        if place > len(known_ones):
            self.columns["node-place"].fail(f"successor {place} of {len(known_ones)}")
        if place:
            return known_ones[place - 1]
        base = caller[0] if caller else 0
        address = wrapping(base + self.columns["node-address"].delta())
        frame = (address, self.columns["node-kind"].byte())
        frame_kind(frame[1])
        if frame in known_ones:
            self.columns["node-place"].fail(f"a known frame {address:x} is told as new")
        if len(known_ones) < MOST_SUCCESSORS:
            known_ones.append(frame)
        return frame

    def chain(self, entry):
        """The frames of a row of the column chain, as text."""
        if entry > len(self.chains):
            raise Malformed(f"column chain: chain {entry - 1} of {len(self.chains)}")
        frames, node = [], self.chains[entry - 1] if entry else -1
        while node >= 0:
            frames.append(self.frames[node])
            node = self.parents[node]
        return ",".join(frames) or "-"


class Changes:
    """What a column of changes has told so far (§5.6)."""

    def __init__(self):
        self.values = [None]  # by place; 0 is not known
        self.last = {}  # task index -> place
        self.same = None  # rows without a change that are still to come


def read_changed(column, told, task):
    """The number of the next row, which is of this task; None where it isn't known."""
    if told.same is None and column.left():
        told.same = column.varint()
    if told.same == 0:
        place = column.varint()
        if place > len(told.values):
            column.fail(f"number {place} of {len(told.values) - 1}")
        if place == len(told.values):
            told.values.append(column.varint())
        told.last[task], told.same = place, None
    elif told.same:
        told.same -= 1
    return told.values[told.last.get(task, 0)]


class SampleBlock:
    """Decodes the rows of one sample block, first to last."""

    def __init__(self, payload, samples):
        if samples > MOST_SAMPLES:
            raise Malformed(f"{samples} samples (at most {MOST_SAMPLES})")
        self.samples = samples
        self.columns = read_columns(payload)
        self.tasks = read_list(self.columns["tasks"], read_task, MOST_TASKS)
        self.masks = read_list(self.columns["register-masks"], Bytes.varint, MOST_MASKS)
        self.stack_table = StackTable(self.columns)
        self.registers_before = {}  # (task index, register) -> value
        equal = self.columns["register-equal"]
        self.equal = (equal.varint(), equal.varint()) if equal.left() else (0, 0)
        self.stack_addresses = {}  # task index -> address of its last stack
        self.memories = {}  # task index -> (lowest address, bytes)
        self.stack_bytes = 0
        self.changes = {}  # column -> what it has told

    def lines(self):
        time = self.columns["time"].varint() if self.samples else 0
        for _ in range(self.samples):
            time = wrapping(time + self.columns["time"].delta())
            yield self.row(time)

    def row(self, time):
        index = self.columns["task"].varint()
        if index >= len(self.tasks):
            raise Malformed(f"column task: task {index} of {len(self.tasks)}")
        state = self.named("state", STATES)
        stop = self.named("stop", STOPS)
        numbers = {column.name: self.number(column, index) for column in [*ALWAYS, *IF_KNOWN]}
        chain = self.stack_table.chain(self.columns["chain"].varint())
        frame = None if chain == "-" else int(chain.split(":")[0], 16)
        stack, stack_address = self.stack(index)
        registers = self.registers(index, frame, stack_address)
        off_cpu, more = self.plus_one("off-cpu"), self.columns["waits"].varint()
        waits = min(more + 1, (1 << 64) - 1)
        wait = "" if off_cpu is None else f" off_cpu={off_cpu} waits={waits}"
        always = "".join(f" {column.name}={known(numbers[column.name])}" for column in ALWAYS)
        if_known = "".join(f" {column.name}={numbers[column.name]}" for column in IF_KNOWN
                           if numbers[column.name] is not None)
        return (f"sample time={time} task={task_text(self.tasks[index])} state={state} stop={stop}"
                f"{always} chain={chain} regs={registers} stack={stack}{wait}{if_known}")

    def number(self, column, task):
        """A number of the row as text; None where it isn't known."""
        value = (self.change(column.name, task) if column.entry.startswith("changes")
                 else self.plus_one(column.name))
        return None if value is None else f"{value:{column.form}}"

    def named(self, number, names):
        value = self.columns[number].byte()
        if value >= len(names):
            raise Malformed(f"column {number}: unknown value {value}")
        return names[value]

    def plus_one(self, number):
        value = self.columns[number].varint()
        return value - 1 if value else None

    def change(self, name, task):
        """A number that is told where it changes; None where it isn't known."""
        return read_changed(self.columns[name], self.changes.setdefault(name, Changes()), task)

    def registers(self, task, frame, stack):
        """The row's registers as text (§5.3); also the addresses that they may repeat."""
        entry = self.plus_one("register-mask")
        if entry is None:
            return "-"
        if entry >= len(self.masks):
            raise Malformed(f"column register-mask: mask {entry} of {len(self.masks)}")
        fields = []
        for number in (n for n in range(64) if self.masks[entry] >> n & 1):
            before = self.registers_before.get((task, number), 0)
            if (self.equal[0] | self.equal[1]) >> number & 1:
                value = frame if self.equal[0] >> number & 1 else stack
                if value is None:
                    raise Malformed(f"register {number} repeats what the row doesn't have")
            else:
                value = self.columns[REGISTER + number].word(before)
            self.registers_before[task, number] = value
            fields.append(f"{number}:{value:x}")
        return ",".join(fields) or "-"

    def stack(self, task):
        """The row's raw stack as text, and its address (§5.4)."""
        length = self.plus_one("stack-length")
        if length is None:
            return "-", None
        self.stack_bytes += length
        if length > MOST_STACK_BYTES or self.stack_bytes > MOST_BLOCK_STACK_BYTES:
            raise Malformed(f"raw stacks: {length} bytes in a row, {self.stack_bytes} in the block")
        before = self.stack_addresses.get(task, 0)
        address = wrapping(before + self.columns["stack-address"].delta())
        self.stack_addresses[task] = address
        stack = self.fill_stack(task, address, length)
        return f"{address:x}+{length}:{zlib.crc32(stack):08x}", address

    def fill_stack(self, task, address, length):
        """The bytes of a stack; brings the task's stack memory up to date."""
        lowest, memory = self.memories.get(task, (0, b""))
        distance = wrapping(address - lowest)
        if distance >> 63:
            distance -= 1 << 64
        start, end = max(distance, 0), min(distance + length, len(memory))
        take = self.columns["stack-bytes"].take
        if start >= end:
            stack = bytes(take(length))
            self.memories[task] = (address, stack)
            return stack
        below = bytes(take(start - distance))
        both = self.change_words(memory[start:end])
        above = bytes(take(distance + length - end))
        stack = below + both + above
        memory = memory[:max(distance, 0)] + stack + memory[distance + length:]
        if len(memory) > MOST_STACK_BYTES:
            self.memories[task] = (address, stack)
        else:
            self.memories[task] = (lowest if distance > 0 else address, memory)
        return stack

    def change_words(self, known_bytes):
        """The bytes that the stack memory and a new stack both have, as the new stack has them."""
        runs, words = self.columns["stack-runs"], self.columns["stack-words"]
        both, at, end = bytearray(known_bytes), 0, len(known_bytes) // 8 * 8
        while at < end:
            same, changed = runs.varint(), runs.varint()
            if not 0 < same + changed <= (end - at) // 8:
                runs.fail(f"{same} and {changed} words where {(end - at) // 8} are missing")
            at += same * 8
            for _ in range(changed):
                word = int.from_bytes(both[at:at + 8], "little")
                both[at:at + 8] = words.word(word).to_bytes(8, "little")
                at += 8
        both[end:] = self.columns["stack-bytes"].take(len(both) - end)
        return bytes(both)
