#!/usr/bin/env python3
"""Reads what `uniprof export -f perfetto` wrote by the message classes of PyPI's package perfetto, and compares.

    perfetto_trace.py calls TRACE DUMP            slices are the spans of `uniprof dump`, well nested, one for each
    perfetto_trace.py samples TRACE FOLDED        stacks are those of `uniprof export -f folded`, as often
    perfetto_trace.py within TRACE FUNCTION...    of the samples in each function, 95 % are within a slice of it
    perfetto_trace.py outside TRACE FUNCTION...   of those, 95 % are within no slice of their thread
"""

import collections
import re
import sys

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb

SPAN = re.compile(r"span task=(\S+) depth=(\d+) kind=(\S+) complete=(\S+) start=(\S+) length=(\S+) "
                  r"result=(\S+) cpu=\S+ name=\"(.*)\"")


class Trace:
    """Tracks, slices and samples of a trace, with all numbers replaced by what they stand for."""

    def __init__(self, path):
        trace = pb.Trace()
        with open(path, "rb") as file:
            trace.ParseFromString(file.read())
        self.threads, self.processes, self.counters = {}, {}, {}
        self.slices, self.moments, self.samples = [], [], []
        self.tables = collections.defaultdict(dict)
        self.open = collections.defaultdict(list)
        self.last = collections.defaultdict(int)
        for number, packet in enumerate(trace.packet):
            # Nothing may be there that the package doesn't know.
            assert len(packet.ListFields()) > 1, packet
            assert packet.trusted_packet_sequence_id == 1 and packet.sequence_flags == (2 if number else 1), packet
            self.take(packet)
        assert trace.SerializeToString(deterministic=True) and trace.packet[0].clock_snapshot.primary_trace_clock == 3

    def take(self, packet):
        data = packet.interned_data
        for table in ("event_names", "event_categories", "function_names", "mapping_paths", "mappings", "frames",
                      "callstacks"):
            for entry in getattr(data, table):
                assert entry.iid and entry.iid not in self.tables[table], f"{table}: {entry} is told twice"
                self.tables[table][entry.iid] = entry
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            if track.HasField("process"):
                self.processes[track.uuid] = track.process.process_name
            elif track.HasField("counter"):
                assert track.parent_uuid in self.threads and track.name, track
                self.counters[track.uuid] = []
            else:
                assert track.parent_uuid in self.processes, track
                self.threads[track.uuid] = track.thread
        if packet.HasField("perf_sample"):
            sample = packet.perf_sample
            self.samples.append((packet.timestamp, sample.tid, self.stack(sample.callstack_iid)))
        if packet.HasField("track_event"):
            self.event(packet.timestamp, packet.track_event)

    def stack(self, iid):
        frames = [self.tables["frames"][number] for number in self.tables["callstacks"][iid].frame_ids]
        for frame in frames:
            for part in self.tables["mappings"][frame.mapping_id].path_string_ids:
                assert self.tables["mapping_paths"][part].str
        return [self.tables["function_names"][frame.function_name_id].str.decode() for frame in frames]

    def event(self, at, event):
        track = event.track_uuid
        if event.type == pb.TrackEvent.TYPE_COUNTER:
            assert at >= self.last[track], f"{at} after {self.last[track]}"
            self.last[track] = at
            self.counters[track].append((at, event.double_counter_value))
            return
        tid = self.threads[track].tid
        # Events of a track come in order of time.
        assert at >= self.last[track], f"{at} after {self.last[track]}"
        self.last[track] = at
        if event.type == pb.TrackEvent.TYPE_SLICE_END:
            self.slices.append((*self.open[track].pop(), at))
            return
        name = self.tables["event_names"][event.name_iid].name
        kind = self.tables["event_categories"][event.category_iids[0]].name
        told = {one.name: one.int_value for one in event.debug_annotations}
        begun = (self.threads[track].thread_name, tid, len(self.open[track]), name, kind, told, at)
        if event.type == pb.TrackEvent.TYPE_INSTANT:
            self.moments.append(begun)
        else:
            assert event.type == pb.TrackEvent.TYPE_SLICE_BEGIN, event
            self.open[track].append(begun)


