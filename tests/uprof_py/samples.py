"""Sample blocks (§5): a payload enters, lines of dump text leave, row by row.

A row that can't be decoded ends the block with Malformed; the rows before it are good.
"""

import zlib

from .numbers import Absent, Bytes, Malformed, known, task_text, wrapping

# Tables of names; a number is a place in the list.
STATES = ["running", "blocked", "offline", "paused"]
STOPS = ["complete", "not-walked", "depth-limit", "window-end", "time-budget", "cycle",
         "bad-frame-pointer", "unreadable-memory", "unsaid", "bad-unwind-rule"]
FRAME_KINDS = ["e", "r"]
FOUND = ["f", "c", "s", "t"]

# Columns (§5.1).
(TASKS, TASK, TIME, STATE, NODE_PARENT, NODE_ADDRESS, NODE_KIND, CHAIN, STOP, COST, LATE,
 REGISTER_MASKS, REGISTER_MASK, STACK_ADDRESS, STACK_LENGTH, STACK_RUNS,
 STACK_BYTES) = range(1, 18)
REGISTER = 64
CRITICAL = 1

# Limits (§11).
MOST_SAMPLES = 16384
MOST_COLUMNS = 256
MOST_TASKS = MOST_MASKS = 16384
MOST_NODES = 262144
MOST_FRAMES = 1024
MOST_STACK_BYTES = 256 << 10
MOST_BLOCK_STACK_BYTES = 64 << 20


def read_columns(payload):
    """The columns of a sample block, by id (§5.1)."""
    directory = Bytes(payload, "column directory")
    count = directory.varint()
    if count > MOST_COLUMNS:
        directory.fail(f"{count} columns (at most {MOST_COLUMNS})")
    entries = [(directory.varint(), directory.varint(), directory.varint()) for _ in range(count)]
    columns = {}
    for number, flags, length in entries:
        if number > 0xFFFF or number in columns:
            directory.fail(f"column id {number} is beyond 16 bits or stands twice")
        is_known = TASKS <= number <= STACK_BYTES or REGISTER <= number < REGISTER + 64
        if flags & CRITICAL and not is_known:
            directory.fail(f"critical column {number} is not known")
        columns[number] = Bytes(directory.take(length), f"column {number}")
    return columns


def read_list(column, read, most):
    """A table's entries, up to the end of its column; a table that is left out is empty."""
    entries = []
    while column and column.left():
        if len(entries) == most:
            column.fail(f"more than {most} entries")
        entries.append(read(column))
    return entries


def read_task(column):
    task = (column.varint(), column.varint())
    if max(task) >= 1 << 32:
        column.fail("an address space or vCPU is beyond 32 bits")
    return task


class StackTable:
    """The forest whose paths are the block's chains (§5.2)."""

    def __init__(self, columns):
        kinds = columns.get(NODE_KIND)
        self.kinds = kinds.data if kinds else b""
        if len(self.kinds) > MOST_NODES:
            kinds.fail(f"{len(self.kinds)} nodes (at most {MOST_NODES})")
        parents = columns.get(NODE_PARENT, Absent())
        deltas = columns.get(NODE_ADDRESS, Absent())
        self.parents, self.addresses, self.depths = [], [], []
        for node in range(len(self.kinds)):
            back = parents.varint()
            if back > node:
                parents.fail(f"node {node} goes back {back}")
            parent = node - back - 1  # -1 for an outermost frame
            if parent >= 0:
                base, depth = self.addresses[parent], self.depths[parent] + 1
            else:
                base, depth = 0, 1
            if depth > MOST_FRAMES:
                raise Malformed(f"stack table: node {node} is deeper than {MOST_FRAMES}")
            self.parents.append(parent)
            self.addresses.append(wrapping(base + deltas.delta()))
            self.depths.append(depth)

    def chain(self, entry):
        """The frames of a row of the column chain, as text."""
        if entry > len(self.kinds):
            raise Malformed(f"chain: node {entry - 1} of {len(self.kinds)}")
        frames, node = [], entry - 1
        while node >= 0:
            kind, found = self.kinds[node] & 15, self.kinds[node] >> 4
            if kind >= len(FRAME_KINDS) or found >= len(FOUND):
                raise Malformed(f"node {node} is of unknown kind {self.kinds[node]:#04x}")
            frames.append(f"{self.addresses[node]:x}:{FRAME_KINDS[kind]}{FOUND[found]}")
            node = self.parents[node]
        return ",".join(frames) or "-"


