"""A Python program for benches/diff.py: texts are made, counted, compressed and read back.

usage: python3 texts.py ROUNDS SLOWER: compresses SLOWER percent more often than once a text.
"""

import json
import re
import sys
import zlib

WORDS = ["profile", "sample", "stack", "frame", "guest", "kernel", "share", "block", "image", "name"]


def make(number):
    return [{"number": number * 31 + line, "text": " ".join(
        WORDS[(number * line + word * word) % len(WORDS)] + str(word * line % 17) for word in range(14))}
        for line in range(60)]


def count(texts):
    counts = {}
    for one in texts:
        for word in re.findall(r"[a-z]+\d", one["text"]):
            counts[word] = counts.get(word, 0) + 1
    return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))


def compress(texts):
    return zlib.compress(json.dumps(texts[:40]).encode(), 5)


def main():
    rounds, slower = map(int, sys.argv[1:])
    owed = size = 0
    for number in range(rounds):
        texts = make(number)
        size += len(count(texts)) + len(json.loads(json.dumps(texts)))
        owed += 100 + slower
        while owed >= 100:
            owed -= 100
            size += len(compress(texts))
    print(size)


main()
