#!/usr/bin/env bash
# The implementation of `./do bench compare`: is one build slower than another?
#
#   bench/compare/run.sh OLD [NEW] [--few-rows] [--rounds N] [--every N] [--seconds S] [--json FILE]
#
# OLD and NEW are build folders; NEW is the release build unless it is named. Both run each case in turns, in changed
# order, in processes of their own. A case's result is the median, over the rounds, of the new time divided by the old
# time: what slows the machine for minutes slows both. Exit status: 1 if the geometric mean of the cases is worse than
# the noise, which is what two halves of OLD's own runs differ by. --few-rows: only products of few rows by quantised
# weights, of which each run counts the shortest call.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."

mkdir -p build/bench
exec python3 -B bench/compare/compare.py --default-new "${BUILD:-build/release}" --json build/bench/compare.json "$@"
