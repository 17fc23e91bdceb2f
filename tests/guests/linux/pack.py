#!/usr/bin/env python3
"""Packs files as an initial file system for Linux (cpio's format "newc"): pack.py ARCHIVE NAME=FILE..."""

import sys


def entry(name, content, mode):
    """A header of hexadecimal numbers, the name and the content, each padded to four bytes."""
    fields = [entry.number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0]
    entry.number += 1
    head = b"070701" + "".join(f"{field:08X}" for field in fields).encode() + name.encode() + b"\0"
    return padded(head) + padded(content)


entry.number = 1


def padded(data):
    return data + bytes(-len(data) % 4)


def main(archive, *files):
    with open(archive, "wb") as out:
        for name, path in (file.split("=", 1) for file in files):
            with open(path, "rb") as file:
                out.write(entry(name, file.read(), 0o100755))
        out.write(entry("TRAILER!!!", b"", 0))


main(*sys.argv[1:])
