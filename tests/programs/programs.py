"""The programs: how each is had, started and kept busy. All of them are Debian's or built by Debian's
compilers from what lies in sources/; nothing listens anywhere but on the loopback."""

import os
import pathlib
import shutil
import signal
import socket
import time

SOURCES = pathlib.Path(__file__).with_name("sources")
COMPILERS = ["gcc", "g++", "libc6-dev"]
PROGRAMS = []


def named(image):
    image = pathlib.Path(image).resolve()
    return image.name, image


def program(one):
    PROGRAMS.append(one)
    return one


class Program:
    """One row of the table."""

    name = ""
    packages: list[str] = []
    # Commands that must be there; what is missing is installed by the packages.
    tools: list[str] = []
    # Part of its stacks that must be whole, also where perf has fewer; 0 where nobody has the code's rules.
    least_whole = 0.99
    # Whether it tells the seconds of its own functions.
    tells = False
    # Whether perf is to sample processors, as uniprof does, instead of threads. A thread's timer that was due while that
    # slept rings 10 us after it wakes (perf_swevent_start_hrtimer in kernel/events/core.c), so that what a server does
    # first has too large a share: of PostgreSQL's, base_yyparse had 9 % by threads and 5.7 % by processors.
    by_processor = False

    def prepare(self, session):
        """Builds it; may take its time."""

    def start(self, session):
        """Starts it and returns the process whose tree is recorded."""
        raise NotImplementedError

    def begin(self, session, process):
        """Puts it under load, once the recorders are attached."""

    def end(self, session, process):
        """Does what is due before the recorders leave."""

    def images(self, session):
        """Images in which stacks begin, with the names under which they are mapped."""
        return [named(self.tools[0])]


class Compiler(Program):
    """A compiler at work: started anew as often as it ends, by a shell that was there before."""

    command: list[str] = []

    def prepare(self, session):
        for source in SOURCES.glob("compiled.*"):
            shutil.copy(source, session.folder)

    def start(self, session):
        return session.start(*self.command, gate=True)

    def begin(self, session, process):
        session.open_gate(process)


class Shares(Program):
    """The C program that tells its own shares, wherever it is run from."""

    packages, tools = COMPILERS, ["gcc"]
    tells = True

    def prepare(self, session):
        self.compile(session, "shares.c", session.folder / "shares")
        self.compile(session, "decoy.c", session.folder / "decoy")

    @staticmethod
    def compile(session, source, path):
        session.run("gcc", "-O2", "-fno-omit-frame-pointer", "-pthread", SOURCES / source, "-o", path)

    def images(self, session):
        return [(name, session.folder / "shares") for name in ("app", "env")]


@program
class Python(Program):
    name = "python3"
    packages, tools = ["python3-minimal", "python3"], ["/usr/bin/python3"]

    def start(self, session):
        return session.start("/usr/bin/python3", SOURCES / "work.py")


class Interpreter(Program):
    """An interpreter at work, with nothing else on its command line than what it needs to begin."""

    command: list[str] = []
    source = ""
    # Seconds for it to start and to compile what it will.
    warm_up = 1.0

    def start(self, session):
        process = session.start(*self.command, SOURCES / self.source)
        time.sleep(self.warm_up)
        return process

    def images(self, session):
        return [named(shutil.which(self.tools[0]))]


@program
class Ruby(Interpreter):
    name = "ruby"
    packages, tools, command, source = ["ruby"], ["ruby"], ["ruby"], "work.rb"


@program
class Php(Interpreter):
    name = "php, JIT"
    least_whole = 0.0
    packages, tools, source = ["php-cli"], ["php"], "work.php"
    command = ["php", "-d", "opcache.enable_cli=1", "-d", "opcache.jit_buffer_size=32M", "-d", "opcache.jit=tracing"]
    warm_up = 3.0


@program
class Perl(Interpreter):
    name = "perl"
    packages, tools, command, source = ["perl"], ["perl"], ["perl"], "work.pl"


@program
class R(Interpreter):
    name = "R"
    packages, tools, command, source = ["r-base-core"], ["Rscript"], ["Rscript"], "work.R"
    warm_up = 3.0

    def images(self, session):
        return [named("/usr/lib/R/bin/exec/R")]


@program
class Sbcl(Interpreter):
    name = "SBCL"
    packages, tools, command, source = ["sbcl"], ["sbcl"], ["sbcl", "--script"], "work.lisp"


@program
class Guile(Interpreter):
    name = "guile, JIT"
    least_whole = 0.0
    packages, tools, command, source = ["guile-3.0"], ["guile"], ["guile", "--no-auto-compile"], "work.scm"
    warm_up = 5.0


