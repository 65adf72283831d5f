#!/usr/bin/env bash
# The implementation of `./do bench models`: measures whole training steps of CoC's three models, and sums up.
#
#   bench/models/run.sh [--models LIST] [--rounds N] [--tokens N] [--width W]
#
# Two layers of each model, at an eighth of its widths (BLOOM-176B: a sixteenth), train in Megatron-Core's GPT model on
# two ranks. The emulated link gives communication the share of the serial step that plait predict has for the published
# case: 8 Ascend 910B over HCCS, compared with a link that takes no time.
# Results: build/bench/models_*.json. PLAIT_PYTHON names a Python that has plait, its command and Megatron-Core;
# otherwise it is that of build/venv, with the wheel of the release build. RESULTS: another folder for results.
# --width: of all models, instead of these.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."

results=${RESULTS:-build/bench}
models=bloom-7b,bloom-176b,llama2-70b
arguments=()

usage() {
  printf 'usage: bench/models/run.sh [--models LIST] [--rounds N] [--tokens N] [--width W]\n' >&2
  exit 2
}

while (($# > 0)); do
  case $1 in
    --models) [[ ${2:-} =~ ^[a-z0-9-]+(,[a-z0-9-]+)*$ ]] || usage; models=$2 ;;
    --rounds | --tokens) [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || usage; arguments+=("$1" "$2") ;;
    --width) [[ ${2:-} =~ ^0?\.[0-9]+$ ]] || usage; arguments+=("$1" "$2") ;;
    *) usage ;;
  esac
  shift 2
done

source tools/do/step.sh
source tools/do/python.sh
use_wheel

# milliseconds MODEL LINK: of a serial step, as predicted for the published case.
milliseconds() {
  "$PLAIT_PYTHON" -m plait predict "$1" --tp 8 --device ascend-910b --link "$2" --plan serial --json - |
    "$PLAIT_PYTHON" -c 'import json, sys; print(json.load(sys.stdin)["plans"][0]["step_ms"])'
}

mkdir -p "$results"
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
files=()
for model in ${models//,/ }; do
  share=$(awk -v serial="$(milliseconds "$model" hccs)" -v alone="$(milliseconds "$model" 1000000gbit,0us)" \
    'BEGIN { printf "%.3f", 1 - alone / serial }')
  printf '%s, emulated link, share %s\n' "$model" "$share"
  files+=("$results/models_$model.json")
  "$PLAIT_PYTHON" -m torch.distributed.run --standalone --nproc-per-node 2 bench/models/steps.py "$model" \
    --share "$share" --json "${files[-1]}" "${arguments[@]}"
done
"$PLAIT_PYTHON" -B bench/report.py "${files[@]}"
