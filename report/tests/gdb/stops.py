"""Stops the program that gdb has loaded, again and again, and writes down what gdb says.

Run by gdb: `gdb -batch -x stops.py PROGRAM`, with the environment
    STOPS    how many stops
    SEED     of the random numbers between them
    GO_TO    functions, separated by commas, to one of which every tenth stop goes first
    REMOTE   a gdb stub to attach to, HOST:PORT; empty to run PROGRAM here
    ARCH     x86_64 or aarch64
    OUT      where to write

One JSON object a line: first a stop each {"registers": {DWARF number: value}, "stack": [address,
hex bytes], "frames": [{"pc", "kind", "name"}]}, innermost first; last {"maps": [[start, end,
offset, path]], "vdso": hex}. Frames that gdb infers for inlined functions, and for functions that
left by a tail call, are left out: they have no frame of their own on the stack.
"""

import json
import os
import random

import gdb

# DWARF numbers of the registers (System V ABI, figure 3.36; AADWARF64).
X86_64 = ["rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp"]
X86_64 += ["r%d" % number for number in range(8, 16)] + ["rip"]
AARCH64 = ["x%d" % number for number in range(31)] + ["sp", "pc"]
STACK_POINTER = {"x86_64": 7, "aarch64": 31}
STACK_BYTES = 256 << 10
# A guest's memory is all there: what lies above its stack does no harm.
GUEST_STACK_BYTES = 16 << 10


def settings():
    for line in (
        "set pagination off",
        "set confirm off",
        "set debuginfod enabled off",
        "set startup-with-shell off",
        "set backtrace past-main on",
        "set backtrace past-entry on",
        "set backtrace limit 400",
        "handle SIGUSR1 nostop noprint pass",
        "handle SIGALRM nostop noprint pass",
    ):
        gdb.execute(line, to_string=True)


def maps():
    lines = open("/proc/%d/maps" % gdb.selected_inferior().pid).read().splitlines()
    parts = [line.split(None, 5) for line in lines]
    found = []
    for part in parts:
        start, end = (int(number, 16) for number in part[0].split("-"))
        path = part[5] if len(part) > 5 else ""
        found.append((start, end, int(part[2], 16), part[1], path))
    return found


def stack_end(sp):
    for start, end, _, _, _ in maps():
        if start <= sp < end:
            return end
    return sp


def frames():
    found = []
    frame = gdb.newest_frame()
    while frame is not None:
        # A caller at 0 is how code without call frame information says that there is none.
        if frame.type() not in (gdb.INLINE_FRAME, gdb.TAILCALL_FRAME) and frame.pc() != 0:
            kind = "signal" if frame.type() == gdb.SIGTRAMP_FRAME else "normal"
            found.append({"pc": frame.pc(), "kind": kind, "name": frame.name()})
        try:
            frame = frame.older()
        except gdb.error:
            break
    return found


def stop(limit_of):
    frame = gdb.newest_frame()
    while frame.type() in (gdb.INLINE_FRAME, gdb.TAILCALL_FRAME):
        frame = frame.older()
    registers = {}
    arch = os.environ["ARCH"]
    for number, name in enumerate(AARCH64 if arch == "aarch64" else X86_64):
        registers[number] = int(frame.read_register(name)) & 0xFFFFFFFFFFFFFFFF
    sp = registers[STACK_POINTER[arch]]
    # Also the bytes below, which leaf functions may use (the red zone).
    start = sp - 128
    length = min(limit_of(sp) - start, STACK_BYTES)
    memory = bytes(gdb.selected_inferior().read_memory(start, length))
    return {"registers": registers, "stack": [start, memory.hex()], "frames": frames()}


def main():
    settings()
    random.seed(int(os.environ["SEED"]))
    stops = int(os.environ["STOPS"])
    go_to = [name for name in os.environ["GO_TO"].split(",") if name]
    # Else the first thousands of stops are all in the dynamic linker.
    remote = os.environ["REMOTE"]
    if remote:
        if os.environ["ARCH"] == "x86_64":
            gdb.execute("set architecture i386:x86-64", to_string=True)
        gdb.execute("target remote %s" % remote, to_string=True)
        # In hardware, since the code may not be mapped before the guest has set up its tables.
        gdb.execute("thbreak work", to_string=True)
        gdb.execute("continue", to_string=True)
        record(stops, go_to, lambda sp: sp + GUEST_STACK_BYTES, lambda: [])
        return
    gdb.execute("set environment LD_BIND_NOW 1", to_string=True)
    gdb.execute("break main", to_string=True)
    gdb.execute("run > /dev/null", to_string=True)
    gdb.execute("delete", to_string=True)
    limit = stack_end(int(gdb.newest_frame().read_register("rsp")))
    record(stops, go_to, lambda sp: limit, maps)


def record(stops, go_to, limit, maps):
    with open(os.environ["OUT"], "w") as out:
        for number in range(stops):
            if go_to and number % 10 == 0:
                gdb.execute("tbreak *%s" % random.choice(go_to), to_string=True)
                gdb.execute("continue", to_string=True)
            gdb.execute("stepi %d" % random.randint(1, 60), to_string=True)
            out.write(json.dumps(stop(limit)) + "\n")
        ranges = [(start, end, offset, path) for start, end, offset, mode, path in maps()
                  if "x" in mode]
        vdso = ""
        for start, end, _, path in ranges:
            if path == "[vdso]":
                vdso = bytes(gdb.selected_inferior().read_memory(start, end - start)).hex()
        out.write(json.dumps({"maps": ranges, "vdso": vdso}) + "\n")
    gdb.execute("kill", to_string=True)


main()
