#!/usr/bin/env python3
"""`trend` beside Apache Otava, on the same simulated series, whose truth is known.

    benches/trend.py [--count N]                       by default 200 series of each kind

Needs apache-otava (PyPI). Series are those of `report/tests/simulated_series/mod.rs`, with normal noise and with tails:
24 functions in 40 recordings each. Otava judges each function's shares by itself, with its own defaults; `trend` has one
error rate for all. Counted are

- false alarms: series without a change in which any function has one;
- found: series with a function that is 5 % slower, in which that function has a change within one recording of the truth;
- found alone: those of them in which nothing else has a change.
"""

import argparse
import collections
import json
import pathlib
import subprocess
import sys

from otava.series import AnalysisOptions, Metric, Series

ROOT = pathlib.Path(__file__).resolve().parents[1]


def of_otava(functions):
    """The changes of each function, by its name."""
    count = len(functions[0]["shares"])
    data = {function["name"]: function["shares"] for function in functions}
    metrics = {name: Metric(1, 1.0) for name in data}
    series = Series("simulated", None, list(range(count)), metrics, data, {})
    found = series.analyze(AnalysisOptions()).change_points
    return {name: [change.index for change in changes] for name, changes in found.items()}


def of_trend(functions):
    return {function["name"]: function["changes"] for function in functions}


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--count", type=int, default=200)
    count = arguments.parse_args().count
    command = ["cargo", "run", "--release", "--quiet", "--locked", "-p", "uniprof-report", "--example", "trends", "--",
               str(count)]
    simulated = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    sums = collections.Counter()
    for line in simulated.stdout:
        series = json.loads(line)
        for name, judge in [("trend", of_trend), ("otava", of_otava)]:
            changed = {function: at for function, at in judge(series["functions"]).items() if at}
            key = (series["noise"], name)
            if not series["planted"]:
                sums[(*key, "false alarms")] += bool(changed)
                continue
            is_near = any(abs(at - series["at"]) <= 1 for at in changed.get("f0", []))
            sums[(*key, "found")] += is_near
            sums[(*key, "found alone")] += is_near and len(changed) == 1 and len(changed["f0"]) == 1
    if simulated.wait() != 0:
        sys.exit("the simulation failed")
    for (noise, name, what), number in sorted(sums.items()):
        print(f"{noise}: {name}: {what}: {number} of {count}, {number / count * 100:.1f} %")
        peer = sums[(noise, "otava", what)] / count * 100
        if name == "trend":
            goal = {"false alarms": "ours <= 5", "found": "ours >= 95" if noise == "normal" else ""}.get(what, "")
            print(f"figure\ttrend: {what}, {noise} noise\t{number / count * 100:.1f}\t%\tOtava\t{peer:.1f}\t{goal}")


if __name__ == "__main__":
    main()
