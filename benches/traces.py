#!/usr/bin/env python3
"""Import of a long trace: lines a second, peak memory, and the file's size beside `zstd -3` of the text.

    benches/traces.py [--size BYTES] [--pandas BYTES] [FOLDER]         by default 10 GiB, piped: no disk is filled

Needs `cargo build --release --locked`, zstd, and for --pandas Python's package pandas. The text is the corpus's real
dump of one vCPU over and over, each time with other numbers of nanoseconds, so that nothing is the same twice. It is
made before anything is measured, in pieces of 64 MiB that are repeated, and written into the import's standard input.
"""

import argparse
import importlib.util
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
UNIPROF = os.environ.get("UNIPROF", os.path.join(ROOT, "target/release/uniprof"))
DUMP = os.path.join(ROOT, "corpus/traces/nanos-ftrace-1cpu.txt.zst")
PIECE_BYTES = 64 << 20
NUMBER = re.compile(rb"(\d)( us)")


def made(dump, seed):
    """A piece of trace as long as PIECE_BYTES at least: the dump with the last digit of each number changed."""
    chance, parts, length = random.Random(seed), [], 0
    while length < PIECE_BYTES:
        digits = iter(chance.choices(b"0123456789", k=dump.count(b" us")))
        part = NUMBER.sub(lambda match: bytes([next(digits)]) + match[2], dump)
        parts.append(part)
        length += len(part)
    return b"".join(parts)


def peak_to_the_end(child):
    """Waits for the end of a program, and returns its peak memory in bytes."""
    peak = 0
    # Not what getrusage tells, which counts this program's own memory before the child's program was in it.
    while os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        with open(f"/proc/{child.pid}/status", encoding="ascii") as status:
            peak = max([peak] + [int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM:")])
        time.sleep(0.002)
    return peak


def fed(command, pieces, size):
    """Runs `command` with so many bytes of the pieces as its input: seconds, its processor time, its peak memory."""
    start, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    written = lines = number = 0
    while written < size:
        piece, count = pieces[number % len(pieces)]
        child.stdin.write(piece)
        written, lines, number = written + len(piece), lines + count, number + 1
    child.stdin.close()
    peak = peak_to_the_end(child)
    said = child.stderr.read().decode()
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.monotonic() - start
    # 1: calls that never end in the dump are begun again by the next one, and told.
    if os.waitstatus_to_exitcode(status) not in (0, 1):
        sys.exit(f"{command}: {said}")
    return {"bytes": written, "lines": lines, "seconds": seconds,
            "cpu": usage.ru_utime + usage.ru_stime, "peak": peak}


PANDAS = """
import sys, pandas, re
line = re.compile(r" *(\\d+)\\) (.{13}) \\|  ( *)(.+)")
rows = [match.groups() for match in map(line.match, sys.stdin) if match]
frame = pandas.DataFrame(rows, columns=["cpu", "us", "indent", "text"])
frame["us"] = pandas.to_numeric(frame["us"].str.extract(r"([0-9.]+) us")[0])
frame["name"] = frame["text"].str.extract(r"([^ ]+)\\(\\)")[0].fillna(frame["text"].str[5:-3])
calls = frame.groupby(["cpu", "name"])["us"].agg(["count", "sum", "mean", "median", "max"])
print(calls.sort_values("sum").tail(3).to_string(), file=sys.stderr)
"""


def tell(name, ran):
    print(f"{name}: {ran['lines']:,} lines, {ran['bytes'] / 2**30:.2f} GiB in {ran['seconds']:.1f} s "
          f"({ran['cpu']:.1f} s of processor): {ran['lines'] / ran['seconds'] / 1e6:.2f} million lines/s, "
          f"{ran['lines'] / ran['cpu'] / 1e6:.2f} per s of processor; peak {ran['peak'] / 2**20:.1f} MiB", flush=True)


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--size", type=int, default=10 << 30)
    arguments.add_argument("--pandas", type=int, default=0)
    arguments.add_argument("folder", nargs="?")
    arguments = arguments.parse_args()
    dump = subprocess.run(["zstd", "-dcq", DUMP], stdout=subprocess.PIPE, check=True).stdout
    pieces = [(piece, piece.count(b"\n")) for piece in (made(dump, seed) for seed in range(4))]
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        run, packed = os.path.join(folder, "run.uprof"), os.path.join(folder, "text.zst")
        tell("uniprof import", fed([UNIPROF, "import", "-f", "nanos-ftrace", "-", "-o", run],
                                   pieces, arguments.size))
        tell("zstd -3", fed(["zstd", "-3", "-q", "-f", "-o", packed], pieces, arguments.size))
        ours, theirs = os.path.getsize(run), os.path.getsize(packed)
        print(f"file: {ours:,} bytes, zstd -3 of the text: {theirs:,} bytes, {theirs / ours:.2f} times as much")
        start = time.monotonic()
        subprocess.run([UNIPROF, "report", "--calls", run], stdout=subprocess.DEVNULL, check=True)
        print(f"report --calls: {time.monotonic() - start:.1f} s")
        if arguments.pandas and importlib.util.find_spec("pandas") is None:
            print("pandas: skipped, this Python has none")
        elif arguments.pandas:
            tell("pandas", fed([sys.executable, "-c", PANDAS], pieces, arguments.pandas))


if __name__ == "__main__":
    main()
