"""QEMU machines that run the test unikernel, and the program under test.

Every machine's memory is a shared file, so that a test can read the guest's own count of its work
(the symbol `progress`) without asking anyone. All files lie in a folder that goes away.
"""

import json
import os
import pathlib
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/guests"), str(ROOT / "tests/guests/linux")]
import printed  # noqa: E402
OUT = ROOT / "tests/out/qemu"
GUESTS = ROOT / "tests/out/guests"
PACKAGES = ["qemu-system-x86", "qemu-system-arm", "gcc", "make", "gcc-aarch64-linux-gnu",
            "gdb-multiarch", "gdbserver", "strace", "libvirt-daemon-system", "libvirt-clients"]


class CannotRun(Exception):
    """This machine lacks something; the text says what."""


def make(folder):
    """Builds the guests of a folder, which other tests may be about to build, too."""
    GUESTS.mkdir(parents=True, exist_ok=True)
    subprocess.run(["flock", GUESTS, "make", "-s", "-C", ROOT / folder, f"O={GUESTS}"], check=True)


def make_agent(image):
    """Builds a guest that carries the agent."""
    arm = "aarch64" in image
    target = "aarch64-unknown-none-softfloat" if arm else "x86_64-unknown-none"
    built = subprocess.run([ROOT / "agent/library", target, GUESTS / target], capture_output=True, text=True)
    if built.returncode:
        raise CannotRun(f"no agent: {(built.stdout + built.stderr).strip()}")
    folder = ROOT / "tests/guests" / ("aarch64" if arm else "")
    subprocess.run(["flock", GUESTS, "make", "-s", "-C", folder, f"O={GUESTS}", GUESTS / image], check=True)


def agent_line(image, path):
    """QEMU's options for the serial line on which the agent of a guest is attached to."""
    if "aarch64" not in image:
        return "-serial", f"unix:{path},server=on,wait=off"
    return ("-machine", "highmem=off", "-chardev", f"socket,id=line,path={path},server=on,wait=off",
            "-device", "pci-serial,chardev=line,addr=1")


def prepare():
    """Installs what is missing, builds the program and the guests."""
    needed = ["qemu-system-x86_64", "qemu-system-aarch64", "gcc", "make", "aarch64-linux-gnu-gcc",
              "gdb-multiarch", "gdbserver", "strace", "libvirtd", "virsh"]
    if any(shutil.which(tool) is None for tool in needed):
        install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *PACKAGES]
        if os.geteuid() != 0 or shutil.which("apt-get") is None:
            raise CannotRun("missing packages; as root: " + " ".join(install))
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        for command in (["apt-get", "update", "-qq"], install):
            subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    OUT.mkdir(parents=True, exist_ok=True)
    for folder in ("tests/guests", "tests/guests/aarch64", "tests/guests/moved"):
        make(folder)


def program(release=False):
    """The program under test: $UNIPROF, or a fresh build."""
    if given := os.environ.get("UNIPROF"):
        return given
    # Of all crates and with examples it is the program that units' tests have, built by them.
    profile = ["--release"] if release else ["--workspace", "--bins", "--examples"]
    subprocess.run(["cargo", "build", "--quiet", "--locked", *profile], cwd=ROOT, check=True)
    return str(ROOT / "target" / ("release" if release else "debug") / "uniprof")


def symbol(image, name):
    """The address of a symbol of a guest's image."""
    listing = subprocess.run(["nm", image], check=True, capture_output=True, text=True).stdout
    return next(int(line.split()[0], 16) for line in listing.splitlines()
                if line.split()[-1] == name)


