#!/usr/bin/env python3
"""Asks the code whether the callers in a recording's stacks can be: before each return address there must be a call,
and a direct one must lead to the function that was called, or to one from which jumps lead there. What the code is,
objdump says, and where functions begin and end, the image's symbols and call frame information: nothing here is of the
program under test but the stacks. Exit status 1: a caller was invented.

    tests/edges.py RECORDING [IMAGE...]     images where the recorded paths don't lead to them: a guest's
    UNIPROF=FILE                             the program under test

Tests of processes and guests call `judge` with the text of `uniprof export -f perf-script`.
"""

import bisect
import collections
import functools
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

FRAME = re.compile(r"^\t\s*([0-9a-f]+) (.*) \((.*?)\)$")
INSTRUCTION = re.compile(r"^\s*([0-9a-f]+):\t(.*)$")
# The forms of indirect calls that compilers write.
INDIRECT = re.compile(rb"\xff([\xd0-\xd7]|[\x10-\x13\x16\x17]|[\x50-\x53\x55-\x57].|\x14[^\x05]|\x54.."
                      rb"|([\x90-\x93\x95-\x97]|\x15|\x94.|\x14[\x25\xc5\xcd\xd5\xdd\xed\xf5\xfd])....)$", re.S)
X86_64, AARCH64 = 62, 183
# Jumps are followed so far; further ones count as unknown.
MOST_JUMPS = 64
# libgcc writes the registers of whoever catches over its own, before it goes there.
THROWING = re.compile(r"^_Unwind_(RaiseException|Resume|Resume_or_Rethrow|ForcedUnwind)\+")
# Code that nothing called: a signal's return, and where a stack of a goroutine begins.
SIGNAL_RETURN = bytes.fromhex("48c7c00f0000000f05")  # x86-64's rt_sigreturn, where its name was stripped
# SBCL's assembly, which C reaches by way of others; Go's, which leaves the stack that it was called on.
UNCALLED = re.compile(r"^(call_into_lisp_?|runtime\.morestack.*)$")
# Go's handler of a signal has interrupted code go on there, as if it had called it (preempt.go).
PREEMPTED = re.compile(r"^runtime\.asyncPreempt(\.abi0)?$")
RETURNED_TO = re.compile(r"^(__restore_rt|__kernel_rt_sigreturn|runtime\.sigreturn.*|runtime\.goexit.*)$")

Frame = collections.namedtuple("Frame", "address symbol path")
Verdicts = collections.namedtuple("Verdicts", "proven possible unknown wrong")


