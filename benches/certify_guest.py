#!/usr/bin/env python3
"""Whether the profile of a guest is right: known work is added to a function, and the profile must show that much.

    benches/certify_guest.py [--tries N] [--seconds S] [--rate HZ]      by default 5 tries of 10 s at 99 Hz, of each part

What `uniprof certify` does to a program, for the test unikernel, emulated by QEMU: it does N units more in each round of
a hundred, in the function `added`. The interval is of 95 % (Wilson) by the number of samples,
and should have the part that was planted in 95 of 100 cases.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/qemu"))

import machine  # noqa: E402  (the path above comes first)

ROUND = 100
# Units that are added to a round: 2, 10, 25 and 50 % of all.
ADDED = [2, 11, 33, 100]
# Standard errors on each side of an interval of 95 %.
Z = 1.96


def interval(found, count):
    """Where the true share is, by so many samples of all."""
    share, spread = found / count, Z * Z / count
    middle = (share + spread / 2) / (1 + spread)
    half = Z * (share * (1 - share) / count + spread / count / 4) ** 0.5 / (1 + spread)
    return middle - half, middle + half


def run(*words):
    """What a command printed. Exit status 1 is of a recording in which something is missing."""
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        sys.exit(f"{words[1]} failed: {done.stderr}")
    return done.stdout


def samples(program, monitor, image, options, folder):
    """Number of samples in `added`, and of all."""
    recording = pathlib.Path(folder) / "run.uprof"
    recording.unlink(missing_ok=True)
    run(program, "record", "--quiet", "-F", str(options.rate), "-d", f"{options.seconds}s", "--elf", image, "-o", recording,
        f"qemu:{monitor}")
    found = count = 0
    for line in run(program, "export", "-f", "folded", "-o", "-", recording).splitlines():
        stack, weight = line.rsplit(" ", 1)
        count += int(weight)
        found += int(weight) * ("added" in stack.split(";"))
    return found, count


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tries", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--rate", type=int, default=99)
    options = parser.parse_args()
    machine.prepare()
    program = machine.program(release=True)
    right, errors = [], []
    print("| planted | seen, mean | off by, mean and most, points | intervals that have it |")
    print("|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for units in ADDED:
            planted = units / (ROUND + units)
            seen, hits = [], []
            for _ in range(options.tries):
                with machine.Machine("guest.elf", append=f"slower={units}", stub=False) as guest:
                    found, count = samples(program, guest.monitor, guest.image, options, folder)
                low, high = interval(found, count)
                seen.append(100 * found / count)
                hits.append(low <= planted <= high)
            off = [abs(one - 100 * planted) for one in seen]
            print(f"| {100 * planted:.2f} % | {sum(seen) / len(seen):.2f} % | {sum(off) / len(off):.2f}, {max(off):.2f} | "
                  f"{sum(hits)} of {len(hits)} |", flush=True)
            right += hits
            errors += off
    part = 100 * sum(right) / len(right)
    print(f"figure\tcertify, the test unikernel: intervals that have what was planted\t{part:.1f}\t%\t\t\tours >= 93")
    print(f"figure\tcertify, the test unikernel: mean error\t{sum(errors) / len(errors):.2f}\tpoints\t\t\t")


if __name__ == "__main__":
    main()