class Machine:
    """One running machine; use it in a `with`."""

    def __init__(self, image, vcpus=1, append="", accel="tcg,thread=multi", stub=True, more=(),
                 kernel=None, megabytes=128, waits=False, bare=False):
        self.waits = waits  # for a test to let it begin
        self.bytes = megabytes << 20
        self.bare = bare  # without monitor and shared memory
        self.image = GUESTS / image
        self.kernel = kernel or self.image
        self.arm = "aarch64" in image
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="uniprof-qemu-"))
        self.stub = self.folder / "gdb"
        self.monitor = self.folder / "qmp"
        self.memory = pathlib.Path(f"/dev/shm/{self.folder.name}")
        self.console = self.folder / "console"
        wants_all = any(what in image for what in ("pac", "la57"))
        command = ["qemu-system-aarch64", "-M", "virt"] if self.arm else ["qemu-system-x86_64", "-M", "q35"]
        command += ["-cpu", "max" if wants_all else "cortex-a57" if self.arm else "qemu64"]
        command += [
            "-accel", accel, "-smp", str(vcpus), "-m", str(megabytes), "-display", "none",
            "-nic", "none", "-no-reboot", "-kernel", str(self.kernel), "-append", append,
            "-serial", f"file:{self.console}"]
        command += [] if bare else [
            "-qmp", f"unix:{self.monitor},server=on,wait=off",
            "-object", f"memory-backend-file,id=mem,size={megabytes}M,share=on,"
                       f"mem-path={self.memory}",
            "-machine", "memory-backend=mem"]
        command += more
        if stub and not bare:
            command += ["-gdb", f"unix:{self.stub},server=on,wait=off"]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        self.counter = 0 if kernel else self.physical("progress")

    def physical(self, name):
        """The place of a symbol in the guest's memory. Both images are linked at physical addresses, the Arm one 2^64
        - 2^48 above them, and Arm's memory begins at 1 GiB."""
        return (symbol(self.image, name) & 0xffff_ffff_ffff) - (0x4000_0000 if self.arm else 0)

    def __enter__(self):
        end = time.monotonic() + 240
        while not ("guest up" in self.said() if self.waits else self.progress()):
            if time.monotonic() > end or self.process.poll() is not None:
                self.__exit__()
                raise RuntimeError(f"{self.image.name} did not boot")
            time.sleep(0.1)
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.memory.unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def said(self):
        """What is on its console."""
        try:
            return self.console.read_text(errors="replace")
        except OSError:
            return ""

    def progress(self, vcpu=0):
        """Iterations that a vCPU has done, from its own memory."""
        try:
            file, start = (f"/proc/{self.process.pid}/mem", self.mapped()) if self.bare else (self.memory, 0)
            with open(file, "rb", buffering=0) as memory:
                memory.seek(start + self.counter + 64 * vcpu)
                return struct.unpack("<Q", memory.read(8))[0]
        except (OSError, struct.error):
            return 0

    def reach(self, name, mode="rb"):
        """Its memory, opened at a symbol."""
        file, start = (f"/proc/{self.process.pid}/mem", self.mapped()) if self.bare else (self.memory, 0)
        memory = open(file, mode, buffering=0)
        memory.seek(start + self.physical(name))
        return memory

    def number(self, name, index=0):
        """A number in its memory, or one of an array of them; 0 once it has ended."""
        try:
            with self.reach(name) as memory:
                memory.seek(8 * index, os.SEEK_CUR)
                return int.from_bytes(memory.read(8), "little")
        except OSError:
            return 0

    def release(self):
        """Lets a guest that was told to `hold` begin its work."""
        with self.reach("hold", "r+b") as memory:
            memory.write(bytes(8))

    def mapped(self):
        """Where its memory is in QEMU."""
        for line in pathlib.Path(f"/proc/{self.process.pid}/maps").read_text().splitlines():
            start, end = (int(word, 16) for word in line.split()[0].split("-"))
            if end - start == self.bytes:
                return start
        return 0

    def runs(self, patience=15.0):
        """Whether the guest gets on with its work; a machine that is busy may not run a vCPU for seconds."""
        before, end = self.progress(), time.monotonic() + patience
        while time.monotonic() < end:
            time.sleep(0.05)
            if self.progress() > before:
                return True
        return False

    def qmp(self, command, **arguments):
        return qmp(self.monitor, command, **arguments)


