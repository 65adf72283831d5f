# shellcheck shell=bash
# The plugin for NVIDIA GPUs: what compiling it takes, and the programs that check it on a GPU.

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

# cuda_options: sets `options_of_cuda` of the release build. CI must fail if there is nvcc and the plugin can't be
# built; elsewhere it is then left out. CI runs no kernel, so it compiles them quickly.
cuda_options() {
  options_of_cuda=()
  has_nvcc || return 0
  if prepare_cutlass; then
    options_of_cuda=("-DPLAIT_CUTLASS_DIR=$PWD/$cutlass/cutlass_library/source")
  fi
  [[ -z ${CI:-} ]] || options_of_cuda+=(-DPLAIT_CUDA=ON -DPLAIT_CUDA_QUICK=ON)
}

# Tells the summary what was not compiled.
note_missing_cuda() {
  has_nvcc || skipped+=('release: no CUDA compiler is here: the plugin for GPUs was not compiled')
}

# No package is installed, since a machine with a GPU may reach no registry.
build_gpu_checks() {
  # The build may be CI's, whose kernels are slow.
  if grep -qs '^PLAIT_CUDA_QUICK:BOOL=ON' build/release/CMakeCache.txt; then
    flock build/release.lock cmake -DPLAIT_CUDA_QUICK=OFF build/release || return
  fi
  build_targets release plait_cuda app/cli/plait gpu_api_check gpu_lt_check gpu_overlap_check gpu_w8_check
}

check_gpu() {
  need_gpu
  if ! has_nvcc; then
    say 'There is a GPU here, but no CUDA compiler: nothing was checked. Elsewhere, ./do gpu pack makes a folder that' \
      'needs none.'
    exit 77
  fi
  step 'build release' build_gpu_checks
  run_gpu_checks build/release/tests/gpu build/release/app/cli/plait
  summary
}

# pack_gpu_checks FOLDER: makes a folder with all that the checks need on another machine; its run.sh runs them.
pack_gpu_checks() {
  local folder=$1
  [[ ! -e $folder || -f $folder/run.sh ]] || usage_error "$folder exists, and was not made by ./do gpu pack"
  if ! has_nvcc; then
    say 'There is no CUDA compiler here: nothing was packed.'
    exit 77
  fi
  need_packages build
  tell_of_first_build release
  step 'build release' build_gpu_checks
  step 'pack' lay_out_pack build/release "$folder"
  say "$(du -sh "$folder" | cut -f 1) in $folder: copy it to a machine with a GPU, and call its run.sh"
}

# lay_out_pack BUILD FOLDER: copies programs and libraries of the folder BUILD, without names and debug information.
lay_out_pack() {
  local build=$1 folder=$2 file programs
  programs=("$build"/app/cli/plait "$build"/tests/gpu/gpu_{api,lt,overlap,w8}_check)
  rm -rf "${folder:?}"/{bin,lib,log,run.sh,step.sh,gpu.sh} && mkdir -p "$folder"/{bin,lib/plait} || return
  for file in "${programs[@]}"; do
    strip -o "$folder/bin/${file##*/}" "$file" || return
  done
  strip --strip-unneeded -o "$folder/lib/plait/libplait_cuda.so" "$build/lib/plait/libplait_cuda.so" || return
  while read -r file; do
    strip --strip-unneeded -o "$folder/lib/${file##*/}" "$file" || return
  done < <(libraries_to_pack "${programs[@]}" "$build/lib/plait/libplait_cuda.so")
  cp tools/do/step.sh tools/do/gpu.sh "$folder/" && cp tools/do/gpu_run.sh "$folder/run.sh"
}

# libraries_to_pack FILE...: lists what the files load, except the C and C++ libraries: those of a newer system work,
# and an older C++ library beside the system's own would break a newer program in the same process.
libraries_to_pack() {
  ldd "$@" | sed -nE 's/^\t.* => (\/.*) \(0x.*/\1/p' | sort -u |
    grep -vE '/(libc|libm|libdl|librt|libpthread|libstdc\+\+|libgcc_s)\.so'
}
