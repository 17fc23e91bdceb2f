#!/usr/bin/env python3
"""What `record --keep` costs beside plain `record`, in pairs, the two in turns.

    benches/keep.py [PAIRS] [SECONDS] [HZ]      10 pairs of 5 s at 99 Hz by default

Each recording is of the same busy process. Compared are the recorder's processor time, and how
often the process came round meanwhile.
"""

import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROGRAM = os.environ.get("UNIPROF", ROOT / "target/release/uniprof")
WORK = """
import mmap, sys
with open(sys.argv[1], "r+b") as file:
    shared = mmap.mmap(file.fileno(), 8)
rounds = 0
while True:
    sum(i * i for i in range(1000))
    rounds += 1
    shared[:] = rounds.to_bytes(8, "little")
"""


def recorded(flags, pid, seconds, rate, folder):
    """Records, and returns the recorder's processor time in seconds."""
    command = [PROGRAM, "-q", "record", "--no-embed", "-F", rate, "-d", f"{seconds}s", *flags,
               "-o", folder / "run.uprof", f"pid:{pid}"]
    recorder = subprocess.Popen([str(word) for word in command], stderr=subprocess.PIPE)
    _, status, used = os.wait4(recorder.pid, 0)
    message = recorder.stderr.read().decode()
    assert os.waitstatus_to_exitcode(status) in (0, 1), message
    return used.ru_utime + used.ru_stime


def interval(values):
    """The mean, and half of its 95 % interval by 2,000 draws."""
    draws = random.Random(36)
    means = sorted(statistics.mean(draws.choices(values, k=len(values))) for _ in range(2000))
    return statistics.mean(values), (means[1949] - means[49]) / 2


def main(pairs=10, seconds=5, rate=99):
    """Measures, and prints figures."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        rounds = folder / "rounds"
        rounds.write_bytes(bytes(8))
        work = subprocess.Popen([sys.executable, "-c", WORK, str(rounds)])
        time.sleep(1)
        ways = {"plain": [], "keep": ["--keep", "5s"]}
        spent = {name: [] for name in ways}
        done = {name: [] for name in ways}
        try:
            for pair in range(pairs):
                for name in sorted(ways, reverse=pair % 2 == 0):
                    before = int.from_bytes(rounds.read_bytes(), "little")
                    spent[name].append(recorded(ways[name], work.pid, seconds, rate, folder))
                    done[name].append(int.from_bytes(rounds.read_bytes(), "little") - before)
        finally:
            work.kill()
            work.wait()
    more = [keep - plain for keep, plain in zip(spent["keep"], spent["plain"])]
    mean, half = interval([value * 1000 / seconds for value in more])
    print(f"processor time of the recorder: {statistics.mean(spent['plain']) * 1000 / seconds:.2f} ms "
          f"a second without --keep, {mean:+.2f} ± {half:.2f} with it ({pairs} pairs at {rate} Hz)")
    shares = [keep / plain - 1 for keep, plain in zip(done["keep"], done["plain"])]
    slower, half_slower = interval([share * 100 for share in shares])
    print(f"work of the process meanwhile: {slower:+.2f} ± {half_slower:.2f} % with --keep")
    print("figure", "record --keep: more processor time", round(mean, 2), "ms/s", "", "",
          "ours <= 1", sep="\t")


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:]))
