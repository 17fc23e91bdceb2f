#!/usr/bin/env python3
"""What sampling a QEMU guest costs, and how that compares with gdb in a loop.

    benches/qemu.py [SECONDS]       of each measurement, 6 by default

The guest is the test unikernel, 30 calls deep, emulated (TCG). It counts its own iterations in its
memory, so that "progress" is what the guest got done, as a share of what it gets done when nobody
looks. Everything runs in the same minutes on the same machine; only ratios mean anything.
"""

import pathlib
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/qemu"))

import machine  # noqa: E402  (the path above comes first)

GDB = ["-nx", "-batch", "-ex", "set pagination off", "-ex", "set backtrace past-main on"]


def progress(guest, seconds):
    """Iterations a second."""
    began, before = time.monotonic(), guest.progress()
    time.sleep(seconds)
    return (guest.progress() - before) / (time.monotonic() - began)


def sample(uniprof, guest, target, rate, seconds, undisturbed):
    """One row of the table, and samples a second."""
    recording = machine.OUT / "bench.uprof"
    recorder = uniprof.start("record", "-F", rate, "-o", recording, target)
    time.sleep(1)
    share = progress(guest, seconds) / undisturbed
    recorder.send_signal(signal.SIGINT)
    messages = recorder.communicate(timeout=20)[1]
    totals = uniprof.totals(recording)
    samples = uniprof.samples(recording)
    span = (int(samples[-1]["time"]) - int(samples[0]["time"])) / 1e9
    costs = sorted(int(each["cost"]) for each in samples)
    depth = sum(each["chain"].count(",") + 1 for each in samples) / len(samples)
    per_second = len(samples) / span
    assert len(samples) == totals["samples"], f"the recording is damaged; {messages}"
    print(f"  {rate:>6} Hz  {per_second:>8.0f} samples/s  "
          f"{totals['round_trips'] / totals['freezes']:>5.2f} round trips a sample  "
          f"frozen {costs[len(costs) // 2] / 1000:>6.0f} us (median)  "
          f"{depth:>4.0f} frames  progress {share:>6.1%}", flush=True)
    return per_second


def gdb_loop(guest, seconds):
    """Backtraces a second by starting gdb again and again, as one does in a shell loop."""
    count, end = 0, time.monotonic() + seconds
    began = time.monotonic()
    while time.monotonic() < end:
        command = ["gdb-multiarch", *GDB, "-ex", f"target remote {guest.stub}", "-ex", "bt",
                   "-ex", "detach", str(guest.image)]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert output.count("#") > 30, output
        count += 1
    return count / (time.monotonic() - began)


def main(seconds):
    machine.prepare()
    uniprof = machine.Uniprof(machine.program(release=True))
    with machine.Machine("guest.elf", append="deep=30") as guest:
        undisturbed = progress(guest, seconds)
        print(f"undisturbed: {undisturbed / 1e6:.0f} million iterations a second")
        fastest = {}
        for name, target in (("without shared memory", f"gdb:{guest.stub}"),
                             ("with shared memory", f"qemu:{guest.monitor}")):
            print(name)
            for rate in (99, 997, 20000):
                fastest[name] = sample(uniprof, guest, target, rate, seconds, undisturbed)
        print(f"undisturbed again: {progress(guest, seconds) / undisturbed:.1%}")
        by_gdb = gdb_loop(guest, seconds)
        print(f"gdb -batch -ex bt in a loop: {by_gdb:.1f} backtraces/s")
        for name, per_second in fastest.items():
            print(f"  uniprof {name}: {per_second / by_gdb:.0f} times as many")
            print(f"figure\tgdb stub: sampling {name}\t{1e6 / per_second:.0f}\tus a sample\t"
                  f"gdb -batch\t{1e6 / by_gdb:.0f}\tratio <= 0.02")
    return 0 if min(fastest.values()) >= 50 * by_gdb else 1


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]) if len(sys.argv) > 1 else 6))
