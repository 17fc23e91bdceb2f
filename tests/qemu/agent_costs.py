"""What the agent costs its guest, in instructions: under -icount a nanosecond of the guest is one, and so is a tick of
its counter. The guest counts what its timer interrupts take, and the work between them (tests/guests/agent.c).
"""

import os
import socket
import struct
import time
from typing import NamedTuple

from machine import symbol
from unikernel import check

ATTACH, START, STOP, DETACH = 1, 2, 3, 5
HELLO, STATE, SAMPLE = 0x81, 0x83, 0x84


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


class Client:
    """Attaches to an agent (docs/agent-protocol.md)."""

    def __init__(self, line):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(str(line))
        self.socket.settimeout(60)
        self.bytes = b""

    def say(self, kind, payload=b""):
        start = struct.pack("<2sBBI", b"uA", kind, 0, len(payload))
        self.socket.sendall(start + struct.pack("<I", crc32c(start + payload)) + payload)

    def receive(self):
        """The next frame's kind and payload."""
        while len(self.bytes) < 12 or len(self.bytes) < 12 + struct.unpack_from("<I", self.bytes, 4)[0]:
            data = self.socket.recv(65536)
            check(data, "the guest hung up")
            self.bytes += data
        check(self.bytes[:2] == b"uA", f"no frame begins with {self.bytes[:12]}")
        end = 12 + struct.unpack_from("<I", self.bytes, 4)[0]
        kind, payload = self.bytes[2], self.bytes[12:end]
        self.bytes = self.bytes[end:]
        return kind, payload

    def expect(self, wanted):
        """The payload of the next frame of a kind, and how many samples came before it."""
        samples = 0
        while True:
            kind, payload = self.receive()
            if kind == wanted:
                return payload, samples
            check(kind == SAMPLE, f"the agent sent {kind:#x} instead of {wanted:#x}")
            samples += 1

    def ask(self, kind, payload, answer):
        self.say(kind, payload)
        return self.expect(answer)


class Span(NamedTuple):
    """Some of vCPU 0's timer interrupts: their number, the work done between them, and the instructions of all."""
    interrupts: int
    work: int
    sampling: int
    serving: int


def counts(guest):
    place = symbol(guest.image, "agent_interrupts")
    with open(guest.memory, "rb") as memory:
        while True:
            *found, begun = struct.unpack("<5Q", os.pread(memory.fileno(), 40, place))
            if found[0] == begun:
                return Span(*found)


def span(guest, interrupts):
    """The next `interrupts` and perhaps a few more."""
    began, end = counts(guest), time.monotonic() + 240
    while (now := counts(guest)).interrupts < began.interrupts + interrupts:
        check(time.monotonic() < end, "the guest stands still")
        time.sleep(0.02)
    return Span(*(new - old for old, new in zip(began, now)))


def of_idle_agent(guest, line):
    """An agent that takes no samples costs the same, to the instruction, whoever is attached; says what."""
    spans = {"before anyone attached": span(guest, 200)}
    client = Client(line)
    client.ask(ATTACH, struct.pack("<HHIQ", 1, 0, 0, 42), HELLO)
    spans["attached, not started"] = span(guest, 200)
    client.ask(START, struct.pack("<QII", 1_000_000_000 // 99, 30, 0), STATE)
    sampling = span(guest, 300)
    _, samples = client.ask(STOP, b"", STATE)
    spans["attached, stopped"] = span(guest, 200)
    client.say(DETACH)
    span(guest, 10)
    spans["detached"] = span(guest, 200)
    costs = {name: (each.sampling / each.interrupts, each.serving / each.interrupts) for name, each in spans.items()}
    check(len(set(costs.values())) == 1, f"instructions of an interrupt, sampling and serving: {costs}")
    rates = [each.work / each.interrupts for each in spans.values()]
    # What is printed, and where in its work an interrupt finds the guest, differs from span to span.
    check(max(rates) / min(rates) < 1 + 1e-5, f"work between interrupts: {dict(zip(spans, rates))}")
    check(samples > 40, f"only {samples} samples while sampling")
    idle, busy = sum(rates) / len(rates), sampling.work / sampling.interrupts
    check(busy / idle > 0.999, f"sampling at 99 Hz takes {1 - busy / idle:.2%} of the guest's work")
    sample, serve = next(iter(costs.values()))
    return (f"an interrupt without a sample: {sample:.0f} instructions for the agent and {serve:.0f} for its session, "
            f"before anyone attached, attached, stopped and detached, with the guest's work the same to "
            f"{(max(rates) / min(rates) - 1) * 1e6:.0f} in a million; sampling at 99 Hz takes {1 - busy / idle:.3%} of it")