@program
class Erlang(Program):
    name = "erlang, JIT"
    least_whole = 0.0
    packages, tools = ["erlang-base"], ["erl", "erlc"]

    def prepare(self, session):
        session.run("erlc", SOURCES / "work.erl")

    def start(self, session):
        process = session.start("erl", "-noshell", "-s", "work", "main")
        time.sleep(3)
        return process

    def images(self, session):
        return [(image.name, image) for image in pathlib.Path("/usr/lib/erlang").glob("erts-*/bin/beam.smp")]


@program
class Forks(Interpreter):
    name = "python3, 60 forked"
    packages, tools = ["python3-minimal", "python3"], ["/usr/bin/python3"]
    command, source = ["/usr/bin/python3"], "forks.py"

    def start(self, session):
        process = super().start(session)
        wait_for(lambda: "ready" in session.said(), "python3")
        return process


@program
class Nginx(Program):
    name = "nginx, 2 workers, by the master's pid"
    packages, tools = ["nginx-light", "wrk"], ["/usr/sbin/nginx", "wrk"]

    def prepare(self, session):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        www = session.folder / "www"
        www.mkdir()
        (www / "page.html").write_text("".join(f"<p>{i * 7919 % 10007}</p>\n" for i in range(2000)))
        temporary = "".join(f"{kind}_temp_path {session.folder}/{kind};\n"
                            for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        (session.folder / "nginx.conf").write_text(f"""
            user www-data; worker_processes 2; daemon off; pid {session.folder}/pid;
            error_log {session.folder}/errors; events {{ worker_connections 256; }}
            http {{ access_log off; gzip on; gzip_comp_level 4; types {{ text/html html; }} {temporary}
                server {{ listen 127.0.0.1:{self.port}; root {www}; }} }}""")

    def start(self, session):
        process = session.start("/usr/sbin/nginx", "-c", session.folder / "nginx.conf", end_by=signal.SIGTERM)
        wait_for(lambda: connects(self.port), "nginx")
        return process

    def begin(self, session, process):
        session.start("wrk", "-t", 1, "-c", 8, "-d", "600s", "-H", "Accept-Encoding: gzip",
                      f"http://127.0.0.1:{self.port}/page.html", out="load")


@program
class Postgres(Program):
    name = "postgres, 4 clients, by the postmaster's pid"
    packages = ["postgresql-15", "postgresql-client-15"]
    tools = ["/usr/lib/postgresql/15/bin/postgres"]
    user = "postgres"
    by_processor = True

    def tool(self, name):
        return pathlib.Path(self.tools[0]).with_name(name)

    def prepare(self, session):
        data = session.folder / "data"
        data.mkdir()
        shutil.chown(data, self.user)
        session.run(self.tool("initdb"), "-D", data, "-A", "trust", "--no-sync", user=self.user)

    def start(self, session):
        data = session.folder / "data"
        process = session.start(self.tools[0], "-D", data, "-k", data, "-h", "", "-F", user=self.user,
                                end_by=signal.SIGINT)
        wait_for(lambda: "ready to accept" in session.said(), "postgres")
        session.run(self.tool("pgbench"), "-h", data, "-q", "-i", "-s", 2, "postgres", user=self.user)
        time.sleep(0.5)
        return process

    def begin(self, session, process):
        session.start(self.tool("pgbench"), "-h", session.folder / "data", "-c", 4, "-T", 600, "postgres",
                      user=self.user, out="load")


@program
class Node(Program):
    name = "node, perf map"
    packages, tools = ["nodejs"], ["node"]
    tells = True

    def start(self, session):
        # Neither functions within others nor work of the collector in other threads.
        process = session.start("node", "--perf-basic-prof", "--interpreted-frames-native-stack",
                                "--no-turbo-inlining", "--single-threaded-gc", SOURCES / "shares.js")
        time.sleep(1)
        return process

    def images(self, session):
        return [named(shutil.which("node"))]


@program
class Java(Program):
    name = "java, perf map"
    packages, tools = ["openjdk-17-jdk-headless"], ["java", "javac", "jcmd"]
    tells = True

    def prepare(self, session):
        session.run("javac", "-d", session.folder, SOURCES / "Shares.java")

    def start(self, session):
        process = session.start("java", "-XX:+PreserveFramePointer", "-Xmx512m",
                                "-XX:CompileCommand=dontinline,Shares::*", "Shares")
        time.sleep(3)
        return process

    def begin(self, session, process):
        session.run("jcmd", process.pid, "Compiler.perfmap")

    # What has been compiled since then.
    end = begin

    def images(self, session):
        return [named(shutil.which("java"))]


class Go(Program):
    packages, tools = ["golang-go"], ["go"]
    tells = True
    stripped = False

    def prepare(self, session):
        os.environ["GOCACHE"] = str(session.folder / "go-cache")
        session.run("go", "build", "-o", session.folder / "app", SOURCES / "shares.go")
        shutil.copy(session.folder / "app", session.folder / "unstripped")
        if self.stripped:
            session.run("strip", session.folder / "app")

    def start(self, session):
        return session.start(session.folder / "app")

    def images(self, session):
        return [("app", session.folder / "unstripped")]


@program
class GoPlain(Go):
    name = "Go program"


@program
class GoStripped(Go):
    name = "Go program, stripped"
    stripped = True


@program
class OCaml(Program):
    name = "OCaml program"
    packages, tools = ["ocaml-nox", "gcc", "libc6-dev"], ["ocamlopt"]
    tells = True

    def prepare(self, session):
        shutil.copy(SOURCES / "shares.ml", session.folder)
        session.run("ocamlopt", "-O3", "shares.ml", "-o", "shares")

    def start(self, session):
        return session.start(session.folder / "shares")

    def images(self, session):
        return [named(session.folder / "shares")]


@program
class Haskell(Program):
    name = "GHC program"
    least_whole = 0.0
    packages, tools = ["ghc"], ["ghc"]

    def prepare(self, session):
        shutil.copy(SOURCES / "Shares.hs", session.folder)
        session.run("ghc", "-O1", "Shares.hs", "-o", "shares")

    def start(self, session):
        return session.start(session.folder / "shares")

    def images(self, session):
        return [named(session.folder / "shares")]


@program
class Clang(Compiler):
    name = "clang++ compiling"
    least_whole = 0.97  # 64 KiB of a stack are all that the kernel gives
    packages, tools = ["clang", "g++"], ["clang++"]
    command = ["clang++", "-O2", "-std=c++17", "-c", "-o", "compiled.o", "compiled.cpp"]

    def images(self, session):
        return [named(shutil.which("clang++"))]


@program
class Gxx(Compiler):
    name = "g++ compiling"
    packages, tools = COMPILERS, ["g++"]
    command = ["g++", "-O2", "-std=c++17", "-c", "-o", "compiled.o", "compiled.cpp"]

    def images(self, session):
        return [named(session.run("g++", "-print-prog-name=cc1plus").strip())]


@program
class Rustc(Compiler):
    name = "rustc compiling"
    least_whole = 0.97  # 64 KiB of a stack are all that the kernel gives
    packages, tools = ["rustc", "gcc"], ["/usr/bin/rustc"]
    command = ["/usr/bin/rustc", "--edition", "2021", "-O", "--crate-type", "lib", "compiled.rs"]


@program
class Ffmpeg(Program):
    name = "ffmpeg, x264"
    least_whole = 0.0
    packages, tools = ["ffmpeg"], ["/usr/bin/ffmpeg"]

    def start(self, session):
        process = session.start("ffmpeg", "-nostdin", "-v", "error", "-f", "lavfi", "-i",
                                "testsrc2=size=640x360:rate=30", "-c:v", "libx264", "-f", "null", "-",
                                end_by=signal.SIGKILL)
        wait_for(lambda: len(os.listdir(f"/proc/{process.pid}/task")) > 5, "ffmpeg")
        return process


@program
class Container(Shares):
    name = "container (unshare -m), another file at its path outside"

    def prepare(self, session):
        super().prepare(session)
        for folder, file in (("place", "decoy"), ("inside", "shares")):
            (session.folder / folder).mkdir()
            shutil.copy(session.folder / file, session.folder / folder / "app")

    def start(self, session):
        process = session.start("unshare", "-m", "sh", "-c", "mount --bind inside place && exec $PWD/place/app")
        wait_for(session.said, "the program in its container")
        return process


@program
class Chroot(Shares):
    name = "chroot, another file at its path outside"

    def prepare(self, session):
        super().prepare(session)
        root = session.folder / "root"
        for line in session.run("ldd", session.folder / "shares").splitlines():
            for word in line.split():
                if word.startswith("/"):
                    (root / word[1:]).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(word, root / word[1:])
        (root / "usr/bin").mkdir(parents=True, exist_ok=True)
        shutil.copy(session.folder / "shares", root / "usr/bin/env")

    def start(self, session):
        process = session.start("chroot", session.folder / "root", "/usr/bin/env")
        wait_for(session.said, "the program in its chroot")
        return process


@program
class Deleted(Shares):
    name = "deleted binary"

    def start(self, session):
        shutil.copy(session.folder / "shares", session.folder / "app")
        process = session.start(session.folder / "app")
        wait_for(session.said, "the program")
        (session.folder / "app").unlink()
        return process


@program
class Replaced(Shares):
    name = "replaced binary"

    def start(self, session):
        shutil.copy(session.folder / "shares", session.folder / "app")
        process = session.start(session.folder / "app")
        wait_for(session.said, "the program")
        (session.folder / "app").unlink()
        shutil.copy(session.folder / "decoy", session.folder / "app")
        return process


def wait_for(condition, what):
    end = time.monotonic() + 30
    while not condition():
        if time.monotonic() > end:
            raise RuntimeError(f"{what} did not begin to work within 30 s")
        time.sleep(0.1)


def connects(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
