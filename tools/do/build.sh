# shellcheck shell=bash
# Builds the presets of CMakePresets.json, each in build/PRESET, and runs programs.

# If ccache is installed, nothing is compiled again that was compiled before, even in another clone: two clones have the
# same objects if these don't hold paths. Precompiled headers need the sloppiness.
if command -v ccache >/dev/null; then
  export CMAKE_CXX_COMPILER_LAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER-ccache}
  export CMAKE_CUDA_COMPILER_LAUNCHER=${CMAKE_CUDA_COMPILER_LAUNCHER-ccache}
  export CCACHE_BASEDIR=${CCACHE_BASEDIR-$PWD} CCACHE_NOHASHDIR=${CCACHE_NOHASHDIR-1}
  export CCACHE_SLOPPINESS=${CCACHE_SLOPPINESS-pch_defines,time_macros}
fi

personality=()  # a prefix for commands that build and run instrumented programs

# build PRESET: builds all targets; of Arm's, which run slowly, those that are tested.
build() {
  local targets=(all)
  [[ $1 != arm ]] || targets=("${arm_targets[@]}")
  build_targets "$1" "${targets[@]}"
}

# tell_of_first_build PRESET [MINUTES]: tells the user that the first build takes long.
tell_of_first_build() {
  [[ -f build/$1/build.ninja ]] ||
    say "The first build takes ${2:-five to fifteen} minutes; what it does is in build/log/ meanwhile."
}

# build_targets PRESET TARGET...: builds under a lock, because two ninjas in one folder disturb each other.
build_targets() {
  local preset=$1
  mkdir -p build
  (
    flock 9 && configure "$preset" &&
      "${personality[@]}" ninja -C "build/$preset" "${@:2}"
  ) 9>"build/$preset.lock"
}

# build_meanwhile environments|PRESET...: prepares and builds in the background, with what other steps leave of the
# processors: half of them while tests wait. A later `build` of such a preset waits until this one has ended, and does
# what is missing; so does a step that needs an environment.
build_meanwhile() {
  set -m  # a group of processes, which can be ended
  (
    renice -n 19 "$BASHPID"
    for preset; do
      case $preset in
        environments) prepare_environments || true; continue ;;
        tsan) prepare_tsan ;;
      esac
      build "$preset" || break
    done
  ) >"$(log_of 'build meanwhile')" 2>&1 </dev/null &
  set +m
  # shellcheck disable=SC2064  # the group that is known now
  trap "kill -- -$! 2>/dev/null || true" EXIT
}

# How much of the release build is made: `whole`, or `brief`, which lacks kernels for GPUs, benchmarks and examples. It
# compiles several of the library's sources at a time, which takes half as long. So does a build of CI, where nothing is
# compiled a second time. A folder that has been whole stays so.
extent=whole

# Ninja configures again if a CMake file has changed, but not if the presets or the wanted extent have.
configure() {
  local stamp=build/$1/presets.stamp options=() options_of_cuda=()
  if [[ -f $stamp && -f build/$1/build.ninja && ! CMakePresets.json -nt $stamp ]]; then
    [[ $1 != release || $extent == brief || $(<"$stamp") == whole ]] && return
  fi
  # CI has an MPI library and UCX, and must fail if they can't be used, not leave out their tests.
  if [[ $1 != demo && $1 != arm ]]; then
    options=(-DPLAIT_COMPILE_TOGETHER=ON)
    [[ -z ${CI:-} || $1 == tsan ]] || options+=(-DPLAIT_MPI=ON -DPLAIT_UCX=ON)
    [[ -z ${CI:-} && $extent != brief ]] || options+=(-DPLAIT_COMPILE_TOGETHER=all)
  fi
  if [[ $1 == release && $extent == brief ]]; then
    options+=(-DPLAIT_CUDA=OFF -DPLAIT_BUILD_BENCHES=OFF -DPLAIT_BUILD_EXAMPLES=OFF)
  elif [[ $1 == release ]]; then
    options+=(-DPLAIT_CUDA=auto -DPLAIT_BUILD_BENCHES=ON -DPLAIT_BUILD_EXAMPLES=ON)
    cuda_options
  fi
  cmake --preset "$1" "${options[@]}" "${options_of_cuda[@]}" && printf '%s\n' "$extent" >"$stamp"
}

# run_benches [NAME ARGS...]: runs the benches of one folder of bench/, or of all.
run_benches() {
  local name
  if (($# > 0)); then
    run_bench "$@"
    return
  fi
  for name in $(bench_names); do
    [[ $name != compare ]] || continue  # which takes another build
    say "== $name"
    run_bench "$name"
  done
}

# If a folder has a run.sh, that script runs its benchmarks.
run_bench() {
  local name=$1
  if [[ -x bench/$name/run.sh ]]; then
    "bench/$name/run.sh" "${@:2}"
  elif [[ -x build/release/bench/$name/${name}_bench ]]; then
    "build/release/bench/$name/${name}_bench" "${@:2}"
  fi
}

# check_bench_name [NAME ARGS...]: checks the name before anything is built.
check_bench_name() {
  [[ $# == 0 || -d bench/$1 ]] ||
    usage_error "no benchmark is called '$1'; there are: $(bench_names | xargs)"
}

bench_names() {
  find bench -mindepth 1 -maxdepth 1 -type d -printf '%f\n' | sort
}
