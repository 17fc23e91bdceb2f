#!/usr/bin/env python3
"""How quick the importers of traces are, each on a trace of a million calls: lines or records for each second of
processor time, and peak memory.

    benches/importers.py [--calls N] [FOLDER]

Needs `cargo build --release --locked`. The traces are made up, two threads with nested calls of 110 functions, and
written to a temporary folder (in FOLDER) as the formats' documentation has them; uftrace makes a dump
of a program, and they are skipped where there is no uftrace or gcc. Each import runs three times; the median counts.
"""

import argparse
import json
import os
import random
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile

from traces import UNIPROF, peak_to_the_end

MODULES = "vm net fs irq sched heap tcp block futex page".split()
ACTIONS = "open close read write lookup insert remove lock unlock wait flush".split()
NAMES = [f"{module}_{action}" for module in MODULES for action in ACTIONS]
TASKS = [("worker", 101, 1), ("main", 100, 0)]
START_NS = 1_700_000_000_000_000_000


def events(count):
    """(is_entry, task, depth, name, caller, start, length, now) of so many calls, in order of time."""
    chance = random.Random(18)
    stacks, now, begun, turn = ([], []), START_NS, 0, 0
    while begun < count or stacks[0] or stacks[1]:
        if begun % 64 == 0:
            turn = 1 - turn
        stack = stacks[turn] if stacks[turn] or begun < count else stacks[1 - turn]
        turn = 0 if stack is stacks[0] else 1
        now += 40 + int(chance.expovariate(1 / 400))
        if begun < count and (not stack or len(stack) < 24 and chance.random() < 0.52):
            caller = stack[-1][0] if stack else "entry"
            stack.append((chance.choice(NAMES), now))
            begun += 1
            yield True, TASKS[turn], len(stack) - 1, stack[-1][0], caller, now, 0, now
        else:
            name, start = stack.pop()
            yield False, TASKS[turn], len(stack), name, "", start, now - start, now


def seconds(ns):
    return f"{ns // 1_000_000_000}.{ns // 1000 % 1_000_000:06}"


def nanos(count):
    # One CPU after another.
    for cpu in (0, 1):
        for entry, task, depth, name, _, _, length, _ in events(count):
            if task[2] == cpu:
                indent = "  " * depth
                yield (f" {cpu})               |  {indent}{name}() {{\n" if entry
                       else f" {cpu}) {length / 1000:10.3f} us |  {indent}}} /* {name} */\n")


def trace_cmd(count):
    for entry, (comm, tid, cpu), depth, name, _, _, length, now in events(count):
        head = f"{comm:>16}-{tid}   [{cpu:03}]  {seconds(now - START_NS)}: funcgraph_"
        indent = "  " * depth
        yield (f"{head}entry:                   |  {indent}{name}() {{\n" if entry
               else f"{head}exit:      {length / 1000:10.3f} us   |  {indent}}}\n")


def tracefs(count):
    yield "# tracer: function_graph\n#\n# CPU  DURATION                  FUNCTION CALLS\n"
    for entry, (_, _, cpu), depth, name, _, _, length, _ in events(count):
        indent = "  " * depth
        yield (f" {cpu})               |  {indent}{name}() {{\n" if entry
               else f" {cpu}) {length / 1000:9.3f} us  |  {indent}}}\n")


def functions(count):
    yield "# tracer: function\n"
    for entry, (comm, tid, cpu), _, name, caller, _, _, now in events(count):
        if entry:
            yield f"{comm:>16}-{tid}     [{cpu:03}] ..... {seconds(now - START_NS)}: {name} <-{caller}\n"


def strace(count):
    for entry, (_, tid, _), _, name, _, start, length, _ in events(count):
        if not entry:
            yield f"{tid} {seconds(start)} {name}(3, \"some bytes\"..., 4096) = {length % 4096} <{seconds(length)}>\n"


def chrome(count):
    yield '{"traceEvents": [\n'
    for entry, (_, tid, _), _, name, _, _, _, now in events(count):
        us = (now - START_NS) / 1000
        yield (json.dumps({"ph": "B", "name": name, "cat": "f", "pid": 7, "tid": tid, "ts": us}) if entry
               else json.dumps({"ph": "E", "pid": 7, "tid": tid, "ts": us})) + ",\n"
    yield '{"ph": "M", "name": "process_name", "pid": 7, "args": {"name": "made"}}]}\n'


