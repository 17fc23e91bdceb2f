#!/usr/bin/env python3
"""What recording whole stacks of processes costs, beside `perf record -g` and `perf record --call-graph dwarf`.

    benches/stacks.py [ROUNDS [SECONDS]]    3 rounds of 8 seconds

Needs perf, gcc, perl, python3, sort and `cargo build --release --locked`; UNIPROF names another program under test.

Each program runs all the time; in each round the recorders attach to it one after the other, in an order that changes.
Compared is the processor time of the recorders themselves, to the end of the process, per sample; ratios are of a
round, and their median is given. Bytes are the recording's, with what `record` embeds.
"""

import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
UNIPROF = os.environ.get("UNIPROF", os.path.join(ROOT, "target/release/uniprof"))
RATE_HZ = 997
PERF = ["perf", "record", "-F", str(RATE_HZ)]
OURS = [UNIPROF, "record", "-F", str(RATE_HZ)]
# Name: command, its option for the process, and for the file; the first is compared with the others.
RECORDERS = {
    "uniprof": OURS,
    "uniprof --no-embed": [*OURS, "--no-embed"],
    "uniprof --frame-pointers": [*OURS, "--frame-pointers"],
    "perf -g": [*PERF, "-g"],
    "perf dwarf": [*PERF, "--call-graph", "dwarf,65528"],
}
C = """
#include <stdlib.h>
static int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
__attribute__((noinline)) static long deep(long n) {
    volatile char room[256];
    room[n & 255] = n;
    if (n) return deep(n - 1) + room[n & 255];
    static int many[20000];
    for (int i = 0; i < 20000; i++) many[i] = rand();
    qsort(many, 20000, sizeof *many, compare);
    return many[0];
}
int main(void) { for (volatile long sum = 0;;) sum += deep(30); }
"""
PROGRAMS = {
    "perl": ["perl", "-e", "sub f { my $n = shift; return $n ? f($n - 1) : do { my %h; $h{$_ % 997} .= 'x' "
                           "for 1 .. 20000; scalar %h } } f(20) while 1"],
    "python3": ["python3", "-c", "def f(n): return f(n - 1) if n else sorted(str(i) for i in range(20000))\n"
                                 "while True: f(20)"],
    "gcc -O2": ["./program"],
    "sort": ["sh", "-c", "while :; do sort lines >/dev/null; done"],
}


def recorded(name, pid, seconds):
    """A recording: processor seconds of its recorder, samples and bytes."""
    command = [*RECORDERS[name], "-o", "recording"]
    if name.startswith("perf"):
        command += ["-p", str(pid), "--", "sleep", str(seconds)]
    else:
        command += ["-d", f"{seconds}s", f"pid:{pid}"]
    with open("said", "w+b") as said:
        child = subprocess.Popen(command, stdout=said, stderr=said)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        text = said.read().decode(errors="replace")
    found = re.search(r"Recorded (\d+) samples|\((\d+) samples\)", text)
    if found is None:
        sys.exit(f"{name}: {text}")
    samples = int(found[1] or found[2])
    size = os.stat("recording").st_size
    os.remove("recording")
    return usage.ru_utime + usage.ru_stime, max(samples, 1), size


def compare(program, rounds, seconds):
    running = subprocess.Popen(PROGRAMS[program], stdout=subprocess.DEVNULL, start_new_session=True)
    time.sleep(1)
    found = {name: [] for name in RECORDERS}
    try:
        for _ in range(rounds):
            for name in random.sample(list(RECORDERS), len(RECORDERS)):
                found[name].append(recorded(name, running.pid, seconds))
    finally:
        os.killpg(running.pid, 9)
        running.wait()
    cost = {name: [processor / samples * 1e6 for processor, samples, _ in all] for name, all in found.items()}
    size = {name: statistics.median(size / samples for _, samples, size in all) for name, all in found.items()}
    for name in RECORDERS:
        ratio = statistics.median(ours / theirs for ours, theirs in zip(cost[name], cost["perf -g"]))
        samples = statistics.median(samples for _, samples, _ in found[name])
        print(f"{program:10} {name:26} {samples:7.0f} samples, {statistics.median(cost[name]):7.1f} us a sample, "
              f"{ratio:5.2f} of perf -g; {size[name]:8.0f} bytes a sample", flush=True)
    for peer in ("perf -g", "perf dwarf"):
        goal = "ratio <= 1.05" if peer == "perf -g" else "ratio <= 1"
        print("figure", f"recorder: whole stacks of {program}, its processor time a sample",
              f"{statistics.median(cost['uniprof']):.1f}", "us", peer, f"{statistics.median(cost[peer]):.1f}", goal,
              sep="\t")
    print("figure", f"recorder: whole stacks of {program}, bytes a sample", f"{size['uniprof']:.0f}", "bytes",
          "perf dwarf", f"{size['perf dwarf']:.0f}", "ratio <= 0.1", sep="\t")


def main():
    rounds, seconds = map(int, (sys.argv[1:] + ["3", "8"][len(sys.argv) - 1:])[:2])
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        with open("program.c", "w", encoding="utf-8") as source:
            source.write(C)
        subprocess.run(["gcc", "-O2", "-o", "program", "program.c"], check=True)
        with open("lines", "w", encoding="utf-8") as lines:
            lines.writelines(f"{random.random()}\n" for _ in range(100_000))
        for program in PROGRAMS:
            compare(program, rounds, seconds)


main()
