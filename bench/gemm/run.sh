#!/usr/bin/env bash
# The implementation of `./do bench gemm`: measures plait's products and oneDNN's in one process, in turns, then torch's
# if $PYTHON (python3) has torch, and sums up. Uses one core, unless OMP_NUM_THREADS is set.
#
#   bench/gemm/run.sh [--quick | --all] [--rounds N] [--shape NAME]...      results: build/bench/gemm.json
#
# Without options: everything for the square weight in bf16 and f32, the products in f16 and, if there are two cores,
# those on two threads compared with one; for the models' layers the packed products in bf16 and f32.
# --all: everything for all shapes (an hour). --quick: the square weight with a few numbers of rows.
# Each round measures everything again, with torch's processes between plait's.
# BUILD: a build folder other than build/release.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."

program=${BUILD:-build/release}/bench/gemm/plait_bench_gemm
python=${PYTHON:-python3}
results=build/bench
rounds=3
scope=usual
shapes=()

usage() {
  printf 'usage: bench/gemm/run.sh [--quick | --all] [--rounds N] [--shape NAME]...\n' >&2
  exit 2
}

while (($# > 0)); do
  case $1 in
    --quick) scope=quick ;;
    --all) scope=all ;;
    --rounds) [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || usage; rounds=$2; shift ;;
    --shape) [[ -n ${2:-} ]] || usage; shapes+=("$2"); shift ;;
    *) usage ;;
  esac
  shift
done

export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
# A single thread is pinned, so that it stays near its memory and caches.
pinned=()
if [[ $OMP_NUM_THREADS == 1 ]] && command -v taskset >/dev/null; then
  pinned=(taskset -c "$(taskset -cp $$ | grep -o '[0-9]*$')")
fi
options=(--benchmark_repetitions=7 --benchmark_min_time=0.04)
if ((${#shapes[@]} == 0)); then
  mapfile -t shapes < <("$program" --list)
fi
if [[ $scope == quick ]]; then
  rounds=1
  shapes=(square)
  options=(--benchmark_repetitions=3 --benchmark_min_time=0.02)
fi

# The cases of a shape that are measured, as a regular expression.
cases_of() {
  if [[ $scope == quick ]]; then
    printf '/(bf16|f32)/(peak|memory|plait|plait_s8|onednn|torch)/(0|1|4|16|512)(/|$)'
  elif [[ $scope == all || $1 == square ]]; then
    printf '/(bf16|f32)/(peak|memory|plait|onednn|torch)[a-z0-9_]*/|'
    printf '/f16/(peak|plait|plait_plain|onednn|torch)/(0|1|16|128|256|512|1024|2048)(/|$)'
  else
    printf '/(bf16|f32)/(peak|memory|plait|onednn|torch)/(0|1|4|16|64|128|256|512|1024|2048)(/|$)'
  fi
}

# Succeeds if torch is installed; prints nothing otherwise.
has_torch() { "$python" -c 'import torch' 2>/dev/null; }

# NAME SHAPE CASES [COMMAND...]: runs one process with all cases in turns, and writes the results to gemm_NAME.json.
measure() {
  local out=$results/gemm_$1.json shape=$2 cases=$3
  shift 3
  "$@" "$program" --shape "$shape" --benchmark_filter="$cases" --benchmark_enable_random_interleaving=true \
    "${options[@]}" --benchmark_out="$out" >/dev/null 2>"$results/gemm.log" ||
    { cat "$results/gemm.log" >&2; exit 1; }
}

mkdir -p "$results"
rm -f "$results"/gemm_*.json
for ((round = 1; round <= rounds; ++round)); do
  for shape in "${shapes[@]}"; do
    printf 'round %d of %d: %s\n' "$round" "$rounds" "$shape"
    measure "${shape}_$round" "$shape" "$(cases_of "$shape")" "${pinned[@]}"
    if has_torch; then
      "${pinned[@]}" "$python" bench/gemm/torch_linear.py --beside "$results/gemm_${shape}_$round.json" \
        --filter "$(cases_of "$shape")" --out "$results/gemm_torch_${shape}_$round.json"
    fi
    if [[ $scope != quick && $shape == square ]] && (($(env -u OMP_NUM_THREADS nproc) >= 2)); then  # nproc obeys it
      measure "two_threads_$round" square '/(bf16|f32)/(one_thread|two_threads)/(16|128|512|2048)(/|$)' \
        env OMP_NUM_THREADS=2
    fi
  done
done
has_torch || printf '\n%s has no torch to compare with (set PYTHON).\n' "$python"
"$python" -B bench/gemm/rows.py "$results/gemm.json" "$results"/gemm_*.json
"$python" -B bench/report.py "$results/gemm.json"
