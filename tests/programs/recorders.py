"""The recorders side by side on one process tree, and what each has to say of it."""

import os
import pathlib
import signal
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Samples a second of a thread, for all of them, so that they see much the same moments. perf copies 64 KiB each time.
RATE = 499
# Largest piece of stack that perf copies.
PERF_BYTES = 65528
# How long the number of its perf events stays the same before a recorder is taken to be attached.
CALM_SECONDS, MOST_SECONDS = 0.5, 60
# How long a recorder may take to end: perf reads every image that it saw, which took it a minute on a busy machine.
END_SECONDS = 300


def tree(pid):
    """The process and all its descendants that are there now."""
    found, open_ = [], [pid]
    while open_:
        pid = open_.pop()
        found.append(pid)
        for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
            try:
                open_.extend(map(int, task.read_text().split()))
            except OSError:
                pass
    return found


def processor_seconds(pid):
    """What the tree has used of processors, with the children that it has waited for."""
    ticks = 0
    for one in tree(pid):
        try:
            fields = pathlib.Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def points_to(link):
    try:
        return os.readlink(link)
    except OSError:
        return ""


class Recorders:
    """uniprof with default options and perf, both at once. Use it in a `with`: leaving it
    ends the recordings in good order."""

    def __init__(self, uniprof, folder, pid, by_processor=False):
        self.uniprof, self.folder, self.pid = uniprof, folder, pid
        # The processes whose samples perf is to show, if it takes those of all.
        self.shown = [] if by_processor else None
        self.started = {}
        self.log = {}
        # perf follows children that come, but not those that are there: they are named to it. Each has a buffer.
        pids = tree(pid)
        room = "32M" if by_processor or len(pids) < 8 else "4M"
        reach = ["-a"] if by_processor else ["-p", ",".join(map(str, pids))]
        self.start("uniprof", [uniprof, "record", "-F", str(RATE), "-o", folder / "run.uprof", f"pid:{pid}"])
        self.start("perf", ["perf", "record", "-k", "mono", "-m", room, "-F", str(RATE), "--call-graph",
                            f"dwarf,{PERF_BYTES}", *reach, "-o", folder / "perf.data"])
        try:
            self.wait_until_attached()
        except BaseException:
            self.__exit__()
            raise

    def events(self):
        """How many perf events each recorder has open."""
        counts = []
        for process in self.started.values():
            links = pathlib.Path(f"/proc/{process.pid}/fd").glob("*")
            counts.append(sum(points_to(link) == "anon_inode:[perf_event]" for link in links))
        return counts

    def wait_until_attached(self):
        calm, counts, end = time.monotonic(), [], time.monotonic() + MOST_SECONDS
        while time.monotonic() < min(calm + CALM_SECONDS, end) or not all(counts):
            if time.monotonic() > end:
                raise RuntimeError(f"a recorder did not attach within {MOST_SECONDS} s; open perf events: "
                                   f"{dict(zip(self.started, counts))}")
            before, counts = counts, self.events()
            if counts != before:
                calm = time.monotonic()
            time.sleep(0.05)

    def start(self, name, command):
        with open(self.folder / f"{name}.log", "wb") as log:
            self.started[name] = subprocess.Popen(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=log,
                                                  stderr=log, cwd=self.folder)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.shown is not None:
            self.shown = tree(self.pid)
        for process in self.started.values():
            process.send_signal(signal.SIGINT)
        late = []
        for name, process in self.started.items():
            try:
                process.wait(timeout=END_SECONDS)
            except subprocess.TimeoutExpired:
                late.append(name)
                process.kill()
                process.wait()
            self.log[name] = (self.folder / f"{name}.log").read_text(errors="replace")
        if late:
            # What they wrote is no recording then, and must not be judged as one.
            raise RuntimeError(f"{' and '.join(late)} did not end within {END_SECONDS} s")

    def text(self, name):
        """What a recorder saw, in the words of `perf script`."""
        if name == "perf":
            command = ["perf", "script", "-i", "perf.data", "--no-inline", "--no-demangle", "--max-stack", "512",
                       "-F", "comm,pid,tid,time,event,ip,sym,symoff,dso"]
            if self.shown is not None:
                command += ["--pid", ",".join(map(str, self.shown))]
        else:
            command = [self.uniprof, "export", "-f", "perf-script", "--no-inlines", "--no-demangle", "run.uprof"]
        with open(self.folder / f"{name}.txt", "w+b") as text, open(self.folder / f"{name}.log", "ab") as log:
            subprocess.run(command, cwd=self.folder, stdout=text, stderr=log, stdin=subprocess.DEVNULL,
                           check=False, timeout=300)
        with open(self.folder / f"{name}.txt", encoding="utf-8", errors="replace") as text:
            yield from text

    def bytes(self, name):
        file = {"uniprof": "run.uprof", "perf": "perf.data"}[name]
        try:
            return os.stat(self.folder / file).st_size
        except OSError:
            return 0
