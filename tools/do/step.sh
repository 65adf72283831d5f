# shellcheck shell=bash
# Steps: what is being done, how long it took, where its log is, and the summary of them all.
#
# A step is called where its status is asked for, and there `set -e` is off: functions used as steps join their
# commands with &&.

rows=()       # of the summary: "name|result|seconds"
passed=0      # ctest tests and named checks together
failed=0
skipped=()    # "BUILD: reason (how many tests skipped themselves for it)"

say() { printf '%s\n' "$*"; }

usage_error() {
  say "$*" >&2
  exit 2
}

log_of() { printf 'build/log/%s.log' "${1// /-}"; }

# show_log LOG: the end of a log, and where the rest is.
show_log() {
  local log=$1
  [[ -s $log ]] || return 0
  say "--- the end of $log:"
  tail -n 60 "$log"
  say "--- the whole log: $log"
}

# show_progress NAME LOG: on a terminal, how far ninja or ctest says it is, for as long as this shell lives.
progress=
show_progress() {
  local far
  while sleep 1 && kill -0 $$ 2>/dev/null; do
    far=$(tail -c 2000 "$2" | sed -nE 's#^ *\[?([0-9]+/[0-9]+)[] ].*#\1#p' | tail -n 1)
    [[ -z $far ]] || printf '\r%-24s%s ' "$1" "$far"
  done
}

stop_progress() {
  [[ -n $progress ]] || return 0
  kill "$progress" 2>/dev/null || true
  wait "$progress" 2>/dev/null || true
  progress=
  printf '\r\033[K%-24s' "$1"
}

# run_logged NAME COMMAND...: sets `seconds`; the exit status is the command's.
run_logged() {
  local log status=0 start=$SECONDS
  log=$(log_of "$1")
  mkdir -p build/log
  printf '%-24s' "$1"
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

# step NAME COMMAND...: one that the rest cannot do without.
step() {
  run_logged "$@" || { show_log "$(log_of "$1")"; exit 1; }
}

# check NAME COMMAND...: one that counts; the others go on where it fails.
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

# quietly COMMAND...: nothing is printed unless it fails.
quietly() {
  local log
  log=build/log/quiet-$$.log
  mkdir -p build/log
  if ! "$@" >"$log" 2>&1 </dev/null; then
    show_log "$log" >&2
    exit 1
  fi
  rm -f "$log"
}

# show_skipped HEAD PATTERN GREP_OPTION: those tests that skipped themselves for a reason that is like that, or not.
show_skipped() {
  local lines
  lines=$(printf '  %s\n' "${skipped[@]}" | grep "$3" "$2") || return 0
  say "$1" && say "$lines"
}

# summary: the table of steps and, as the last line, the counts. Exits with 1 where anything failed.
summary() {
  local row name result seconds
  say
  for row in "${rows[@]}"; do
    IFS='|' read -r name result seconds <<<"$row"
    printf '%s  %-24s %6d s\n' "$result" "$name" "$seconds"
  done
  if ((${#skipped[@]} > 0)); then
    show_skipped 'not run on this processor:' 'this processor|PLAIT_ISA' -E
    show_skipped 'not run, for the reason that each gives:' 'this processor|PLAIT_ISA' -vE
  fi
  say "$passed passed, $failed failed"
  ((failed == 0)) || exit 1
}
