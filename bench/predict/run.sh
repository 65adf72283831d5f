#!/usr/bin/env bash
# The implementation of `./do bench predict`: measures the fused operators and training steps of smaller models over
# emulated links, compares them with plait's predictions from the product and the collective alone, and sums up. The two
# ranks need the machine for themselves.
#
#   bench/predict/run.sh [--only NAME] [--seconds S]
#
# --only: one of the three operators, or one of the two models; older measurements of the others are shown too.
# --seconds: time for each row.
# Results: build/predict/errors.json. BUILD: a build folder other than build/release; RESULTS: another folder for
# results.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."

build=${BUILD:-build/release}
results=${RESULTS:-build/predict}
seconds=0.5
operators=(matmul-all-reduce matmul-reduce-scatter all-gather-matmul)
models=(llama2-7b llama2-70b)

usage() {
  printf 'usage: bench/predict/run.sh [--only NAME] [--seconds S]\n' >&2
  exit 2
}

while (($# > 0)); do
  case $1 in
    --only)
      [[ " ${operators[*]} ${models[*]} " == *" ${2:-} "* ]] || usage
      if [[ " ${models[*]} " == *" $2 "* ]]; then operators=() models=("$2"); else operators=("$2") models=(); fi
      shift
      ;;
    --seconds) [[ ${2:-} =~ ^[0-9.]+$ ]] || usage; seconds=$2; shift ;;
    *) usage ;;
  esac
  shift
done

# All sizes have the same number of multiplications: with many rows, some, and few.
sizes=(--m "1024,512,256" --n "2048,4096,8192" --k 2048)
mkdir -p "$results"
for operator in "${operators[@]}"; do
  for ratio in 0.5 1 2; do
    file=$results/measured_$operator-$ratio.json
    "$build/app/cli/plait" bench "$operator" "${sizes[@]}" --link "ratio=$ratio" --parts 4,8 --seconds "$seconds" \
      --json "$file" >/dev/null
  done
done
# Both models are scaled to a hidden width of 2048.
for model in "${models[@]}"; do
  if [[ $model == llama2-70b ]]; then scale=0.25; else scale=0.5; fi
  file=$results/model_$model.json
  "$build/app/cli/plait" bench model "$model" --scale "$scale" --link share=0.12 --seconds "$seconds" \
    --json "$file" >/dev/null
done
"$build/app/cli/plait" predict --measured "$(printf '%s\n' "$results"/measured_*.json | paste -sd,)" \
  --json "$results/predicted.json"
python3 -B bench/predict/steps.py "$build/app/cli/plait" "$results"
python3 -B bench/report.py "$results/errors.json"
