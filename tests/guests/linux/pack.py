#!/usr/bin/env python3
"""Packs files as an initial file system for Linux (cpio's format "newc"), with a console: pack.py ARCHIVE NAME=FILE..."""

import itertools
import sys

numbers = itertools.count(1)


def padded(data):
    return data + bytes(-len(data) % 4)


def entry(name, mode, content=b"", device=(0, 0)):
    """A header of hexadecimal numbers, the name and the content, each padded to four bytes."""
    fields = [next(numbers), mode, 0, 0, 1, 0, len(content), 0, 0, *device, len(name) + 1, 0]
    head = b"070701" + "".join(f"{field:08X}" for field in fields).encode() + name.encode() + b"\0"
    return padded(head) + padded(content)


def main(archive, *files):
    with open(archive, "wb") as out:
        out.write(entry("dev", 0o40755) + entry("dev/console", 0o20600, device=(5, 1)))
        for name, path in (file.split("=", 1) for file in files):
            with open(path, "rb") as file:
                out.write(entry(name, 0o100755, file.read()))
        out.write(entry("TRAILER!!!", 0))


main(*sys.argv[1:])
