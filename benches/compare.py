#!/usr/bin/env python3
"""How often `uniprof compare` is right, live: false alarms, power, and how many runs it takes.

    benches/compare.py [--tries N] [--programs A,B] [--most RUNS] [--of run|function]

By default there are 20 tries of each program, with as many runs as `compare` makes by default.

Takes hours. Needs `cargo build --release --locked` and what benches/diff.py needs. Each try compares a program of
benches/diff/, or the bundled workload, with itself, once as it is and once with one function slower, by so much that a
run takes 5 % longer, or with --of function, by 5 % of its own time. It does so at random addresses and beside another
busy program. An alarm is a try of equal sides in which anything is called certain, be it a function or the time of
whole runs. Found is the planted function, certain and up; the mean number of runs is that of each side.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile

from diff import PROGRAMS, UNIPROF, prepare

# Processor time of a run. Chance in the samples is most of what shorter ones differ by.
RUN_SECONDS = 1.0
PLANTED = 0.05
BUSY = "while True: sum(i * i for i in range(100000))"


def commands(name, folder):
    """The command of each side for a slowdown, and the function that is slower."""
    if name == "workload":
        words, rounds, function = [UNIPROF, "workload", "--requests"], 3000, "uniprof::workload::hash"
        slow = lambda slower: ["--slower", str(slower)]
    else:
        words = prepare(name, folder)
        _, rounds, _, function = PROGRAMS[name]
        slow = lambda slower: [str(slower)]
    rounds = rounds_of_a_run(lambda rounds: [*words, str(rounds), *slow(0)], rounds)
    return lambda slower: [*words, str(rounds), *slow(slower)], function


def rounds_of_a_run(command, rounds):
    """How many rounds take RUN_SECONDS of processor time here: some machines are four times as fast as others."""
    def seconds(rounds):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command(rounds), check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    # What it takes to begin is in both.
    more, fewer = (statistics.median(seconds(many) for _ in range(3)) for many in (rounds, rounds // 2))
    of_a_round = (more - fewer) / (rounds - rounds // 2)
    return int((RUN_SECONDS - (more - of_a_round * rounds)) / of_a_round)


def share_of(function, command, folder):
    """The part of a run's samples that are in the function and what it calls."""
    run = f"{folder}/share.uprof"
    subprocess.run([UNIPROF, "record", "-q", "-F", "2999", "-o", run, "--", *command], check=True, stdout=subprocess.DEVNULL)
    folded = subprocess.run([UNIPROF, "export", "-f", "folded", run], check=True, stdout=subprocess.PIPE, text=True).stdout
    inside = whole = 0
    for line in folded.splitlines():
        stack, count = line.rsplit(" ", 1)
        whole += int(count)
        inside += int(count) * any(function in frame for frame in stack.split(";"))
    return inside / whole


def compare(before, after, options):
    most = ["-n", str(options.most)] if options.most else []
    done = subprocess.run([UNIPROF, "compare", "--json", "--rows", "0", *most, "--", *before, "--vs", *after],
                          check=False, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode not in (0, 1):
        sys.exit(f"cannot compare: {done.stderr.decode()}")
    return json.loads(done.stdout)


def certain_times(found):
    times = (found["times"] or {}).values()
    return any(time and time["certain"] for time in times)


def measure(name, options, folder):
    command, function = commands(name, folder)
    share = 1.0 if options.of == "function" else share_of(function, command(0), folder)
    planted = round(100 * PLANTED / share)
    alarms, found, runs = 0, 0, {0: [], planted: []}
    for number in range(options.tries):
        for slower in (0, planted):
            result = compare(command(0), command(slower), options)
            runs[slower].append(len(result["a"]))
            certain = [change for change in result["changes"] if change["certain"]]
            if slower:
                # Its closures that were inlined into it are its code, too.
                is_found = any(function in change["name"] and change["change"] > 0 for change in certain)
                found += is_found
                word = "found" if is_found else "not found"
            else:
                is_alarm = bool(certain) or certain_times(result)
                alarms += is_alarm
                word = "alarm" if is_alarm else "no alarm"
            print(f"  {name} {number} +{slower} %: {runs[slower][-1]} runs, {word}: {result['verdict']}", flush=True)
    mean = {slower: sum(counts) / len(counts) for slower, counts in runs.items()}
    tries, what = options.tries, f"{function}, {planted} % slower"
    print(f"| {name}, {what} | {alarms}/{tries} | {mean[0]:.1f} | {found}/{tries} | {mean[planted]:.1f} |", flush=True)
    print(f"figure\tcompare, {name}: alarms\t{alarms * 100 / tries:.1f}\t%\t\t\tours <= 5")
    print(f"figure\tcompare, {name}: {what}, found\t{found * 100 / tries:.1f}\t%\t\t\tours >= 95")
    print(f"figure\tcompare, {name}: runs of each side until found\t{mean[planted]:.1f}\truns\t\t\t", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tries", type=int, default=20)
    parser.add_argument("--most", type=int)
    parser.add_argument("--of", choices=["run", "function"], default="run")
    parser.add_argument("--programs", default="workload,shelf,packer,texts")
    options = parser.parse_args()
    print("| program | alarms | runs then | found | runs then |")
    busy = subprocess.Popen([sys.executable, "-c", BUSY])
    try:
        with tempfile.TemporaryDirectory() as folder:
            for name in options.programs.split(","):
                measure(name, options, folder)
    finally:
        busy.kill()


if __name__ == "__main__":
    main()
