#!/bin/bash
# How large the programs are without symbols, and how many crates they are made of.
#
#   benches/sizes.sh        needs a release build; builds the static recorder
set -euo pipefail
cd "$(dirname "$0")/.."

megabytes() { awk -v bytes="$(stat -c %s "$1")" 'BEGIN { printf "%.2f", bytes / 1e6 }'; }
crates() { cargo tree --locked --edges normal --prefix none "$@" | sort -u | wc -l; }
figure() { printf 'figure\t%s\t%s\t%s\t\t\t%s\n' "$@"; }

stripped=$(mktemp)
trap 'rm -f "$stripped"' EXIT
strip -o "$stripped" target/release/uniprof
figure "size: the program" "$(megabytes "$stripped")" MB ""
figure "size: the static recorder" "$(megabytes "$(tests/xen/recorder)")" MB "ours <= 3"
figure "size: crates of the program, itself included" "$(crates)" crates ""
figure "size: crates of the recorder" "$(crates --no-default-features --features record)" crates ""
