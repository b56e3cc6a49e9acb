#!/usr/bin/env bash
# Fuzzes every file format that dahl reads, and prints one line per target: kept cases,
# executions, cases that were read, memory, the longest execution, failures.
#
#   scripts/fuzz.sh [SECONDS per target, 10 by default]   mutations that are drawn
#   scripts/fuzz.sh --same TIMES   those of cargo test, TIMES as many, the same everywhere
#
# Two targets run at a time. Where one fails, the files of its case are in the directory of
# temporary files, in dahl-fuzz-FORMAT-PROCESS/failed (in now where the process was killed);
# once mended, they become a kept case in crates/dahl-fuzz/corpus/FORMAT.
set -uo pipefail
cd "$(dirname "$0")/.."

case ${1:-} in
--same)
    export FUZZ_TIMES=${2:?how many times as many as cargo test}
    seconds=$((FUZZ_TIMES * 2))
    ;;
*)
    seconds=${1:-10}
    export BOLERO_RANDOM_TEST_TIME_MS=$((seconds * 1000))
    ;;
esac
log=$(mktemp)
trap 'rm -f "$log"' EXIT
tests() { cargo test -q --workspace --locked --no-fail-fast --test formats --test it --bin dahl "$@"; }

tests --no-run || exit 1
# What hangs is killed after several times what all targets take together.
timeout $((30 * seconds + 120)) \
    bash -c "$(declare -f tests); tests -- --nocapture --test-threads 2 fuzz" >"$log" 2>&1
code=$?

grep -ao $'fuzz\t.*' "$log" | sort | column -t -s $'\t'
if [ "$code" -ne 0 ]; then
    grep -av $'fuzz\t' "$log" | tail -60
    echo "FAILED; the files are in ${TMPDIR:-/tmp}/dahl-fuzz-*"
    exit 1
fi
grep -ao $'fuzz\t.*' "$log" |
    awk '{ n += $5 } END { print NR " targets, " n " executions, 0 failures" }'
