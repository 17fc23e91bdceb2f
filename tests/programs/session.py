"""Processes of a test: each in a process group of its own, all of them ended when the `with` is left."""

import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import tempfile
import time


class Session:
    """A folder that everybody may read, and the processes that work in it."""

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="uniprof-programs-"))
        self.folder.chmod(0o755)
        self.running = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process, way in reversed(self.running):
            self.tell(process, way)
            self.tell(process, signal.SIGCONT)
        end = time.monotonic() + 5
        for process, _ in reversed(self.running):
            try:
                process.wait(timeout=max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                pass
            self.tell(process, signal.SIGKILL)
            process.wait()
            if process.stdin:
                process.stdin.close()
            pathlib.Path(f"/tmp/perf-{process.pid}.map").unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def pause(self):
        for process, _ in self.running:
            self.tell(process, signal.SIGSTOP)

    @staticmethod
    def tell(process, way):
        try:
            os.killpg(process.pid, way)
        except ProcessLookupError:
            pass

    def start(self, *command, user=None, gate=False, end_by=signal.SIGTERM, out="out"):
        """Starts a program. With `gate` it waits, as a shell, until `open_gate`, and is started anew as often as
        it ends."""
        words = list(map(str, command))
        if gate:
            words = ["sh", "-c", 'read go; while "$@"; do :; done', "sh", *words]
        with open(self.folder / out, "ab") as log:
            process = subprocess.Popen(
                words, stdin=subprocess.PIPE if gate else subprocess.DEVNULL, stdout=log, stderr=log,
                cwd=self.folder, user=user, group=pwd.getpwnam(user).pw_gid if user else None,
                extra_groups=[] if user else None, start_new_session=True)
        self.running.append((process, end_by))
        return process

    def open_gate(self, process):
        process.stdin.write(b"go\n")
        process.stdin.flush()

    def run(self, *command, user=None):
        """Runs a command to its end; what it said is in the error if it fails."""
        done = subprocess.run(list(map(str, command)), cwd=self.folder, user=user, stdin=subprocess.DEVNULL,
                              group=pwd.getpwnam(user).pw_gid if user else None, extra_groups=[] if user else None,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                              check=False, timeout=300)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(map(str, command))}: {done.stdout.strip()[-400:]}")
        return done.stdout

    def said(self, out="out"):
        path = self.folder / out
        return path.read_text(errors="replace") if path.exists() else ""
