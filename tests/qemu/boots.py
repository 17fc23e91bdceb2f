"""Guests that are elsewhere at each boot, Linux among them, guests that are reset while they are recorded, and one in
32-bit mode."""

import os
import re
import time

import machine
from machine import GUESTS, OUT, Machine
import booted  # its folder is known by machine, as are the next
import judge
import printed
from unikernel import check

RESETS = ("-action", "reboot=reset")  # as without -no-reboot


def console_places(guest):
    """Where the loader of the moved guest put kernel and application, a pair a boot."""
    numbers = [int(number, 16) for number in re.findall(r" at 0x([0-9a-f]+)\s", guest.said())]
    return list(zip(numbers[::2], numbers[1::2]))


def until_boots(guest, count):
    end = time.monotonic() + 120
    while len(console_places(guest)) < count:
        check(time.monotonic() < end, f"no boot {count}: {guest.said()}")
        time.sleep(0.1)


def until_sampled(uniprof, recording, task, count=100):
    """Until so many samples of a boot's own work are written."""
    end = time.monotonic() + 120
    while True:
        there = recording.exists() and recording.stat().st_size > 0
        rows = [row for row in uniprof.samples(recording) if row["task"].startswith(task)] if there else []
        deep = [row for row in rows if row["state"] == "running" and row["chain"].count(",") > 2]
        if len(deep) >= count:
            return
        check(time.monotonic() < end, f"{len(deep)} samples of boot {task}")
        time.sleep(0.5)


def image_reset_while_recorded(uniprof):
    """Kernel and application have a place in each boot, and each part of the recording has names."""
    kernel, app = GUESTS / "moved-kernel.elf", GUESTS / "moved-app.elf"
    results = []
    for target in "qemu", "gdb":
        recording = OUT / f"reset-{target}.uprof"
        recording.unlink(missing_ok=True)
        with machine.moved(RESETS) as guest:
            where = f"{target}:{guest.stub if target == 'gdb' else guest.monitor}"
            recorder = uniprof.start("record", "-F", 99, "-d", "60s", "-o", recording, where)
            until_sampled(uniprof, recording, "0/")
            guest.qmp("system_reset")
            until_boots(guest, 2)
            until_sampled(uniprof, recording, "1/")
            recorder.send_signal(2)
            _, messages = recorder.communicate(timeout=60)
            check("The guest was reset once" in messages, messages)
            check(guest.runs(), "the guest stands still afterwards")
            places = console_places(guest)
        check(len(places) == 2 and places[0] != places[1], places)
        rows = uniprof.samples(recording)
        began = next(int(row["time"]) for row in rows if row["task"].startswith("1/"))
        _, info, _ = uniprof.run("info", recording)
        check(re.search(r"lives +2: boot 1 until .*, boot 2 from ", info), info)
        def named(*options):
            _, folded, messages = uniprof.run("export", "-f", "folded", *options, recording)
            stacks = printed.stacks(folded)
            total = sum(count for _, count in stacks)
            good = sum(count for stack, count in stacks if stack[-1] in ("app_burn", "kernel_burn"))
            return good, total, messages

        given = ("--elf", kernel, "--elf", app)
        good, total, messages = named(*given)
        # The rest is the firmware's and the loader's.
        check(good >= 200 and good > 0.3 * total, f"{good} of {total} have names: {messages}")
        for pair in places:
            for image, address in zip((kernel, app), pair):
                check(f"{image} is at {address:#x}:" in messages, f"{address:#x}: {messages}")
        check("may be at" not in messages and "was reset while" in uniprof.run("report", "--top", *given, recording)[1],
              messages)
        at_hand = [word for pair in places for image, at in zip((kernel, app), pair)
                   for word in ("--elf", f"{image}@{at:#x}")]
        by_hand = named(*at_hand)
        check(by_hand[:2] == (good, total), f"{by_hand} where addresses are given, not {good} of {total}")
        start = int(rows[0]["time"])
        later = named("--from", f"{(began - start) / 1e9 + 1:.1f}s", *given)
        check(0 < later[0] < good and "may be at" not in later[2], f"{later} of the second boot, of {good}")
        results.append(f"{target}: {good} of {total} samples named in 2 boots, {later[0]} of the second")
    return "; ".join(results)


