#!/usr/bin/env python3
"""Recordings to folded stacks: time and memory, beside `perf script | inferno-collapse-perf`.

    benches/report.py [SAMPLES]             1,000,000 takes a quarter of an hour and 12 GB of disk

Needs perf, gcc and `cargo build --release --locked`; builds two examples of the report package.

perf and uniprof record the same workload (corpus/calls.c, which has frame pointers) until there are
about as many samples: once with frame pointers, and once with 8 KiB of raw stack a sample, less often
(perf.data takes 8 KiB for each). Times are of whole commands; beside them stands the processor time
of all their processes, which a busy machine disturbs less. The tools need not keep equally many
samples, so both are given per 1,000,000 samples. Memory is the peak resident size of uniprof, for
made-up recordings of 1 and of 10 million samples.
"""

import os
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
UNIPROF = os.path.join(ROOT, "target/release/uniprof")
EXAMPLES = os.path.join(ROOT, "target/release/examples")
# Samples a second of each thread: as often as the kernel's clock can, and as the disk can take.
CHAINS_HZ, STACKS_HZ = 20000, 4000


def quiet(*command):
    """Runs a command; status 1 is uniprof's way to say that samples were lost."""
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    if done.returncode not in (0, 1):
        sys.exit(f"failed with status {done.returncode}: {command}: {done.stderr.decode()}")


def spent(command, rounds=3):
    """Least seconds, and least processor seconds, of some rounds of a shell command."""
    walls, processors = [], []
    for _ in range(rounds):
        began = time.monotonic()
        child = subprocess.Popen(command, shell=True, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
        walls.append(time.monotonic() - began)
        processors.append(usage.ru_utime + usage.ru_stime)
        if os.waitstatus_to_exitcode(status) not in (0, 1):
            sys.exit(f"failed: {command}")
    return min(walls), min(processors)


def samples(folded):
    with open(folded, encoding="utf-8", errors="replace") as lines:
        return sum(int(line.rsplit(" ", 1)[1]) for line in lines)


def peak_mib(command):
    """Peak resident memory of a shell command's largest process, and its seconds."""
    began = time.monotonic()
    child = subprocess.Popen(command, shell=True, stderr=subprocess.DEVNULL)
    _, _, usage = os.wait4(child.pid, 0)
    return usage.ru_maxrss / 1024, time.monotonic() - began


def workload(seconds):
    """The program of corpus/calls.c, made to run for some seconds."""
    with open(os.path.join(ROOT, "corpus/calls.c"), encoding="utf-8") as source:
        text = source.read().replace("seconds = 2.0", f"seconds = {seconds}.0")
    with open("calls.c", "w", encoding="utf-8") as source:
        source.write(text)
    quiet("gcc", "-O2", "-g", "-fno-omit-frame-pointer", "-pthread", "-o", "calls", "calls.c")
    return ["./calls"]


def compare(name, wanted, perf_flags, our_flags, rate):
    """Records about as many samples as `wanted` with both, and times what becomes of them."""
    perf_data, ours = "perf.data", "ours.uprof"
    seconds = wanted // (rate * len(os.sched_getaffinity(0))) + 1
    quiet("perf", "record", "-q", "-F", str(rate), *perf_flags, "-o", perf_data, "--",
          *workload(seconds))
    # The kernel lowers the rate of who takes long; so this is a matter of trying.
    for _ in range(3):
        quiet(UNIPROF, "record", "-F", str(rate), *our_flags, "-o", ours, "--", *workload(seconds))
        quiet("sh", "-c", f"{UNIPROF} export -f folded {ours} >ours.folded")
        count = samples("ours.folded")
        if count >= 0.9 * wanted:
            break
        seconds = int(seconds * wanted / max(count, 1) * 1.1) + 1
    # Without the period: inferno would count nanoseconds.
    script = f"perf script -F comm,tid,time,event,ip,sym,dso -i {perf_data}"
    theirs = spent(f"{script} | {EXAMPLES}/collapse_perf >perf.folded", 1)
    mine = spent(f"{UNIPROF} export -f folded {ours} >ours.folded")
    counts = samples("perf.folded"), samples("ours.folded")
    print(f"{name}: {counts[0]} samples of perf, {counts[1]} of uniprof")
    for kind, perf, own in zip(("elapsed", "processor"), theirs, mine):
        per = perf * 1e6 / counts[0], own * 1e6 / counts[1]
        print(f"  {kind}: perf {perf:.2f} s, uniprof {own:.3f} s; "
              f"{per[0]:.1f} s and {per[1]:.2f} s a million, 1/{per[0] / per[1]:.0f} (at most 1/20)")
        print(f"figure\treport: a million samples to folded stacks, {name}, {kind}\t{per[1]:.2f}\ts\t"
              f"perf script\t{per[0]:.1f}\tratio <= 0.05")


def main():
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    if not os.access(UNIPROF, os.X_OK):
        sys.exit("build first: cargo build --release --locked")
    quiet("cargo", "build", "-q", "--release", "--manifest-path", os.path.join(ROOT, "Cargo.toml"),
          "-p", "uniprof-report", "--example", "collapse_perf", "--example", "synthetic")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        if subprocess.run(["which", "perf"], stdout=subprocess.DEVNULL).returncode == 0:
            compare("frame pointers", wanted, ["-g"], [], CHAINS_HZ)
            dwarf = ["--call-graph", "dwarf,8192"]
            compare("dwarf", wanted, dwarf, ["--stack=8K"], STACKS_HZ)
        else:
            print("perf is not installed (Debian: linux-perf): nothing to compare with")
        sizes = []
        for millions in (1, 10):
            quiet(os.path.join(EXAMPLES, "synthetic"), str(millions * 1_000_000), "made.uprof")
            mib, spent = peak_mib(f"exec {UNIPROF} export -f folded made.uprof >made.folded")
            sizes.append(mib)
            print(f"{millions} million samples ({os.path.getsize('made.uprof') >> 20} MiB): "
                  f"{spent:.2f} s, peak {mib:.0f} MiB (at most 300)")
        print(f"figure\treport: peak memory, 10 million samples\t{sizes[1]:.0f}\tMiB\t1 million\t"
              f"{sizes[0]:.0f}\tours <= 300")
        print(f"growth of memory from 1 to 10 million samples: {sizes[1] / sizes[0]:.2f}")
        os.chdir("/")


if __name__ == "__main__":
    main()
