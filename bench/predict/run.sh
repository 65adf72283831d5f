#!/usr/bin/env bash
# What `./do bench predict` does: measures the fused operators over emulated links, and shows beside it what plait
# predicts of them from the product and the collective alone, and sums up. Two ranks of their own: nothing else should
# run on the machine.
#
#   bench/predict/run.sh [--only OPERATOR] [--seconds S]
#
# --only: one operator of the three; what was measured of the others before is shown too. --seconds: for each row.
# Results: build/predict/*.json. BUILD names another build folder than build/release, RESULTS another place for them.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."

build=${BUILD:-build/release}
results=${RESULTS:-build/predict}
seconds=0.5
operators=(matmul-all-reduce matmul-reduce-scatter all-gather-matmul)

usage() {
  printf 'usage: bench/predict/run.sh [--only OPERATOR] [--seconds S]\n' >&2
  exit 2
}

while (($# > 0)); do
  case $1 in
    --only) [[ " ${operators[*]} " == *" ${2:-} "* ]] || usage; operators=("$2"); shift ;;
    --seconds) [[ ${2:-} =~ ^[0-9.]+$ ]] || usage; seconds=$2; shift ;;
    *) usage ;;
  esac
  shift
done

# As much to multiply, of many rows, of some, and of few.
sizes=(--m "1024,512,256" --n "2048,4096,8192" --k 2048)
mkdir -p "$results"
for operator in "${operators[@]}"; do
  for ratio in 0.5 1 2; do
    "$build/src/cli/plait" bench "$operator" "${sizes[@]}" --link "ratio=$ratio" --parts 4,8 --seconds "$seconds" \
      --json "$results/measured_$operator-$ratio.json" >/dev/null
  done
done
"$build/src/cli/plait" predict --measured "$(printf '%s\n' "$results"/measured_*.json | paste -sd,)" \
  --json "$results/predicted.json"
bench/predict/report.py "$results"/*.json