class Image:
    """The functions of an ELF file and their instructions."""

    def __init__(self, path):
        self.path = str(path)
        # Shared memory is mapped from /dev/zero, which never ends.
        if not pathlib.Path(path).is_file():
            raise ValueError("no regular file")
        data = pathlib.Path(path).read_bytes()
        if data[:6] != b"\x7fELF\x02\x01":
            raise ValueError("no ELF file of 64 bits")
        self.data, self.machine = data, struct.unpack_from("<H", data, 18)[0]
        phoff, shoff = struct.unpack_from("<QQ", data, 32)
        phsize, phcount, shsize, shcount, names = struct.unpack_from("<5H", data, 54)
        headers = (struct.unpack_from("<IIQQQQQQ", data, phoff + index * phsize) for index in range(phcount))
        self.segments = [(offset, address, size) for kind, flags, offset, address, _, size, _, _ in headers
                         if kind == 1 and flags & 1]
        headers = [struct.unpack_from("<IIQQQQIIQQ", data, shoff + index * shsize) for index in range(shcount)]
        start = headers[names][4] if shcount else 0
        self.sections = {data[start + one[0]:data.index(b"\0", start + one[0])].decode(): one for one in headers}
        # Assembly may not tell its functions' sizes.
        self.ranges, self.symbols, self.endless = {}, collections.defaultdict(set), set()
        for one in headers:
            if one[1] in (2, 11):
                self.read_symbols(one, headers[one[6]][4])
        self.read_frames()
        self.starts = sorted({*self.ranges, *self.endless})
        for start, after in zip(self.starts, self.starts[1:]):
            self.ranges.setdefault(start, after)
        self.starts = [start for start in self.starts if start in self.ranges]
        self.plt = [(one[3], one[3] + one[5]) for name, one in self.sections.items()
                    if name.startswith((".plt", ".iplt"))]

    def read_symbols(self, table, strings):
        for at in range(table[4], table[4] + table[5], 24):
            name, info, _, section, value, size = struct.unpack_from("<IBBHQQ", self.data, at)
            is_code = any(at <= value < at + length for _, at, length in self.segments)
            if info & 15 in (0, 2, 10) and section and is_code:
                end = self.data.index(b"\0", strings + name)
                self.symbols[self.data[strings + name:end].decode(errors="replace")].add(value)
                if size:
                    self.ranges[value] = max(self.ranges.get(value, 0), value + size)
                else:
                    self.endless.add(value)

    def read_frames(self):
        """Ranges of .eh_frame_hdr's table in its usual form, whose entries point to a length, a place of the CIE, and
        then to start and length of the code, as four bytes each."""
        header, frames = self.sections.get(".eh_frame_hdr"), self.sections.get(".eh_frame")
        if not header or not frames or self.data[header[4]:header[4] + 4] != b"\x01\x1b\x03\x3b":
            return
        count = struct.unpack_from("<I", self.data, header[4] + 8)[0]
        for index in range(count):
            start, entry = struct.unpack_from("<ii", self.data, header[4] + 12 + 8 * index)
            start, at = start + header[3], entry + header[3] - frames[3] + frames[4]
            length = struct.unpack_from("<I", self.data, at + 12)[0]
            self.ranges.setdefault(start, start + length)

    def address(self, frame):
        """Its address in the image, if this is the image: the recording has an offset in the file, or an address of
        a guest's, which may have been moved."""
        name, _, into = frame.symbol.rpartition("+0x")
        starts = self.symbols.get(name, ())
        for offset, address, size in self.segments:
            if offset <= frame.address < offset + size:
                at = frame.address - offset + address
                function = self.function(at)
                if not name or at - int(into, 16) in (*starts, function and function[0]):
                    return at
        return min(starts) + int(into, 16) if len(starts) == 1 else None

    def code(self, start, end):
        """The bytes at these addresses."""
        for offset, address, size in self.segments:
            if address <= start and end <= address + size:
                return self.data[start - address + offset:end - address + offset]
        return b""

    def call(self, at):
        """The target of a call before `at`, by the usual encodings: a number, "*" or nothing."""
        if self.machine == AARCH64:
            word = int.from_bytes(self.code(at - 4, at), "little")
            if word >> 26 == 0b100101:
                return at - 4 + 4 * ((word & 0x3ffffff) - ((word & 0x2000000) << 1))
            return "*" if word & 0xfeff_f000 == 0xd63f_0000 else None
        before = self.code(at - 7, at)
        if before[2:3] == b"\xe8":
            return at + int.from_bytes(before[3:], "little", signed=True)
        return "*" if INDIRECT.search(before) else None

    def is_signal_return(self, at):
        return self.machine == X86_64 and self.code(at, at + len(SIGNAL_RETURN)) == SIGNAL_RETURN

    def function(self, address):
        """Start and end of the function that has `address`; of nested ones, the innermost."""
        for start in reversed(self.starts[max(0, bisect.bisect(self.starts, address) - 4):
                                          bisect.bisect(self.starts, address)]):
            if address < self.ranges[start]:
                return start, self.ranges[start]
        return None

    @functools.lru_cache(maxsize=None)
    def instructions(self, start, end):
        """Addresses and texts of the instructions."""
        tool = "aarch64-linux-gnu-objdump" if self.machine == AARCH64 else "objdump"
        command = [tool, "-d", f"--start-address={start:#x}", f"--stop-address={end:#x}", self.path]
        with tempfile.NamedTemporaryFile() as code:
            # Of a whole image objdump reads all symbols, each time. Only on AArch64 does it need any: where data is.
            if self.machine == X86_64 and code.write(self.code(start, end)):
                code.flush()
                command = [tool, "-D", "-b", "binary", "-m", "i386:x86-64", f"--adjust-vma={start:#x}", code.name]
            text = subprocess.run([*command, "-w", "--no-show-raw-insn"], capture_output=True, text=True, check=True)
        found = (INSTRUCTION.match(line) for line in text.stdout.splitlines())
        return [(int(one[1], 16), one[2]) for one in found if one]

    @functools.lru_cache(maxsize=None)
    def leads_to(self, start, end):
        """Where jumps lead from this function: starts of others, and whether that is all."""
        targets, known, text = set(), True, "ret"
        for _, text in self.instructions(start, end):
            words = text.split("<")[0].split("#")[0].split("//")[0].split()
            while words and words[0] in ("bnd", "notrack", "rep", "repz", "data16", "addr32"):
                words = words[1:]
            name = words[0] if words else "(bad)"
            if name in ("br", "braa", "brab", "braaz", "brabz") or name.startswith("jmp") and "*" in text:
                known = False
            # A return to what was pushed, as in a thunk.
            elif re.match(r"mov \s*%\w+,\(%rsp\)", text):
                known = False
            elif re.match(r"(j\w+|b|b\.\w+|cbn?z|tbn?z|loop\w*)$", name):
                target = words[-1].rsplit(",", 1)[-1]
                try:
                    target = int(target, 16)
                except ValueError:
                    known = False
                    continue
                if not start <= target < end:
                    targets.add(target)
        if not re.match(r"(ret|jmp|b |br|ud2|hlt|int3|udf|brk|bl |call|eret|sysret|iret|svc|syscall|nop|\(bad\)|notrack jmp"
                        r"|bnd jmp|repz? ret|xchg|cs nop|data16)", text):
            targets.add(end)
        return targets, known


