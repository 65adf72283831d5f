#!/usr/bin/env bash
# The implementation of `./do bench model`: measures training steps of models' linear layers, and sums up.
#
#   bench/model/run.sh [--models LIST] [--shares LIST] [--wire DTYPE] [--repeat N] [--scale S] [--seq TOKENS]
#
# Each model and share is measured over an emulated link on which communication is that share of the serial step. A step
# takes some seconds: one block, 2048 tokens, a hidden width of 4096 (all of BLOOM-7B, half of LLaMA2-70B). Narrower
# layers would represent the models less well, because the share of sums and copies grows as widths shrink. --wire: the
# dtype of partial sums (bf16, as frameworks send them; f32 is more exact and takes twice the bytes).
# Results: build/bench/model_*.json; repeated measurements replace older ones. BUILD: a build folder other than
# build/release; RESULTS: another folder for results; RANKS: a world other than 2.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."

build=${BUILD:-build/release}
results=${RESULTS:-build/bench}
models=llama2-70b,bloom-7b
shares=0.08,0.12,0.16
wire=bf16
repeat=5
scale=  # empty: the model's
seq=2048

# scale_of MODEL: the scale for a hidden width of 4096, unless --scale is given.
scale_of() {
  if [[ -n $scale ]]; then
    printf '%s' "$scale"
    return
  fi
  case $1 in
    llama2-70b) printf 0.5 ;;
    bloom-176b) printf 0.286 ;;
    *) printf 1 ;;
  esac
}

usage() {
  printf 'usage: bench/model/run.sh %s\n' \
    '[--models LIST] [--shares LIST] [--wire DTYPE] [--repeat N] [--scale S] [--seq TOKENS]' >&2
  exit 2
}

while (($# > 0)); do
  case $1 in
    --models) [[ ${2:-} =~ ^[a-z0-9-]+(,[a-z0-9-]+)*$ ]] || usage; models=$2; shift ;;
    --shares) [[ ${2:-} =~ ^[0-9.]+(,[0-9.]+)*$ ]] || usage; shares=$2; shift ;;
    --wire) [[ ${2:-} =~ ^[a-z0-9]+$ ]] || usage; wire=$2; shift ;;
    --repeat) [[ ${2:-} =~ ^[0-9]+$ ]] || usage; repeat=$2; shift ;;
    --scale) [[ ${2:-} =~ ^[0-9.]+$ ]] || usage; scale=$2; shift ;;
    --seq) [[ ${2:-} =~ ^[0-9]+$ ]] || usage; seq=$2; shift ;;
    *) usage ;;
  esac
  shift
done

mkdir -p "$results"
for model in ${models//,/ }; do
  for share in ${shares//,/ }; do
    printf '%s, emulated link, share %s, sums in %s\n' "$model" "$share" "$wire"
    file=$results/model_${model}-${wire}_$share.json
    "$build/app/cli/plait" bench model "$model" --tp "${RANKS:-2}" --link "share=$share" --repeat "$repeat" \
      --scale "$(scale_of "$model")" --seq "$seq" --wire "$wire" --json "$results/step.json" >/dev/null
    python3 -B bench/model/rows.py "$results/step.json" "$share" "$file"
  done
done
python3 -B bench/report.py "$results"/model_*.json
