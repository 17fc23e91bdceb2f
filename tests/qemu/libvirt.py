"""A domain of libvirt that runs the test unikernel. libvirt's programs are started if none answers, and ended then."""

import pathlib
import shutil
import subprocess
import tempfile
import time

from machine import GUESTS, CannotRun

NAME = "uniprof's guest"
# A /dev/kvm that root may use and QEMU's user may not has libvirt start QEMU again at each question, for what it can do:
# a minute in all. It is hidden from it.
ALONE = '[ ! -e /dev/kvm ] || mount --bind /dev/null /dev/kvm; exec "$0"'


def virsh(*arguments):
    done = subprocess.run(["virsh", "--quiet", *arguments], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"virsh {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


class Domain:
    """Use it in a `with`."""

    def __init__(self, image, vcpus=1):
        self.name = NAME
        # QEMU runs as a user of its own, who must be able to read the image.
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="uniprof-libvirt-"))
        self.folder.chmod(0o755)
        self.image = shutil.copy(GUESTS / image, self.folder)
        self.vcpus = vcpus
        self.started = []

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def start(self):
        if subprocess.run(["virsh", "--quiet", "version"], capture_output=True).returncode:
            # Without systemd nobody makes these folders.
            for folder in ("/run/libvirt", "/var/log/libvirt"):
                pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
            log = open(self.folder / "libvirt.log", "w")
            for program in ("virtlogd", "libvirtd"):
                self.started.append(subprocess.Popen(["unshare", "--mount", "sh", "-c", ALONE, program],
                                                     stdin=subprocess.DEVNULL, stdout=log, stderr=log))
            end = time.monotonic() + 30
            while subprocess.run(["virsh", "--quiet", "version"], capture_output=True).returncode:
                if time.monotonic() > end:
                    raise CannotRun(f"libvirtd doesn't start here: {(self.folder / 'libvirt.log').read_text()[-500:]}")
                time.sleep(0.2)
        (self.folder / "domain.xml").write_text(f"""
            <domain type='qemu'>
              <name>{self.name.replace("'", "&apos;")}</name>
              <memory unit='MiB'>128</memory>
              <memoryBacking><source type='file'/><access mode='shared'/></memoryBacking>
              <vcpu>{self.vcpus}</vcpu>
              <os><type arch='x86_64' machine='q35'>hvm</type><kernel>{self.image}</kernel></os>
              <cpu mode='custom'><model>qemu64</model></cpu>
              <devices><memballoon model='none'/></devices>
            </domain>""")
        virsh("create", str(self.folder / "domain.xml"))

    def __exit__(self, *_):
        subprocess.run(["virsh", "--quiet", "destroy", f"--domain={self.name}"], capture_output=True)
        for program in reversed(self.started):
            program.terminate()
            program.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def state(self):
        return virsh("domstate", f"--domain={self.name}").strip()

    def runs(self):
        """Whether QEMU says so, and libvirt too, soon: it is told of each pause, and is behind where its disk is slow."""
        status = virsh("qemu-monitor-command", f"--domain={self.name}", '{"execute":"query-status"}')
        end = time.monotonic() + 30
        while self.state() != "running" and time.monotonic() < end:
            time.sleep(0.1)
        return '"status":"running"' in status and self.state() == "running"

    def has_stub(self):
        return '"label":"gdb"' in virsh("qemu-monitor-command", f"--domain={self.name}", '{"execute":"query-chardev"}')
