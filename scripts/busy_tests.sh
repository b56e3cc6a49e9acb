#!/usr/bin/env bash
# Runs all tests N times beside busy loops, two per processor, and prints one line per run: no test
# may depend on an idle machine. A run ends after BUSY_MINUTES (60) at the latest.
#
#   scripts/busy_tests.sh [N, 10 by default] [arguments of cargo test]
set -uo pipefail
cd "$(dirname "$0")/.."

runs=${1:-10}
shift || true
minutes=${BUSY_MINUTES:-60}
log=$(mktemp)
loops=()
trap 'for loop in "${loops[@]}"; do kill "$loop" 2>/dev/null; done; rm -f "$log"' EXIT

cargo test -q --workspace --locked --no-run || exit 1

for _ in $(seq $((2 * $(nproc)))); do
    # A loop ends by itself after all runs at the latest, even if this script is killed.
    timeout $((runs * minutes))m sh -c 'while :; do :; done' &
    loops+=($!)
done

passed=0
for run in $(seq "$runs"); do
    begin=$SECONDS
    timeout "${minutes}m" cargo test --workspace --locked --no-fail-fast "$@" >"$log" 2>&1
    code=$?
    tests=$(awk '/^test result:/ { passed += $4; failed += $6 } END { print passed " passed, " failed " failed" }' "$log")
    echo "run $run: exit code $code, $tests, $((SECONDS - begin)) s, load $(cut -d' ' -f1 /proc/loadavg)"
    if [ "$code" -eq 0 ]; then
        passed=$((passed + 1))
    else
        grep -aE '^(test .* FAILED|    [a-z_:]+$)' "$log" | sort -u | head -20
        cp "$log" "${TMPDIR:-/tmp}/dahl-busy-run-$run.log"
    fi
done
echo "$passed of $runs runs passed beside ${#loops[@]} busy loops on $(nproc) processors"
[ "$passed" -eq "$runs" ]