class Code:
    """The images of a recording, by path or by name."""

    def __init__(self, paths=()):
        self.given = {pathlib.Path(path).name: path for path in paths}

    @functools.lru_cache(maxsize=None)
    def image(self, path):
        path = self.given.get(pathlib.Path(path).name, path)
        try:
            return Image(path)
        except (OSError, ValueError, struct.error):
            return None

    @functools.lru_cache(maxsize=None)
    def edge(self, inner, is_exact, caller):
        """What is to be said of `caller` as the caller of `inner`: a verdict and why."""
        image = self.image(caller.path)
        at = image and image.address(caller)
        if at is None:
            return "unknown", "no image of the caller"
        inner_name = inner.symbol.rpartition("+0x")[0]
        there = self.image(inner.path)
        inner_at = there and there.address(inner)
        is_of_signal = RETURNED_TO.match(inner_name) or PREEMPTED.match(inner_name)
        if is_of_signal or inner_at is not None and there.is_signal_return(inner_at):
            return "possible", "a signal came there"
        if UNCALLED.match(inner_name):
            return "unknown", "assembly that is entered in its own way"
        if image.is_signal_return(at):
            return "possible", "code that only a return enters"
        if RETURNED_TO.match(caller.symbol.rpartition("+0x")[0]):
            return "possible", "code that only a return enters"
        function = image.function(at - 1)
        if function is None:
            return "unknown", "no bounds of the caller's function"
        call = image.call(at)
        if call == "*":
            return "possible", "an indirect call"
        verdict = self.reaches(image, call, inner, is_exact) if call is not None else ("wrong", "")
        if verdict[0] != "wrong":
            return verdict
        # Before anything is called wrong, by the instructions.
        before = [text for address, text in image.instructions(*function) if address < at]
        ends = [address for address, _ in image.instructions(*function)] + [function[1]]
        call = before[-1].split("<")[0].split("#")[0].split() if before else [""]
        while call[0] in ("bnd", "notrack", "data16", "addr32", "rex.W", "ds", "cs"):
            call = call[1:]
        if at not in ends or not re.match(r"call|blr?a?[ab]?z?$", call[0]):
            return "wrong", "no call before the return address"
        if call[0].startswith("blr") or "*" in call[-1]:
            return "possible", "an indirect call"
        return self.reaches(image, int(call[-1], 16), inner, is_exact)

    def reaches(self, image, target, inner, is_exact):
        """Whether a call of `target` leads to `inner` by jumps alone."""
        there = self.image(inner.path)
        at = there and there.address(inner)
        if at is None or there.function(at := at if is_exact else at - 1) is None:
            return "unknown", "no bounds of the called function"
        seen, ahead, all_known = set(), [target], True
        while ahead:
            one = ahead.pop()
            if any(start <= one < end for start, end in image.plt):
                all_known = False
                continue
            function = image.function(one)
            if function is None:
                all_known = False
                continue
            # Functions of an assembly file may lie in one another.
            if there is image and (function[0] <= at < function[1] or function == there.function(at)):
                return "proven", "the call leads there"
            if function in seen:
                continue
            seen.add(function)
            # Assembly that doesn't say where its functions end goes on in the next.
            all_known &= function[0] not in image.endless
            targets, known = image.leads_to(*function)
            ahead += targets
            all_known &= known
            if len(seen) > MOST_JUMPS:
                return "unknown", "too many jumps"
        if all_known:
            return "wrong", "the call leads elsewhere"
        return "possible", "a jump whose target only the run knows"