def qmp(monitor, command, **arguments):
    """Runs a command of the monitor at this socket."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(monitor))
        stream = connection.makefile("rw")
        stream.readline()
        for execute, given in (("qmp_capabilities", {}), (command, arguments)):
            stream.write(json.dumps({"execute": execute, "arguments": given}) + "\n")
            stream.flush()
            while "event" in (answer := json.loads(stream.readline())):
                pass
        return answer


def linux_kernel():
    """Debian's kernel, which tests/xen/machine fetches; makes the two programs of tests/guests/linux."""
    made = subprocess.run([ROOT / "tests/xen/machine"], capture_output=True, text=True)
    if made.returncode:
        raise CannotRun(f"no kernel: {(made.stdout + made.stderr).strip()}")
    make("tests/guests/linux")
    return pathlib.Path(made.stdout.strip()) / "vmlinuz"


class Linux(Machine):
    """Debian's `kernel`, moved at each boot (KASLR), with the two programs of tests/guests/linux. If it `tells`, its
    own functions are on its console."""

    def __init__(self, kernel, append="", tells=False, more=(), **others):
        super().__init__("linux-one", append=f"console=ttyS0 quiet {append} {'-- tell' if tells else ''}",
                         kernel=kernel, megabytes=256, more=("-initrd", GUESTS / "linux.cpio", *more), **others)

    def progress(self, vcpu=0):
        """Whether its programs run: there is no count of their own to read."""
        return int("ready" in self.said().splitlines())

    def runs(self, patience=0.0):
        return self.qmp("query-status")["return"]["running"]


def moved(options=()):
    """A guest whose loader puts a kernel and an application elsewhere at each boot; where these files lie in memory is
    a matter between loader.c and us."""
    files = zip(("moved-kernel.elf", "moved-app.elf"), (0x200_0000, 0x210_0000))
    more = [word for name, address in files
            for word in ("-device", f"loader,file={GUESTS / name},addr={address:#x},force-raw=on")]
    return Machine("moved-loader.elf", more=[*more, *options])


class Uniprof:
    """The program under test."""

    def __init__(self, path):
        self.path = path
        # A recorder without the report half can't read what it wrote.
        self.reader = os.environ.get("UNIPROF_READER", path)

    def start(self, *arguments, home=None):
        environment = {**os.environ, "HOME": str(home)} if home else None
        reads = arguments[0] in ("dump", "export", "info", "report")
        program = self.reader if reads else self.path
        return subprocess.Popen([program, *map(str, arguments)], stdin=subprocess.DEVNULL, env=environment,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def recorder(self, *arguments, recording, patience=60):
        """A recorder that records by now: its file is there from then on."""
        pathlib.Path(recording).unlink(missing_ok=True)
        process, end = self.start("record", "-o", recording, *arguments), time.monotonic() + patience
        while not pathlib.Path(recording).exists() and process.poll() is None and time.monotonic() < end:
            time.sleep(0.01)
        return process

    def run(self, *arguments, expect=(0, 1), patience=90, home=None):
        """Runs it, with another home folder if one is given; returns (status, output, messages)."""
        process = self.start(*arguments, home=home)
        try:
            output, messages = process.communicate(timeout=patience)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.communicate()
            raise AssertionError(f"uniprof {' '.join(map(str, arguments))}: no end") from None
        if process.returncode not in expect:
            raise AssertionError(f"uniprof {' '.join(map(str, arguments))}: "
                                 f"status {process.returncode}: {messages.strip()}")
        return process.returncode, output, messages

    def folded(self, recording, *arguments):
        return printed.stacks(self.run("export", "--format", "folded", *arguments, recording)[1])

    def samples(self, recording):
        return printed.samples(self.run("dump", recording)[1])

    def totals(self, recording):
        """The totals of the end record."""
        output = self.run("dump", recording)[1]
        rows = (line.split() for line in output.splitlines() if line.startswith("total "))
        return {name.split("=")[1].strip('"'): int(value.split("=")[1]) for _, name, value in rows}