class SampleBlock:
    """Decodes the rows of one sample block, first to last."""

    def __init__(self, payload, samples):
        if samples > MOST_SAMPLES:
            raise Malformed(f"{samples} samples (at most {MOST_SAMPLES})")
        self.samples = samples
        self.columns = read_columns(payload)
        self.tasks = read_list(self.columns.get(TASKS), read_task, MOST_TASKS)
        self.masks = read_list(self.columns.get(REGISTER_MASKS), Bytes.varint, MOST_MASKS)
        self.stack_table = StackTable(self.columns)
        self.registers_before = {}  # (task index, register) -> value
        self.stack_before = {}  # task index -> (address, bytes)
        self.stack_bytes = 0

    def column(self, number):
        return self.columns.get(number, Absent())

    def lines(self):
        if self.samples and TIME not in self.columns:
            raise Malformed("there is no column time")
        time = self.column(TIME).varint()
        for _ in range(self.samples):
            time = wrapping(time + self.column(TIME).delta())
            yield self.row(time)

    def row(self, time):
        index = self.column(TASK).varint()
        if index >= len(self.tasks):
            raise Malformed(f"column task: task {index} of {len(self.tasks)}")
        state = self.named(STATE, STATES)
        stop = self.named(STOP, STOPS)
        cost, late = (self.plus_one(column) for column in (COST, LATE))
        chain = self.stack_table.chain(self.column(CHAIN).varint())
        registers = self.registers(index)
        stack = self.stack(index)
        return (f"sample time={time} task={task_text(self.tasks[index])} state={state} stop={stop}"
                f" cost={known(cost)} late={known(late)} chain={chain} regs={registers}"
                f" stack={stack}")

    def named(self, number, names):
        value = self.column(number).byte()
        if value >= len(names):
            raise Malformed(f"column {number}: unknown value {value}")
        return names[value]

    def plus_one(self, number):
        value = self.column(number).varint()
        return value - 1 if value else None

    def registers(self, task):
        """The row's registers as text (§5.3)."""
        entry = self.plus_one(REGISTER_MASK)
        if entry is None:
            return "-"
        if entry >= len(self.masks):
            raise Malformed(f"column register-mask: mask {entry} of {len(self.masks)}")
        fields = []
        for number in (n for n in range(64) if self.masks[entry] >> n & 1):
            before = self.registers_before.get((task, number), 0)
            value = wrapping(before + self.column(REGISTER + number).delta())
            self.registers_before[task, number] = value
            fields.append(f"{number}:{value:x}")
        return ",".join(fields) or "-"

    def stack(self, task):
        """The row's raw stack as text (§5.4)."""
        length = self.plus_one(STACK_LENGTH)
        if length is None:
            return "-"
        self.stack_bytes += length
        if length > MOST_STACK_BYTES or self.stack_bytes > MOST_BLOCK_STACK_BYTES:
            raise Malformed(f"raw stacks: {length} bytes in a row, {self.stack_bytes} in the block")
        before_address, before = self.stack_before.get(task, (0, b""))
        address = wrapping(before_address + self.column(STACK_ADDRESS).delta())
        stack = self.fill_stack(wrapping(address - before_address), before, length)
        self.stack_before[task] = (address, stack)
        return f"{address:x}+{length}:{zlib.crc32(stack):08x}"

    def fill_stack(self, offset, before, length):
        """The bytes of a stack that begins `offset` bytes above the one before."""
        runs = self.columns.get(STACK_RUNS) or Bytes(b"", "column stack-runs")
        literals = self.columns.get(STACK_BYTES) or Bytes(b"", "column stack-bytes")
        stack = bytearray()
        while len(stack) < length:
            same, literal = runs.varint(), runs.varint()
            if not 0 < same + literal <= length - len(stack):
                runs.fail(f"{same} and {literal} bytes where {length - len(stack)} are missing")
            start = wrapping(offset + len(stack))
            if same and start + same > len(before):
                runs.fail(f"{same} bytes repeated from {start} of {len(before)}")
            stack += before[start:start + same]
            stack += literals.take(literal)
        return bytes(stack)
