#!/usr/bin/env bash
# Makes every operation on files and threads of small runs fail, and the power fail between
# any two of them; each run must then go on to the same bits. Prints how many were tried.
set -euo pipefail
cd "$(dirname "$0")/.."
# The whole workspace: alone, the parts would be built again with other features.
CAMPAIGN=all cargo test -q --workspace --locked --test it campaign:: -- --nocapture
