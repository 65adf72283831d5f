#!/usr/bin/env bash
# What `./do bench overlap` does: measures the fused operators in every schedule, over emulated links that make the
# collective 0.5, 1 and 2 times as long as the product, and over shared memory alone; and sums up.
#
#   bench/overlap/run.sh [--quick | --all] [--seconds S] [--shapes FILE]      results: build/bench/overlap_*.json
#
# Without options: bf16 (half an hour). --all: f32 and W8A16 too. --quick: one shape. FILE has lines of m n k, as
# bench/overlap/shapes.txt, which is taken otherwise.
# BUILD names another build folder than build/release; RANKS another world than 2.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."

plait=${BUILD:-build/release}/src/cli/plait
results=build/bench
scope=usual
seconds=1
operators=(matmul-all-reduce matmul-reduce-scatter all-gather-matmul)
kinds=(bf16)
shapes=bench/overlap/shapes.txt

usage() {
  printf 'usage: bench/overlap/run.sh [--quick | --all] [--seconds S] [--shapes FILE]\n' >&2
  exit 2
}

while (($# > 0)); do
  case $1 in
    --quick) scope=quick ;;
    --all) scope=all ;;
    --seconds) [[ ${2:-} =~ ^[0-9.]+$ ]] || usage; seconds=$2; shift ;;
    --shapes) [[ -r ${2:-} ]] || usage; shapes=$2; shift ;;
    *) usage ;;
  esac
  shift
done

mkdir -p "$results"
rm -f "$results"/overlap_*.json
if [[ $scope == all ]]; then kinds=(bf16 f32 s8); fi
if [[ $scope == quick ]]; then
  grep -m1 -v '^#' "$shapes" >"$results/overlap_quick.txt"
  shapes=$results/overlap_quick.txt
fi

# measure OPERATOR KIND LINK: where rows are few there is nothing to hide, and shared memory alone is measured.
measure() {
  local operator=$1 kind=$2 link=$3 words=(--dtype bf16) sizes=$shapes
  case $kind in
    f32) words=(--dtype f32) ;;
    s8) words=(--dtype bf16 --weight s8:channel) ;;
  esac
  if [[ -n $link ]]; then
    words+=(--link "ratio=$link")
    sizes=$results/overlap_shapes.txt
    awk '/^#/ || $1 >= 512' "$shapes" >"$sizes"
  fi
  printf '%s, %s, %s\n' "$operator" "$kind" "${link:+emulated link, ratio }${link:-shared memory}"
  "$plait" bench "$operator" --ranks "${RANKS:-2}" --shapes "$sizes" --parts 4,8 --seconds "$seconds" "${words[@]}" \
    --json "$results/overlap_${operator}_${kind}_${link:-none}.json" >/dev/null
}

for kind in "${kinds[@]}"; do
  for operator in "${operators[@]}"; do
    for link in '' 0.5 1 2; do
      measure "$operator" "$kind" "$link"
    done
  done
done
python3 bench/overlap/report.py "$results"/overlap_*.json
