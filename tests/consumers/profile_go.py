"""Whether Go's compiler uses a profile: `profile_go.py UNIPROF GO`. A function that is too large to be inlined is, where
`uniprof export -f pprof` says that it is hot, and only there."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

PROGRAM = """package main

import "syscall"

var table [64]uint64

func mixed(x uint64) uint64 {
	for i := uint64(0); i < 24; i++ {
		if x>>i&1 == 1 {
			x = x*31 + i
		} else {
			x ^= x >> 7
		}
		x += table[x&63]
		if x%3 == 0 {
			x = x<<5 ^ x>>9
		} else if x%5 == 0 {
			x -= x >> 3
		} else if x%7 == 0 {
			x ^= x << 11
		}
		table[x&63] ^= x
		table[(x>>6)&63] += i
		table[(x>>12)&63] -= i
	}
	return x
}

func seconds() int64 {
	var used syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &used)
	return used.Utime.Sec
}

func main() {
	x := uint64(1)
	for seconds() < 1 {
		for i := 0; i < 10000; i++ {
			x += mixed(x)
		}
	}
	println(x+mixed(7) != 0)
}
"""
HOT = 1 + PROGRAM[:PROGRAM.index("x += mixed")].count("\n")
COLD = 1 + PROGRAM[:PROGRAM.index("mixed(7)")].count("\n")


def main():
    program, go = (pathlib.Path(path).absolute() for path in sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "main.go").write_text(PROGRAM)
        (folder / "go.mod").write_text("module hot\n\ngo 1.21\n")
        own = {"GOCACHE": f"{folder}/cache", "GOPROXY": "off", "GOTOOLCHAIN": "local", "GOFLAGS": "", "HOME": str(folder)}

        def run(*words):
            ended = subprocess.run(words, cwd=folder, env=os.environ | own, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True)
            assert ended.returncode == 0 or words[0] == program and ended.returncode == 1, ended.stdout
            return ended.stdout

        def inlined():
            """Lines of calls of the function that are inlined. Go takes default.pgo if it is there."""
            said = run(go, "build", "-gcflags=-m=2", "-o", "hot", ".")
            return [int(line) for line in re.findall(r"main\.go:(\d+):\d+: inlining call to mixed", said)]

        assert inlined() == [], "it is inlined without a profile"
        run(program, "record", "-q", "-F", "999", "-o", "hot.uprof", "--", "./hot")
        run(program, "export", "-q", "-f", "pprof", "-o", "default.pgo", "hot.uprof")
        found = inlined()
        assert found == [HOT], (found, HOT, COLD)
    print(f"Go inlines the call of line {HOT}, which is hot, and not that of line {COLD}")


if __name__ == "__main__":
    main()
