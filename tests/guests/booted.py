"""Boots of the test unikernel under `record --boot`, by QEMU, with and without KVM, and by Xen: what is started, and
what is asked of the recording. The guest spends a time in `planted` that it measures itself, and prints."""

import pathlib
import re

from unikernel import check

PLANTED_MS = 150
UNITS = {"ns": 1e-6, "us": 1e-3, "ms": 1, "s": 1e3}


def monitor(image, console, *more):
    """The command line of a machine without monitor's socket, stub or shared memory; `console`: a file, or `stdio`."""
    console = console if console == "stdio" else f"file:{console}"
    return ["qemu-system-x86_64", "-M", "q35", "-display", "none", "-nic", "none", "-no-reboot", "-m", "128", "-kernel",
            image, "-append", f"plant={PLANTED_MS}", "-serial", console, *more]


def record(uniprof, image, recording, console, *more, options=()):
    """Records until the guest works, so that most of the recording is the boot."""
    pathlib.Path(console).unlink(missing_ok=True)
    return uniprof.run("record", "--boot", "--until", "ordinary_round", "-d", "60s", "--elf", image, *options, "-o",
                       recording, "--", *monitor(image, console, *more), patience=120)


def record_until_printed(uniprof, image, recording, console, text, *more):
    """Records until the guest prints `text`; what it printed goes to file `console`."""
    _, printed, messages = uniprof.run("record", "--boot", "--until-output", text, "-d", "60s", "--elf", image, "-o",
                                       recording, "--", *monitor(image, "stdio", *more), patience=120)
    pathlib.Path(console).write_text(printed)
    check(text in printed and "has printed the text" in messages, f"{printed}: {messages}")


def milliseconds(text):
    number, unit = text.split()
    return float(number) * UNITS[unit]


def phases(uniprof, recording, start, *options):
    """When each phase was seen, and how much earlier it may have begun, in milliseconds."""
    names = (start, "planted", "after_planted", "ordinary_round")
    asked = [word for name in names for word in ("--phase", name)]
    table = uniprof.run("report", "--phases", *asked, *options, recording)[1]
    length = r"([\d.]+ (?:ns|us|ms|s))"
    rows = re.findall(rf"^ *{length} +{length} .*?(\w+)$", table, re.MULTILINE)
    found = {name: (milliseconds(after), milliseconds(earlier)) for after, earlier, name in rows}
    # What comes right behind the phase is short, and a busy machine may not see it.
    check(set(found) >= {start, "planted", "ordinary_round"}, table)
    return {"after_planted": found["ordinary_round"], **found}


def check_boot(uniprof, recording, console, *options, counts_pauses, start="pvh_start"):
    """The first sample was due within two periods of the first instruction, and the planted phase has its length. The
    clock of a guest under KVM also counts the recorder's pauses."""
    samples = uniprof.samples(recording)
    began = (int(re.search(r"^clock monotonic=(\d+)", uniprof.run("dump", recording)[1], re.MULTILINE)[1])
             + uniprof.totals(recording)["boot_begun_late_ns"])
    due = int(samples[0]["time"]) - int(samples[0]["late"]) - began
    check(0 <= due <= 2 * int(samples[0]["period"]), f"the first sample was due after {due} ns")
    info = uniprof.run("info", recording)[1]
    check(re.search("^boot +from its first instruction, ", info, re.MULTILINE), info)
    found = phases(uniprof, recording, start, *options)
    (since, earlier), (end, end_earlier) = found["planted"], found["after_planted"]
    said = re.search(r"planted (\d+) ticks of (\d+) kHz", pathlib.Path(console).read_text(errors="replace"))
    truth = int(said[1]) / int(said[2])
    # A round has one pause, whatever the number of vCPUs.
    rounds = {int(each["time"]): int(each["cost"]) for each in samples}
    paused, at = 0, {}
    for time, cost in sorted(rounds.items()):
        at[time] = (time - began - paused) / 1e6
        paused += cost
    # If the phase began before its first sample, so did its first pause.
    least, most = (sum(cost for time, cost in rounds.items() if start <= at[time] < end) / 1e6
                   for start in (since, since - earlier - 0.01 * since))
    # Each end was seen by the first sample behind it; the last digit of what is printed is rounded.
    low, high = end - since - end_earlier, end - since + earlier
    # Behind a stub the guest runs on for a part of each pause, and its clock with it. Under KVM the clock never stops.
    low, high = low + least * counts_pauses, high + most
    margin = max(0.02 * truth, 0.2) + 0.01 * end
    check(low - margin <= truth <= high + margin,
          f"{since} to {end} ms ({earlier} and {end_earlier} earlier), and the guest counted {truth:.1f} ms")
    return (f"first sample due after {due / 1e3:.0f} us; planted for {truth:.1f} ms, {low:.1f} to {high:.1f} by "
            f"{len(samples)} samples; {found[start][0]:.1f} ms before it began")
