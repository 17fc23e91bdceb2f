#!/bin/bash
# Recording a process: what it costs the workload, and what a sample takes, beside perf in the same run.
#
#   benches/process.sh [ROUNDS]     needs perf and a release build; prints ratios
#
# Slow-down: the workload does a fixed amount of work on one processor; the recorders take turns, so that
# a machine whose speed drifts does so for all. Bytes: both record the same workload with 8 KiB of raw
# stack at 997 Hz; sizes are per sample as each tool counts its samples.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-9}
uniprof=target/release/uniprof
[ -x $uniprof ] || { echo "build first: cargo build --release --locked"; exit 2; }
command -v perf >/dev/null || { echo "perf is not installed (Debian: linux-perf)"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# A fixed amount of work with a call tree: the interpreter recurses, allocates and sorts.
cat >"$folder/work.py" <<'P'
def tree(n):
    return 1 if n < 2 else tree(n - 1) + tree(n - 2)
for i in range(450):
    tree(22)
    sorted(str(j) for j in range(20000))
P
work=(/usr/bin/python3 "$folder/work.py")

# Seconds of processor time that the workload itself took (user and system).
cpu() { # NAME COMMAND...
  local name=$1
  shift
  "$@" >/dev/null 2>"$folder/$name.log"
}
timed() { # appends the workload's own seconds to $folder/$1
  local name=$1
  shift
  cpu "$name" "$@" || { cat "$folder/$name.log"; exit 1; }
  cat "$folder/seconds" >>"$folder/$name"
}
# The workload writes its own times at the end, so that the recorders' are not counted.
cat >>"$folder/work.py" <<P
import resource
t = resource.getrusage(resource.RUSAGE_SELF)
open("$folder/seconds", "w").write("%f\n" % (t.ru_utime + t.ru_stime))
P

for _ in $(seq "$rounds"); do
  timed plain "${work[@]}"
  timed uniprof $uniprof record -F 997 -o "$folder/fp.uprof" -- "${work[@]}"
  timed perf perf record -q -F 997 -g -o "$folder/fp.data" -- "${work[@]}"
done
median() { sort -n "$1" | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
plain=$(median "$folder/plain") ours=$(median "$folder/uniprof") theirs=$(median "$folder/perf")

$uniprof record -F 997 --stack=8K -o "$folder/stack.uprof" -- "${work[@]}" >/dev/null 2>&1
perf record -q -z -F 997 --call-graph dwarf,8192 -o "$folder/stack.data" -- "${work[@]}" >/dev/null 2>&1
per_sample() { echo "$1 $2" | awk '{ printf "%.1f", $1 / $2 }'; }
our_samples=$($uniprof info "$folder/stack.uprof" | awk '/^samples/ { print $2; exit }')
their_samples=$(perf script -i "$folder/stack.data" -F time 2>/dev/null | grep -c ':')
our_bytes=$(per_sample "$(stat -c %s "$folder/stack.uprof")" "$our_samples")
their_bytes=$(per_sample "$(stat -c %s "$folder/stack.data")" "$their_samples")

ratio() { echo "$1 $2" | awk '{ printf "%.3f", $1 / $2 }'; }
echo "workload alone                    $plain s of processor time (median of $rounds)"
echo "recorded by uniprof at 997 Hz     $ours s, $(ratio "$ours" "$plain") times alone"
echo "recorded by perf record -g        $theirs s, $(ratio "$theirs" "$plain") times alone"
echo "slow-down, uniprof / perf         $(ratio "$ours" "$theirs")   (target: at most 1.05)"
echo "bytes a sample with 8 KiB stacks  uniprof $our_bytes ($our_samples samples), perf -z $their_bytes ($their_samples samples)"
echo "bytes, uniprof / perf             $(ratio "$our_bytes" "$their_bytes")   (target: at most 0.5)"

figure() { # WHAT OURS UNIT PEER THEIRS GOAL
  local IFS=$'\t'
  echo "figure$IFS$*"
}
figure "recorder: a workload recorded at 997 Hz" "$ours" s "perf record -g" "$theirs" "ratio <= 1.05"
figure "recorder: bytes a sample with 8 KiB of stack" "$our_bytes" bytes "perf record -z" "$their_bytes" "ratio <= 0.5"
