# shellcheck shell=bash
# The checks that read the sources. They need the release build: its compile_commands.json, and the command's verbs.

lint() {
  check layers tools/check_layers.py || true
  check documents check_documents || true
  check format check_format || true
  check 'shell scripts' check_shell || true
  check clang-tidy tidy || true
}

# Where sources were compiled together, a build that is only configured says how each of them would be by itself.
tidy() {
  local build=build/release
  if [[ -n ${CI:-} ]]; then
    build=build/configured
    cmake --preset release -B "$build" || return
  fi
  tools/do/tidy.py --build "$build" "$(tidy_scope)"
}

check_documents() {
  local plait=build/release/src/cli/plait options=()
  [[ ! -x $plait ]] || options=(--plait "$plait")
  tools/check_docs.py "${options[@]}"
}

# our_files PATTERN...: tracked ones and those that would be, so that a file is checked before its first commit.
our_files() {
  local file
  git ls-files --cached --others --exclude-standard -- "$@" | while read -r file; do
    [[ ! -f $file ]] || printf '%s\n' "$file"
  done
}

check_format() {
  our_files '*.cc' '*.h' '*.cu' '*.cuh' | xargs -r clang-format-19 --dry-run -Werror && check_width
}

# clang-format leaves comments as wide as they are.
check_width() {
  local wide
  wide=$(wider_than 100 '*.cc' '*.h' '*.h.in' '*.cu' '*.cuh'
    wider_than 120 '*.py' '*.sh' '*.cmake' '*CMakeLists.txt' 'do')
  [[ -z $wide ]] || { printf 'too wide:\n%s\n' "$wide"; return 1; }
}

# wider_than COLUMNS PATTERN...: characters count, not bytes.
wider_than() {
  our_files "${@:2}" | LC_ALL=C.UTF-8 xargs -r grep -HnE ".{$(($1 + 1))}" || true
}

check_shell() {
  our_files '*.sh' 'do' .ci/run | xargs -r shellcheck -x
}

# What differs from the main branch; in a clone of it, what its last commit changed. TIDY=all: every file.
tidy_scope() {
  [[ ${TIDY:-} == all ]] && printf -- '--all' || printf -- '--changed'
}
