#!/usr/bin/env python3
"""A file system that stops answering, as one of a network does whose server is gone.

    silent.py FILE FOLDER QUIET

Mounts a file system of one file, `program`, with the bytes of FILE, at FOLDER, and prints "mounted". Once the file QUIET
is there it answers nothing any more. Speaks the kernel's protocol itself (linux/fuse.h); needs root.
"""

import ctypes
import os
import struct
import sys

INIT, LOOKUP, GETATTR, OPEN, READ, STATFS, RELEASE, FLUSH = 26, 1, 3, 14, 15, 17, 18, 25
FORGET, INTERRUPT, BATCH_FORGET = 2, 36, 42
ROOT, PROGRAM = 1, 2


def attributes(node, size):
    """`struct fuse_attr`."""
    mode, links = (0o040755, 2) if node == ROOT else (0o100755, 1)
    return struct.pack("<6Q10I", node, size, (size + 511) // 512, 0, 0, 0, 0, 0, 0, mode, links, 0, 0, 0, 4096, 0)


def answer(kind, node, body, content):
    """The errno and the bytes of an answer; `None` if none is expected."""
    size = len(content) if node == PROGRAM else 0
    if kind == INIT:
        return 0, struct.pack("<IIIIHHIIHHI7I", 7, 31, 65536, 0, 16, 12, 65536, 1, 0, 0, 0, *[0] * 7)
    if kind == LOOKUP:
        if body.rstrip(b"\0") != b"program":
            return 2, b""
        return 0, struct.pack("<4Q2I", PROGRAM, 0, 0, 0, 0, 0) + attributes(PROGRAM, len(content))
    if kind == GETATTR:
        return 0, struct.pack("<Q2I", 0, 0, 0) + attributes(node, size)
    if kind == OPEN:
        return 0, struct.pack("<Q2I", 1, 0, 0)
    if kind == READ:
        _, offset, length = struct.unpack_from("<2QI", body)
        return 0, content[offset:offset + length]
    if kind in (RELEASE, FLUSH):
        return 0, b""
    if kind in (FORGET, INTERRUPT, BATCH_FORGET):
        return None
    return 38, b""  # ENOSYS


def main():
    content = open(sys.argv[1], "rb").read()
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other"
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"silent", sys.argv[2].encode(), b"fuse", 0, options.encode()) != 0:
        sys.exit(f"cannot mount: {os.strerror(ctypes.get_errno())}")
    print("mounted", flush=True)
    while True:
        try:
            request = os.read(device, 1 << 20)
        except OSError:
            return  # unmounted
        if os.path.exists(sys.argv[3]):
            continue
        _, kind, unique, node = struct.unpack_from("<2I2Q", request)
        done = answer(kind, node, request[40:], content)
        if done:
            error, body = done
            os.write(device, struct.pack("<IiQ", 16 + len(body), -error, unique) + body)


main()
