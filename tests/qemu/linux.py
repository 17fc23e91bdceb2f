"""Debian's kernel as a guest, moved at each boot (KASLR), with tests/guests/linux/kernel.c as its only program."""

import gzip
import pathlib
import re
import shutil
import subprocess
import tempfile
import time

from machine import OUT, ROOT, CannotRun

# What a whole stack of a kernel begins at: entries from a process, and where threads begin.
ROOTS = ("entry_SYSCALL_64", "asm_", "ret_from_fork", "secondary_startup_64", "start_kernel", "error_", "sync_regs",
         "syscall_return_via_sysret", "swapgs_restore_regs_and_return_to_usermode", "common_interrupt_return",
         "native_iret", "native_irq_return_iret", "paranoid_", "__indirect_thunk_start")


def archive(init):
    """An initial file system with one program, in the format that the kernel reads (newc)."""
    def entry(name, mode, data=b"", device=(0, 0)):
        fields = (0, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(name) + 1, 0)
        head = b"070701" + b"".join(b"%08x" % field for field in fields) + name.encode() + b"\0"
        return head + bytes(-len(head) % 4) + data + bytes(-len(data) % 4)

    files = entry("dev", 0o40755) + entry("dev/console", 0o20600, device=(5, 1))
    return gzip.compress(files + entry("init", 0o100755, init.read_bytes()) + entry("TRAILER!!!", 0), 1)


def kernel():
    """Debian's kernel, from the machine of the Xen scenarios."""
    made = subprocess.run([ROOT / "tests/xen/machine"], capture_output=True, text=True)
    if made.returncode:
        raise CannotRun(made.stderr.strip() or made.stdout.strip())
    return pathlib.Path(made.stdout.strip()) / "vmlinuz"


def files():
    """The kernel and the initial file system."""
    init = OUT / "linux-kernel"
    source = ROOT / "tests/guests/linux/kernel.c"
    subprocess.run(["gcc", "-O2", "-static", "-Wall", "-o", init, source], check=True)
    path = OUT / "linux.cpio.gz"
    path.write_bytes(archive(init))
    return kernel(), path


class Linux:
    """A running guest; use it in a `with`."""

    def __init__(self, vcpus=1):
        vmlinuz, initial = files()
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="uniprof-linux-"))
        self.monitor, self.stub = self.folder / "qmp", self.folder / "gdb"
        self.console = self.folder / "console"
        self.memory = pathlib.Path(f"/dev/shm/{self.folder.name}")
        self.process = subprocess.Popen(
            ["qemu-system-x86_64", "-M", "q35", "-accel", "tcg,thread=multi", "-smp", str(vcpus), "-m", "256", "-display",
             "none", "-nic", "none", "-no-reboot", "-kernel", vmlinuz, "-initrd", initial,
             "-append", "console=ttyS0 quiet", "-serial", f"file:{self.console}",
             "-qmp", f"unix:{self.monitor},server=on,wait=off", "-gdb", f"unix:{self.stub},server=on,wait=off",
             "-object", f"memory-backend-file,id=mem,size=256M,share=on,mem-path={self.memory}",
             "-machine", "memory-backend=mem"], stdin=subprocess.DEVNULL)

    def __enter__(self):
        end = time.monotonic() + 300
        while not (self.console.exists() and "kallsyms-end" in self.console.read_text(errors="replace")):
            if time.monotonic() > end or self.process.poll() is not None:
                self.__exit__()
                raise RuntimeError("Linux did not boot")
            time.sleep(0.5)
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.memory.unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def names(self):
        return Names(self.console.read_text(errors="replace"))


class Names:
    """What a kernel's own /proc/kallsyms says."""

    def __init__(self, text):
        self.functions = {}
        for line in text.splitlines():
            words = line.split()
            if len(words) == 3 and len(words[0]) == 16 and words[1] in "tTwW":
                self.functions.setdefault(int(words[0], 16), set()).add(words[2])


def judge(uniprof, recording, names, messages):
    """Holds a recording against the kernel's own names; returns the figures."""
    told = re.search(r"The guest's kernel told of .*", messages)
    rows = [row for row in uniprof.samples(recording) if row["state"] == "running"]
    kernel = [row for row in rows if row["chain"].startswith("ffff")]
    whole = sum(row["stop"] == "complete" for row in kernel)
    dump = uniprof.run("dump", recording)[1]
    symbols = re.findall(r'^symbol address=([0-9a-f]+) .*name="([^"]*)"', dump, re.M)
    wrong = [name for address, name in symbols if name not in names.functions.get(int(address, 16), ())]
    known = {name for all_names in names.functions.values() for name in all_names}
    stacks = [(stack, count) for stack, count in uniprof.folded(recording) if stack[-1] in known]
    named = sum(count for _, count in stacks)
    rooted = sum(count for stack, count in stacks if stack[0].startswith(ROOTS))
    figures = (f"{whole} of {len(kernel)} stacks in the kernel are whole, {named} named, {rooted} begin at an entry or a "
               f"thread's start; {len(symbols)} functions, {len(wrong)} of other names than the kernel's {wrong[:3] or ''}; "
               f"{told[0] if told else 'nothing was told'}")
    enough = 0.95 * len(kernel)
    if not told or wrong or len(kernel) < 50 or min(whole, named, rooted) < enough:
        raise AssertionError(figures)
    return figures
