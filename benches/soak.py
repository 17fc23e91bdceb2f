#!/usr/bin/env python3
"""Long recordings: what grows, what drifts, what gets lost.

    benches/soak.py guest [MINUTES]            a real guest at 997 Hz, 30 minutes by default
    benches/soak.py simulated [HOURS] [LIMIT]
                                            64 vCPUs at 10 kHz, 4 simulated hours by default; ends
                                            after LIMIT minutes on the wall, if that comes first
    benches/soak.py keep [HOURS]            the same guest at 99 Hz, of which the last minute is
                                            kept and saved twice a second on the wall, 8 simulated
                                            hours by default

guest: the test unikernel under QEMU (emulated), read through shared memory by a release build. The
file is then read deadline by deadline (record/examples/soak): there is one in each period, so that
the time that passed tells how many there were, and every one that has no sample must be among those
that the recorder says it missed.

simulated: record/examples/soak computes a guest of 64 vCPUs, most of them idle, and lets time pass
at once; sampler, ring, encoder and writer are the recorder's own. Nothing is stored: a second
process reads the pipe, and compares every sample with what was simulated.

Both print a table, the judgement, and exit with status 1 if it is bad. What was measured is left in
tests/out/soak/.
"""

import pathlib
import signal
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/qemu"))

import machine  # noqa: E402  (the path above comes first)

OUT = ROOT / "tests/out/soak"
RATE = 997
# The heap may grow by so much after the second minute: an allocator's slack, not a leak.
MOST_GROWTH_KIB = 1024


def memory(process):
    """Resident memory of a process in KiB: all of it, and what is its own; None if it has gone."""
    try:
        lines = pathlib.Path(f"/proc/{process.pid}/status").read_text().splitlines()
    except OSError:
        return None
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    if "RssAnon" not in fields:
        return None
    return tuple(int(fields[name].split()[0]) for name in ("VmRSS", "RssAnon"))


class Watch(threading.Thread):
    """Notes the memory of processes, and the size of a file, every few seconds."""

    def __init__(self, processes, file=None, every=5):
        super().__init__(daemon=True)
        self.processes, self.file, self.every = processes, file, every
        self.rows, self.over, self.began = [], threading.Event(), time.monotonic()
        self.start()

    def run(self):
        while not self.over.wait(self.every):
            row = {name: memory(process) for name, process in self.processes.items()}
            row["seconds"] = time.monotonic() - self.began
            if self.file and self.file.exists():
                row["bytes"] = self.file.stat().st_size
            self.rows.append(row)

    def stop(self, table):
        """Ends, and leaves what was seen in `table`."""
        self.over.set()
        self.join()
        names = list(self.processes)
        with open(table, "w") as out:
            print("seconds", "bytes", *(f"{name}_{kind}_kib" for name in names
                                        for kind in ("rss", "anon")), sep="\t", file=out)
            for row in self.rows:
                values = [value for name in names for value in (row[name] or ("", ""))]
                print(f"{row['seconds']:.1f}", row.get("bytes", ""), *values, sep="\t", file=out)

    def growth(self, name, after=120):
        """KiB of its own after `after` seconds, or a tenth of the time, and at the most later."""
        after = min(after, self.rows[-1]["seconds"] / 10)
        own = [row[name][1] for row in self.rows if row[name] and row["seconds"] >= after]
        return own[0], max(own)


def fields(line):
    """The fields of a line: {"samples": "17", ...}."""
    return dict(word.split("=", 1) for word in line.split() if "=" in word)


def build():
    """The program, and the example that simulates and checks."""
    OUT.mkdir(parents=True, exist_ok=True)
    program = machine.program(release=True)
    subprocess.run(["cargo", "build", "--release", "--quiet", "--locked", "-p", "uniprof-record",
                    "--features", "simulated-time", "--example", "soak"], cwd=ROOT, check=True)
    return machine.Uniprof(program), ROOT / "target/release/examples/soak"


class Account:
    """What the example's `check` says of a recording."""

    def __init__(self, lines):
        self.minutes, self.total, self.lost, self.other = [], {}, {}, []
        for line in lines:
            kind = line.split(" ", 1)[0]
            if kind == "minute":
                self.minutes.append(fields(line))
            elif kind == "total":
                self.total = fields(line)
            elif kind == "lost":
                self.lost = fields(line)
            else:
                self.other.append(line.strip())

    def whole(self):
        """All minutes but the last, which is none."""
        return self.minutes[:-1] or self.minutes

    def share_taken(self, minutes):
        """Rounds taken of all deadlines of these minutes."""
        taken = sum(int(minute["rounds"]) for minute in minutes)
        return taken / (taken + sum(int(minute["missed"]) for minute in minutes))


