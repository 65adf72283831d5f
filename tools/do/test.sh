# shellcheck shell=bash
# Building a preset and running its tests.

# test_preset release|asan|tsan [CTEST_OPTIONS...]
test_preset() {
  personality=()
  [[ $1 != tsan ]] || prepare_tsan
  if check "build $1" build "$1"; then
    run_tests "$@"
  else
    failed=$((failed + 1))
    rows+=("tests $1 (not built)|FAIL|0")
  fi
  personality=()
}

# run_tests PRESET [CTEST_OPTIONS...]: ctest's own count goes into ours: one test that failed is one failure.
run_tests() {
  local name="tests $1" result=PASS good bad
  local report=$PWD/build/log/tests-$1.xml
  rm -f "$report"
  run_logged "$name" ctest_preset "$1" "$report" "${@:2}" || result=FAIL
  read -r good bad <<<"$(tools/do/count_tests.py "$report")"
  tools/do/count_tests.py --failed "$report"
  # Something went wrong that is no test: ctest itself, or there were no tests at all.
  [[ $result == PASS || $bad -gt 0 ]] || { bad=1; show_log "$(log_of "$name")"; }
  passed=$((passed + good))
  failed=$((failed + bad))
  rows+=("$name ($((good + bad)))|$result|$seconds")
  while IFS= read -r line; do skipped+=("$1: $line"); done < <(tools/do/count_tests.py --skipped "$report")
}

# Three at a time for two cores: many tests wait on purpose, for a deadline or for a rank that is late. Their threads
# sleep where they wait for each other: spinning would take the cores from the other two.
ctest_preset() {
  OMP_WAIT_POLICY=passive "${personality[@]}" ctest --test-dir "build/$1" -j3 --timeout 120 --output-on-failure \
    --no-tests=error --output-junit "$2" "${@:3}"
}
