#!/usr/bin/env python3
"""The diff on real recordings: false alarms, and whether a planted change is found.

    benches/diff.py [--random-addresses] [COUNT [SECONDS [FOLDER]]]    by default 15 a side, of 60 s

Takes 40 minutes on an idle machine. Needs `cargo build --release --locked`. The recordings stay in
FOLDER if it is given, and those that it has are not made again: one folder for each kind. Records the
bundled workload over and over at 997 Hz with raw stacks: as it is (A), and with its function `hash`
5 % slower (B), in turns, so that whatever else the machine does disturbs both. Then compares

- each two recordings of A, and each two of B: a pair in which a function is called certain is an
  alarm;
- each of A with each of B: the planted change is found if `hash` is certain and up;
- sets of two and of three recordings a side, drawn twenty times each, in the same two ways;
- 200 pairs put together from pieces of all of them, in the same two ways, which differ by chance
  only (method: report/benches/diff/resampled.rs).

The workload runs at the same addresses each time (`setarch -R`). With --random-addresses it doesn't,
and runs do differ: an alarm is then not false, but tells how the system placed stack and heap, and
only several recordings a side can tell it from a change of the program. Pairs share recordings, so
these are not as many independent trials as there are pairs. What is known exactly is in the
simulation, `cargo bench -p uniprof-report --bench diff`.
"""

import argparse
import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
UNIPROF = os.path.join(ROOT, "target/release/uniprof")
SLOWER_PERCENT = 5
SETS = 20


def record(out, options, slower):
    """Records the workload; status 1 is uniprof's way to say that something was lost."""
    work = [UNIPROF, "workload", str(options.seconds), "--slower", str(slower)]
    if not options.random_addresses:
        work = ["setarch", "-R", *work]
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


def has_alarm(changes):
    return any(one["certain"] for one in changes)


def is_found(change):
    return is_hash(change) and change["certain"] and change["change"] > 0


def percent(part, whole):
    return f"{part} of {whole}, {part * 100 / whole:.1f} %"


def report(options):
    count = options.count
    sides = [[f"{side}{number}.uprof" for number in range(count)] for side in "ab"]
    alike = [pair for side in sides for pair in itertools.combinations(side, 2)]
    alarms = sum(has_alarm(compare(*pair)) for pair in alike)
    pairs = list(itertools.product(*sides))
    planted = [one for pair in pairs for one in compare(*pair) if is_hash(one)]
    found = sum(map(is_found, planted))
    print(f"{count} recordings a side, {options.seconds} s each at 997 Hz, about "
          f"{statistics.median(one['samples_a'] / one['share_a'] for one in planted):.0f} samples")
    print(f"pairs of one kind in which a function is called certain: {percent(alarms, len(alike))}")
    print(f"pairs of A and B in which hash, {SLOWER_PERCENT} % slower, is certain: "
          f"{percent(found, len(pairs))}")
    grown = statistics.median(one["share_b"] / one["share_a"] - 1 for one in planted)
    print(f"its share grew by {grown * 100:.1f} % (median)")
    runs = "real runs, random addresses" if options.random_addresses else "real runs"
    for what, part, whole, goal in (
            ("alarms between runs alike", alarms, len(alike), "<= 5"),
            ("5 % slower function found", found, len(pairs), ">= 95")):
        print(f"figure\tdiff, {runs}: {what}\t{part * 100 / whole:.1f}\t%\t\t\tours {goal}")


def report_sets(count):
    """The same with several recordings a side, which tell what runs differ by."""
    chance = random.Random(5)
    for size in (2, 3):
        if 2 * size > count:
            continue
        alarms = found = 0
        for _ in range(SETS):
            drawn = chance.sample(range(count), 2 * size)
            one, other = (",".join(f"a{number}.uprof" for number in half)
                          for half in (drawn[:size], drawn[size:]))
            slower = ",".join(f"b{number}.uprof" for number in chance.sample(range(count), size))
            alarms += has_alarm(compare(one, other))
            found += any(map(is_found, compare(one, slower)))
        print(f"{size} recordings a side: alarms {percent(alarms, SETS)}; "
              f"hash found {percent(found, SETS)}")


def report_resampled(folder):
    """Pairs put together from pieces of the recordings."""
    subprocess.run(["cargo", "bench", "--quiet", "--locked", "-p", "uniprof-report", "--bench",
                    "diff"], cwd=ROOT, env={**os.environ, "UNIPROF_RECORDINGS": folder}, check=True)


def measure(options, folder):
    os.chdir(folder)
    for number in range(options.count):
        for side, slower in (("a", 0), ("b", SLOWER_PERCENT)):
            name = f"{side}{number}.uprof"
            if not os.path.exists(name):
                record(name, options, slower)
    report(options)
    report_sets(options.count)
    sys.stdout.flush()
    report_resampled(os.getcwd())
    os.chdir("/")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--random-addresses", action="store_true")
    parser.add_argument("count", type=int, nargs="?", default=15)
    parser.add_argument("seconds", type=int, nargs="?", default=60)
    parser.add_argument("folder", nargs="?")
    options = parser.parse_args()
    if options.count < 2:
        parser.error("give a COUNT of 2 or more: recordings are compared in pairs")
    if options.folder and not os.path.isdir(options.folder):
        parser.error(f"there is no folder {options.folder}: make it first")
    if not os.access(UNIPROF, os.X_OK):
        sys.exit("build first: cargo build --release --locked")
    if options.folder:
        measure(options, options.folder)
        return
    with tempfile.TemporaryDirectory() as folder:
        measure(options, folder)


if __name__ == "__main__":
    main()
