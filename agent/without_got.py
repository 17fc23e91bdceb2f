#!/usr/bin/env python3
"""Takes the global offset table out of a static library for x86-64: without_got.py LIBRARY.

rustc calls memcpy and its like through a GOT on bare x86-64, whatever the relocation model, since core's bitcode asks for
it; linker scripts of kernels often have none. What is called is in the same image: so each load of an entry becomes the
direct instruction of the same length that linkers put in its place, too (System V ABI for x86-64, B.2).
"""
import struct
import sys

GOTPCREL, GOTPCRELX, REX_GOTPCRELX = 9, 41, 42
PC32, PLT32 = 2, 4
SHT_RELA = 4


def direct(code, at):
    """Rewrites the instruction whose displacement is at `at`; returns the relocation's type and place."""
    before = bytes(code[max(at - 3, 0):at])
    if before.endswith(b"\xff\x15"):  # call *entry(%rip): addr32 call
        code[at - 2:at] = b"\x67\xe8"
        return PLT32, at
    if before.endswith(b"\xff\x25"):  # jmp *entry(%rip): jmp; nop
        code[at - 2] = 0xE9
        code[at + 3] = 0x90
        return PLT32, at - 1
    if len(before) == 3 and before[0] & 0xF8 == 0x48 and before[1] == 0x8B and before[2] & 0xC7 == 0x05:  # mov entry(%rip): lea
        code[at - 2] = 0x8D
        return PC32, at
    sys.exit(f"without_got.py: no direct instruction for the bytes {before.hex()}")


def relax(elf):
    """Rewrites an object file in place."""
    table, = struct.unpack_from("<Q", elf, 40)
    size, count = struct.unpack_from("<HH", elf, 58)
    if count == 0:
        count, = struct.unpack_from("<Q", elf, table + 32)
    sections = [struct.unpack_from("<IIQQQQIIQQ", elf, table + index * size) for index in range(count)]
    for _, kind, _, _, offset, length, _, of, _, entry in sections:
        if kind != SHT_RELA:
            continue
        base, code_bytes = sections[of][4:6]
        for place in range(offset, offset + length, entry):
            at, info = struct.unpack_from("<QQ", elf, place)
            if info & 0xFFFFFFFF in (GOTPCREL, GOTPCRELX, REX_GOTPCRELX):
                relocation, at = direct(elf[base:base + code_bytes], at)
                struct.pack_into("<QQ", elf, place, at, info >> 32 << 32 | relocation)


def main(path):
    with open(path, "rb") as file:
        library = bytearray(file.read())
    place = len(b"!<arch>\n")
    while place + 60 <= len(library):
        length = int(library[place + 48:place + 58])
        member = memoryview(library)[place + 60:place + 60 + length]
        if member[:5] == b"\x7fELF\x02":
            relax(member)
        place += 60 + length + length % 2
    with open(path, "wb") as file:
        file.write(library)


main(sys.argv[1])
