#!/usr/bin/env python3
"""Compares what a trace says, read here with no more than its own lines, with the dump of its recording.

    compare.py uftrace REPORT DUMP     calls and self times of `uftrace report`
    compare.py strace LOG DUMP         calls and errors of each system call
    compare.py graph TEXT DUMP         calls and the sum of lengths of each function
    compare.py functions TEXT DUMP     entries of each function
    compare.py changed JSON DUMP,... DUMP,...
                                       what `uniprof diff` says of changed.c compiled both ways
"""

import collections
import json
import math
import re
import statistics
import sys

SPAN = re.compile(r"span task=(\S+) depth=(\d+) kind=(\S+) complete=(\S+) start=(\S+) length=(\S+) "
                  r"result=(\S+) cpu=(\S+) name=(.*)")


def spans(path):
    for line in open(path, errors="replace"):
        found = SPAN.search(line)
        if found:
            task, depth, _, complete, start, length, result, _, name = found.groups()
            number = lambda text: int(text) if re.fullmatch(r"-?\d+", text) else None
            yield (task, int(depth), complete == "yes", number(start), number(length), number(result),
                   name.strip().strip('"'))


def equal(what, expected, found):
    for name in sorted(set(expected) | set(found)):
        if expected.get(name, 0) != found.get(name, 0):
            sys.exit(f"{what} of {name}: the trace says {expected.get(name, 0)}, the recording {found.get(name, 0)}")
    if not expected:
        sys.exit(f"the trace says nothing of {what}")
    print(f"{what}: {len(expected)} names, {sum(expected.values())} in all, the same")


def uftrace(report, dump):
    units = {"us": 1e3, "ms": 1e6, "s": 1e9}
    calls, selfs = {}, {}
    for line in open(report):
        words = line.split()
        if len(words) >= 6 and words[1] in units:
            name = " ".join(words[5:])
            # So uftrace calls the main of a forked child, whose entry is in its parent; it isn't in the data.
            if name == "<0>":
                continue
            calls[name] = int(words[4])
            selfs[name] = (float(words[2]) * units[words[3]], units[words[3]] / 1e3)
    found, own, inside, begun = collections.Counter(), collections.Counter(), collections.Counter(), set()
    for task, depth, complete, _, length, _, name in spans(dump):
        found[name] += 1
        own[name] += (length or 0) - inside.pop((task, depth + 1), 0)
        inside[task, depth] += length or 0
        begun |= set() if complete else {name}
    equal("calls", calls, found)
    compared = 0
    for name, (self_ns, step_ns) in selfs.items():
        # A call that began in the parent and ends in the forked child has no length of its own.
        if name not in begun:
            compared += 1
            if abs(own[name] - self_ns) > step_ns:
                sys.exit(f"self time of {name}: uftrace says {self_ns} ns, the recording {own[name]}")
    if compared < 4:
        sys.exit(f"only {compared} self times were compared")
    print(f"self times: {compared} names, the same to the last digit that uftrace prints")


def strace(log, dump):
    calls, errors = collections.Counter(), collections.Counter()
    for line in open(log, errors="replace"):
        found = re.match(r"\d+\s+[\d.]+ (\w+)\(", line)
        resumed = re.match(r"\d+\s+[\d.]+ <\.\.\. (\w+) resumed>", line)
        if found:
            calls[found.group(1)] += 1
        if re.search(r" = (-1|\?) E\w+ ", line):
            errors[(found or resumed).group(1)] += 1
    found, failed = collections.Counter(), collections.Counter()
    for _, _, complete, start, length, result, name in spans(dump):
        found[name] += 1
        failed[name] += 1 if complete and result is not None and -4096 < result < 0 else 0
        if start is None or (complete and length is None):
            sys.exit(f"a call of {name} has no time")
    equal("calls", calls, found)
    equal("errors", +errors, +failed)