class Judgement:
    """What must hold; every line is printed, and figures for benches/table.py."""

    def __init__(self, name):
        self.name, self.good = name, True

    def figure(self, what, value, unit, goal):
        print("figure", f"soak, {self.name}: {what}", value, unit, "", "", goal, sep="\t")

    def line(self, holds, text):
        self.good &= bool(holds)
        print(f"  {'yes' if holds else 'NO '}  {text}", flush=True)

    def account(self, status, account):
        total, lost = account.total, account.lost
        told, missed = int(lost["told"]), int(lost.get("deadline", 0))
        self.line(status == 0 and total["wrong"] == "0",
                  f"every block is sound and in order, every sample in its place: "
                  f"{total['blocks']} blocks, {total['samples']} samples")
        self.line(told == missed, f"nothing was dropped but deadlines missed: {told - missed}")
        self.line(abs(missed - int(total["missed"])) <= int(total["tail"]),
                  f"deadlines without a sample: {total['missed']}; told by the recorder: {missed}")
        wandered = max(0, abs(missed - int(total["missed"])) - int(total["tail"]))
        self.figure("deadlines more or fewer than the rate has", wandered, "", "ours <= 0")
        bad = int(total["wrong"]) + told - missed
        self.figure("samples wrong or dropped", bad, "", "ours <= 0")

    def growth(self, watch, name, bound=MOST_GROWTH_KIB):
        early, most = watch.growth(name)
        self.figure(f"memory of the {name} grows by", most - early, "KiB", f"ours <= {bound}")
        self.line(most - early <= bound,
                  f"memory of the {name}: {early} KiB early, {most} KiB at the most (own pages)")


def show(account, every):
    """A line for every so many minutes of the recording."""
    print("  minute   samples  deadlines missed   late (mean)  bytes/sample")
    for minute in account.minutes[:-1:every]:
        samples = int(minute["samples"])
        print(f"  {int(minute['number']):>6} {samples:>9}  {int(minute['missed']):>16}"
              f"  {int(minute['late_ns']) / 1000:>8.1f} us"
              f"  {int(minute['bytes']) / max(samples, 1):>8.2f}")


