#!/usr/bin/env bash
# The implementation of `./do bench plans`: compares automatic plans with the fastest of many plans.
#
#   bench/plans/run.sh [--quick] [--shapes FILE] [--ratios LIST] [--operators LIST] [--seconds S]
#
# The machine's profile is measured once. Then, for each problem: the model's choice, the plan that plait tune finds,
# and all plans of a list, in turns. Ratios are the collective's time divided by the product's, over an emulated link;
# 0: over shared memory. FILE has lines of m n k (bench/overlap/shapes.txt); --quick: one small shape. Results:
# build/bench/plans_*.json. BUILD: a build folder other than build/release; RESULTS: another folder for results.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."

export PLAIT_COMMAND=${BUILD:-build/release}/app/cli/plait
export RESULTS=${RESULTS:-build/bench}
mkdir -p "$RESULTS"
python3 -B bench/plans/measure.py "$@"
python3 -B bench/report.py "$RESULTS"/plans_*.json
