"""Scenarios of `record --calls`: calls followed by breakpoints, against the guest's own count of its work."""

import os
import pathlib
import random
import re
import struct
import subprocess
import tempfile
import time

import machine
from machine import OUT, Machine
from unikernel import check

SCENARIOS = []
NAMES = "ordinary_round,alpha,beta,beta_inner,gamma"
# Iterations of a unit and of a round, and the units after which alpha, beta and gamma of a vCPU n % 4 end: work.c.
UNIT, ROUND = 8000, 800_000
ENDS = [(50, 80, 100), (70, 90, 100), (20, 40, 100), (10, 90, 100)]


def scenario(function):
    SCENARIOS.append(function)
    return function


def spans(uniprof, recording):
    """The calls of a recording: (vCPU, depth, name, start, length or None), in the order of their ends."""
    form = re.compile(r'span task=0/(\d+) depth=(\d+) .* complete=(yes|no) start=(\d+) length=(\d+|-) .*name="(.*)"')
    found = (form.match(line) for line in uniprof.run("dump", recording)[1].splitlines())
    return [(int(vcpu), int(depth), name, int(start), int(length) if complete == "yes" else None)
            for vcpu, depth, complete, start, length, name in (match.groups() for match in found if match)]


def until(what, patience=60):
    end = time.monotonic() + patience
    while not what():
        check(time.monotonic() < end, "it did not come in time")
        time.sleep(0.05)


def let_begin(guest):
    """The guest was told to wait (`hold`) until someone writes 0 into its memory."""
    with open(guest.memory, "r+b") as memory:
        memory.seek(guest.physical("hold"))
        memory.write(struct.pack("<Q", 0))