def guest(minutes):
    """Records a real guest."""
    machine.prepare()
    uniprof, soak = build()
    recording = OUT / "guest.uprof"
    recording.unlink(missing_ok=True)
    with machine.Machine("guest.elf", append="deep=12") as unikernel:
        recorder = uniprof.start("record", "--no-embed", "-F", RATE, "-d",
                                 f"{minutes * 60}s", "--elf",
                                 unikernel.image, "-o", recording, f"qemu:{unikernel.monitor}")
        watch = Watch({"recorder": recorder, "guest": unikernel.process}, recording)
        messages = recorder.communicate(timeout=minutes * 60 + 300)[1]
        watch.stop(OUT / "guest-memory.tsv")
        runs = unikernel.runs()
    (OUT / "guest-messages.txt").write_text(messages)
    print(messages.strip())
    with open(recording, "rb") as stored:
        checked = subprocess.run([soak, "check"], stdin=stored, capture_output=True, text=True)
    (OUT / "guest-account.txt").write_text(checked.stdout + checked.stderr)
    account = Account(checked.stdout.splitlines())
    show(account, max(1, minutes // 10))
    stretch = max(1, min(5, minutes // 2))
    first, last = account.whole()[:stretch], account.whole()[-stretch:]
    share = [account.share_taken(part) for part in (account.whole(), first, last)]
    judgement = Judgement("real guest")
    judgement.account(checked.returncode, account)
    # On a machine that others use as well, both depend on them; a recorder that tires does not.
    judgement.line(share[2] > share[1] - 0.05,
                   f"deadlines met: {share[0]:.2%}; the first {stretch} minutes {share[1]:.2%}, "
                   f"the last {share[2]:.2%}")
    judgement.growth(watch, "recorder")
    report = uniprof.run("report", "--top", "--elf", machine.GUESTS / "guest.elf", recording,
                         patience=600)
    judgement.line("burn" in report[1], "the report opens, and knows the guest's functions")
    judgement.line(runs, "the guest runs on")
    return judgement.good


def simulated(hours, limit):
    """Records a simulated guest into a pipe, and reads that."""
    soak = build()[1]
    began = time.monotonic()
    writer = subprocess.Popen([soak, "simulate", str(hours)], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    reader = subprocess.Popen([soak, "check", "simulated"], stdin=writer.stdout,
                              stdout=subprocess.PIPE, text=True)
    writer.stdout.close()
    watch = Watch({"writer": writer, "reader": reader}, every=10)
    if limit:
        ending = threading.Timer(limit * 60, writer.send_signal, [signal.SIGINT])
        ending.daemon = True
        ending.start()
    lines = []
    with open(OUT / "simulated-account.txt", "w") as log:
        for line in reader.stdout:
            lines.append(line)
            print(f"{time.monotonic() - began:.0f} s: {line}", end="", file=log, flush=True)
    status = reader.wait() or writer.wait()
    seconds = time.monotonic() - began
    watch.stop(OUT / "simulated-memory.tsv")
    print(writer.stderr.read().decode().strip())
    account = Account(lines)
    show(account, max(1, len(account.minutes) // 12))
    samples, simulated_seconds = int(account.total["samples"]), float(account.total["seconds"])
    print(f"  {simulated_seconds / 3600:.3f} of {hours} hours in {seconds / 60:.1f} minutes: "
          f"{samples / 1e9:.3f} billion samples, {seconds / samples * 1e9:.0f} ns each, "
          f"{int(account.total['bytes']) / 1e9:.2f} GB")
    judgement = Judgement("simulated guest")
    reached = round(simulated_seconds / 3600, 2)
    judgement.figure("time simulated", reached, "h", f"ours >= {hours}")
    judgement.account(status, account)
    judgement.line(account.total["vcpus"] == "64" and account.total["evenly"] == "true",
                   "every vCPU has as many samples as the others")
    judgement.growth(watch, "writer", MOST_GROWTH_KIB)
    judgement.growth(watch, "reader")
    return judgement.good


def keep(hours):
    """Keeps the last minute of a simulated guest; compares its size and memory early and late."""
    ended = subprocess.run([build()[1], "keep", str(hours)], capture_output=True, text=True)
    (OUT / "keep.txt").write_text(ended.stdout + ended.stderr)
    rows = [fields(line) for line in ended.stdout.splitlines() if line.startswith("hours=")]
    rows = [row for row in rows if float(row["hours"]) > hours / 20]
    half = len(rows) // 2
    print(ended.stdout.splitlines()[-1], ended.stderr.strip())
    judgement = Judgement("flight recorder")
    judgement.line(ended.returncode == 0, f"{hours} simulated hours, looked at {len(rows)} times")
    judgement.figure("time simulated", round(float(rows[-1]["hours"]), 2), "h", f"ours >= {hours * .9}")
    judgement.figure("saves meanwhile", int(rows[-1]["saves"]), "", "ours >= 10")
    judgement.line(int(rows[-1]["saves"]) >= 10, f"{rows[-1]['saves']} saves")
    # The last look, or one in the middle of a save, sees the files of a window open.
    for what, unit, slack in (("memory", "KiB", MOST_GROWTH_KIB), ("bytes", "bytes", 0.02), ("files", "", 0),
                              ("open", "files", 12)):
        early, late = (max(int(row[what]) for row in part) for part in (rows[:half], rows[half:]))
        most = slack if slack >= 1 or not slack else int(early * slack)
        judgement.figure(f"{what} grow by", late - early, unit, f"ours <= {most}")
        judgement.line(late - early <= most, f"{what}: {early} in the first half, {late} in the second")
    return judgement.good


def main(words):
    """Runs what was asked for."""
    kind, *numbers = words or [""]
    numbers = [float(number) for number in numbers]
    if kind == "guest":
        return guest(int((numbers + [30])[0]))
    if kind == "simulated":
        return simulated((numbers + [4])[0], (numbers + [0, 0])[1])
    if kind == "keep":
        return keep((numbers + [8])[0])
    print(__doc__.split("\n\n")[1])
    sys.exit(2)


if __name__ == "__main__":
    sys.exit(0 if main(sys.argv[1:]) else 1)