class Narrow(Machine):
    """A guest that spins in 32-bit mode, and counts nothing."""

    def __init__(self):
        super().__init__("guest32.elf", kernel=GUESTS / "guest32.elf")

    def progress(self, vcpu=0):
        return int(self.monitor.exists() and self.qmp("query-status")["return"]["running"])


def mode_of_32_bit_code(uniprof):
    """A guest in 32-bit mode: no callers are made up, and doctor says what it is."""
    recording = OUT / "narrow.uprof"
    with Narrow() as guest:
        for where in f"qemu:{guest.monitor}", f"gdb:{guest.stub}":
            status, said, _ = uniprof.run("doctor", where, expect=(2,))
            check("the guest runs 32-bit code" in said and "frame pointers" not in said, said)
            check("Try:" not in said, said)
            _, _, messages = uniprof.run("record", "-F", 99, "-d", "2s", "-o", recording, where)
            rows = uniprof.samples(recording)
            check("not in 64-bit mode" in messages and len(rows) > 50, f"{len(rows)}: {messages}")
            deep = [stack for stack, _ in uniprof.folded(recording) if len(stack) > 2]
            check(not deep, f"callers in 32-bit code: {deep[:3]}")
    return f"{len(rows)} samples, of an instruction pointer each; doctor says why"


def linux_reset_while_recorded(uniprof):
    """The second boot of a Linux guest has names of its kernel and processes, as the first."""
    recording, told = OUT / "reset-linux.uprof", []
    run = lambda *words: uniprof.run(*words)[1]
    with machine.Linux(machine.linux_kernel(), more=RESETS) as guest:
        recorder = uniprof.start("record", "-F", 99, "-o", recording, f"qemu:{guest.monitor}")
        time.sleep(10)
        guest.qmp("system_reset")
        end = time.monotonic() + 240
        while guest.said().splitlines().count("ready") < 2:
            check(time.monotonic() < end, guest.said())
            time.sleep(0.2)
        time.sleep(12)
        recorder.send_signal(2)
        _, messages = recorder.communicate(timeout=60)
    check("The guest was reset once" in messages, messages)
    began, ended = ((int(row["time"]) for row in uniprof.samples(recording) if row["task"] == "1/0"),
                    int(uniprof.samples(recording)[-1]["time"]))
    start = int(uniprof.samples(recording)[0]["time"])
    began = (next(began) - start) / 1e9
    for boot, when in enumerate((("--to", f"{began:.3f}s"), ("--from", f"{(ended - start) / 1e9 - 8:.3f}s"))):
        stacks = judge.folded(run, recording, *when)
        total = sum(count for _, count in stacks)
        known = sum(count for stack, count in stacks if stack[0].startswith(("one", "two")))
        kernel = [(stack, count) for stack, count in stacks if any(frame.endswith("_[k]") for frame in stack)]
        named = sum(count for stack, count in kernel
                    if not any(re.match("(\\[kernel\\]|0x)", frame) for frame in stack if frame.endswith("_[k]")))
        in_kernel = sum(count for _, count in kernel)
        figures = (f"boot {boot + 1}: {known} of {total} in known processes, {named} of {in_kernel} in the kernel have "
                   f"names")
        check(known >= 0.8 * total and named >= 0.9 * in_kernel > 0, f"{figures}: {stacks[:5]} {messages}")
        told.append(figures)
    return "; ".join(told)


def boot_from_the_first_instruction(uniprof):
    """QEMU is started by the recorder, and ended with the recording; every other one when the guest has printed
    something. BOOTS=50 for more boots."""
    recording, console, count = OUT / "boot.uprof", OUT / "boot.console", int(os.environ.get("BOOTS", "2"))
    for number in range(count):
        if number % 2:
            booted.record_until_printed(uniprof, GUESTS / "guest.elf", recording, console, "alive 128")
        else:
            booted.record(uniprof, GUESTS / "guest.elf", recording, console)
        verdict = booted.check_boot(uniprof, recording, console, counts_pauses=False)
    return f"{count} boots; the last one: {verdict}"


