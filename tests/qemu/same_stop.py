"""The frames that uniprof reports against gdb's backtrace at the very same stops.

A go-between sits on the line from the recorder to QEMU's stub. Whenever the recorder has done with a
stop and lets the guest run, the go-between keeps that back, lets gdb look at the guest through the
same stub, and only then passes it on. Neither sees the other.
"""

import os
import pathlib
import select
import signal
import socket
import subprocess
import threading
import time

# What gdb does: a backtrace for each line that comes in, one line out.
GDB_SCRIPT = """
import gdb
gdb.execute("set pagination off")
gdb.execute("set backtrace past-main on")
gdb.execute("set backtrace past-entry on")
gdb.execute("target remote " + {address!r})
answers = open({answers!r}, "w", buffering=1)
for _ in open({questions!r}):
    gdb.execute("maint flush register-cache", to_string=True)
    gdb.execute("maint flush dcache", to_string=True)
    frames, frame = [], gdb.newest_frame()
    while frame is not None and len(frames) < 300:
        # What was inlined has a frame for gdb, but none on the stack.
        if frame.type() != gdb.INLINE_FRAME:
            frames.append("%x" % frame.pc())
        try:
            frame = frame.older()
        except gdb.error:
            break
    answers.write(" ".join(frames) + "\\n")
"""

RESUME = b"$vCont;c#a8"
# Samples a second: slow enough that gdb is done before the next one, lest the recorder's guardian
# takes the wait for a freeze that drags on.
RATE = 20


class GoBetween:
    """Listens at `path`; `stops` holds gdb's frames of each stop, innermost first."""

    def __init__(self, folder, stub, image, most):
        self.path = folder / "between"
        self.stops = []
        self.most = most
        self.recorder_listener = self.listen(self.path)
        self.gdb_listener = self.listen(folder / "for-gdb")
        self.stub = socket.socket(socket.AF_UNIX)
        self.stub.connect(str(stub))
        self.questions, self.answers = folder / "questions", folder / "answers"
        for pipe in (self.questions, self.answers):
            os.mkfifo(pipe)
        script = folder / "script.py"
        script.write_text(GDB_SCRIPT.format(address=str(folder / "for-gdb"),
                                            questions=str(self.questions),
                                            answers=str(self.answers)))
        # gdb first, while the guest stands still because we have connected: it takes its time.
        command = ["gdb-multiarch", "-batch", "-nx", "-x", str(script), str(image)]
        self.gdb = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                    stderr=subprocess.DEVNULL)
        self.line, _ = self.gdb_listener.accept()
        opened = threading.Thread(target=self.open_pipes)
        opened.start()
        while opened.is_alive():
            self.relay(0.05)
        threading.Thread(target=self.serve, daemon=True).start()

    @staticmethod
    def listen(path):
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        listener.listen()
        return listener

    def serve(self):
        recorder, _ = self.recorder_listener.accept()
        seen = 0
        while True:
            ready, _, _ = select.select([recorder, self.stub], [], [], 30)
            if self.stub in ready:
                recorder.sendall(self.stub.recv(65536))
            if recorder in ready:
                rest = recorder.recv(65536)
                if not rest:
                    break
                while rest:
                    # The recorder writes it at once, and it is short: it comes in one piece.
                    before, found, rest = rest.partition(RESUME)
                    self.stub.sendall(before)
                    if not found:
                        break
                    seen += 1
                    # The first three are the recorder finding out what the stub can do.
                    if seen > 3 and len(self.stops) < self.most:
                        self.ask_gdb()
                    self.stub.sendall(found)
            if not ready:
                break
        self.gdb.kill()

    def ask_gdb(self):
        self.question.write("\n")
        self.question.flush()
        while not select.select([self.answer], [], [], 0)[0]:
            self.relay(0.001)
        frames = [int(pc, 16) for pc in self.answer.readline().split()]
        # gdb adds a caller at 0 to a function that marks the outermost frame by frame pointer 0.
        self.stops.append(frames[:-1] if frames[-1:] == [0] else frames)

    def open_pipes(self):
        self.answer = open(self.answers)
        self.question = open(self.questions, "w")

    def relay(self, patience):
        """Lets gdb and the stub talk for a moment."""
        for side in select.select([self.line, self.stub], [], [], patience)[0]:
            data = side.recv(65536)
            if side is self.line:
                # Else the stub would write thread ids in another way from here on.
                self.stub.sendall(edit(data))
            else:
                self.line.sendall(data)


def edit(data):
    """gdb's packets without the feature `multiprocess`."""
    if b"multiprocess+;" not in data:
        return data
    start, end = data.index(b"$"), data.index(b"#")
    payload = data[start + 1:end].replace(b"multiprocess+;", b"")
    return data[:start] + b"$%s#%02x" % (payload, sum(payload) & 255) + data[end + 3:]


def compare(uniprof, machine, recording, stops):
    """Records through a go-between; returns (stops compared, those that differ, frames)."""
    folder = pathlib.Path(machine.folder)
    between = GoBetween(folder, machine.stub, machine.image, stops)
    recorder = uniprof.start("record", "-F", RATE, "--freeze-budget", "2s", "--elf",
                             machine.image, "-o", recording, f"gdb:{between.path}")
    end = time.monotonic() + 60
    while len(between.stops) < stops and time.monotonic() < end and recorder.poll() is None:
        time.sleep(0.1)
    recorder.send_signal(signal.SIGINT)
    messages = recorder.communicate(timeout=60)[1]
    assert recorder.returncode in (0, 1), messages
    between.stub.close()
    # What a user sees. The recorded chain lacks the caller of a function without a frame.
    _, script, _ = uniprof.run("export", "-f", "perf-script", "--idle", "--no-inlines", recording)
    samples = [sample.splitlines() for sample in script.strip().split("\n\n")]
    chains = [[int(frame.split()[0], 16) for frame in frames] for _, *frames in samples]
    # The recorder took a sample or two more while it found out what the stub can do.
    extra = next(skip for skip in range(4)
                 if between.stops[skip:skip + 20] and
                 all(a and b and a[0] == b[0] for a, b in
                     zip(between.stops[skip:skip + 20], chains)))
    pairs = list(zip(between.stops[extra:], chains))
    different = [pair for pair in pairs if pair[0] != pair[1]]
    return len(pairs), different, sum(len(frames) for frames, _ in pairs)