def calls(trace, dump):
    expected, names = collections.Counter(), {}
    text = open(dump, encoding="utf-8").read()
    for task, name in re.findall(r'^task time=\d+ task=(\S+) named="(.*)"$', text, re.M):
        names[task] = name
    spans = SPAN.findall(text)
    starts = [int(span[4]) for span in spans if span[4] != "-"]
    first = min(starts, default=0)
    for task, _, kind, complete, start, length, result, name in spans:
        start = None if start == "-" else int(start) - first
        expected[names[task], name, kind, complete == "yes", start if length != "0" else None,
                 None if length == "-" else int(length), None if result == "-" else int(result)] += 1
    found = collections.Counter()
    rest = [call for calls in trace.open.values() for call in calls]
    for thread, _, _, name, kind, told, start, *end in trace.slices + trace.moments + rest:
        complete = "end_not_in_the_trace" not in told and "beginning_not_in_the_trace" not in told
        length = end[0] - start if end and "end_not_in_the_trace" not in told else None
        found[thread, name, kind, complete, start if starts and length != 0 else None, length,
              told.get("result")] += 1
    name = re.compile(r"\\(.)")
    expected = collections.Counter({(call[0].replace('\\"', '"'), name.sub(r"\1", call[1]), *call[2:]): count
                                    for call, count in expected.items()})
    if expected != found:
        sys.exit(f"only in the recording: {expected - found}\nonly in the export: {found - expected}")
    print(f"{found.total()} calls, {len(trace.slices)} of them with an end, the same")


def samples(trace, folded):
    expected, found = collections.Counter(), collections.Counter()
    for line in open(folded, encoding="utf-8"):
        stack, count = line.rsplit(" ", 1)
        expected[stack] += int(count)
    for _, _, stack in trace.samples:
        found[";".join(name.replace(";", ":") for name in stack)] += 1
    if expected != found or not found:
        sys.exit(f"only in the recording: {expected - found}\nonly in the export: {found - expected}")
    print(f"{found.total()} samples, {len(found)} stacks, the same")


def count(trace, function, is_wanted, late=0):
    """Samples in a function, and how many of them would be in a wanted slice of their thread if they were later."""
    spans = collections.defaultdict(list)
    for _, tid, _, name, _, _, start, end in trace.slices:
        if is_wanted(name):
            spans[tid].append((start, end))
    taken = [(at + late, tid) for at, tid, stack in trace.samples if stack and stack[-1] == function]
    return len(taken), sum(any(start <= at <= end for start, end in spans[tid]) for at, tid in taken)


def within(trace, functions):
    for function in functions:
        taken, inside = count(trace, function, lambda name: name == function)
        # Were one clock off by as little as some milliseconds, they would not be.
        _, moved = count(trace, function, lambda name: name == function, 5_000_000)
        print(f"{function}: {inside} of {taken} samples are within its calls; 5 ms later, {moved} would be", flush=True)
        if taken < 50 or inside < 0.95 * taken or moved >= 0.95 * taken:
            sys.exit(f"too few samples of {function} are within calls of it, or any would be")


def outside(trace, functions):
    sums = [0, 0]
    for function in functions:
        taken, inside = count(trace, function, lambda _: True)
        _, moved = count(trace, function, lambda _: True, 5_000_000)
        print(f"{function}: {taken - inside} of {taken} samples are outside of all calls; 5 ms later, {taken - moved} "
              f"would be", flush=True)
        sums = [sums[0] + taken, sums[1] + moved]
        if taken < 50 or inside > 0.05 * taken:
            sys.exit(f"too many samples of {function} are within calls that it isn't in")
    if sums[1] < 0.05 * sums[0]:
        sys.exit("they would be outside at any time")


if __name__ == "__main__":
    what, path, *rest = sys.argv[1:]
    compare = {"calls": calls, "samples": samples, "within": within, "outside": outside}[what]
    compare(Trace(path), *([rest] if what in ("within", "outside") else rest))