def linux_from_the_first_instruction(uniprof):
    """Debian's kernel and its first program have names, without an image and without shared memory, and the kernel's own
    account of its initcalls agrees with the samples."""
    recording, console = OUT / "boot-linux.uprof", OUT / "boot-linux.console"
    kernel = machine.linux_kernel()
    command = ["qemu-system-x86_64", "-M", "q35", "-m", "256", "-display", "none", "-nic", "none", "-no-reboot", "-kernel",
               kernel, "-initrd", GUESTS / "linux.cpio", "-serial", "stdio", "-append",
               "console=ttyS0 initcall_debug ignore_loglevel printk.time=1"]
    _, printed_text, messages = uniprof.run("record", "--boot", "--until-output", "ready", "-d", "240s",
                                            "--boot-start", "240s", "--boot-frequency", 997, "-o", recording, "--", *command, patience=300)
    console.write_text(printed_text)
    check("has printed the text" in messages, messages)
    right, told = judge.boot(lambda *words: uniprof.run(*words)[1], recording, printed_text)
    check(right, told)
    asked = [word for name in ("start_kernel", "decompressor") for word in ("--phase", name)]
    phases = uniprof.run("report", "--phases", *asked, recording)[1]
    seen = re.findall(r"\w+$", phases.split("first seen")[1], re.MULTILINE)
    check(seen[:2] == ["decompressor", "start_kernel"] and "not seen" not in phases.split("times are")[0], phases)
    return told


def boots_that_are_followed(uniprof):
    """Each boot of a guest that is reset has a table of its own, with the same phase in it."""
    recording, console, monitor = OUT / "boots.uprof", OUT / "boots.console", OUT / "boots.qmp"
    image, told = GUESTS / "guest.elf", []
    for left in recording, console, monitor:
        left.unlink(missing_ok=True)
    options = (*RESETS, "-qmp", f"unix:{monitor},server=on,wait=off")
    recorder = uniprof.start("record", "--boot", "--follow", "-d", "240s", "--elf", image, "-o", recording, "--",
                             *booted.monitor(image, console, *options))
    end = time.monotonic() + 200
    for boot in 1, 2:
        while True:
            *before, last = (console.read_text(errors="replace") if console.exists() else "").split(" ticks of ")
            if len(before) == boot and "alive" in last:
                break
            check(time.monotonic() < end and recorder.poll() is None, f"no boot {boot}")
            time.sleep(0.1)
        if boot == 1:
            machine.qmp(monitor, "system_reset")
    recorder.send_signal(2)
    messages = recorder.communicate(timeout=60)[1]
    check(recorder.returncode in (0, 1) and "The guest was reset once" in messages, messages)
    asked = [word for name in ("planted", "ordinary_round") for word in ("--phase", name)]
    table = uniprof.run("report", "--phases", *asked, recording)[1]
    boots = re.split(r"^boot \d+:$", table, flags=re.MULTILINE)[1:]
    check(len(boots) == 2, table)
    length = r"([\d.]+ (?:ns|us|ms|s))"
    for boot in boots:
        rows = dict((name, (booted.milliseconds(after), booted.milliseconds(earlier))) for after, earlier, name
                    in re.findall(rf"^ *{length} +{length} .*?(\w+)$", boot, re.MULTILINE))
        check(set(rows) == {"planted", "ordinary_round"}, boot)
        (since, earlier), (until, until_earlier) = rows["planted"], rows["ordinary_round"]
        told.append(f"{until - since:.0f} ms")
        # Behind a stub times are too short by a part of each pause, but never too long.
        check(0.3 * booted.PLANTED_MS < until - since + earlier and
              until - since - until_earlier < 1.1 * booted.PLANTED_MS, boot)
    return f"2 boots, planted for {booted.PLANTED_MS} ms in each: {', '.join(told)} by their samples"


def linux_judged(uniprof, recording, judge_of, *more):
    is_right, figures = judge_of(lambda *words: uniprof.run(*words)[1], recording, *more)
    check(is_right, figures)
    return figures


