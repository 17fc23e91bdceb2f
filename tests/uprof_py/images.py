"""Image tables (§7): the payload of a block enters, lines of dump text leave."""

import zlib

from .numbers import Bytes, Malformed, quote, read_sections

# Tables of names; a number is a place in the list.
CFA_KINDS = ["register", "expression"]
PLACES = ["lost", "at-cfa", "is-cfa", "register", "at-expression", "is-expression"]
OF_CFA, OF_EXPRESSION = PLACES[1:3], PLACES[4:6]
MACHINES = {62: "x86_64", 183: "aarch64"}
IDENTITY, SYMBOLS = 1, 2

# Limits (§7, §11).
MOST_SYMBOLS = 262144
MOST_IMAGE_SECTIONS = 66
MOST_EXPRESSION_BYTES = 65535
MOST_SAVES = 255
REGISTERS = 33


class Section(Bytes):
    """The bytes of one section."""

    def below(self, end, what):
        """The next number, which may not reach `end`."""
        value = self.varint()
        if value >= end:
            self.fail(f"{what} is {value}, not below {end}")
        return value

    def signed(self):
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def address(self, before):
        """The next address, told by its difference."""
        address = before + self.varint()
        if address >= 1 << 64:
            self.fail("an address beyond 64 bits")
        return address

    def count(self, least_bytes=1):
        """How many follow of what takes so many bytes at least."""
        count = self.varint()
        if count * least_bytes > self.left():
            self.fail(f"{count} entries in {self.left()} bytes")
        return count

    def counted_text(self):
        return self.text(self.count())

    def list_of(self, read, least_bytes=1):
        return [read() for _ in range(self.count(least_bytes))]


def image_lines(payload, place):
    """Lines of one part; of a section that is wrong, an error with `place`."""
    sections = read_sections(payload, "image")
    tags = [tag for tag, _ in sections]
    if tags[:1] != [IDENTITY]:
        raise Malformed("image: the identity is not the first section")
    if len(tags) > min(len(set(tags)), MOST_IMAGE_SECTIONS):
        raise Malformed(f"image: a tag stands twice, or over {MOST_IMAGE_SECTIONS} sections")
    lines, sections = [], dict(sections)
    for tag in (IDENTITY, SYMBOLS):
        name, read = SECTIONS[tag]
        lines += read(Section(sections.pop(tag), f"section {name}")) if tag in sections else []
    for tag, section in sections.items():
        if tag not in SECTIONS:
            continue
        name, read = SECTIONS[tag]
        try:
            lines += list(read(Section(section, f"section {name}")))
        except Malformed as error:
            lines.append(f"error {place}: {error}")
    return lines


def identity_lines(section):
    path = section.counted_text()
    build_id = section.take(section.count())
    machine = section.varint()
    if machine not in MACHINES:
        section.fail(f"machine {machine} is not known")
    load_bias, origin = section.varint(), section.counted_text()
    yield (f"image path={quote(path)} build_id={build_id.hex()} machine={MACHINES[machine]}"
           f" load_bias={load_bias:x} origin={quote(origin)}")


def symbol_lines(section):
    count = section.varint()
    if count > min(MOST_SYMBOLS, section.left()):
        section.fail(f"{count} symbols (at most {MOST_SYMBOLS}) in {section.left()} bytes")
    steps, sizes, lengths = ([section.varint() for _ in range(count)] for _ in range(3))
    address = 0
    for step, size, length in zip(steps, sizes, lengths):
        address += step
        if address >= 1 << 64:
            section.fail("an address beyond 64 bits")
        yield f"symbol address={address:x} size={size} name={quote(section.text(length))}"


def segment_lines(section):
    for _ in range(section.count(5)):
        address, offset, in_file, in_memory, flags = (section.varint() for _ in range(5))
        yield (f"segment address={address:x} file_offset={offset:x} file_bytes={in_file}"
               f" memory_bytes={in_memory} code={'yes' if flags & 1 else 'no'}")


def line_lines(section):
    texts = [section.text(length) for length in section.list_of(section.count)]
    for number, text in enumerate(texts, 1):
        yield f"text number={number} text={quote(text)}"

    def function():
        name, file = (section.below(len(texts) + 1, "a text's number") for _ in range(2))
        return f"{name}/{file}:{section.below(1 << 32, 'a line')}"

    address = 0
    for _ in range(section.count(2)):
        address = section.address(address)
        functions = ",".join(section.list_of(function, 3)) or "-"
        yield f"line address={address:x} functions={functions}"


def caller_lines(section):
    for _ in range(section.count(4)):
        callee, function, following, caller = (section.varint() for _ in range(4))
        yield f"caller callee={callee:x} function={function:x} next={following:x} address={caller:x}"


def rule_lines(section):
    expressions = section.list_of(
        lambda: section.take(section.below(MOST_EXPRESSION_BYTES + 1, "a length")))
    for number, expression in enumerate(expressions):
        yield f"expression number={number} bytes={expression.hex()}"
    rules = section.list_of(lambda: rule_text(section, len(expressions)), 6)
    for number, rule in enumerate(rules):
        yield f"rule number={number} {rule}"
    end = 0
    for _ in range(section.count(3)):
        start = section.address(end)
        end = section.address(start)
        if start == end:
            section.fail("a row of no length")
        rule = section.below(len(rules), "a rule's number")
        yield f"unwind start={start:x} end={end:x} rule={rule}"
    if section.left():
        count, address = section.count(), 0
        yield f"returns count={count}"
        for _ in range(count):
            address = section.address(address)
            yield f"return address={address:x}"


def rule_text(section, expressions):
    def named(names, what):
        return names[section.below(len(names), what)]

    def register():
        return section.below(REGISTERS, "a register")

    def number(first, end):
        value = section.signed()
        if not first <= value < end:
            section.fail(f"{value} is not from {first} to {end}")
        return value

    def offset():
        return number(-(1 << 31), 1 << 31)

    def save():
        saved, place = register(), named(PLACES, "a place")
        if place in OF_CFA:
            return f"{saved}:{place}:{offset()}"
        if place in OF_EXPRESSION:
            return f"{saved}:{place}:{number(0, expressions)}"
        if place == "register":
            return f"{saved}:{place}:{number(0, REGISTERS)}"
        section.signed()
        return f"{saved}:{place}"

    kind, of = named(CFA_KINDS, "kind of a CFA"), register()
    cfa = f"{of}:{offset()}" if kind == "register" else number(0, expressions)
    trap = "yes" if section.varint() & 1 else "no"
    return_register = register()
    saves = [save() for _ in range(section.below(MOST_SAVES + 1, "number of registers"))]
    return f"cfa={kind}:{cfa} trap={trap} return={return_register} saves={','.join(saves) or '-'}"


def file_lines(section):
    yield f"file contents={len(section.data)}:{zlib.crc32(section.data):08x}"


SECTIONS = {
    IDENTITY: ("identity", identity_lines),
    SYMBOLS: ("symbols", symbol_lines),
    3: ("segments", segment_lines),
    4: ("lines", line_lines),
    5: ("rules", rule_lines),
    6: ("file", file_lines),
    7: ("callers", caller_lines),
}
