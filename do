#!/usr/bin/env bash
# One command for all tasks in this repository. `./do help` lists its verbs.
#
# Installs missing Debian packages first. All output goes below build/.
set -euo pipefail

caller=$PWD
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")"
source tools/do/step.sh
source tools/do/packages.sh
source tools/do/build.sh
source tools/do/cuda.sh
source tools/do/gpu.sh
source tools/do/sanitizers.sh
source tools/do/lint.sh
source tools/do/test.sh
source tools/do/python.sh
source tools/do/publish.sh
source tools/do/arm.sh

verb_help() {
  cat <<'TEXT'
usage: ./do VERB

  demo               builds the command, and shows an all-reduce hidden behind its product
  test               before each push: the tests of the library, the command and the Python package; about
                     15 minutes on two cores, and no download above 300 MB
  test all           before a branch is merged, and in CI: these tests and longer ones, two builds with sanitizers, one
                     for Arm, the newest Megatron-Core, SmolLM2 (93 MB), vLLM (1.5 GB), and what `lint` checks; three to
                     four times as long
  test unit          the unit tests among them, for everyday work
  test release|asan|tsan
                     one build and all its tests
  test python        the Python package of the release build: wheel, sources, tests, some of them with vLLM (1.5 GB)
  test arm           tests for 64-bit Arm, cross-compiled and run under an emulator; results there must have the bits of
                     AVX2
  test vllm          all tests with vLLM: both dtypes, compiled graphs too; `test all` leaves out most engines
  lint               checks of layers, documents, format and shell scripts; clang-tidy on changed files
  plait ARGS...      the plait command of the release build, which is built first
  bench [NAME ARGS]  all, or: chaos, comm, compare, gemm, model, models, network, overlap, plans, predict, python, trace
                     (compare takes an older build; `python users` and `network users` are about Megatron-Core, Hugging
                     Face and vLLM, on one host and between two)
  build [PRESET]     a build without tests: release, asan or tsan
  gpu                the checks that need a GPU
  gpu pack [FOLDER]  a folder (build/gpu-pack) that runs them on a machine with a GPU and none of plait's needs
  docs               the documents as pages with a search, in build/site
  wheel              the Python package: its wheel and the list of its components in build/wheelhouse, its sources in
                     build/sdist
  wheel arm          an experimental wheel for 64-bit Arm in build/arm/wheelhouse, tried under an emulator
  clean              delete build/

Logs are in build/log/.
TEXT
}

verb_demo() {
  takes_nothing demo "$@"
  need_packages demo
  tell_of_first_build demo 'one to five'
  # A folder of its own: a part of the command alone is compiled there, several sources at a time.
  step 'build demo' build_targets demo app/cli/plait_demo
  exec bench/overlap/demo.py
}

verb_plait() {
  [[ -x build/release/app/cli/plait ]] || { need_packages build; tell_of_first_build release; } >&2
  quietly build_targets release app/cli/plait
  command=$PWD/build/release/app/cli/plait
  cd "$caller"
  exec "$command" "$@"
}

verb_bench() {
  check_bench_name "$@"
  need_packages build
  tell_of_first_build release
  step 'build release' build release
  run_benches "$@"
}

verb_build() {
  case ${1:-release} in
    release | asan | tsan) ;;
    *) usage_error "./do build takes release, asan, tsan or nothing, not '$1'" ;;
  esac
  need_packages build
  tell_of_first_build "${1:-release}"
  step "build ${1:-release}" build "${1:-release}"
}

verb_lint() {
  takes_nothing lint "$@"
  need_packages check
  step 'build release' build release
  lint
  summary
}

verb_test() {
  case ${1:-} in
    '') need_packages python; tell_of_first_build release 'five to ten'; test_briefly ;;
    unit) need_packages build; extent=brief; test_preset release -L unit -LE long ;;
    release | asan | tsan) need_packages build; test_preset "$1" ;;
    python) need_packages python; step 'build release' build_targets release src/all app/all; test_python ;;
    vllm) need_packages python; step 'build release' build_targets release src/all app/all
      if prepare_python; then test_vllm; fi ;;
    arm) need_arm_packages; step 'build release' build_targets release app/cli/plait; test_arm ;;
    lint) verb_lint "${@:2}"; return ;;
    all) need_packages check; need_arm_packages; tell_of_first_build release
      meanwhile=(environments asan tsan arm); test_preset release
      test_python; lint; test_preset asan; test_preset tsan; test_arm ;;
    *) usage_error "./do test takes all, unit, release, asan, tsan, python, vllm, arm, lint or nothing, not '$1'" ;;
  esac
  summary
}

verb_docs() {
  takes_nothing docs "$@"
  need_packages python
  step 'publishing tools' prepare_publish_venv
  step 'site' build_site
  say 'build/site/index.html; for its search: python3 -m http.server -d build/site'
}

verb_wheel() {
  case $* in
    '') ;;
    arm) wheel_for_arm; return ;;
    *) usage_error "./do wheel takes arm or nothing, not '$*'" ;;
  esac
  need_packages python
  tell_of_first_build release
  step 'build release' build_targets release src/all app/all
  step 'python tools' prepare_venv
  step 'python wheel' build_wheel
  step 'list of components' list_components
  step 'python sdist' check_sdist
}

wheel_for_arm() {
  need_packages python
  need_arm_packages
  step 'build arm' build_targets arm src/all app/all
  step 'python tools' prepare_venv
  step 'wheel for arm' build_arm_wheel
  step 'wheel for arm, tried' try_arm_wheel
  say build/arm/wheelhouse/plait-*.whl
}

verb_gpu() {
  case ${1:-} in
    '') check_gpu ;;
    pack)
      [[ ${2:-} != -* ]] || usage_error "./do gpu pack takes a folder or nothing, not '$2'"
      pack_gpu_checks "$(folder_of_caller "${2:-$PWD/build/gpu-pack}")"
      ;;
    *) usage_error "./do gpu takes pack, a folder after it, or nothing, not '$1'" ;;
  esac
}

# takes_nothing VERB ARGS...: refuses arguments of a verb that has none, before anything is built or deleted.
takes_nothing() {
  (($# == 1)) || usage_error "./do $1 takes nothing, not '$2'"
}

folder_of_caller() { (cd "$caller" && realpath -m -- "$1"); }

verb_clean() {
  takes_nothing clean "$@"
  rm -rf build
}

verb=${1:-help}
[[ $verb == -h || $verb == --help ]] && verb=help
if ! declare -F "verb_$verb" >/dev/null; then
  usage_error "./do has no verb '$verb'; ./do help lists them"
fi
shift || true
# The command has a help of its own. Every other verb must not begin its work when it is asked for help.
[[ $verb == plait || ! ${1:-} =~ ^(-h|--help)$ ]] || verb=help
"verb_$verb" "$@"
