#!/usr/bin/env python3
"""Recordings to folded stacks: time and memory, beside `perf script | inferno-collapse-perf`.

    benches/report.py [SECONDS]

Needs perf and `cargo build --release --locked`; builds two examples of the report package.

Frame pointers: perf and uniprof record the bundled workload for the same time at the same rate.
dwarf: the same with 8 KiB of raw stack a sample, for a shorter time, since perf.data takes 8 KiB
for each. Times are of whole commands, the best of three; the tools need not keep equally many
samples, so times are compared per 1,000,000 samples. Memory is the peak resident size of uniprof,
for made-up recordings of 1 and of 10 million samples.
"""

import os
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
UNIPROF = os.path.join(ROOT, "target/release/uniprof")
EXAMPLES = os.path.join(ROOT, "target/release/examples")
RATE = 20000


def quiet(*command):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def best(command, rounds=3):
    """Seconds of the quickest of some rounds of a shell command."""
    seconds = []
    for _ in range(rounds):
        began = time.monotonic()
        status = subprocess.run(command, shell=True, stderr=subprocess.DEVNULL).returncode
        seconds.append(time.monotonic() - began)
        if status not in (0, 1):
            sys.exit(f"failed with status {status}: {command}")
    return min(seconds)


def samples(folded):
    with open(folded, encoding="utf-8", errors="replace") as lines:
        return sum(int(line.rsplit(" ", 1)[1]) for line in lines)


def peak_mib(command):
    """Peak resident memory of a shell command's largest process, and its seconds."""
    began = time.monotonic()
    child = subprocess.Popen(command, shell=True, stderr=subprocess.DEVNULL)
    _, _, usage = os.wait4(child.pid, 0)
    return usage.ru_maxrss / 1024, time.monotonic() - began


def compare(name, seconds, perf_flags, our_flags, rate):
    perf_data, ours = "perf.data", "ours.uprof"
    work = [UNIPROF, "workload", str(seconds)]
    quiet("perf", "record", "-q", "-F", str(rate), *perf_flags, "-o", perf_data, "--", *work)
    quiet(UNIPROF, "record", "-F", str(rate), *our_flags, "-o", ours, "--", *work)
    theirs = best(f"perf script -i {perf_data} | {EXAMPLES}/collapse_perf >perf.folded", 1)
    mine = best(f"{UNIPROF} export -f folded {ours} >ours.folded")
    counts = samples("perf.folded"), samples("ours.folded")
    per = [spent * 1e6 / count for spent, count in zip((theirs, mine), counts)]
    print(f"{name}: perf {theirs:.2f} s for {counts[0]} samples, "
          f"uniprof {mine:.3f} s for {counts[1]}: "
          f"{per[0]:.1f} s and {per[1]:.2f} s a million, 1/{per[0] / per[1]:.0f} (at most 1/20)")


def main():
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else 30
    if not os.access(UNIPROF, os.X_OK):
        sys.exit("build first: cargo build --release --locked")
    quiet("cargo", "build", "-q", "--release", "--manifest-path", os.path.join(ROOT, "Cargo.toml"),
          "-p", "uniprof-report", "--example", "collapse_perf", "--example", "synthetic")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        if subprocess.run(["which", "perf"], stdout=subprocess.DEVNULL).returncode == 0:
            compare("frame pointers", seconds, ["-g"], [], RATE)
            compare("dwarf", max(seconds // 6, 2), ["--call-graph", "dwarf,8192"], ["--stack=8K"], 997)
        else:
            print("perf is not installed (Debian: linux-perf): nothing to compare with")
        sizes = []
        for millions in (1, 10):
            quiet(os.path.join(EXAMPLES, "synthetic"), str(millions * 1_000_000), "made.uprof")
            mib, spent = peak_mib(f"exec {UNIPROF} export -f folded made.uprof >made.folded")
            sizes.append(mib)
            print(f"{millions} million samples ({os.path.getsize('made.uprof') >> 20} MiB): "
                  f"{spent:.2f} s, peak {mib:.0f} MiB (at most 300)")
        print(f"growth of memory from 1 to 10 million samples: {sizes[1] / sizes[0]:.2f}")
        os.chdir("/")


if __name__ == "__main__":
    main()
