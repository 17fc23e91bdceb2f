#!/usr/bin/env python3
"""Self times of a Nanos function_graph dump, by CPU and function, read from the text alone.

    nanos_ftrace.py DUMP

A second reader, which knows nothing of uniprof: it keeps a stack of open calls for each CPU by the
indentation, and prints `cpu<TAB>nanoseconds<TAB>calls<TAB>function` for each that was called, then
counts of the CPU's calls that never end. What a call took itself is what it took, less what those
right inside it took, and never less than nothing.
"""

import re
import sys
from collections import Counter, defaultdict

LINE = re.compile(r"^\s*(\d+)\) (.{13}) \|  ( *)(.+)$")


def nanoseconds(text):
    number = re.search(r"([\d.]+) us", text)
    whole, _, rest = number[1].partition(".") if number else ("", "", "")
    return int(whole or 0) * 1000 + int((rest + "000")[:3]) if number else None


def read(lines):
    own, calls, unended = Counter(), Counter(), Counter()
    stacks = defaultdict(list)  # cpu -> [[function, depth, what the calls inside took], ...]
    for line in lines:
        match = LINE.match(line)
        if line.startswith("#") or not match:
            continue
        cpu, length, depth, text = int(match[1]), nanoseconds(match[2]), len(match[3]) // 2, match[4]
        stack = stacks[cpu]
        if text.endswith("() {"):
            calls[cpu, text[:-4]] += 1
            stack.append([text[:-4], depth, 0])
            continue
        inside = 0
        if text.endswith("();"):
            function = text[:-3]
            calls[cpu, function] += 1
        else:
            function, was_at, inside = stack.pop()
            assert (text, was_at) == (f"}} /* {function} */", depth), line
        own[cpu, function] += max(0, length - inside)
        if stack:
            stack[-1][2] += length
    for cpu, stack in stacks.items():
        unended[cpu] += len(stack)
    return own, calls, unended


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        own, calls, unended = read(file)
    for (cpu, function), count in sorted(calls.items()):
        print(cpu, own[cpu, function], count, function, sep="\t")
    for cpu, count in sorted(unended.items()):
        print(cpu, 0, count, "(never end)", sep="\t")


if __name__ == "__main__":
    main()
