"""Span blocks (§15): a payload enters, lines of dump text leave, span by span.

A span that can't be decoded ends the block with Malformed; the spans before it are good.
"""

from .columns import read_table
from .numbers import Absent, Bytes, Malformed, known, quote, task_text, wrapping
from .samples import MOST_TASKS, Changes, read_changed, read_directory, read_list, read_task

# Columns and kinds (§15.1), read from format-spec.md itself.
COLUMNS = {int(cells[0]): cells[1] for cells in read_table("SpanColumn")}
KINDS = {int(cells[0]): cells[1] for cells in read_table("SpanKind")}
# What may be left out, and stands for zeros then.
ZEROS = ["task", "name", "depth", "result"]

COMPLETE, LENGTH, START, RESULT = 1, 2, 4, 8
KIND_SHIFT = 4

# Limits (§11).
MOST_SPANS = MOST_NAMES = 65536
MOST_DEPTH = 1023


class SpanBlock:
    """Decodes the spans of one block, first to last."""

    def __init__(self, payload):
        found = {COLUMNS.get(number): column
                 for number, column in read_directory(payload, COLUMNS.get).items()}
        self.columns = {name: found.get(name) or
                        (Absent() if name in ZEROS else Bytes(b"", f"absent column {name}"))
                        for name in COLUMNS.values()}
        self.spans = self.columns["flags"].left()
        if self.spans > MOST_SPANS:
            raise Malformed(f"{self.spans} spans (at most {MOST_SPANS})")
        self.tasks = read_list(self.columns["tasks"], read_task, MOST_TASKS)
        self.names = self.read_names()
        if self.columns["before"].left():
            self.columns["before"].varint()
        self.cpus = Changes()
        self.depths, self.starts = {}, {}  # by task index, of its last span

    def read_names(self):
        lengths = read_list(self.columns["names"], Bytes.varint, MOST_NAMES)
        return [self.columns["name-text"].text(length) for length in lengths]

    def lines(self):
        for _ in range(self.spans):
            yield self.span()

    def span(self):
        flags = self.columns["flags"].byte()
        kind = KINDS.get(flags >> KIND_SHIFT & 3)
        if kind is None:
            raise Malformed(f"column flags: unknown kind in {flags:#04x}")
        task = self.index("task", len(self.tasks))
        name = self.index("name", len(self.names))
        depth = wrapping(self.depths.get(task, 0) + self.columns["depth"].delta())
        if depth > MOST_DEPTH:
            raise Malformed(f"column depth: {depth} (at most {MOST_DEPTH})")
        self.depths[task] = depth
        length = self.columns["length"].varint() if flags & LENGTH else None
        start = None
        if flags & START:
            start = wrapping(self.starts.get(task, 0) + self.columns["start"].delta())
            self.starts[task] = start
        result = self.columns["result"].delta() if flags & RESULT else None
        cpu = read_changed(self.columns["cpu"], self.cpus, task)
        cpu = None if cpu is None or cpu >> 32 else cpu
        return (f"span task={task_text(self.tasks[task])} depth={depth} kind={kind}"
                f" complete={'yes' if flags & COMPLETE else 'no'} start={known(start)}"
                f" length={known(length)} result={known(result)} cpu={known(cpu)}"
                f" name={quote(self.names[name])}")

    def index(self, column, count):
        index = self.columns[column].varint()
        if index >= count:
            raise Malformed(f"column {column}: {index} of {count}")
        return index
