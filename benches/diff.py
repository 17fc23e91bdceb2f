#!/usr/bin/env python3
"""The diff on real recordings: false alarms, and whether a planted change is found.

    benches/diff.py [COUNT [SECONDS [FOLDER]]]      by default 15 recordings a side, of 60 s

Takes 40 minutes on an idle machine. Needs `cargo build --release --locked`. The recordings stay in
FOLDER if it is given, and those that it has are not made again. Records the bundled workload over and over at 997 Hz with raw
stacks: as it is (A), and with its function `hash` 5 % slower (B), in turns, so that whatever else the
machine does disturbs both. Then compares

- each two recordings of A, and each two of B: a pair in which a function is called certain is an
  alarm;
- each of A with each of B: the planted change is found if `hash` is certain and up.

Pairs share recordings, so these are not as many independent trials as there are pairs. An alarm need
not be false: what differs between two runs is sometimes really there (where the heap lies, whose
interrupts the kernel served), and only several recordings a side could tell. What is known exactly
is in the simulation, `cargo bench -p uniprof-report --bench diff`.
"""

import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
UNIPROF = os.path.join(ROOT, "target/release/uniprof")
SLOWER_PERCENT = 5


def record(out, seconds, slower):
    """Records the workload; status 1 is uniprof's way to say that something was lost."""
    work = [UNIPROF, "workload", str(seconds), "--slower", str(slower)]
    done = subprocess.run([UNIPROF, "record", "-F", "997", "--stack=8K", "-o", out, "--", *work],
                          stderr=subprocess.PIPE, check=False)
    if done.returncode not in (0, 1):
        sys.exit(f"cannot record: {done.stderr.decode()}")


def compare(a, b):
    """The changes of functions, not of call paths, that `uniprof diff` finds."""
    done = subprocess.run([UNIPROF, "diff", "--json", a, b], check=True,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return [one for one in json.loads(done.stdout)["changes"] if one["of"] != "path"]


def is_hash(change):
    return change["of"] == "total" and change["name"].endswith("workload::hash")


def percent(part, whole):
    return f"{part} of {whole}, {part * 100 / whole:.1f} %"


def report(count, seconds):
    sides = [[f"{side}{number}.uprof" for number in range(count)] for side in "ab"]
    alike = [pair for side in sides for pair in itertools.combinations(side, 2)]
    alarms = sum(any(one["certain"] for one in compare(*pair)) for pair in alike)
    pairs = list(itertools.product(*sides))
    planted = [one for pair in pairs for one in compare(*pair) if is_hash(one)]
    found = sum(one["certain"] and one["change"] > 0 for one in planted)
    print(f"{count} recordings a side, {seconds} s each at 997 Hz, about "
          f"{statistics.median(one['samples_a'] / one['share_a'] for one in planted):.0f} samples")
    print(f"pairs of one kind in which a function is called certain: {percent(alarms, len(alike))}")
    print(f"pairs of A and B in which hash, {SLOWER_PERCENT} % slower, is certain: "
          f"{percent(found, len(pairs))}")
    grown = statistics.median(one["share_b"] / one["share_a"] - 1 for one in planted)
    print(f"its share grew by {grown * 100:.1f} % (median)")
    for what, part, whole, goal in (
            ("alarms between runs alike", alarms, len(alike), "<= 5"),
            ("5 % slower function found", found, len(pairs), ">= 95")):
        print(f"figure\tdiff, real runs: {what}\t{part * 100 / whole:.1f}\t%\t\t\tours {goal}")


def measure(count, seconds, folder):
    os.chdir(folder)
    for number in range(count):
        for side, slower in (("a", 0), ("b", SLOWER_PERCENT)):
            name = f"{side}{number}.uprof"
            if not os.path.exists(name):
                record(name, seconds, slower)
    report(count, seconds)
    os.chdir("/")


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    seconds = int(sys.argv[2]) if len(sys.argv) > 2 else 60
    if not os.access(UNIPROF, os.X_OK):
        sys.exit("build first: cargo build --release --locked")
    if len(sys.argv) > 3:
        measure(count, seconds, sys.argv[3])
        return
    with tempfile.TemporaryDirectory() as folder:
        measure(count, seconds, folder)


if __name__ == "__main__":
    main()
