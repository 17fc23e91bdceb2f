"""Asks engines the queries of docs/fleet.md: `fleet.py UNIPROF TABLES RECORDING...`. The tables are those of the
recordings, and each answer must have the numbers of `uniprof export -f json`, of each recording by itself. Without
recordings, only the time is measured."""

import atexit
import collections
import datetime
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/fleet.md"
FUNCTION = "handle_5"


def blocks(page):
    """The SQL of the page, by what stands behind ```sql."""
    return dict(re.findall(r"^```sql (.*?)\n(.*?)^```", page, re.M | re.S))


def statements(sql, tables):
    return [one for one in (one.strip() for one in sql.replace("DIR", tables).split(";\n")) if one]


def duckdb(views):
    import duckdb
    engine = duckdb.connect()
    for view in views:
        engine.execute(view)
    return lambda query: engine.execute(query).fetchall()


def clickhouse(views):
    from chdb import session
    engine = session.Session()
    engine.query("CREATE DATABASE fleet")
    engine.query("USE fleet")
    for view in views:
        engine.query(view)
    plain = " SETTINGS output_format_json_quote_64bit_integers = 0, session_timezone = 'UTC'"
    return lambda query: json.loads(str(engine.query(query + plain, "JSONCompact")))["data"]


def datafusion(views):
    import datafusion
    engine = datafusion.SessionContext()
    for view in views:
        engine.sql(view)
    return lambda query: [list(row.values()) for row in engine.sql(query).to_pylist()]