def osv(count):
    """As core/trace.cc of OSv writes it: a dictionary of tracepoints, then the records of each processor."""
    out = bytearray()

    def put(form, *values):
        size = struct.calcsize("<" + form[-1])
        out.extend(bytes(-len(out) % size) + struct.pack("<" + form, *values))

    def text(value):
        put("H", len(value))
        out.extend(value.encode())

    def chunk(tag, fill):
        out.extend(bytes(-len(out) % 8) + tag[::-1])
        put("Q", 0)
        at = len(out)
        fill()
        struct.pack_into("<Q", out, at - 8, len(out) - at)

    def dictionary():
        put("I", 10)
        put("I", 2 * len(NAMES))
        for number, name in enumerate(f"{name}{end}" for name in NAMES for end in ("", "_ret")):
            put("Q", number + 1)
            for value in (name, name, "OSv", "%p"):
                text(value)
            put("I", 1)
            text("0")
            out.extend(b"P")

    keys = {name: 2 * number + 1 for number, name in enumerate(NAMES)}

    def records(wanted):
        out.extend(bytes(-len(out) % 8))
        for entry, (comm, tid, cpu), _, name, _, _, _, now in events(count):
            if cpu == wanted:
                key = keys[name] + (not entry)
                out.extend(struct.pack("<QQ16sQIIQ", key, tid, comm.encode(), now - START_NS, cpu, 0, 0))

    def whole():
        put("I", 1)
        put("I", 1)
        chunk(b"TRCD", dictionary)
        for cpu in (0, 1):
            chunk(b"TRCS", lambda: records(cpu))

    chunk(b"OSVT", whole)
    return out


FORMATS = {"nanos-ftrace": nanos, "linux-ftrace (trace-cmd)": trace_cmd, "linux-ftrace (tracefs)": tracefs,
           "function-tracer": functions, "syscalls (strace)": strace, "chrome": chrome}

PROGRAM = """
__attribute__((noinline)) static int leaf(int n) { return n * 3 + 1; }
__attribute__((noinline)) static int walk(int n) { return n < 2 ? leaf(n) : walk(n - 1) + walk(n - 2); }
int main(int argc, char **argv) { int sum = 0; while (argc++ < %d) sum += walk(20); return sum == 7; }
"""


def uftrace(folder, calls):
    """The dump of about so many calls that uftrace recorded; None where uftrace or gcc is missing."""
    if not shutil.which("uftrace") or not shutil.which("gcc"):
        return None
    program, data, dump = (os.path.join(folder, name) for name in ("calls", "uftrace.data", "uftrace.txt"))
    # walk(20) is 21,891 calls of itself and 10,946 of leaf.
    text = PROGRAM % (1 + max(1, calls // 32_837))
    subprocess.run(["gcc", "-O1", "-pg", "-x", "c", "-", "-o", program], input=text.encode(), check=True)
    subprocess.run(["uftrace", "record", "--no-event", "-b", "64m", "-d", data, program], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with open(dump, "wb") as out:
        subprocess.run(["uftrace", "dump", "--no-pager", "-d", data], stdout=out, check=True)
    return dump


def measured(command):
    """Processor seconds, peak memory in bytes, and what it said."""
    child = subprocess.Popen(command, stderr=subprocess.PIPE)
    peak = peak_to_the_end(child)
    said = child.stderr.read().decode()
    _, status, usage = os.wait4(child.pid, 0)
    if os.waitstatus_to_exitcode(status) not in (0, 1):
        sys.exit(f"{command}: {said}")
    return usage.ru_utime + usage.ru_stime, peak, said


def tell(name, path, out):
    runs = [measured([UNIPROF, "import", path, "-o", out]) for _ in range(3)]
    cpu = statistics.median(run[0] for run in runs)
    # "N calls of M lines imported to …"
    said = runs[0][2].split("uniprof: ", 1)[1].split()
    calls, lines, what = int(said[0]), int(said[3]), said[4]
    peak = max(run[1] for run in runs) / 2**20
    print(f"| {name} | {lines:,} {what} | {calls:,} | {lines / cpu / 1e6:.1f} million | {peak:.1f} MiB "
          f"| {os.path.getsize(out) / calls:.1f} |", flush=True)


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--calls", type=int, default=1_000_000)
    arguments.add_argument("folder", nargs="?")
    arguments = arguments.parse_args()
    print("| format | trace | calls | for each second of processor time | peak memory | bytes a call |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        out, path = os.path.join(folder, "run.uprof"), os.path.join(folder, "trace")
        for name, lines in FORMATS.items():
            with open(path, "w", encoding="utf-8") as file:
                file.writelines(lines(arguments.calls))
            tell(name, path, out)
        with open(path, "wb") as file:
            file.write(osv(arguments.calls))
        tell("osv", path, out)
        made = uftrace(folder, arguments.calls)
        if made is None:
            print("uftrace: skipped, there is no uftrace or gcc")
            return
        tell("uftrace", made, out)


if __name__ == "__main__":
    main()
