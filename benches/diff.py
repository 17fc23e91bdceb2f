#!/usr/bin/env python3
"""The diff on real recordings: false alarms, and whether a planted change is found.

    benches/diff.py [--count N] [--programs A,B] [FOLDER]          by default 12 recordings a side

Takes an hour on an idle machine. Needs `cargo build --release --locked`, g++, gcc, python3, node, and
Debian's libsqlite3-dev and liblzma-dev. The recordings stay in FOLDER if it is given, and those that it
has are not made again. Each program of benches/diff/ is recorded over and over at random addresses, as
it is (A) and with one path slower (B), in turns, so that whatever else the machine does disturbs both:
about 10,000 samples each, of a fixed piece of work. Then, with one, two and five recordings a side,

- alarms: sets of A are compared with sets of A, and B with B, each second recording on the other side;
  an alarm is a comparison in which any function is called certain;
- power: sets of A with the sets of B recorded in turns with them; found is the planted function,
  certain and up. Others that are certain are counted by whether they grew (callers and callees of the
  planted function do) or shrank (nothing really did);
- two oracles on the same data, which know where to look: (a) a z test of the planted function alone,
  which takes samples to be independent, and (b) Welch's t test of the runs' shares; at 5 %, with their
  own alarms beside them, since a test that alarms more often than it says finds more, too; and (c) a z test
  that knows how much the planted function's share differs between all runs of a side: what one question
  can find without more alarms than 5 %, if no part of what runs differ by is explained;
- named: the diff told where to look, as the oracles are: whether the planted function's 95 % interval leaves
  out zero, which is what `--fail-if 'FUNCTION>+0%'` goes by;
- the plans: how many recordings a side the diff says would show 5 %.

Sets share recordings, so these are not as many independent trials as there are comparisons.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
UNIPROF = os.environ.get("UNIPROF", os.path.join(ROOT, "target/release/uniprof"))
HERE = os.path.join(ROOT, "benches/diff")
# Name: what to build or run, rounds, how many percent slower, and the function that is.
PROGRAMS = {
    "orders": (["g++", "-O2", "-g", "orders.cc"], 34400, 5, "price(Order&)"),
    "shelf": (["gcc", "-O2", "-g", "shelf.c", "-lsqlite3"], 3100, 5, "add_up"),
    "packer": (["gcc", "-O2", "-g", "packer.c", "-llzma"], 575, 8, "unpack"),
    "texts": (["/usr/bin/python3", "texts.py"], 3350, 8, "deflate"),
    "pages": (["node", "pages.js"], 9250, 8, "deflate"),
}
SIZES = (1, 2, 5)
SETS_MAX = 8


def prepare(name, folder):
    """The command of a program, built if need be."""
    how = PROGRAMS[name][0]
    if how[0] not in ("g++", "gcc"):
        return [how[0], os.path.join(HERE, how[1])]
    source = next(word for word in how if word.startswith(name))
    out = os.path.join(folder, name)
    words = [os.path.join(HERE, word) if word == source else word for word in how]
    subprocess.run([*words, "-o", out], check=True)
    return [out]


def record(names, count, folder):
    """Records what FOLDER doesn't have; status 1 is uniprof's way to say that something was lost."""
    commands = {}
    for number in range(count):
        for name in names:
            for side in "ab":
                out = path(name, side, number, folder)
                if os.path.exists(out):
                    continue
                if name not in commands:
                    commands[name] = prepare(name, folder)
                _, rounds, slower, _ = PROGRAMS[name]
                work = [*commands[name], str(rounds), str(slower if side == "b" else 0)]
                done = subprocess.run([UNIPROF, "record", "-F", "1997", "--stack=16K", "-o", out, "--", *work],
                                      stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
                if done.returncode not in (0, 1):
                    sys.exit(f"cannot record {name}: {done.stderr.decode()}")


def path(name, side, number, folder):
    return os.path.join(folder, f"{name}-{side}{number:02}.uprof")


def compare(one, other):
    """What `uniprof diff` finds."""
    done = subprocess.run([UNIPROF, "diff", "--json", ",".join(one), ",".join(other)], check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return json.loads(done.stdout)


def planted(found, function):
    for of in ("total", "self"):
        for change in found["changes"]:
            if change["name"] == function and change["of"] == of:
                return change
    return None


def t_test(t, degrees):
    """The probability of |t| or more: the density summed up by Simpson's rule."""
    norm = math.exp(math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2)) / math.sqrt(degrees * math.pi)
    density = lambda x: norm * (1 + x * x / degrees) ** (-(degrees + 1) / 2)
    steps = 2000
    width = abs(t) / steps
    inside = sum((1 if i in (0, steps) else 4 if i % 2 else 2) * density(i * width) for i in range(steps + 1))
    return max(0.0, 1 - 2 * inside * width / 3)