def traced_from_the_first_round(uniprof, image, vcpus, recording, target, slow, seconds):
    """Follows all calls from the first round on, and stops the guest in the middle of some round."""
    with Machine(image, vcpus, f"hold slow={slow}", waits=True) as guest:
        recording.unlink(missing_ok=True)
        where = guest.stub if target == "gdb:" else guest.monitor
        recorder = uniprof.start("record", "--calls", NAMES, "--most-stops", 100_000, "--elf", guest.image,
                                 "-o", recording, f"{target}{where}")
        # The recording is there just before the breakpoints are.
        until(lambda: recorder.poll() is not None or recording.exists())
        time.sleep(1)
        check(not guest.progress(), "the guest did not wait")
        let_begin(guest)
        time.sleep(seconds)
        while recorder.poll() is None:
            # While it stands at a breakpoint `stop` does nothing.
            guest.qmp("stop")
            time.sleep(0.1)
        _, messages = recorder.communicate(timeout=60)
        check("someone else stopped the guest" in messages, messages)
        done = [guest.progress(vcpu) // slow for vcpu in range(vcpus)]
        guest.qmp("cont")
        check(guest.runs(), "the guest stands still afterwards")
    return done, messages


def judge(calls, done):
    """Whether calls are just those that the guest made by its own count of iterations, each vCPU for itself."""
    for vcpu, iterations in enumerate(done):
        own = [call for call in calls if call[0] == vcpu]
        ended = {name: sum(call[2] == name and call[4] is not None for call in own) for name in NAMES.split(",")}
        ends = dict(zip(("alpha", "beta", "gamma"), ENDS[vcpu % 4]))
        ends |= {"beta_inner": ends["beta"], "ordinary_round": ends["gamma"]}
        for name, units in ends.items():
            first, count = units * UNIT, ended[name]
            check((count - 1) * ROUND + first <= iterations <= count * ROUND + first,
                  f"vCPU {vcpu}: {count} calls of {name} for {iterations} iterations")
        for _, depth, name, start, length in own:
            level = {"ordinary_round": 0, "beta_inner": 2}.get(name, 1)
            check(depth == level, f"vCPU {vcpu}: {name} at depth {depth}")
            around = [call for call in own if call[1] == depth - 1 and call[3] <= start
                      and (call[4] is None or length is not None and start + length <= call[3] + call[4])]
            check(depth == 0 or around, f"vCPU {vcpu}: {name} at {start} is in no call")
    return sum(call[4] is not None for call in calls)


def counted(uniprof, image, vcpus, target, slow, seconds):
    recording = OUT / f"calls-{image.removesuffix('.elf')}-{vcpus}.uprof"
    done, messages = traced_from_the_first_round(uniprof, image, vcpus, recording, target, slow, seconds)
    calls = judge(spans(uniprof, recording), done)
    check(calls > 40 * vcpus, f"only {calls} calls")
    check("Lost" not in messages, messages)
    said = "".join(uniprof.run("report", "--calls", recording)[1:])
    check("shares may be wrong: " + ("many" if target == "qemu:" else "if the guest is emulated") in said, said)
    cost = re.search(r"stood still for (.*) in all, (.*) of the time, (.*) a stop", messages)
    return f"all {calls} calls of {sum(done) // ROUND} rounds; {cost[3]} a stop, {cost[2]} of the time"


@scenario
def calls_equal_the_guests_count_one_vcpu(uniprof):
    return counted(uniprof, "guest-pages.elf", 1, "qemu:", 10, 4)


@scenario
def calls_equal_the_guests_count_four_vcpus(uniprof):
    return counted(uniprof, "guest-pages.elf", 4, "gdb:", 10, 6)


@scenario
def calls_equal_the_guests_count_aarch64(uniprof):
    return counted(uniprof, "guest-aarch64-pages.elf", 1, "qemu:", 10, 5)


PROCESS = """
import os, sys, threading, time
def work():
    for _ in range(40):
        os.getppid(); time.sleep(0.01)
sys.stdin.readline()
threads = [threading.Thread(target=work) for _ in range(3)]
[each.start() for each in threads]
[each.join() for each in threads]
print("done", flush=True)
sys.stdin.readline()
"""


@scenario
def calls_of_a_process_under_gdbserver(uniprof):
    """Debian's Python and C library, by the library's own symbols, in three threads."""
    recording = OUT / "calls-gdbserver.uprof"
    recording.unlink(missing_ok=True)
    # gdbserver interrupts the group of a process.
    with subprocess.Popen(["/usr/bin/python3", "-c", PROCESS], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True, start_new_session=True) as process, \
            tempfile.TemporaryFile("w+") as told:
        until(lambda: "libc.so" in pathlib.Path(f"/proc/{process.pid}/maps").read_text())
        maps = pathlib.Path(f"/proc/{process.pid}/maps").read_text().splitlines()
        first = next(line for line in maps if "libc.so" in line)
        library = f"{first.split()[-1]}@0x{first.split('-')[0]}"
        stub = subprocess.Popen(["gdbserver", "--attach", "localhost:0", str(process.pid)], stderr=told)
        try:
            port = re.compile(r"Listening on port (\d+)")
            until(lambda: told.seek(0) or port.search(told.read()))
            told.seek(0)
            where = f"gdb:localhost:{port.search(told.read())[1]}"
            recorder = uniprof.start("record", "--calls", "getppid,clock_nanosleep", "--elf", library,
                                     "-o", recording, where)
            until(lambda: recorder.poll() is not None or recording.exists())
            time.sleep(1)
            process.stdin.write("\n")
            process.stdin.flush()
            check(process.stdout.readline() == "done\n", "the process ended without its work")
            recorder.terminate()
            _, messages = recorder.communicate(timeout=60)
            check(recorder.returncode == 0, messages)
            process.stdin.write("\n")
            process.stdin.flush()
            check(process.wait(10) == 0, "the process does not go on")
        finally:
            process.kill()
            stub.kill()
            stub.wait()
    calls = spans(uniprof, recording)
    for name in ("getppid", "clock_nanosleep"):
        own = [call for call in calls if call[2] == name and call[4] is not None]
        check(len(own) == 3 * 40, f"{len(own)} calls of {name}")
        each = [sum(call[0] == thread for call in own) for thread in {call[0] for call in own}]
        check(each == [40, 40, 40], f"{each} calls of {name} in the threads")
    return "3 times 40 calls of two functions, as they were made; the process ended in good order"


@scenario
def calls_of_a_linux_kernel(uniprof):
    """Debian's kernel, by its own symbols. Two processes take turns: each writes into a pipe and reads it, then it
    tells the other by a socket that it is its turn, and waits in `ksys_read` for that."""
    recording = OUT / "calls-linux.uprof"
    with machine.Linux(machine.linux_kernel()) as guest:
        time.sleep(1)
        status, _, messages = uniprof.run("record", "--calls", "ksys_read,ksys_write,sock_write_iter",
                                          "--most-stops", 5000, "-d", "8s", "-o", recording, f"qemu:{guest.monitor}")
        check(guest.runs() and status == 0, messages)
    calls = spans(uniprof, recording)
    ended = [[call for call in calls if call[2] == name and call[4] is not None]
             for name in ("ksys_read", "ksys_write", "sock_write_iter")]
    reads, writes, inner = map(len, ended)
    check(inner > 25 and abs(writes - 2 * inner) <= 2, f"{writes} calls of ksys_write, {inner} of sock_write_iter")
    check(abs(reads - writes) <= 2, f"{reads} calls of ksys_read, {writes} of ksys_write")
    check(all(call[1] >= 1 for call in ended[2][1:]), "a call of sock_write_iter is in no ksys_write")
    check(len({call[0] for call in ended[0]}) == 2, "the stacks of two processes are not told apart")
    return f"two processes took turns: {reads} reads, {writes} writes, {inner} of them to a socket; each in its stack"


@scenario
def calls_of_images_that_were_moved(uniprof):
    """The loader puts kernel and application elsewhere at each boot; functions are found there by their code."""
    recording = OUT / "calls-moved.uprof"
    kernel, app = machine.GUESTS / "moved-kernel.elf", machine.GUESTS / "moved-app.elf"
    with machine.moved() as guest:
        _, _, messages = uniprof.run("record", "--calls", "app_ask,kernel_serve,kernel_checksum", "--most-stops", 5000,
                                     "-d", "3s", "--elf", kernel, "--elf", app, "-o", recording, f"gdb:{guest.stub}")
        check(guest.runs(), "the guest stands still afterwards")
    calls = spans(uniprof, recording)
    ended = [sum(call[2] == name and call[4] is not None for call in calls)
             for name in ("app_ask", "kernel_serve", "kernel_checksum")]
    check(min(ended) > 3 and max(ended) - min(ended) <= 1, f"{ended} calls: {messages}")
    depths = {(call[1], call[2]) for call in calls[3:] if call[4] is not None}
    check(depths == {(0, "app_ask"), (1, "kernel_serve"), (2, "kernel_checksum")}, f"{depths}")
    return f"{ended[0]} calls of the application into the kernel and in it, found where the loader put them"


@scenario
def a_function_that_is_too_hot_for_breakpoints(uniprof):
    """Of two functions one is called once a round, the other 30 times, in itself; stops are allowed for two calls."""
    recording = OUT / "calls-hot.uprof"
    with Machine("guest-pages.elf", 1, "deep=30 slow=4") as guest:
        before = guest.progress()
        time.sleep(1)
        most = 4 * (guest.progress() - before) // (4 * ROUND)
        status, _, messages = uniprof.run("record", "--calls", "one_round,descend", "--most-stops", most, "-d", "4s",
                                          "--elf", guest.image, "-o", recording, f"qemu:{guest.monitor}")
        check(guest.runs(), "the guest stands still afterwards")
    told = re.search(r"descend is called too often for breakpoints \((\d+) a second", messages)
    check(told and "one_round is called" not in messages and status == 1, messages)
    calls = spans(uniprof, recording)
    given_up, followed = (max(call[3] for call in calls if call[2] == name) for name in ("descend", "one_round"))
    check(followed > given_up + 1_500_000_000, "the other function was not followed to the end")
    depths = {call[1] for call in calls if call[2] == "descend"}
    check(depths >= set(range(1, 31)), f"descend was seen at the depths {depths}")
    totals = uniprof.totals(recording)
    check(totals["stops"] <= 5 * (most + 1) and totals["functions_given_up"] == 1, f"{totals}, of {most} a second")
    said = "".join(uniprof.run("report", "--calls", recording)[1:])
    check("1 calls that breakpoints could not follow" in said, said)
    return f"descend, {told[1]} times a second, was given up; {totals['stops']} stops in 4 s, of {most} a second"


@scenario
def recorder_of_calls_killed_20_times(uniprof):
    """Whatever the recorder was doing: the guest runs on, at its speed, and no breakpoint is left."""
    dice = random.Random(18)
    recording = OUT / "calls-killed.uprof"
    with Machine("guest-pages.elf", 2, "slow=2") as guest:
        for turn in range(20):
            target = f"gdb:{guest.stub}" if turn % 2 else f"qemu:{guest.monitor}"
            recorder = uniprof.start("record", "--calls", NAMES, "--most-stops", 100_000, "--elf", guest.image,
                                     "-o", recording, target)
            time.sleep(dice.uniform(0.05, 0.8))
            recorder.kill() if turn < 15 else recorder.terminate()
            _, messages = recorder.communicate(timeout=60)
            check(recorder.returncode in (0, 1, -9, -15), messages)
            check(guest.runs(), f"the guest stands still after kill {turn + 1} ({target})")
            # A breakpoint that is left would stop the guest with the next round.
            before = guest.progress(1)
            until(lambda: guest.progress(1) > before + 3 * 2 * ROUND)
            time.sleep(0.1)
        _, _, messages = uniprof.run("record", "--calls", NAMES, "-d", "1s", "--elf", guest.image,
                                     "-o", recording, f"gdb:{guest.stub}")
        check("Recorded" in messages, f"no recording afterwards: {messages}")
    return "15 kills and 5 requests to end, the guest ran after each, a recording afterwards took"


@scenario
def recorder_of_calls_stopped(uniprof):
    """SIGSTOP while the guest comes to breakpoints: the guardian ends the trace within a second. Whatever the recorder
    was in the middle of, it does no more when it goes on, as soon as the guardian is at it or later."""
    dice, ended = random.Random(19), 0
    with Machine("guest-pages.elf", 1, "deep=30 slow=4") as guest:
        for turn in range(8):
            recorder = uniprof.start("record", "--calls", "descend", "--most-stops", 100_000, "-d", "20s", "--elf",
                                     guest.image, "-o", OUT / "calls-stopped.uprof", f"gdb:{guest.stub}")
            time.sleep(dice.uniform(0.6, 1.2))
            recorder.send_signal(19)
            time.sleep(1 if turn % 2 else dice.uniform(0.5, 0.9))
            check(turn % 2 == 0 or guest.runs(), "the guest stands still while the recorder is stopped")
            recorder.send_signal(18)
            time.sleep(0.5)
            recorder.send_signal(2)
            _, messages = recorder.communicate(timeout=60)
            ends = recorder.returncode == 2 and "stood still for more than half a second" in messages
            ended += ends
            check(ends or turn % 2 == 0, f"{recorder.returncode}: {messages}")
            check(guest.runs(), f"the guest stands still afterwards: {messages}")
    return f"8 times: let run by the guardian, and {ended} of the recorders said so"


@scenario
def calls_that_can_not_be_followed(uniprof):
    with Machine("guest-pages.elf") as guest:
        def refused(words, *arguments):
            _, _, messages = uniprof.run("record", "-d", "1s", "-o", OUT / "calls-no.uprof", *arguments, expect=(2,))
            check(words in messages, f"{arguments}: {messages}")
            check(guest.runs(), f"{arguments}: the guest stands still")

        where = f"gdb:{guest.stub}"
        refused("no function nobody", "--calls", "alpha,nobody", "--elf", guest.image, where)
        refused("needs the guest's image", "--calls", "alpha", where)
        refused("the guest does not have alpha", "--calls", "alpha", "--elf", guest.image.with_name("guest.elf"), where)
        refused("--calls needs breakpoints", "--calls", "alpha", f"pid:{os.getpid()}")
        refused("cannot be used with", "--calls", "alpha", "--stack", "--elf", guest.image, where)
    return "each refused with its reason, the guest ran on"