def spark(views):
    """Two workers, which are processes of their own, as they are on other machines."""
    os.environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "TZ": "UTC", "PYSPARK_PYTHON": sys.executable}
    time.tzset()
    from pyspark.sql import SparkSession
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    settings = {
        "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": folder, "spark.local.dir": folder, "spark.worker.dir": folder,
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    }
    builder = SparkSession.builder.master("local-cluster[2,1,1024]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    engine = builder.getOrCreate()
    atexit.register(engine.stop)
    for view in views:
        engine.sql(view)
    return lambda query: [tuple(row) for row in engine.sql(query).collect()]


ENGINES = [duckdb, clickhouse, datafusion, spark]


def plain(value):
    """A value as all engines have it: times are text, in UTC."""
    if isinstance(value, datetime.datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S")
    return int(value) if isinstance(value, float) or type(value).__name__ == "Decimal" else value


class Truth:
    """What the program itself says of the recordings."""

    def __init__(self, program, recordings):
        self.rows = []
        for path in recordings:
            told = json.loads(self.run(program, "json", path))
            about = told["recordings"][0]
            labels = about["labels"]
            service = labels.get("service", "app")
            began = about["started_ns_since_1970"]
            hour = began and datetime.datetime.fromtimestamp(began // 10**9, datetime.timezone.utc)
            hour = hour and hour.strftime("%Y-%m-%d %H:00:00")
            for stack in told["stacks"]:
                frames = [told["labels"][number] for number in stack["frames"]]
                self.rows.append((service, labels.get("version"), hour, about["uuid"], frames, stack["count"]))
            by_thread = self.run(program, "folded", path, "--by-thread")
            self.threads = getattr(self, "threads", collections.Counter())
            for line in by_thread.splitlines():
                stack, count = line.rsplit(" ", 1)
                self.threads[stack.split(";")[0]] += int(count)

    @staticmethod
    def run(program, form, path, *flags):
        command = [program, "export", "-q", "-f", form, *flags, path]
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True, text=True).stdout

    def sums(self, keys):
        """Weights by what `keys` makes of each row: any number of keys."""
        found = collections.Counter()
        for row in self.rows:
            for key in keys(*row):
                found[key] += row[-1]
        return found

    def answers(self):
        def image(frame):
            return frame["function"], frame["module"].rsplit("/", 1)[-1]

        for *_, frames, _ in self.rows:
            for frame in frames:
                frame["function"] = frame["name"]
        own = self.sums(lambda service, version, hour, uuid, frames, count: [image(frames[-1])])
        total = self.sums(lambda service, version, hour, uuid, frames, count: {image(frame) for frame in frames})
        version = self.sums(lambda service, version, hour, uuid, frames, count: [(version, frames[-1]["name"])])
        hour = self.sums(lambda service, version, hour, uuid, frames, count: [(hour,)] if hour else [])
        folded = self.sums(lambda service, version, hour, uuid, frames, count:
                           [(";".join(frame["name"] for frame in frames),)])
        share = self.sums(lambda service, version, hour, uuid, frames, count:
                          [(hour,)] if hour and frames[-1]["name"] == FUNCTION else [])
        callers = self.sums(lambda service, version, hour, uuid, frames, count: {
            (service, outer["name"]) for outer, inner in zip(frames, frames[1:]) if inner["name"] == FUNCTION})
        service = self.sums(lambda service, version, hour, uuid, frames, count: [(service,)])
        kernel = self.sums(lambda service, version, hour, uuid, frames, count:
                           [(service,)] if frames[-1]["kernel"] else [])
        recordings = collections.Counter(service for service, uuid in {(row[0], row[3]) for row in self.rows})
        ranked = lambda found: [(*key, weight) for key, weight in found.items()]
        return {
            "own": self.first(own), "total": self.first(total), "version": ranked(version), "hour": ranked(hour),
            "service": sorted((name, recordings[name], weight) for (name,), weight in service.items()),
            "folded": ranked(folded),
            "share": sorted((key, share[(key,)], weight) for (key,), weight in hour.items()),
            "callers": ranked(callers),
            "thread": sorted(self.threads.items()),
            "kernel": sorted((name, kernel[(name,)], weight) for (name,), weight in service.items()),
        }

    @staticmethod
    def first(found):
        """The first twenty, as the query orders them."""
        most = sorted(found.items(), key=lambda one: (-one[1], one[0]))[:20]
        return sorted((*key, weight) for key, weight in most)


def comes_back(program, rows):
    """Whether `uniprof import -f folded` reads an answer, and has the same stacks."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/fleet.uprof"
        text = "".join(f"{stack} {weight}\n" for stack, weight in rows)
        subprocess.run([program, "import", "-q", "-f", "folded", "-", "-o", path], input=text, text=True, check=True)
        lines = Truth.run(program, "folded", path).splitlines()
    return sorted(lines) == sorted(text.splitlines())


def main():
    program, tables, *recordings = sys.argv[1:]
    sql = blocks(PAGE.read_text())
    queries = {name.split()[1]: text for name, text in sql.items() if name.startswith("query ")}
    answers = Truth(program, recordings).answers() if recordings else {}
    assert len(queries) == 10 and (not recordings or queries.keys() == answers.keys()), queries.keys()
    wrong = 0
    for engine in ENGINES:
        name = engine.__name__
        began = time.monotonic()
        ask = engine(statements(sql[name], tables) + statements(sql["all"], tables))
        print(f"{name}: starts in {time.monotonic() - began:.2f} s")
        whole = 0
        for query, text in queries.items():
            began = time.monotonic()
            found = sorted((tuple(map(plain, row)) for row in ask(text)), key=str)
            seconds = time.monotonic() - began
            whole += seconds
            if not recordings:
                continue
            expected = sorted(answers[query], key=str)
            is_right = found == expected and len(found) > 0
            if query == "folded":
                is_right &= comes_back(program, found)
            wrong += not is_right
            print(f"{name} {query}: {len(found)} rows, {seconds:.2f} s{'' if is_right else ': WRONG'}")
            if not is_right:
                print("  engine:", [row for row in found if row not in expected][:3])
                print("  report:", [row for row in expected if row not in found][:3])
        print(f"{name}: {len(queries)} queries in {whole:.2f} s", flush=True)
    print(f"{len(queries) * len(ENGINES) - wrong} passed, {wrong} failed")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
