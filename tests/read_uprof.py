#!/usr/bin/env python3
"""Prints an .uprof recording as dump text (format-spec.md, section 10).

    read_uprof.py FILE

A second reader of the format, written from format-spec.md alone, without looking at the Rust code:
where the two print different lines, one of them or the page is wrong. "§" cites a section of the
page. This file reads the preamble and walks the blocks; uprof_py/ reads what is in them.

Exit status: 0 when the recording was printed, damaged or not; 1 when it was refused; 2 for wrong
usage. Needs Python 3 and the package zstandard: tried with Python 3.11, and with 0.25.0 and the
0.20.0 (Debian 12) of the package.
"""

import struct
import sys
import zlib
from typing import NamedTuple

import zstandard

from uprof_py.images import image_lines
from uprof_py.numbers import Malformed
from uprof_py.records import COLD_PAYLOADS
from uprof_py.samples import SampleBlock
from uprof_py.spans import SpanBlock

MAGIC = b"\x89UPROF\r\n"
SYNC = b"\xf5uBLK\x1a\r\n"
PREAMBLE = struct.Struct("<8sHHI16s")
HEADER = struct.Struct("<8sHHBBHIIQQQIIII")

# Tables of names; a number is a place in the list.
CODECS = ["plain", "zstd"]
BLOCK_TYPES = [None, "metadata", "samples", "tasks", "modules", "clocks", "losses", None,
               "image", "end", None, "times", "code", "spaces", "spans", "vcpu-times",
               "exits", "monitor", "handled"]
END = 9
MONITOR = 17

# Limits (§11).
MOST_PAYLOAD_BYTES = 16 << 20
MOST_COLD_BYTES = 1 << 20


class Refused(Exception):
    """The file is none that this reader may read; ends the program."""


def name_or_number(names, number):
    return names[number] if number < len(names) and names[number] else str(number)


class Header(NamedTuple):
    """A block header: its offset in the file, then its fields in order (§3)."""

    offset: int
    sync: bytes
    block_type: int
    flags: int
    codec: int
    encoding: int
    reserved: int
    stored_bytes: int
    raw_bytes: int
    first_ns: int
    last_ns: int
    samples_before: int
    samples: int
    sequence: int
    payload_crc: int
    header_crc: int

    @property
    def end(self):
        return self.offset + HEADER.size + self.stored_bytes

    def line(self):
        return (f"block seq={self.sequence} type={name_or_number(BLOCK_TYPES, self.block_type)}"
                f" offset={self.offset} stored={self.stored_bytes} raw={self.raw_bytes}"
                f" codec={name_or_number(CODECS, self.codec)} samples={self.samples}"
                f" first={self.first_ns} last={self.last_ns}")


def read_header(data, offset):
    """The header at `offset`, or None if there is none whose sync and CRC are right."""
    if len(data) - offset < HEADER.size:
        return None
    header = Header(offset, *HEADER.unpack_from(data, offset))
    crc = zlib.crc32(data[offset:offset + HEADER.size - 4])
    return header if header.sync == SYNC and header.header_crc == crc else None


def decompress(header, stored):
    """The payload of a block with a known codec (§3)."""
    raw = unzstd(stored, header.raw_bytes) if CODECS[header.codec] == "zstd" else stored
    if len(raw) != header.raw_bytes:
        raise Malformed(f"payload: is not {header.raw_bytes} bytes when decompressed")
    return raw


def unzstd(stored, wanted_bytes):
    """One whole zstd frame, read by small pieces so that a wrong one can't become huge."""
    frame, raw, at = zstandard.ZstdDecompressor().decompressobj(), bytearray(), 0
    try:
        for at in range(0, len(stored), 1024):
            raw += frame.decompress(stored[at:at + 1024])
            if frame.eof or len(raw) > wanted_bytes:
                break
    except zstandard.ZstdError as error:
        raise Malformed(f"payload: {error}") from error
    if not frame.eof or frame.unused_data or at + 1024 < len(stored):
        raise Malformed("payload: is not one zstd frame of the right length")
    return bytes(raw)


def record_lines(header, stored):
    """The lines of a block's records; all or none, except in a block of samples, of spans or of an image."""
    name = BLOCK_TYPES[header.block_type]
    wanted_encoding = 1 if name in COLD_PAYLOADS and header.block_type != MONITOR else 0
    if header.encoding != wanted_encoding:
        raise Malformed(f"encoding {header.encoding} is not known for {name}")
    payload = decompress(header, stored)
    if name == "samples":
        yield from SampleBlock(payload, header.samples).lines()
    elif name == "spans":
        yield from SpanBlock(payload).lines()
    elif name == "image":
        yield from image_lines(payload, place(header))
    else:
        yield from list(COLD_PAYLOADS[name](payload))


def place(header):
    return f"block {header.sequence} at offset {header.offset}"


