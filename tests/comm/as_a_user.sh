#!/usr/bin/env bash
# as_a_user.sh TEST: root runs a test program once more as a user who is not root, since the kernel
# asks less of root. Says what the program could not do then; exits 77 where it can't be tried.
set -euo pipefail

# skip REASON: as a test of gtest does, so that the reason is listed.
skip() {
  printf '%s: Skipped\n%s\n' "${0##*/}" "$1"
  exit 77
}

program=$1
if [[ $(id -u) != 0 ]]; then
  skip 'the tests run as a user who is not root already'
fi
if ! command -v setpriv >/dev/null; then
  skip 'there is no setpriv, which becomes another user'
fi

# Folders above the build may be closed to others.
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
chmod 0755 "$folder"
cp "$program" "$folder/test"
mkdir -m 0700 "$folder/home"
chown 65534:65534 "$folder/home"
cd "$folder/home"

status=0
setpriv --reuid=65534 --regid=65534 --clear-groups env TMPDIR="$folder/home" \
  "$folder/test" "${@:2}" >"$folder/log" 2>&1 </dev/null || status=$?
if [[ $status != 0 ]]; then
  tail -n 100 "$folder/log"
  exit "$status"
fi
grep -E '^\[  (PASSED|SKIPPED) \]|tests ran' "$folder/log" | sort -u
echo 'What a user who is not root can not try, and why:'
grep -B1 -A1 -E ': Skipped$' "$folder/log" | grep -vE '^(--|Running)' || echo 'nothing'
