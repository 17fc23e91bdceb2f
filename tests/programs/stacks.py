"""Stacks as `perf script` and `uniprof export -f perf-script` print them, read by one reader, so that
whatever is asked of them is asked of both recorders alike.

A function is known by its image and the last twelve bits of its first address: those are the same whatever
name either program chose for it, and wherever the image was loaded.
"""

import bisect
import collections
import pathlib
import re
import subprocess

PAGE = 0xfff
# Functions that nothing called, by name: where a process, a thread or a language's own stack begins.
ROOTS = re.compile(
    r"^(_start|_dl_start(_user)?|__libc_start_main(@.*)?|__libc_start_call_main|(__)?clone3?"
    r"|start_thread|thread_start|_rt0_amd64_linux"
    r"|runtime\.(goexit|clone|rt0_go|mstart|mcall|systemstack|morestack)(\.abi0)?)$")
FRAME = re.compile(r"^\s+([0-9a-f]+) (.*?) \((/.*|\[.*|inlined|//anon.*|[\w.+-]*)\)$")
KERNEL = 1 << 63
# Code that a program makes as it runs, as the recorders call it.
MADE = re.compile(r"perf-\d+\.map$|jitted-|zero$|\[anon\]$|//anon|\[JIT\]|\[jit\]")

HEAD = re.compile(r"^.*?\s+(\d+)/(\d+) +(?:\[\d+\] +)?(\d+\.\d+):")

Frame = collections.namedtuple("Frame", "module place symbol")
# One sample: its thread, when it was taken, its frames.
Sample = collections.namedtuple("Sample", "thread seconds stack")


def frame(address, name, path):
    """One frame: `place` is where its function begins in its page, or the address if that isn't known."""
    path = path.removesuffix(" (deleted)")
    module = path if path.startswith("[") else path.rsplit("/", 1)[-1]
    if MADE.match(module):
        module = "[made while running]"
    symbol, _, into = name.rpartition("+0x")
    unnamed = name.startswith("[unknown]") or not symbol or symbol.startswith("0x")
    # Code behind the last function of gcc's crtbegin.o, a jump, has lost its name: it is no frame_dummy.
    if unnamed or (symbol == "frame_dummy" and int(into, 16) >= 16):
        return Frame(module, address & PAGE, None)
    return Frame(module, (address - int(into, 16)) & PAGE, symbol)


def read(text):
    """Samples of a text: frames innermost first; frames of the kernel are left out but the innermost."""
    samples, stack = [], None
    for line in text:
        if not line.strip():
            stack = None
        elif head := not line[0].isspace() and HEAD.match(line):
            stack = []
            samples.append(Sample(int(head[2]), float(head[3]), stack))
        elif stack is not None and (found := FRAME.match(line)):
            address, name, path = int(found[1], 16), found[2], found[3]
            kernel = address >= KERNEL or path.startswith(("[kernel", "[guest"))
            if not kernel:
                stack.append(frame(address, name, path))
            elif not stack:
                stack.append(Frame("[kernel]", 0, "[kernel]"))
    return [sample for sample in samples if sample.stack]


def common(ours, perf):
    """The samples of both that were taken while both recorded, and of ours those of threads that perf attached to:
    perf misses the threads that begin while it attaches."""
    if not ours or not perf:
        return ours, perf
    first = max(min(sample.seconds for sample in samples) for samples in (ours, perf))
    last = min(max(sample.seconds for sample in samples) for samples in (ours, perf))
    threads = {sample.thread for sample in perf}
    return ([sample for sample in ours if first <= sample.seconds <= last and sample.thread in threads],
            [sample for sample in perf if first <= sample.seconds <= last])


class Beginnings:
    """The places in images where a stack may begin though the recorder has no symbol there: functions that have
    such a name in an unstripped copy, an image's entry point, and what libc's call frame information says has no
    caller. `images` has the images, by the names under which they were mapped."""

    def __init__(self, images):
        self.places = collections.defaultdict(set)
        for name, image in images:
            for begin, end in extents(pathlib.Path(image)):
                self.places[name].update(address & PAGE for address in range(begin, end + 1))

    def holds(self, outermost):
        if outermost.symbol is not None and ROOTS.match(outermost.symbol):
            return True
        return outermost.symbol is None and outermost.place in self.places[outermost.module]


def extents(image):
    found = [*named(image), *(uncalled(image) if "libc.so" in image.name else ())]
    return found or [*entry(image)]


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, errors="replace", check=False).stdout


def named(image):
    for line in output("nm", "-S", "--defined-only", image).splitlines():
        address, *size, _, name = line.split(maxsplit=3)
        if ROOTS.match(name):
            yield int(address, 16), int(address, 16) + (int(size[0], 16) if size else 0x30)


def entry(image):
    if found := re.search(r"Entry point address:\s+(0x[0-9a-f]+)", output("readelf", "-hW", image)):
        yield int(found[1], 16), int(found[1], 16) + 0x30


def uncalled(image):
    """Ranges of functions whose return address is said to be undefined."""
    rules = output("readelf", "-W", "--debug-dump=frames", image)
    extent = None
    for line in rules.splitlines():
        if found := re.search(r" FDE .*pc=([0-9a-f]+)\.\.([0-9a-f]+)", line):
            extent = int(found[1], 16), int(found[2], 16)
        elif "DW_CFA_undefined" in line and extent is not None:
            yield extent
            extent = None


class Profile:
    """What one recorder saw of one run."""

    def __init__(self, samples, beginnings):
        self.timed = samples
        samples = [sample.stack for sample in samples]
        self.count = len(samples)
        user = [stack for stack in samples if stack[-1].module != "[kernel]"]
        self.user = len(user)
        self.whole = sum(beginnings.holds(stack[-1]) for stack in user)
        own = [stack[0] for stack in samples if stack[0].module != "[kernel]"]
        self.named = sum(innermost.symbol is not None for innermost in own)
        self.leaves = collections.Counter()
        self.names = collections.defaultdict(collections.Counter)
        for innermost in own:
            place = innermost.module, (innermost.place if innermost.symbol is not None else None)
            self.leaves[place] += 1
            self.names[place][innermost.symbol or "[unknown]"] += 1
        # Samples whose innermost frame is the program's own, and the share of the others.
        self.own = len(own)
        self.kernel = 1 - self.own / self.count if self.count else 0.0
        self.ends = collections.Counter(stack[-1] for stack in user if not beginnings.holds(stack[-1]))
        self.samples = samples

    def holding(self, word):
        """In how many stacks there is a function whose name has this word in it."""
        return sum(any(frame.symbol and word in frame.symbol for frame in stack) for stack in self.samples)

    def repeated(self, words):
        """In how many stacks a function is twice whose name ends in one of these words."""
        found = 0
        for stack in self.samples:
            names = [frame.symbol for frame in stack if frame.symbol and frame.symbol.endswith(words)]
            found += len(names) > len(set(names))
        return found

    def shares_by_time(self, place, edges):
        """Its share in each stretch of time between two edges."""
        found, all_ = [0] * len(edges), [0] * len(edges)
        for sample in self.timed:
            innermost = sample.stack[0]
            if innermost.module != "[kernel]":
                at = bisect.bisect(edges, sample.seconds) - 1
                known = innermost.place if innermost.symbol is not None else None
                all_[at] += 1
                found[at] += (innermost.module, known) == place
        return [part / whole if whole else 0.0 for part, whole in zip(found, all_)]

    def share(self, place):
        return self.leaves[place] / self.own if self.own else 0.0

    def name(self, place):
        names = self.names.get(place)
        return names.most_common(1)[0][0] if names else None
