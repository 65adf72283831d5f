# shellcheck shell=bash
# Builds a preset and runs its tests. A test with the label "long" is left to `./do test all` and `./do test release`.

# test_briefly: what `./do test` runs.
test_briefly() {
  extent=brief
  test_preset release -LE long
  test_python briefly
  # shellcheck disable=SC2034  # summary() prints it
  left_out='not run: longer tests, sanitizers, other processors, 4 ranks, newest Megatron, vLLM, lint: ./do test all'
}

meanwhile=()  # what build_meanwhile is given while the first preset's tests run

# test_preset release|asan|tsan [CTEST_OPTIONS...]
test_preset() {
  personality=()
  [[ $1 != tsan ]] || prepare_tsan
  if check "build $1" build "$1"; then
    if ((${#meanwhile[@]} > 0)); then
      build_meanwhile "${meanwhile[@]}"
      meanwhile=()
    fi
    run_tests "$@"
    [[ $1 != release || $extent == brief ]] || note_missing_cuda
    [[ $* != release ]] || test_fewer_instructions
  else
    failed=$((failed + 1))
    rows+=("tests $1 (not built)|FAIL|0")
  fi
  personality=()
}

# Runs the tests that depend on the processor's instructions again with fewer, if this processor has more. What is not
# run again is listed at the end.
test_fewer_instructions() {
  case $(build/release/app/cli/plait info --json | sed -nE 's/.*"instruction_set": "(.*)".*/\1/p') in
    avx512* | amx) ;;
    *) return 0 ;;
  esac
  PLAIT_ISA=avx2 ONEDNN_MAX_CPU_ISA=AVX2 run_tests release -L kernels
  mapfile -t not_again < <(ctest --test-dir build/release --show-only=json-v1 | tools/do/count_tests.py --not-again)
  not_again+=('they call the same library: the Python tests')
}

# run_tests PRESET [CTEST_OPTIONS...]: adds ctest's counts to ours; a failed test is one failure.
run_tests() {
  local name="tests $1${PLAIT_ISA:+ $PLAIT_ISA}" result=PASS good bad report
  report=$PWD/$(log_of "$name")
  report=${report%.log}.xml
  rm -f "$report"
  run_logged "$name" ctest_preset "$1" "$report" "${@:2}" || result=FAIL
  read -r good bad <<<"$(tools/do/count_tests.py "$report")"
  tools/do/count_tests.py --failed "$report"
  # An error that is not a test's: ctest itself failed, or there were no tests.
  [[ $result == PASS || $bad -gt 0 ]] || { bad=1; show_log "$(log_of "$name")"; }
  while IFS= read -r line; do
    skipped+=("${name#tests }: $line")
  done < <(tools/do/count_tests.py --skipped "$report")
  if [[ -n ${CI:-} ]]; then
    while IFS= read -r line; do
      say "--- skipped itself for a reason that tools/do/expected_skips.txt lacks: $line"
      bad=$((bad + 1)) result=FAIL
    done < <(tools/do/count_tests.py --unexpected="$1" "$report")
  fi
  passed=$((passed + good))
  failed=$((failed + bad))
  rows+=("$name ($((good + bad)))|$result|$seconds")
}

# More tests at a time than there are cores, because many wait on purpose, for a deadline or a late rank. Their threads
# sleep while they wait for one another; spinning would take the cores from the other tests.
#
# In the release build each test has a process of its own. With the address sanitizer and in an emulator a program's
# start takes longer than most tests. The thread sanitizer ends children of a process that has had threads.
ctest_preset() {
  local folder=build/$1 options=("${@:3}")
  if [[ $1 != release && $1 != tsan ]]; then
    tools/do/group_tests.py "$folder" "${options[@]}" || return
    folder+=/grouped
    options=(--test-output-size-passed 50000000 --test-output-size-failed 50000000)  # count_tests.py reads it
  fi
  OMP_WAIT_POLICY=passive "${personality[@]}" ctest --test-dir "$folder" -j$(($(nproc) + 4)) --timeout 120 \
    --output-on-failure --no-tests=error --output-junit "$2" "${options[@]}"
}
