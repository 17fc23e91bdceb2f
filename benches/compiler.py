#!/usr/bin/env python3
"""Reports on a compiler at work, which has deep and varied stacks, beside `perf report` and `perf script`.

    benches/compiler.py [SAMPLES]           1,000,000 take some minutes; there are at least 200,000

Needs perf, clang++ and `cargo build --release --locked`. perf and uniprof each record clang++ as it
compiles the same made-up C++, by frame pointers and as often as the kernel's clock can. Times are
processor times of whole commands per sample, symbols and unwind rules of the images included; so
fewer samples cost more each. Memory is the peak resident size, mapped files included.
"""

import os
import subprocess
import sys
import tempfile

from report import UNIPROF, peak_mib, quiet, spent

# Templates that call each other, so that the compiler recurses.
SOURCE = """
#include <algorithm>
#include <array>
#include <map>
#include <regex>
#include <string>
#include <unordered_map>
template<int N> struct T {
  std::map<int, std::array<char, N>> m;
  std::unordered_map<std::string, std::array<char, N>> u;
  int f(std::string s) {
    std::regex r(s); std::smatch k; std::vector<std::array<int, N>> v(N);
    std::stable_sort(v.begin(), v.end(), [](auto &a, auto &b) { return a[0] < b[0]; });
    m[N] = {}; u[s] = {};
    return std::regex_match(s, k, r) + m.size() + u.size() + v[0][0] + T<N - 1>().f(s);
  }
};
template<> struct T<0> { int f(std::string) { return 0; } };
int main(int, char **v) { return T<DEPTH>().f(v[0]); }
"""
HZ = 20000
# What clang++ takes at least for one more template, in samples at this rate.
SAMPLES_PER_TEMPLATE = 20000


def count_of(info):
    """Samples that `uniprof info` names."""
    line = next(line for line in info.splitlines() if line.startswith("samples "))
    return int(line.split()[1])


def main():
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    if not os.access(UNIPROF, os.X_OK):
        sys.exit("build first: cargo build --release --locked")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        with open("made.cc", "w", encoding="utf-8") as source:
            source.write(SOURCE)
        depth = max(wanted // SAMPLES_PER_TEMPLATE, 2)
        compiler = ["clang++", "-std=c++17", "-O2", f"-DDEPTH={depth}", "-c", "made.cc", "-o", "made.o"]
        quiet("perf", "record", "-q", "-g", "-F", str(HZ), "-o", "perf.data", "--", *compiler)
        quiet(UNIPROF, "record", "-q", "--frame-pointers", "-F", str(HZ), "-o", "run.uprof", "--", *compiler)
        listed = subprocess.run(["perf", "script", "-F", "event"], capture_output=True, text=True)
        theirs = sum(1 for line in listed.stdout.splitlines() if line.strip().endswith(":"))
        told = subprocess.run([UNIPROF, "info", "run.uprof"], capture_output=True, text=True)
        ours = count_of(told.stdout)
        print(f"{theirs} samples of perf, {ours} of uniprof")
        peers = {}
        for name, command in (("perf report", "perf report --stdio -g none --no-children"),
                              ("perf script", "perf script")):
            peers[name] = spent(f"{command} >perf.out 2>&1", 1)[1] * 1e6 / max(theirs, 1)
            print(f"  {name}: {peers[name]:.2f} us a sample")
        for name, command, peer, most in (
                ("--top", "report --top", "perf report", 1.0),
                ("--flame", "report --flame", "perf script", 1.5),
                ("folded", "export -f folded", "perf script", 1.5),
                ("pprof", "export -f pprof", "perf script", 1.5)):
            own = spent(f"{UNIPROF} {command} run.uprof >own.out", 3)[1] * 1e6 / ours
            print(f"  {name}: {own:.2f} us a sample, {own / peers[peer]:.2f} times {peer}")
            print(f"figure\treport: a sample of a compiler, {name}\t{own:.2f}\tus\t{peer}\t"
                  f"{peers[peer]:.2f}\tours <= {most}")
        mib, _ = peak_mib(f"exec {UNIPROF} report --top run.uprof >own.out")
        print(f"figure\treport: peak memory, a compiler\t{mib:.0f}\tMiB\t\t\tours <= 120")
        os.chdir("/")


if __name__ == "__main__":
    main()