def oracle_z(one, other):
    """Whether counts and totals of both sides differ, were samples independent."""
    counts = [sum(run[0] for run in side) for side in (one, other)]
    totals = [sum(run[1] for run in side) for side in (one, other)]
    share = sum(counts) / sum(totals)
    error = math.sqrt(share * (1 - share) * (1 / totals[0] + 1 / totals[1]))
    change = counts[1] / totals[1] - counts[0] / totals[0]
    return abs(change) > 1.96 * error, change > 0


def oracle_t(one, other):
    """Whether the runs' shares differ, by Welch's test."""
    shares = [[run[0] / run[1] for run in side] for side in (one, other)]
    means = [sum(side) / len(side) for side in shares]
    squares = [sum((share - mean) ** 2 for share in side) / (len(side) - 1) / len(side)
               for side, mean in zip(shares, means)]
    if len(one) < 2 or sum(squares) == 0:
        return False, False
    degrees = sum(squares) ** 2 / sum(square ** 2 / (len(one) - 1) for square in squares)
    change = means[1] - means[0]
    return t_test(change / math.sqrt(sum(squares)), degrees) < 0.05, change > 0


def spread_of(runs):
    """The variance of a run's share about its side's mean, of all runs."""
    squares = 0
    for side in runs.values():
        shares = [run[0] / run[1] for run in side]
        mean = sum(shares) / len(shares)
        squares += sum((share - mean) ** 2 for share in shares)
    return squares / sum(len(side) - 1 for side in runs.values())


def oracle_c(one, other, variance):
    """Whether the means of the runs' shares differ, were their variance known."""
    means = [sum(run[0] / run[1] for run in side) / len(side) for side in (one, other)]
    error = math.sqrt(variance * (1 / len(one) + 1 / len(other)))
    return abs(means[1] - means[0]) > 1.96 * error, means[1] > means[0]


def named(change):
    """Whether a function that was named beforehand changed, and which way: certain changes have intervals
    of more confidence, so what is certain leaves out zero at 95 % too."""
    if change is None:
        return False, False
    low, high = change["interval"]
    return low > 0 or high < 0, change["change"] > 0


class Tally:
    """How often each test said something."""

    def __init__(self):
        self.trials = self.ours = self.named = self.z = self.t = self.c = self.shrank = self.grew = 0


def judge(name, count, folder):
    function = PROGRAMS[name][3]
    runs = {"a": [], "b": []}
    for number in range(count):
        found = planted(compare(*[[path(name, side, number, folder)] for side in "ab"]), function)
        for side in "ab":
            samples = found[f"samples_{side}"]
            runs[side].append((samples, samples / found[f"share_{side}"]))
    mean = sum(share for _, share in runs["a"]) / count
    share = sum(samples for samples, _ in runs["a"]) / sum(total for _, total in runs["a"])
    print(f"{name}: {function}, {share * 100:.0f} % of {mean:.0f} samples, {PROGRAMS[name][2]} % slower, "
          f"{count} recordings a side", flush=True)
    for size in SIZES:
        if size <= count:
            judge_size(name, size, count, folder, runs)