def block_lines(data, header):
    yield header.line()
    is_known = header.block_type < len(BLOCK_TYPES) and BLOCK_TYPES[header.block_type]
    if not is_known or header.codec >= len(CODECS):
        return
    try:
        yield from record_lines(header, data[header.offset + HEADER.size:header.end])
    except Malformed as error:
        yield f"error {place(header)}: {error}"


class Damage(NamedTuple):
    kind: str
    offset: int
    size: int

    def line(self):
        return f"damage kind={self.kind} offset={self.offset} bytes={self.size}"


def judge(data, at):
    """"sound", or the kind of damage that stands at `at`; and the header, if it can be trusted."""
    header = read_header(data, at)
    if header is None:
        return "repeated" if data.startswith(MAGIC, at) else "header", None
    most_raw = MOST_COLD_BYTES if header.encoding == 1 else MOST_PAYLOAD_BYTES
    if header.stored_bytes > MOST_PAYLOAD_BYTES or header.raw_bytes > most_raw:
        return "header", None
    payload = data[at + HEADER.size:header.end]
    if len(payload) < header.stored_bytes or zlib.crc32(payload) != header.payload_crc:
        return "payload", header
    return "sound", header


def is_cut(data, at):
    """Whether the file ends inside the block at `at`; asked only if no sound block follows."""
    left = len(data) - at
    if left < HEADER.size:
        return data.startswith(SYNC[:left], at)
    verdict, header = judge(data, at)
    return verdict == "payload" and header.end > len(data)


def next_sync(data, at):
    """Rule 3. The cut sync at a file's end matters only to who follows a growing file."""
    found = data.find(SYNC, at)
    return found if found >= 0 else len(data)


def behind_damage(data, at, header):
    """Rule 3; `header` is that of a block with a wrong payload, or None."""
    if header and header.block_type == MONITOR:
        # As much of a sync as there is: nothing at all at the file's end.
        if SYNC.startswith(data[header.end:header.end + len(SYNC)]):
            return min(header.end, len(data))
    return next_sync(data, at + 1)


def walk(data, at):
    """The Headers of the sound blocks from `at` on, and the Damage between them (§9)."""
    expected, ended = 0, False
    first, other = None, None  # the header CRC of block 0; the place of the next block of an appended recording
    stretch = Damage("preamble", 0, 0) if at == 0 else None
    while at < len(data):
        verdict, header = judge(data, at)
        if verdict == "sound":
            here, behind = (header.sequence, header.samples_before), header.samples_before + header.samples
            if header.sequence == 0 and expected > 0 and header.header_crc != first:
                other = here
            is_next_of_other = here == other
            other = (header.sequence + 1, behind) if is_next_of_other else other
        if verdict == "sound" and header.sequence >= expected and not ended and not is_next_of_other:
            if stretch:
                yield stretch._replace(size=at - stretch.offset)
            elif header.sequence > expected:
                yield Damage("missing", at, 0)
            yield header
            first = header.header_crc if header.sequence == 0 else first
            ended = header.block_type == END
            expected, stretch, at = header.sequence + 1, None, header.end
        else:
            kind = "repeated" if verdict == "sound" else verdict
            stretch = stretch or Damage(kind, at, 0)
            at = header.end if verdict == "sound" else behind_damage(data, at, header)
    if stretch:
        kind = "truncated" if is_cut(data, stretch.offset) else stretch.kind
        yield Damage(kind, stretch.offset, at - stretch.offset)
    elif not ended:
        yield Damage("unfinished", at, 0)


def read_preamble(data):
    """(uuid, version) of a sound preamble, else None (§2)."""
    if len(data) < PREAMBLE.size:
        return None
    magic, major, minor, crc, uuid = PREAMBLE.unpack_from(data)
    if magic != MAGIC or zlib.crc32(PREAMBLE.pack(magic, major, minor, 0, uuid)) != crc:
        return None
    if major != 1:
        raise Refused(f"the format's version is {major}.{minor}, this reader knows 1")
    return uuid.hex(), f"{major}.{minor}"


def dump(data):
    """The lines of the dump text (§10)."""
    preamble = read_preamble(data)
    found = list(walk(data, PREAMBLE.size if preamble else 0))
    if not any(isinstance(one, Header) for one in found):
        raise Refused("not an .uprof recording, or nothing is left of it: no sound block")
    uuid, version = preamble or ("-", "-")
    yield f"recording uuid={uuid} version={version}"
    for one in found:
        if isinstance(one, Damage):
            yield one.line()
        else:
            yield from block_lines(data, one)


def main(arguments):
    if len(arguments) != 2:
        print("usage: read_uprof.py FILE", file=sys.stderr)
        return 2
    path = arguments[1]
    try:
        with open(path, "rb") as file:
            data = file.read()
        for line in dump(data):
            sys.stdout.buffer.write(line.encode("utf-8") + b"\n")
        sys.stdout.buffer.flush()
    except (Refused, OSError) as error:
        sys.stdout.buffer.flush()
        print(f"read_uprof.py: {path}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
