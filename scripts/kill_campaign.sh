#!/usr/bin/env bash
# Kills training runs with SIGKILL at 50 random moments (or as many as the first
# argument says), resumes each until it ends and compares weights and metrics
# with those of a run that was never disturbed.
set -euo pipefail
cd "$(dirname "$0")/.."
KILLS="${1:-50}" cargo test -q -p dahl-cli --test it killed_at_random_moments -- --nocapture
