#!/bin/bash
# How many raw stack bytes it takes until stacks are whole: a line for each program and size.
#
#   benches/stack.sh PROGRAM...     a command each, for example 'clang++ -O2 -c big.cpp -o /dev/null'
#   UNIPROF=FILE RATE=HZ SIZES='default 16K 64K'
set -euo pipefail
uniprof=${UNIPROF:-$(dirname "$0")/../target/release/uniprof}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for program in "$@"; do
  for size in ${SIZES:-default 16K 64K}; do
    flags=(--stack="$size")
    [ "$size" = default ] && flags=()
    # shellcheck disable=SC2086  # a command with its words
    "$uniprof" record --no-embed -F "${RATE:-199}" "${flags[@]}" -o "$folder/run.uprof" -- $program \
      >/dev/null 2>&1 || true
    "$uniprof" export -f json "$folder/run.uprof" >"$folder/run.json" 2>/dev/null
    bytes=$("$uniprof" info "$folder/run.uprof" | awk '/^sample blocks/ { print $5 }')
    python3 - "$folder/run.json" "$program" "$size" "$bytes" <<'P'
import json, sys
file, program, size, bytes_each = sys.argv[1:]
account = json.load(open(file))["account"]
counted, ends = account["counted"], account["cut_stacks"].get("window-end", 0)
print(f"{program.split()[0]:12} {size:8} {counted:6} samples  {bytes_each:>7} bytes a sample  "
      f"{100 * ends / max(counted, 1):5.1f} % end where the bytes do")
P
  done
done
