"""Sixty processes of one interpreter, forked and busy in turns. They go on until the first one is ended."""
import math
import os
import random
import sys
import time

CHILDREN = 60


def spin(seconds):
    end = time.process_time() + seconds
    total = 0
    while time.process_time() < end:
        total += sum(i * i % 7 for i in range(300))
    return total


def chain(depth):
    return spin(0.004) if depth == 0 else chain(depth - 1)


def serve():
    while True:
        chain(random.randrange(12))
        " ".join(sorted(str(math.factorial(n)) for n in range(60)))
        time.sleep(random.uniform(0.3, 0.9))


for number in range(CHILDREN):
    if os.fork() == 0:
        random.seed(number)
        serve()
print("ready", flush=True)
while True:
    time.sleep(1)
