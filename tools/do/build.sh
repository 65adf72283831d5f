# shellcheck shell=bash
# Building the presets of CMakePresets.json, each in build/PRESET, and running what was built.

personality=()  # put before what builds and runs instrumented programs

# build PRESET: everything in it.
build() { build_targets "$1" all; }

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
  cmake --preset "$1" && touch "$stamp"
}

# run_benches [NAME ARGS...]: one, by the name of its executable, or all of them.
run_benches() {
  local bench
  if (($# > 0)); then
    bench=$(find build/release/bench -type f -name "$1" -perm -u+x)
    [[ -n $bench ]] || usage_error "no benchmark is called '$1'; there are: $(bench_names | xargs)"
    exec "$bench" "${@:2}"
  fi
  for bench in $(bench_names); do
    say "== $bench"
    "$(find build/release/bench -type f -name "$bench" -perm -u+x)"
  done
}

bench_names() {
  find build/release/bench -type f -name '*_bench' -perm -u+x -printf '%f\n' | sort
}
