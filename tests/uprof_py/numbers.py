"""Numbers and text as they stand in payloads (§1, §6.1), and as dump text writes them (§10)."""

MASK_64 = (1 << 64) - 1
MOST_ELEMENTS = 1 << 20  # a Vec can't have more elements than its block has bytes (§11)


class Malformed(Exception):
    """A payload doesn't follow the page; ends its block."""


class Bytes:
    """Reads one piece of a payload from front to back; `what` names the piece in errors."""

    def __init__(self, data, what):
        self.data, self.what, self.at = data, what, 0
        self.start = 0  # of the last value, for errors

    def left(self):
        return len(self.data) - self.at

    def fail(self, message):
        raise Malformed(f"{self.what}, byte {self.start}: {message}")

    def take(self, count):
        self.start = self.at
        if count > self.left():
            self.fail(f"{count} bytes are wanted, {self.left()} are left")
        self.at += count
        return self.data[self.at - count:self.at]

    def byte(self):
        return self.take(1)[0]

    def varint(self):
        """A varint (§1)."""
        self.start, value = self.at, 0
        for shift in range(0, 64, 7):
            if not self.left():
                self.fail("a varint ends too early")
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
        if byte >= 0x80 or value > MASK_64:
            self.fail("a varint beyond 64 bits")
        return value

    def delta(self):
        """A delta (§1), to be added with `wrapping`."""
        return unzigzag(self.varint())

    def word(self, base):
        """A word (§1) with this base."""
        entry = self.varint()
        if entry == 0:
            return int.from_bytes(self.take(8), "little")
        return wrapping(base + unzigzag(entry - 1))

    def text(self, count):
        try:
            return self.take(count).decode("utf-8")
        except UnicodeDecodeError as error:
            self.fail(f"text is not UTF-8: {error.reason}")


class Absent:
    """Stands for a column with an entry per row that was left out: they are all 0 (§5.1)."""

    def byte(self):
        return 0

    varint = delta = byte


class Bincode(Bytes):
    """Reads records in bincode 2's standard configuration (§6.1)."""

    def integer(self, size=8):
        """u16, u32 or u64, of `size` bytes when in full."""
        first = self.byte()
        if first < 251:
            return first
        width = {0xFB: 2, 0xFC: 4, 0xFD: 8}.get(first, 9)
        if width > size:
            self.fail(f"marker {first:02x} in an integer of {size} bytes")
        return int.from_bytes(self.take(width), "little")

    def u32(self):
        return self.integer(4)

    def i64(self):
        return unzigzag(self.integer())

    def flag(self):
        """bool, and the first byte of an Option."""
        value = self.byte()
        if value > 1:
            self.fail(f"{value} where only 0 or 1 can be")
        return value == 1

    def string(self):
        return self.text(self.integer())

    def vec(self, read, most=MOST_ELEMENTS):
        count = self.integer()
        if count > min(most, self.left()):
            self.fail(f"{count} elements, with {self.left()} bytes left and {most} allowed")
        return [read(self) for _ in range(count)]

    def byte_vec(self):
        return self.take(self.integer())

    def option(self, read):
        return read(self) if self.flag() else None

    def variant(self, names):
        number = self.u32()
        if number >= len(names):
            self.fail(f"unknown variant {number} (known: {', '.join(names)})")
        return names[number]

    def task(self):
        return (self.u32(), self.u32())


def read_sections(payload, what):
    """(tag, bytes) of the sections that fill a payload, in order (§6.2, §7)."""
    sections, source = [], Bytes(payload, what)
    while source.left():
        tag, length = source.varint(), source.varint()
        sections.append((tag, source.take(length)))
    return sections


def unzigzag(value):
    return (value >> 1) ^ -(value & 1)


def wrapping(value):
    return value & MASK_64


# Characters that a dump escapes (format-spec.md, section 10).
STEERING = [
    (0x0000, 0x001F), (0x007F, 0x009F), (0x00AD, 0x00AD), (0x0600, 0x0605), (0x061C, 0x061C),
    (0x06DD, 0x06DD), (0x070F, 0x070F), (0x0890, 0x0891), (0x08E2, 0x08E2), (0x180E, 0x180E),
    (0x200B, 0x200F), (0x2028, 0x202E), (0x2060, 0x206F), (0xFEFF, 0xFEFF), (0xFFF0, 0xFFFB),
    (0xFFFE, 0xFFFF), (0x110BD, 0x110CD), (0x13430, 0x1343F), (0x1BCA0, 0x1BCA3),
    (0x1D173, 0x1D17A), (0xE0000, 0xE0FFF),
]  # fmt: skip


def is_command(text, at):
    """Whether the character at `at` is the second # of a build runner's command (§10)."""
    begins = text[at + 1 : at + 2] == "[" or text[at + 1 : at + 5].lower() == "vso["
    return begins and text[at - 1 : at] == "#"


def quote(text):
    def escaped(at, char):
        if char in '"\\':
            return "\\" + char
        is_steering = any(first <= ord(char) <= last for first, last in STEERING)
        if not is_steering and not (char == "#" and is_command(text, at)):
            return char
        units = char.encode("utf-16-be").hex()
        return "".join("\\u" + units[at : at + 4] for at in range(0, len(units), 4))
    return '"' + "".join(escaped(at, char) for at, char in enumerate(text)) + '"'


def known(value, form=str):
    return "-" if value is None else form(value)


def task_text(task):
    return f"{task[0]}/{task[1]}"
