#!/bin/bash
# Recording a process: what it costs the workload, and what a sample takes, beside perf in the same run.
#
#   benches/process.sh [ROUNDS]     needs perf, gcc and a release build; prints ratios
#   UNIPROF=FILE                    another build of uniprof
#
# Slow-down: the workloads do a fixed amount of work, an interpreter in one thread and a C program in 16; the
# recorders take turns, so that a machine whose speed drifts does so for all. Bytes: both record the same
# workload with default options, and with 8 KiB of raw stack, at 997 Hz; sizes are per sample as each tool
# counts its samples.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-9}
uniprof=${UNIPROF:-target/release/uniprof}
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

# The workload writes its own times at the end, so that the recorders' are not counted.
cat >>"$folder/work.py" <<P
import resource
t = resource.getrusage(resource.RUSAGE_SELF)
open("$folder/seconds", "w").write("%f\n" % (t.ru_utime + t.ru_stime))
P

timed() { # appends the workload's own seconds to $folder/$1
  local name=$1
  shift
  "$@" >/dev/null 2>"$folder/$name.log" || { cat "$folder/$name.log"; exit 1; }
  cat "$folder/seconds" >>"$folder/$name"
}
median() { sort -g "$1" | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
ratio() { echo "$1 $2" | awk '{ printf "%.3f", $1 / $2 }'; }
figure() { # WHAT OURS UNIT PEER THEIRS GOAL
  local IFS=$'\t'
  echo "figure$IFS$*"
}

# in_turns WORKLOAD GOAL COMMAND...: plain, recorded by us and by perf, again and again; medians, and the median
# of the ratios of each turn, which a machine that gets slower or busier from turn to turn moves least.
in_turns() {
  local workload=$1 goal=$2 kind
  shift 2
  rm -f "$folder"/{plain,uniprof,perf,ratios}
  for _ in $(seq "$rounds"); do
    timed plain "$@"
    timed uniprof $uniprof record -F 997 -o "$folder/fp.uprof" -- "$@"
    timed perf perf record -q -F 997 -g -o "$folder/fp.data" -- "$@"
    ratio "$(tail -n 1 "$folder/uniprof")" "$(tail -n 1 "$folder/perf")" >>"$folder/ratios"
    echo >>"$folder/ratios"
  done
  local plain ours theirs each
  plain=$(median "$folder/plain") ours=$(median "$folder/uniprof") theirs=$(median "$folder/perf")
  each=$(median "$folder/ratios")
  echo "$workload alone: $plain s of processor time (median of $rounds)"
  echo "  recorded by uniprof at 997 Hz     $ours s, $(ratio "$ours" "$plain") times alone"
  echo "  recorded by perf record -g        $theirs s, $(ratio "$theirs" "$plain") times alone"
  echo "  uniprof / perf, median of turns   $each   (goal: $goal)"
  echo "  bytes a sample                    uniprof $(bytes_of "$folder/fp.uprof"), perf $(bytes_of_perf "$folder/fp.data")"
  figure "recorder: $workload recorded at 997 Hz" "$ours" s "perf record -g" "$theirs" "ratio <= $goal"
  figure "recorder: $workload, beside perf record -g in the same turn" "$each" times "" "" "ours <= $goal"
  figure "recorder: $workload, bytes a sample by default" "$(bytes_of "$folder/fp.uprof")" bytes \
    "perf record -g" "$(bytes_of_perf "$folder/fp.data")" ""
}

per_sample() { echo "$1 $2" | awk '{ printf "%.1f", $1 / $2 }'; }
samples_of() { $uniprof info "$1" | awk '/^samples/ { print $2; exit }'; }
samples_of_perf() { perf script -i "$1" -F time 2>/dev/null | grep -c ':'; }
bytes_of() { per_sample "$(stat -c %s "$1")" "$(samples_of "$1")"; }
bytes_of_perf() { per_sample "$(stat -c %s "$1")" "$(samples_of_perf "$1")"; }

gcc -O2 -fno-omit-frame-pointer -pthread -o "$folder/threads" benches/threads.c
in_turns "a workload" 1.05 "${work[@]}"
in_turns "16 threads" 1.0 "$folder/threads" "$folder/seconds"

$uniprof record -F 997 --stack=8K -o "$folder/stack.uprof" -- "${work[@]}" >/dev/null 2>&1
perf record -q -z -F 997 --call-graph dwarf,8192 -o "$folder/stack.data" -- "${work[@]}" >/dev/null 2>&1
our_samples=$(samples_of "$folder/stack.uprof") their_samples=$(samples_of_perf "$folder/stack.data")
our_bytes=$(bytes_of "$folder/stack.uprof") their_bytes=$(bytes_of_perf "$folder/stack.data")
echo "bytes a sample with 8 KiB stacks    uniprof $our_bytes ($our_samples samples), perf -z $their_bytes ($their_samples samples)"
echo "bytes, uniprof / perf               $(ratio "$our_bytes" "$their_bytes")   (goal: at most 0.5)"
figure "recorder: bytes a sample with 8 KiB of stack" "$our_bytes" bytes "perf record -z" "$their_bytes" "ratio <= 0.5"
