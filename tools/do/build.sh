# shellcheck shell=bash
# Building the presets of CMakePresets.json, each in build/PRESET, and running what was built.

personality=()  # put before what builds and runs instrumented programs

# build PRESET: everything in it.
build() { build_targets "$1" all; }

# tell_of_first_build PRESET [MINUTES]: for those who wait in front of it.
tell_of_first_build() {
  [[ -f build/$1/build.ninja ]] ||
    say "The first build takes ${2:-five to fifteen} minutes; what it does is in build/log/ meanwhile."
}

# build_targets PRESET TARGET...: under a lock, because two ninjas in one folder break each other.
build_targets() {
  local preset=$1
  mkdir -p build
  (
    flock 9 && configure "$preset" &&
      "${personality[@]}" ninja -C "build/$preset" "${@:2}"
  ) 9>"build/$preset.lock"
}

# Ninja configures again by itself where a CMake file has changed, but not where the presets have.
configure() {
  local stamp=build/$1/presets.stamp
  [[ -f $stamp && -f build/$1/build.ninja && ! CMakePresets.json -nt $stamp ]] && return
  local options=()
  # CI has an MPI library, and is to fail where it can't be used rather than leave its tests out.
  [[ -z ${CI:-} || $1 == demo ]] || options=(-DPLAIT_COMPILE_TOGETHER=ON)
  [[ -z ${CI:-} || $1 == tsan || $1 == demo ]] || options+=(-DPLAIT_MPI=ON)
  cmake --preset "$1" "${options[@]}" && touch "$stamp"
}

# run_benches [NAME ARGS...]: the benches of one folder of bench/, or of all.
run_benches() {
  local name
  if (($# > 0)); then
    run_bench "$@"
    return
  fi
  for name in $(bench_names); do
    say "== $name"
    run_bench "$name"
  done
}

# A folder with a run.sh knows itself how it is run.
run_bench() {
  local name=$1
  if [[ -x bench/$name/run.sh ]]; then
    "bench/$name/run.sh" "${@:2}"
  elif [[ -x build/release/bench/$name/${name}_bench ]]; then
    "build/release/bench/$name/${name}_bench" "${@:2}"
  fi
}

# check_bench_name [NAME ARGS...]: before anything is built for it.
check_bench_name() {
  [[ $# == 0 || -d bench/$1 ]] ||
    usage_error "no benchmark is called '$1'; there are: $(bench_names | xargs)"
}

bench_names() {
  find bench -mindepth 1 -maxdepth 1 -type d -printf '%f\n' | sort
}
