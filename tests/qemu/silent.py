"""A gdb stub that doesn't tell which vCPUs halt, as most don't: QEMU's, with a relay before it."""

import socket
import threading


def without_states(data):
    """An answer without the words by which QEMU tells of halted vCPUs: with two letters exchanged, which leaves its
    checksum as it was."""
    for word, other in (("[halted", "[ahlted"), ("[running", "[urnning")):
        data = data.replace(word.encode().hex().encode(), other.encode().hex().encode())
    return data


def pump(source, sink, change=bytes):
    try:
        while data := source.recv(1 << 16):
            sink.sendall(change(data))
    except OSError:
        pass
    for end in source, sink:
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        end.close()  # or the recorder takes it for another debugger's


def stub(guest):
    """The path of the relay's socket."""
    path = guest.folder / "silent"
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(path))
    listening.listen()

    def serve():
        while True:
            debugger, behind = listening.accept()[0], socket.socket(socket.AF_UNIX)
            behind.connect(str(guest.stub))
            for ends in (debugger, behind), (behind, debugger, without_states):
                threading.Thread(target=pump, args=ends, daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    return path
