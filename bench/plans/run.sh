#!/usr/bin/env bash
# What `./do bench plans` does: are automatic plans as fast as the fastest there are?
#
#   bench/plans/run.sh [--quick] [--shapes FILE] [--ratios LIST] [--operators LIST] [--seconds S]
#
# The machine is measured once. Then, for each problem: what the model chooses, what plait tune finds, and both beside
# all plans of a list, taking turns. Ratios are of the collective's time to the product's over an emulated link; 0: over
# shared memory alone. FILE has lines of m n k, as bench/overlap/shapes.txt, which is taken otherwise; --quick: one
# small shape. Results: build/bench/plans_*.json. BUILD names another build folder than build/release; RESULTS another
# place.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."

export PLAIT_COMMAND=${BUILD:-build/release}/src/cli/plait
export RESULTS=${RESULTS:-build/bench}
mkdir -p "$RESULTS"
python3 -B bench/plans/measure.py "$@"
python3 -B bench/plans/report.py "$RESULTS"/plans_*.json
