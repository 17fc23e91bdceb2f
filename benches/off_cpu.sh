#!/bin/bash
# What --off-cpu costs a program that switches as fast as it can, beside perf's recordings of the same, in turns:
#
#     benches/off_cpu.sh [ROUNDS]
#
# Two threads hand a byte over by two pipes for two seconds; printed are the handovers of each way, relative to
# those unrecorded, the files' sizes, and what each says it lost. As root, with target/release/uniprof and perf.
set -eu
rounds=${1:-3}
here=$(cd "$(dirname "$0")/.." && pwd)
uniprof=${UNIPROF:-$here/target/release/uniprof}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cat >"$work/handovers.c" <<'C'
#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>
static int there[2], back[2];
static void *answers(void *unused) {
    char byte;
    while (read(there[0], &byte, 1) == 1 && write(back[1], &byte, 1) == 1);
    return unused;
}
int main(void) {
    pthread_t thread;
    if (pipe(there) || pipe(back) || pthread_create(&thread, 0, answers, 0)) return 1;
    struct timespec from, now;
    clock_gettime(CLOCK_MONOTONIC, &from);
    long handovers = 0;
    char byte = 0;
    do {
        if (write(there[1], &byte, 1) != 1 || read(back[0], &byte, 1) != 1) return 1;
        handovers += 2;
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((now.tv_sec - from.tv_sec) * 1000000000L + now.tv_nsec - from.tv_nsec < 2000000000L);
    printf("%ld\n", handovers);
}
C
cc -O2 -pthread -o "$work/handovers" "$work/handovers.c"
cd "$work"

ways=(alone uniprof perf-switches perf-sched)
way() {
    case $1 in
    alone) ./handovers ;;
    uniprof) "$uniprof" record --off-cpu --no-embed -o uniprof.out -- ./handovers 2>uniprof.said ;;
    perf-switches) perf record -q -e context-switches -c 1 --switch-events -g -o perf-switches.out ./handovers 2>perf-switches.said ;;
    perf-sched) perf sched record -o perf-sched.out ./handovers 2>perf-sched.said ;;
    esac
}
for ((round = 0; round < rounds; round++)); do
    for one in "${ways[@]}"; do
        way "$one" | grep -E '^[0-9]+$' >>"$one.handovers" || echo "$one failed: $(tail -1 "$one.said")" >&2
    done
done
median() { sort -n "$1" | awk '{ all[NR] = $1 } END { print all[int((NR + 1) / 2)] }'; }
base=$(median alone.handovers)
for one in "${ways[@]}"; do
    [ -s "$one.handovers" ] || continue
    count=$(median "$one.handovers")
    size=$(stat -c %s "$one.out" 2>/dev/null || echo 0)
    awk -v way="$one" -v count="$count" -v base="$base" -v size="$size" 'BEGIN {
        printf "%-14s %8.0f switches/s  %5.2f of unrecorded  %7.2f MiB\n", way, count / 2, count / base, size / 1048576
    }'
done
grep -hiE 'lost|counted' ./*.said | sed 's/^/  /' || true
