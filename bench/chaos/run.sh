#!/usr/bin/env bash
# The implementation of `./do bench chaos`: kills or stops 1000 ranks at random moments, one per round, and checks how
# the others react (tests/chaos). The last line is the result; the status is 1 if any round hung, was wrong or left
# something behind.
#
#   bench/chaos/run.sh [--kills N] [--seed S] [--world P] [--timeout 700ms] [--json FILE]
#
# BUILD names another build folder than build/release.
set -euo pipefail
program=${BUILD:-$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../../build/release}/tests/chaos/plait_chaos
exec "$program" --kills 1000 "$@"
