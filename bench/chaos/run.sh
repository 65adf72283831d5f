#!/usr/bin/env bash
# What `./do bench chaos` does: kills or stops 1000 ranks at random moments, one a round, and checks what the others
# make of it (tests/chaos). The last line counts; the status is 1 where anything hung, was wrong or was left over.
#
#   bench/chaos/run.sh [--kills N] [--seed S] [--world P] [--timeout 700ms] [--json FILE]
#
# BUILD names another build folder than build/release.
set -euo pipefail
program=${BUILD:-$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../../build/release}/tests/chaos/plait_chaos
exec "$program" --kills 1000 "$@"