def linux_without_help(uniprof):
    """Debian's kernel as it is, which keeps its page tables from processes or not: its names and stacks from its own
    memory or, where that is too slow to read, from its compressed file; and two programs at the same addresses."""
    images = {name: GUESTS / f"linux-{name}" for name in judge.PROGRAMS}
    results, kernel = [], machine.linux_kernel()
    for target, append in (("qemu:", "pti=on"), ("gdb:", "pti=off")):
        with machine.Linux(kernel, append, tells=True) as guest:
            time.sleep(1)
            recording = OUT / f"linux-{append}.uprof"
            where, more = (guest.stub, ("--stack=16K",)) if target == "gdb:" else (guest.monitor, ())
            _, _, messages = uniprof.run("record", "-F", 299, "-d", "12s", "--freeze-budget", "1s", *more,
                                         "-o", recording, f"{target}{where}")
            check(guest.runs(), "the guest stands still afterwards")
            table = guest.said()
        told = re.search(r"The guest's kernel told of .*", messages)
        results.append(f"{append}: {linux_judged(uniprof, recording, judge.programs, images, target == 'qemu:')}")
        if target == "qemu:":
            # With pti=on it may be found once a sample is in it.
            found = told[0] if told else "it was found by a sample"
            results += [linux_judged(uniprof, recording, judge.kernel, table), found]
        else:
            results.append(linux_judged(uniprof, recording, judge.kernel_by_image, table, guest.kernel))
    return "; ".join(results)


def moved_shares(uniprof, recording, *images):
    """Shares of the two leaves, and whether all stacks lead there through both images' functions."""
    stacks = uniprof.folded(recording, *(word for image in images for word in ("--elf", image)))
    ways = [("app_compute", "app_burn"),
            ("app_ask", "kernel_serve", "kernel_checksum", "kernel_burn")]
    total = sum(count for _, count in stacks)
    counts = [sum(count for stack, count in stacks if stack[-len(way) - 1:] == ("entry", *way))
              for way in ways]
    check(total > 100 and sum(counts) >= 0.98 * total, f"{counts} of {total} are whole: {stacks}")
    return [100 * count / total for count in counts]


def images_moved_at_each_boot(uniprof):
    """Kernel and application are found where the guest's console says that they are: by the recorder,
    and by a report of a recording that was made without them."""
    kernel, app = GUESTS / "moved-kernel.elf", GUESTS / "moved-app.elf"
    told, recording = [], OUT / "moved.uprof"
    for target in ("qemu:", "gdb:", "qemu:"):
        with machine.moved() as guest:
            where = f"{target}{guest.stub if target == 'gdb:' else guest.monitor}"
            given = ("--elf", kernel, "--elf", app)
            _, _, messages = uniprof.run("record", "-F", 99, "-d", "5s", *given, "-o", recording, where)
            truth = [int(line.split()[-1], 16) for line in guest.console.read_text().splitlines()]
            for image, address in zip((kernel, app), truth):
                check(f"{image} is at {address:#x}:" in messages, f"{address:#x}: {messages}")
                _, said, _ = uniprof.run("doctor", "--elf", image, where, expect=(0, 1))
                check(f"what the guest runs, moved to {address:#x}" in said, f"{address:#x}: {said}")
            shares = moved_shares(uniprof, recording)
            uniprof.run("record", "-F", 99, "-d", "3s", "-o", recording, where)
            check(guest.runs(), "the guest stands still afterwards")
        told.append(truth)
        later = moved_shares(uniprof, recording, kernel, app)
        for found in (shares, later):
            check(abs(found[0] - 60) < 10, f"app_burn has {found[0]:.1f} %, the truth is 60 %")
        # The other build's names would be wrong ones, and so would be those of another place.
        for wrong, why in ((GUESTS / "guest.elf", "is not used"),
                           (GUESTS / "guest-aarch64.elf", "the guest is x86_64"),
                           (f"{kernel}@{truth[0] + 4096:#x}", "none of the guest's code"),
                           (f"{kernel}@{truth[1]:#x}", "is not used")):
            _, names, messages = uniprof.run("export", "-f", "folded", "--elf", wrong, recording)
            check(why in messages, f"{wrong}: {messages}")
            check("burn" not in names, f"{wrong}: {names}")
        by_hand = moved_shares(uniprof, recording, f"{kernel}@{truth[0]:#x}", f"{app}@{truth[1]:#x}")
        check(by_hand == later, f"{by_hand} where addresses are given, {later} where they are found")
    # By chance, two boots may have one place.
    check(len({place for place, _ in told}) > 1, f"the guest was not moved: {told}")
    return f"3 boots, each found twice, at {', '.join(f'{place:#x}' for place, _ in told)}"


SCENARIOS = [linux_without_help, images_moved_at_each_boot, boot_from_the_first_instruction,
             linux_from_the_first_instruction, boots_that_are_followed, image_reset_while_recorded,
             linux_reset_while_recorded, mode_of_32_bit_code]
