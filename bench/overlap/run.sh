#!/usr/bin/env bash
# The implementation of `./do bench overlap`: measures the fused operators in every schedule, and sums up.
#
#   bench/overlap/run.sh [--quick] [--kinds LIST] [--operators LIST] [--only LIST] [--ratios LIST]
#                        [--seconds S | --repeat N] [--shapes FILE] [--worlds FILE]
#
# --kinds: some of bf16, f32 and s8 (8-bit weights with bf16) (bf16). --quick: one shape. FILE has lines of m n k
# (bench/overlap/shapes.txt, or for worlds bench/overlap/worlds.txt). --only: some of these sections:
#   link    over emulated links on which the collective takes 0.5, 1 and 2 times (--ratios) as long as the product
#   alone   over shared memory, without a link
#   rival   compared with oneDNN's product and MPI's collective, over shared memory, if both are installed
#   row     a single row over shared memory, three times: the time beyond the product
#   worlds  3, 4 and 8 ranks over emulated links, with products replaced by waiting
# Results: build/bench/overlap_*.json; repeated measurements replace older ones. BUILD: a build folder other than
# build/release; RESULTS: another folder for results; RANKS: a world other than 2, for all sections but worlds (rival
# needs a core for each rank).
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."

build=${BUILD:-build/release}
results=${RESULTS:-build/bench}
ranks=${RANKS:-2}
effort=(--seconds 1)
every_operator=matmul-all-reduce,matmul-reduce-scatter,all-gather-matmul
operators=$every_operator
ratios=0.5,1,2
kinds=bf16
sections=link,alone,rival,row,worlds
shapes=bench/overlap/shapes.txt
worlds=bench/overlap/worlds.txt

usage() {
  printf 'usage: bench/overlap/run.sh %s\n' \
    '[--quick] [--kinds LIST] [--operators LIST] [--only LIST] [--ratios LIST]' >&2
  printf '       %s\n' '[--seconds S | --repeat N] [--shapes FILE] [--worlds FILE]' >&2
  exit 2
}

# is_list NAMES LIST: whether all words of LIST are in NAMES.
is_list() {
  local word
  [[ -n $2 ]] || return 1
  for word in ${2//,/ }; do [[ ,$1, == *,$word,* ]] || return 1; done
}

mkdir -p "$results"
while (($# > 0)); do
  case $1 in
    --quick)
      grep -m1 -v '^#' bench/overlap/shapes.txt >"$results/overlap_quick.txt"
      shapes=$results/overlap_quick.txt
      worlds=$shapes
      ;;
    --kinds) is_list bf16,f32,s8 "${2:-}" || usage; kinds=$2; shift ;;
    --operators) is_list "$every_operator" "${2:-}" || usage; operators=$2; shift ;;
    --ratios) is_list 0.5,1,2 "${2:-}" || usage; ratios=$2; shift ;;
    --only) is_list link,alone,rival,row,worlds "${2:-}" || usage; sections=$2; shift ;;
    --seconds) [[ ${2:-} =~ ^[0-9.]+$ ]] || usage; effort=(--seconds "$2"); shift ;;
    --repeat) [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || usage; effort=(--repeat "$2"); shift ;;
    --shapes) [[ -r ${2:-} ]] || usage; shapes=$2; shift ;;
    --worlds) [[ -r ${2:-} ]] || usage; worlds=$2; shift ;;
    *) usage ;;
  esac
  shift
done
large=$results/overlap_shapes.txt  # with few rows there is no product to hide a link behind
awk '$1 >= 512' "$shapes" >"$large"

# words_of KIND: its options.
words_of() {
  case $1 in
    bf16 | f32) printf '%s\n' --dtype "$1" ;;
    s8) printf '%s\n' --dtype bf16 --weight s8:channel ;;
  esac
}

# bench OPERATOR KIND SHAPES FILE OPTIONS...
bench() {
  local operator=$1 kind=$2 sizes=$3 file=$4 words
  mapfile -t words < <(words_of "$kind")
  "$build/app/cli/plait" bench "$operator" --shapes "$sizes" "${effort[@]}" "${words[@]}" "${@:5}" \
    --json "$results/overlap_$file.json" >/dev/null
}

measure_link() {
  local ratio
  [[ -s $large ]] || return 0
  for ratio in ${ratios//,/ }; do
    printf '%s, %s, emulated link, ratio %s\n' "$1" "$2" "$ratio"
    bench "$1" "$2" "$large" "link_$1_$2_$ratio" --ranks "$ranks" --parts 4,8 --link "ratio=$ratio"
  done
}

measure_alone() {
  printf '%s, %s, shared memory\n' "$1" "$2"
  bench "$1" "$2" "$shapes" "alone_$1_$2" --ranks "$ranks" --parts 4,8
}

measure_rival() {
  local rival=$build/bench/overlap/plait_bench_overlap_mpi options=(--mca pml ob1 --mca btl 'vader,self')
  [[ -x $rival && $2 != s8 ]] || return 0
  ((EUID != 0)) || options+=(--allow-run-as-root)
  printf '%s, %s, beside oneDNN and MPI\n' "$1" "$2"
  OMP_NUM_THREADS=1 mpirun -np "$ranks" --bind-to core "${options[@]}" "$rival" "$1" --shapes "$shapes" --dtype "$2" \
    --ranks "$ranks" --schedule fused "${effort[@]}" --json "$results/overlap_rival_$1_$2.json" >/dev/null
}

measure_row() {
  local run rows=$results/overlap_rows.txt
  printf '1 %s %s\n' 1024 64 4096 64 8192 64 8192 512 >"$rows"
  printf '%s, %s, one row\n' "$1" "$2"
  for run in 1 2 3; do
    bench "$1" "$2" "$rows" "row_$1_$2_$run" --ranks "$ranks" --schedule fused
  done
}

measure_worlds() {
  local world split=$results/overlap_worlds.txt
  # The file has k split over the ranks. If the operator gathers rows, n is split instead, so the two are swapped.
  case $1 in
    all-gather-matmul) awk '!/^#/ { print $1, $3, $2 }' "$worlds" >"$split" ;;
    *) cp "$worlds" "$split" ;;
  esac
  for world in 3 4 8; do
    printf '%s, %s, %s ranks whose products are waited for\n' "$1" "$2" "$world"
    bench "$1" "$2" "$split" "worlds_$1_$2_$world" --ranks "$world" --transport threads --threads 1 --timed-product \
      --schedule fused --link ratio=1
  done
}

for kind in ${kinds//,/ }; do
  for operator in ${operators//,/ }; do
    for section in ${sections//,/ }; do
      "measure_$section" "$operator" "$kind"
    done
  done
done
bench/overlap/keep.py "${effort[@]}" --folder "$results/overlap" "$results"/overlap_*.json
bench/report.py "$results"/overlap/*.json
printf '\nTo keep them:\n  bench/overlap/keep.py %s %s\n  bench/report.py --update %s %s\n' "${effort[*]}" \
  "$results/overlap_*.json" docs/lab/overlap.md 'docs/figures/overlap/*.json'