def stacks(text):
    """Stacks of physical frames, innermost first."""
    stack = []
    for line in [*text, ""]:
        line = line.rstrip("\n")
        if found := FRAME.match(line):
            if found[3] != "inlined":
                stack.append(Frame(int(found[1], 16), found[2], found[3]))
        elif stack:
            yield stack
            stack = []


def judge(text, images=(), tell=print, interrupts=()):
    """Counts of all edges in `text` by verdict; tells those that are wrong, the most frequent first. `interrupts` are a
    guest's functions that interrupts enter: what they interrupted has not called them."""
    code, counts = Code(images), collections.Counter()
    wrong, others = collections.Counter(), collections.Counter()
    for stack in stacks(text):
        for index, (inner, caller) in enumerate(zip(stack, stack[1:])):
            kernel = [frame.path.startswith("[kernel") for frame in (inner, caller)]
            if kernel[0]:
                # Into the kernel lead system calls, which don't call; within it, its own rules.
                verdict, why = "unknown", "the kernel"
            elif kernel[1]:
                verdict, why = "wrong", "the kernel calls no user code"
            elif inner.symbol.rpartition("+0x")[0] in interrupts:
                verdict, why = "possible", "an interrupt came there"
            elif any(THROWING.match(frame.symbol) for frame in stack[max(index - 1, 0):index + 1]):
                verdict, why = "possible", "an exception is on its way there"
            else:
                is_exact = index == 0 or stack[index - 1].path.startswith("[kernel")
                try:
                    verdict, why = code.edge(inner, is_exact, caller)
                except (FileNotFoundError, subprocess.CalledProcessError):
                    verdict, why = "unknown", "no disassembler, or it failed"
            counts[verdict] += 1
            if verdict == "wrong":
                wrong[f"{caller.symbol} ({pathlib.Path(caller.path).name}) -> {inner.symbol} "
                      f"({pathlib.Path(inner.path).name}): {why}" + (" (innermost)" if index == 0 else "")] += 1
            else:
                others[f"{verdict}: {why}"] += 1
    for what, count in wrong.most_common(12):
        tell(f"  {count:6} {what}")
    for what, count in others.most_common():
        tell(f"  {count:6} {what}")
    return Verdicts(*(counts[verdict] for verdict in Verdicts._fields))


def main():
    recording, *images = sys.argv[1:]
    uniprof = os.environ.get("UNIPROF", "uniprof")
    given = [word for image in images for word in ("--elf", image)]
    text = subprocess.run([uniprof, "export", "-f", "perf-script", "--no-demangle", recording, *given], stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True, errors="replace", check=False).stdout
    found = judge(text.splitlines(), images)
    print(f"{recording}: {found.proven} callers proven, {found.possible} possible, {found.unknown} unknown, "
          f"{found.wrong} invented")
    return found.wrong > 0


if __name__ == "__main__":
    sys.exit(main())