def judge_size(name, size, count, folder, runs):
    function = PROGRAMS[name][3]
    variance = spread_of(runs)
    alike, apart, plans = Tally(), Tally(), []
    sets = [(side, start) for start in range(count - 2 * size + 1) for side in "ab"]
    for side, start in sets[::max(1, len(sets) // SETS_MAX)]:
        numbers = [range(start + half, start + 2 * size, 2) for half in (0, 1)]
        found = compare(*[[path(name, side, number, folder) for number in half] for half in numbers])
        halves = [[runs[side][number] for number in half] for half in numbers]
        alike.trials += 1
        alike.ours += any(change["certain"] for change in found["changes"])
        alike.named += named(planted(found, function))[0]
        alike.z += oracle_z(*halves)[0]
        alike.t += size > 1 and oracle_t(*halves)[0]
        alike.c += oracle_c(*halves, variance)[0]
    starts = range(count - size + 1)
    for start in starts[::max(1, len(starts) // SETS_MAX)]:
        numbers = range(start, start + size)
        found = compare(*[[path(name, side, number, folder) for number in numbers] for side in "ab"])
        halves = [[runs[side][number] for number in numbers] for side in "ab"]
        apart.trials += 1
        change = planted(found, function)
        apart.ours += change is not None and change["certain"] and change["change"] > 0
        apart.named += all(named(change))
        apart.z += all(oracle_z(*halves))
        apart.t += size > 1 and all(oracle_t(*halves))
        apart.c += all(oracle_c(*halves, variance))
        for other in found["changes"]:
            if other["certain"] and other["name"] != function:
                apart.shrank += other["change"] < 0
                apart.grew += other["change"] > 0
        plans += [plan["recordings_a_side"] for plan in found["plans"] if plan["share"] == 0.25]
    report(name, size, alike, apart, plans)


def report(name, size, alike, apart, plans):
    part = lambda count, tally: f"{count}/{tally.trials}" if tally.trials else "-"
    better = max(apart.z, apart.t)
    ratio = f"{apart.ours / better:.2f}" if better else "-"
    enough = sorted(1000 if plan is None else plan for plan in plans)
    plan = enough[len(enough) // 2] if enough else "-"
    print(f"| {name} | {size} | {part(alike.ours, alike)} | {part(apart.ours, apart)} | "
          f"{part(alike.named, alike)} | {part(apart.named, apart)} | {part(alike.z, alike)} | "
          f"{part(apart.z, apart)} | {part(alike.t, alike)} | {part(apart.t, apart)} | {part(alike.c, alike)} | {part(apart.c, apart)} | {ratio} | {apart.shrank} | "
          f"{apart.grew} | {plan} |", flush=True)
    if alike.trials:
        print(f"figure\tdiff, {name}, {size} a side: alarms\t{alike.ours * 100 / alike.trials:.1f}\t%\t\t\tours <= 5")
    if size > 1:
        print(f"figure\tdiff, {name}, {size} a side: planted change found\t{apart.ours * 100 / apart.trials:.1f}\t%"
              f"\tthe better oracle\t{better * 100 / apart.trials:.1f}\tratio >= 0.8")


def measure(options, folder):
    names = options.programs.split(",")
    record(names, options.count, folder)
    print("| program | a side | alarms | found | named, alarms | named, found | (a) alarms | (a) found | (b) alarms | (b) found | (c) alarms | (c) found | found to the better "
          "oracle's | others that shrank | others that grew | plan for 25 % |")
    for name in names:
        judge(name, options.count, folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=12)
    parser.add_argument("--programs", default=",".join(PROGRAMS))
    parser.add_argument("folder", nargs="?")
    options = parser.parse_args()
    if options.count < 4:
        parser.error("give a --count of 4 or more: sets of two are compared with sets of two")
    for name in options.programs.split(","):
        if name not in PROGRAMS:
            parser.error(f"there is no program {name}: give some of {', '.join(PROGRAMS)}")
    if options.folder and not os.path.isdir(options.folder):
        parser.error(f"there is no folder {options.folder}: make it first")
    if not os.access(UNIPROF, os.X_OK):
        sys.exit("build first: cargo build --release --locked")
    if options.folder:
        measure(options, os.path.abspath(options.folder))
        return
    with tempfile.TemporaryDirectory() as folder:
        measure(options, folder)


if __name__ == "__main__":
    main()
