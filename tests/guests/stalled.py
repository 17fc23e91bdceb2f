"""Flight recorders (`record --keep`) of the test unikernel that stalls once, is silent once, and ends (`stall=N`):
`record` runs one with every condition, and asks it for saves; `check_saves` looks for the stall in each of them.
"""

import os
import pathlib
import shutil
import signal
import tempfile
import time

from unikernel import check

CONDITIONS = ("busy>95% for 1s", "silent for 1s", "share(stalls_once)>60% for 1s", "crash")
# QEMU's, by which the guest ends.
EXIT = ("-device", "isa-debug-exit,iobase=0xf4,iosize=4")
LEAST_SAMPLES = 10


def command_line(pace=1):
    """A period takes 2 s."""
    return f"hold stall={round(25 * pace)} reason=3"


def record(uniprof, guest, target, recording):
    """Records a held guest until it ends; returns (status, messages). The saves are beside `recording`."""
    words = [word for condition in CONDITIONS for word in ("--save-when", condition)]
    recording = pathlib.Path(recording)
    with tempfile.TemporaryDirectory() as folder:
        inside = pathlib.Path(folder) / recording.name
        recorder = uniprof.start("record", "--keep", "60s", "--freeze-budget", "1s", "--elf", guest.image, *words,
                                 "-o", inside, target)

        def wait(what, patience=120):
            end = time.monotonic() + patience
            while not what() and recorder.poll() is None and time.monotonic() < end:
                time.sleep(0.02)

        wait((inside.with_name(inside.name + ".keep") / "tables.uprof").exists)
        time.sleep(1)
        guest.release()
        wait(lambda: guest.number("sink") > 0)  # after the stall
        if recorder.poll() is None:
            os.kill(recorder.pid, signal.SIGUSR1)
            uniprof.run("save", recorder.pid)
        messages = recorder.communicate(timeout=240)[1]
        for old in recording.parent.glob(f"{recording.stem}-*.uprof"):
            old.unlink()
        for each in pathlib.Path(folder).glob("*.uprof"):
            shutil.copyfile(each, recording.with_name(each.name))
    return recorder.returncode, messages


def never_halts(uniprof, save):
    """Whether the guest had work to do all the last second: on a host that is too busy it is not quiet."""
    rows = uniprof.samples(save)
    return all(row["state"] != "blocked" for row in rows if int(row["time"]) > int(rows[-1]["time"]) - 10**9)


def check_saves(uniprof, recording, image):
    """Each condition and each request has saved the stall; returns how many samples of it."""
    found = {}
    for save in recording.parent.glob(f"{recording.stem}-*.uprof"):
        told = uniprof.run("info", save)[1].splitlines()
        reasons = next(line.split(None, 1)[1] for line in told if line.startswith("saved "))
        stacks = uniprof.folded(save, "--elf", image)
        stalled = sum(count for stack, count in stacks if "stalls_once" in stack)
        found |= {reason: (stalled, save) for reason in reasons.split("; ")}
    counts = []
    for word in (*CONDITIONS, "SIGUSR1", "uniprof save"):
        saves = [each for reason, each in found.items() if reason.startswith(word)]
        check(saves, f"{word}: {found}")
        stalled, save = saves[0]
        too_early = word.startswith("busy") and stalled == 0 and never_halts(uniprof, save)
        check(stalled >= LEAST_SAMPLES or too_early, f"{word}: {found}")
        counts.append(f"{stalled} by {word.split('>')[0]}")
    return "samples of the stall: " + ", ".join(counts)
