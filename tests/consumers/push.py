"""Receives what `uniprof push` sends as OpenTelemetry's profiles: `push.py UNIPROF CORPUS`. The published message classes
read it, with no field left over, and each stack must have the samples that folded stacks have. Then the same over TLS."""

import collections
import http.server
import pathlib
import shutil
import ssl
import subprocess
import sys
import tempfile
import threading

from google.protobuf.unknown_fields import UnknownFieldSet
from opentelemetry.proto.collector.profiles.v1development import profiles_service_pb2 as service

# Recording, flags, type and unit of its values, whether it has a period.
CASES = [
    ("pack-stack.uprof", [], ("samples", "count"), True),
    ("off-cpu.uprof", ["--off-cpu"], ("off_cpu", "nanoseconds"), False),
]


class Receiver(http.server.ThreadingHTTPServer):
    """Keeps each request as its message."""

    def __init__(self, context=None):
        super().__init__(("127.0.0.1", 0), Handler)
        self.received = []
        if context:
            self.socket = context.wrap_socket(self.socket, server_side=True)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request, client_address):
        """A client that doesn't believe the certificate ends the connection."""


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        assert self.path == "/v1development/profiles" and self.headers["content-type"] == "application/x-protobuf"
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.received.append(service.ExportProfilesServiceRequest.FromString(body))
        answer = service.ExportProfilesServiceResponse().SerializeToString()
        self.send_response(200)
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


def push(program, url, *words):
    command = [program, "push", "--no-search", "--format", "otlp", "--to", url, *words]
    return subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)


def has_unknown(message):
    """Whether a field of a message, or of one in it, is not in the published schema."""
    inner = (value for field, value in message.ListFields() if field.message_type)
    each = (one for value in inner for one in (value if hasattr(value, "add") else [value]))
    return len(UnknownFieldSet(message)) > 0 or any(map(has_unknown, each))


def stacks(request, kind, has_period):
    """The values by the stack, as text, outermost first."""
    assert not has_unknown(request)
    tables = request.dictionary
    text = tables.string_table
    for table in ("mapping", "location", "function", "link", "attribute", "stack"):
        first = getattr(tables, f"{table}_table")[0]
        assert first.ByteSize() == 0, f"entry 0 of {table} is {first}"
    assert text[0] == ""
    found = collections.Counter()
    (profiles,) = request.resource_profiles
    for profile in profiles.scope_profiles[0].profiles:
        unit = profile.sample_type
        assert (text[unit.type_strindex], text[unit.unit_strindex]) == kind
        period = profile.period_type
        expected = ("cpu", "nanoseconds") if has_period else ("", "")
        assert (text[period.type_strindex], text[period.unit_strindex]) == expected and (profile.period > 0) == has_period
        assert len(profile.profile_id) == 16 and profile.time_unix_nano > 0 and profile.duration_nano > 0
        for sample in profile.samples:
            (value,) = sample.values
            assert value > 0 and not sample.timestamps_unix_nano
            names = []
            for index in tables.stack_table[sample.stack_index].location_indices:
                location = tables.location_table[index]
                assert location.mapping_index < len(tables.mapping_table)
                names += [text[tables.function_table[line.function_index].name_strindex] for line in location.lines]
            found[";".join(reversed(names))] += value
    return found


def folded(program, path, flags):
    command = [program, "export", "-q", "-f", "folded", "--no-search", *flags, path]
    lines = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False).stdout
    return {stack: int(count) for stack, count in (line.rsplit(" ", 1) for line in lines.splitlines())}


def agrees(program, corpus):
    receiver = Receiver()
    url = f"http://127.0.0.1:{receiver.server_port}"
    for name, flags, kind, has_period in CASES:
        for every in ("15s", "100ms"):
            path = str(corpus / name)
            ended = push(program, url, "--every", every, *flags, path)
            assert ended.returncode <= 1, ended.stderr
            requests, receiver.received = receiver.received, []
            ids = {one.resource_profiles[0].scope_profiles[0].profiles[0].profile_id for one in requests}
            assert len(ids) == len(requests) and (len(requests) > 1) == (every == "100ms"), len(requests)
            sent = sum((stacks(one, kind, has_period) for one in requests), collections.Counter())
            expected = folded(program, path, flags)
            assert sent.keys() == expected.keys(), sent.keys() ^ expected.keys()
            for stack, count in expected.items():
                # Of times, folded stacks have microseconds, rounded.
                value = sent[stack] if has_period else sent[stack] / 1000
                assert value == count or (not has_period and abs(value - count) <= 1), (stack, value, count)
            print(f"push.py: {name} in {len(requests)} requests: {len(sent)} stacks agree")


def believes(program, corpus):
    """Over TLS: an unknown authority is refused, with what to do; a named one is believed."""
    if not shutil.which("openssl"):
        print("skipped: push over TLS needs openssl, which makes a certificate")
        return
    with tempfile.TemporaryDirectory() as folder:
        certificate, key = f"{folder}/certificate.pem", f"{folder}/key.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                        "-keyout", key, "-out", certificate, "-days", "2", "-subj", "/CN=localhost", "-addext",
                        "subjectAltName=DNS:localhost", "-addext", "basicConstraints=critical,CA:FALSE"],
                       stderr=subprocess.DEVNULL, check=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        receiver = Receiver(context)
        url = f"https://localhost:{receiver.server_port}"
        path = str(corpus / "pack-stack.uprof")
        ended = push(program, url, path)
        assert ended.returncode == 2 and "--ca-file" in ended.stderr and not receiver.received, ended.stderr
        ended = push(program, url, "--ca-file", certificate, path)
        assert ended.returncode == 0 and len(receiver.received) == 1, ended.stderr
        ended = push(program, url.replace("localhost", "127.0.0.1"), "--ca-file", certificate, path)
        assert ended.returncode == 2 and len(receiver.received) == 1, ended.stderr
        print("push.py: TLS believes the named authority, for its name alone")


if __name__ == "__main__":
    agrees(sys.argv[1], pathlib.Path(sys.argv[2]))
    believes(sys.argv[1], pathlib.Path(sys.argv[2]))