def graph(text, dump):
    calls, ends = collections.Counter(), collections.Counter()
    begun = re.compile(r".*\| +([^ }(/][^(]*)\(.*(\{|;)\s*(/\*.*)?$")
    ended = re.compile(r"([\d.]+) us +\| +(\}|[^ }(/][^(]*\(.*;)")
    for line in open(text, errors="replace"):
        found = begun.match(line)
        if found and not line.startswith("#"):
            calls[found.group(1).strip()] += 1
        found = ended.search(line)
        if found:
            ends[round(float(found.group(1)) * 1000)] += 1
    found, lengths, unbegun = collections.Counter(), collections.Counter(), 0
    for _, _, complete, start, length, _, name in spans(dump):
        # What ends without a beginning isn't called in the text.
        is_begun = complete or length is None
        found[name] += 1 if is_begun else 0
        unbegun += 0 if is_begun else 1
        if length is not None:
            lengths[length] += 1
    equal("calls", calls, found)
    invented = lengths - ends
    if invented:
        sys.exit(f"lengths that the trace doesn't have: {dict(invented)} ns")
    # Ends without a name and without a beginning become no calls, and each is counted as a trouble.
    left, troubles = ends - lengths, 0
    for line in open(dump, errors="replace"):
        total = re.match(r'total name="troubles" value=(\d+)', line)
        troubles = int(total.group(1)) if total else troubles
    print(f"lengths: {ends.total()} ends, {unbegun} of calls that began before; {left.total()} of no call, "
          f"{troubles} troubles counted")
    if left.total() > troubles:
        sys.exit(f"ends of {dict(left)} ns are in no call, and only {troubles} troubles were counted")


def functions(text, dump):
    calls = collections.Counter()
    for line in open(text, errors="replace"):
        found = re.search(r"function: +(\S+) <--", line)
        if found:
            calls[found.group(1)] += 1
    found = collections.Counter()
    for _, _, _, start, _, _, name in spans(dump):
        # Callers whose entry the trace lacks have no time.
        found[name] += 1 if start is not None else 0
    equal("entries", +calls, +found)


def medians(dumps):
    """How long a call of each function takes as a rule, over the dumps of one side."""
    lengths = collections.defaultdict(list)
    for dump in dumps.split(","):
        for *_, length, _, name in spans(dump):
            lengths[name].append(length or 0)
    return {name: statistics.median(each) for name, each in lengths.items()}


def changed(found, before, after):
    told = json.load(open(found))
    certain = {(change["name"], change["of"]): change["apart"] for change in told["changes"] if change["certain"]}
    if set(certain) != {("slow", "self"), ("often", "calls")}:
        sys.exit(f"slow takes longer and often is called more often; certain are {certain}")
    of = {(change["name"], change["of"]): change for change in told["changes"]}
    # Exact, whatever the machine does: how often each is called of all calls.
    for name, factor in [("slow", 1), ("parse", 1), ("hash", 1), ("often", 3)]:
        if abs(of[name, "calls"]["apart"] + 1 - factor) > 0.01:
            sys.exit(f"{name} is called {factor} times as often, not {of[name, 'calls']['apart'] + 1}")
    # Eight times the work doesn't take eight times as long: with each call goes what the tracer itself takes for it. So
    # the truth is what calls take as a rule, apart from what the work takes that is the same on both sides.
    before, after = medians(before), medians(after)
    longer = {name: after[name] / before[name] for name in before}
    truth = longer["slow"] / statistics.geometric_mean(longer[name] for name in ("parse", "hash", "store", "check"))
    if truth < 5:
        sys.exit(f"slow does 8 times as much, and takes only {truth:.2f} times as long: the tracer's own time is too much")
    # Within 4 standard errors of it, which the interval is widened to.
    slow = of["slow", "self"]
    errors = 4 / statistics.NormalDist().inv_cdf((1 + slow["interval_confidence"]) / 2)
    middle, *ends = (math.log1p(each) for each in (slow["apart"], *slow["interval"]))
    low, high = (math.exp(middle + errors * (end - middle)) for end in ends)
    if not low <= truth <= high:
        sys.exit(f"slow takes {truth:.2f} times as long, not between {low:.2f} and {high:.2f} times")
    print(f"changes: {certain}; slow takes {truth:.2f} times as long, which is between {low:.2f} and {high:.2f}")


if __name__ == "__main__":
    {"uftrace": uftrace, "strace": strace, "graph": graph, "functions": functions,
     "changed": changed}[sys.argv[1]](*sys.argv[2:])
