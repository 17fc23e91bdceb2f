"""Work for an interpreter: recursion, sorting, dictionaries, a little C."""
import json
import re
import zlib


def tree(n):
    return 1 if n < 2 else tree(n - 1) + tree(n - 2)


def texts():
    return [str(i * 7919 % 10007) for i in range(5000)]


while True:
    tree(18)
    words = sorted(texts())
    json.loads(json.dumps({word: [word] for word in words}))
    zlib.compress(" ".join(words).encode(), 6)
    re.sub(r"(\d)\1+", "x", " ".join(words))
