# shellcheck shell=bash
# Steps: their names, times and logs, and the summary of all steps.
#
# A step is called where its status is tested, so `set -e` has no effect inside: functions used as steps join their
# commands with &&.

logs=build/log
rows=()  # of the summary: "name|result|seconds"
passed=0      # ctest tests and named checks together
failed=0
skipped=()    # "BUILD: reason (how many tests skipped themselves for it)"
left_out=     # a line about what this verb does not test
not_again=()  # "reason: the tests that therefore do not run again with fewer instructions"

# ninja and ctest handle Ctrl-C themselves and then fail, which bash takes for an answer: it would run the next step.
trap 'stop_progress ""; say interrupted; exit 130' INT

say() { printf '%s\n' "$*"; }

usage_error() {
  say "$*" >&2
  exit 2
}

log_of() { printf '%s/%s.log' "$logs" "${1// /-}"; }

# show_log LOG: prints the end of a log, and its path.
show_log() {
  local log=$1
  [[ -s $log ]] || return 0
  say "--- the end of $log:"
  tail -n 60 "$log"
  say "--- the whole log: $log"
}

# show_progress NAME LOG: on a terminal, prints the progress of ninja or ctest while this shell lives.
progress=
show_progress() {
  local far
  while sleep 1 && kill -0 $$ 2>/dev/null; do
    far=$(tail -c 2000 "$2" | sed -nE 's#^ *\[?([0-9]+/[0-9]+)[] ].*#\1#p' | tail -n 1)
    [[ -z $far ]] || printf '\r%-23s %s ' "$1" "$far"
  done
}

stop_progress() {
  [[ -n $progress ]] || return 0
  kill "$progress" 2>/dev/null || true
  wait "$progress" 2>/dev/null || true
  progress=
  printf '\r\033[K%-23s ' "$1"
}

# run_logged NAME COMMAND...: sets `seconds`; returns the status of the command.
run_logged() {
  local log status=0 start=$SECONDS
  log=$(log_of "$1")
  mkdir -p "$logs"
  printf '%-23s ' "$1"
  : >"$log"
  [[ ! -t 1 ]] || { show_progress "$1" "$log" & progress=$!; }
  "${@:2}" >"$log" 2>&1 </dev/null || status=$?
  stop_progress "$1"
  seconds=$((SECONDS - start))
  if ((status == 0)); then
    say "ok      ${seconds} s"
  else
    say "FAILED  ${seconds} s"
  fi
  return "$status"
}

# step NAME COMMAND...: runs a step that the rest requires.
step() {
  run_logged "$@" || { show_log "$(log_of "$1")"; exit 1; }
}

# check NAME COMMAND...: runs a check that counts; later ones run even if it fails.
check() {
  if run_logged "$@"; then
    passed=$((passed + 1))
    rows+=("$1|PASS|$seconds")
  else
    failed=$((failed + 1))
    rows+=("$1|FAIL|$seconds")
    show_log "$(log_of "$1")"
    return 1
  fi
}

# quietly COMMAND...: prints the output only if the command fails.
quietly() {
  local log
  log=$logs/quiet-$$.log
  mkdir -p "$logs"
  if ! "$@" >"$log" 2>&1 </dev/null; then
    show_log "$log" >&2
    exit 1
  fi
  rm -f "$log"
}

# show_skipped HEAD PATTERN GREP_OPTION: prints the skipped tests whose reason matches, or does not match.
show_skipped() {
  local lines
  lines=$(printf '  %s\n' "${skipped[@]}" | grep "$3" "$2") || return 0
  say "$1" && say "$lines"
}

# summary: prints the table of steps and, as the last line, the counts. Exits with 1 if anything failed.
summary() {
  local row name result seconds
  say
  for row in "${rows[@]}"; do
    IFS='|' read -r name result seconds <<<"$row"
    printf '%s  %-36s %6d s\n' "$result" "$name" "$seconds"
  done
  if ((${#skipped[@]} > 0)); then
    show_skipped 'not run on this processor:' 'this processor|PLAIT_ISA' -E
    show_skipped 'not run, for the reason that each gives:' 'this processor|PLAIT_ISA' -vE
  fi
  if ((${#not_again[@]} > 0)); then
    say 'not run again with fewer instructions:' && printf '  %s\n' "${not_again[@]}"
  fi
  [[ -z $left_out ]] || say "$left_out"
  say "$passed passed, $failed failed"
  ((failed == 0)) || exit 1
}
