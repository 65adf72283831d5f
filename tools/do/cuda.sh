# shellcheck shell=bash
# The plugin for NVIDIA GPUs: what compiling it takes, and the checks that need a GPU.

cutlass_version=4.2.0.0
cutlass=build/cutlass-$cutlass_version

has_nvcc() { command -v nvcc >/dev/null; }

# Unpacks the headers of CUTLASS (6 MB of Python's registry). They stay for later builds, which then need no registry.
prepare_cutlass() {
  local wheels=$cutlass.wheels
  [[ ! -e $cutlass/complete ]] || return 0
  rm -rf "$cutlass" "$wheels" "$wheels.venv"
  python3 -m venv "$wheels.venv" &&
    "$wheels.venv/bin/python" -m pip download --no-deps --only-binary :all: -d "$wheels" \
      "nvidia-cutlass==$cutlass_version" &&
    python3 -m zipfile -e "$wheels"/*.whl "$cutlass" &&
    rm -rf "$wheels" "$wheels.venv" &&
    touch "$cutlass/complete"
}

# cuda_options PRESET: sets `options_of_cuda`. CI must fail if there is nvcc and the plugin can't be built; elsewhere it
# is then left out. Other builds than the release build have no plugin.
cuda_options() {
  options_of_cuda=()
  [[ $1 == release ]] && has_nvcc || return 0
  if prepare_cutlass; then
    options_of_cuda=("-DPLAIT_CUTLASS_DIR=$PWD/$cutlass/cutlass_library/source")
  fi
  [[ -z ${CI:-} ]] || options_of_cuda+=(-DPLAIT_CUDA=ON)
}

# Tells the summary what was not compiled.
note_missing_cuda() {
  has_nvcc || skipped+=('release: no CUDA compiler is here: the plugin for GPUs was not compiled')
}

has_gpu() { compgen -G '/dev/nvidia[0-9]*' >/dev/null; }

# No package is installed, since such a machine may reach no registry.
build_gpu_checks() {
  build_targets release plait_cuda src/cli/plait gpu_api_check gpu_lt_check gpu_overlap_check gpu_w8_check
}

# Runs the programs that check a GPU. Each prints what it has proved; figures are lines of JSON in its log.
run_gpu_checks() {
  local programs=build/release/tests/gpu run=build/release/src/cli/plait tool
  check 'gpu operators, ranks as threads' "$programs/gpu_api_check" threads || true
  check 'gpu operators, ranks as processes' "$run" run -n 2 -- "$programs/gpu_api_check" processes || true
  check 'gpu refusals' "$programs/gpu_api_check" refusals || true
  check 'gpu a lost rank' lost_rank_is_noticed || true
  check 'gpu schedules, bit by bit' "$programs/gpu_overlap_check" correct 600 || true
  check 'gpu late ranks' "$programs/gpu_overlap_check" waits || true
  check 'gpu graphs' "$programs/gpu_overlap_check" graph || true
  check 'gpu cost of the kernels' "$programs/gpu_overlap_check" cost || true
  check 'gpu overlap over an emulated link' "$programs/gpu_overlap_check" link || true
  check 'gpu overlap over PCIe' "$programs/gpu_overlap_check" pcie || true
  if command -v compute-sanitizer >/dev/null; then
    for tool in memcheck racecheck synccheck; do
      check "gpu $tool" compute-sanitizer --error-exitcode 1 --tool "$tool" "$programs/gpu_overlap_check" correct 4 ||
        true
    done
  fi
  check 'gpu cuBLASLt' "$programs/gpu_lt_check" || true
  check 'gpu 8-bit weights' "$programs/gpu_w8_check" check || true
}

# One of the two ranks kills itself, so the run as a whole fails.
lost_rank_is_noticed() {
  local said
  said=$(build/release/src/cli/plait run -n 2 -- build/release/tests/gpu/gpu_api_check lost 2>&1) || true
  printf '%s\n' "$said"
  [[ $said == *'the GPU was free'* && $said != *FAILED* ]]
}
