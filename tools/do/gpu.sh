# shellcheck shell=bash
# The checks that need a GPU. `./do gpu` and the run.sh of a folder made by `./do gpu pack` both use this list.

gpu_words=()  # if there are any: only checks whose names contain one of them

has_gpu() { compgen -G '/dev/nvidia[0-9]*' >/dev/null; }

# Test runners take 77 for "not run": neither passed nor failed.
need_gpu() {
  has_gpu && return
  say 'There is no GPU here: nothing was checked.'
  exit 77
}

# run_gpu_checks PROGRAMS PLAIT: runs the programs of the folder PROGRAMS, and ranks by the command PLAIT. Each program
# prints what it has proved; figures are lines of JSON in its log.
run_gpu_checks() {
  local programs=$1 plait=$2 tool
  gpu_check 600 'gpu operators, ranks as threads' "$programs/gpu_api_check" threads
  gpu_check 180 'gpu operators, ranks as processes' "$plait" run -n 2 -- "$programs/gpu_api_check" processes
  gpu_check 60 'gpu refusals' "$programs/gpu_api_check" refusals
  if is_wanted 'gpu a lost rank'; then
    check 'gpu a lost rank' lost_rank_is_noticed "$programs" "$plait" || true
  fi
  gpu_check 600 'gpu schedules, bit by bit' "$programs/gpu_overlap_check" correct 600
  gpu_check 300 'gpu late ranks' "$programs/gpu_overlap_check" waits
  gpu_check 300 'gpu graphs' "$programs/gpu_overlap_check" graph
  gpu_check 300 'gpu two processes' "$programs/gpu_overlap_check" processes
  gpu_check 300 'gpu overlap over an emulated link' "$programs/gpu_overlap_check" link
  gpu_check 300 'gpu overlap over PCIe' "$programs/gpu_overlap_check" pcie
  if command -v compute-sanitizer >/dev/null; then
    for tool in memcheck racecheck synccheck; do
      gpu_check 600 "gpu $tool" compute-sanitizer --error-exitcode 1 --tool "$tool" \
        "$programs/gpu_overlap_check" correct 4
    done
  else
    skipped+=('gpu memcheck, racecheck, synccheck: no compute-sanitizer is here')
  fi
  if find_cublaslt; then
    gpu_check 300 'gpu cuBLASLt' "$programs/gpu_lt_check"
    gpu_check 600 'gpu cost of the kernels' "$programs/gpu_overlap_check" cost
  else
    skipped+=("gpu cuBLASLt, cost of the kernels: no $cublaslt was found; PLAIT_CUBLASLT can name its file")
  fi
  gpu_check 300 'gpu 8-bit weights' "$programs/gpu_w8_check" check
}

# gpu_check SECONDS NAME COMMAND...: a check that is ended after so many seconds, and has failed then.
gpu_check() {
  is_wanted "$2" || return 0
  check "$2" timeout --kill-after=10 "$1" "${@:3}" || true
}

is_wanted() {
  local word
  for word in "${gpu_words[@]}"; do
    [[ $1 != *"$word"* ]] || return 0
  done
  ((${#gpu_words[@]} == 0))
}

# lost_rank_is_noticed PROGRAMS PLAIT: one of the two ranks kills itself, so the run as a whole fails.
lost_rank_is_noticed() {
  local said
  said=$(timeout --kill-after=10 120 "$2" run -n 2 -- "$1/gpu_api_check" lost 2>&1) || true
  printf '%s\n' "$said"
  [[ $said == *'the GPU was free'* && $said != *FAILED* ]]
}

cublaslt=libcublasLt.so.13

# Sets PLAIT_CUBLASLT, unless the caller has. Fails if there is no such library.
find_cublaslt() {
  local folder
  [[ -z ${PLAIT_CUBLASLT:-} ]] || return 0
  while read -r folder; do
    [[ -f $folder/$cublaslt ]] || continue
    export PLAIT_CUBLASLT=$folder/$cublaslt
    return 0
  done < <(cublaslt_folders)
  return 1
}

# Lists folders that may have it: those of the loader, of CUDA, and of NVIDIA's Python packages.
cublaslt_folders() {
  local python site
  tr ':' '\n' <<<"${LD_LIBRARY_PATH:-}"
  printf '%s\n' /usr/local/cuda/lib64 /usr/local/cuda-13*/lib64 /usr/lib/x86_64-linux-gnu
  for python in python3 python "${VIRTUAL_ENV:-/usr}/bin/python3" /opt/*/bin/python3; do
    "$python" -c 'import sys; print(*sys.path, sep="\n")' 2>/dev/null || true
  done | while read -r site; do
    printf '%s\n' "$site/nvidia/cu13/lib" "$site/nvidia/cublas/lib"
  done
}

# Prints the last line of each check that has passed: what it has counted or measured.
# shellcheck disable=SC2154  # step.sh has these variables
show_gpu_findings() {
  local row name result
  ((passed > 0)) || return 0
  say && say 'proved:'
  for row in "${rows[@]}"; do
    IFS='|' read -r name result _ <<<"$row"
    [[ $result != PASS ]] || printf '  %s: %s\n' "$name" "$(tail -n 1 "$(log_of "$name")" | cut -c 1-200)"
  done
}
