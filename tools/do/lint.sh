# shellcheck shell=bash
# Checks that read the sources. They need the release build for compile_commands.json and the command's verbs.

lint() {
  check layers tools/check_layers.py || true
  check documents check_documents || true
  check translations tools/check_translations.py || true
  check words check_words || true
  check format check_format || true
  check 'shell scripts' check_shell || true
  if check 'publishing tools' in_turn prepare_publish_venv; then
    check forms check_forms || true
    check site check_site || true
  fi
  check clang-tidy tidy || true
}

# ./do compiles several sources together, so a second build folder is configured with a command for each source.
tidy() {
  local build=build/configured options_of_cuda=()
  cuda_options
  cmake --preset release -B "$build" "${options_of_cuda[@]}" && tools/do/tidy.py --build "$build" "$(tidy_scope)"
}

check_documents() {
  local plait=build/release/app/cli/plait options=()
  [[ ! -x $plait ]] || options=(--plait "$plait")
  tools/check_docs.py "${options[@]}"
}

check_words() {
  our_files '*.h' '*.cc' '*.cu' '*.cuh' '*.py' '*.pyi' '*.sh' '*.md' '*.cmake' '*CMakeLists.txt' 'do' |
    xargs -r python3 tools/check_words.py
}

# our_files PATTERN...: lists tracked files and untracked ones that git does not ignore, so that a file is checked
# before its first commit.
our_files() {
  local file
  git ls-files --cached --others --exclude-standard -- "$@" | while read -r file; do
    [[ ! -f $file ]] || printf '%s\n' "$file"
  done
}

check_format() {
  our_files '*.cc' '*.h' '*.cu' '*.cuh' | xargs -r clang-format-19 --dry-run -Werror && check_width
}

# clang-format does not break long comments.
check_width() {
  local wide
  wide=$(wider_than 100 '*.cc' '*.h' '*.h.in' '*.cu' '*.cuh'
    wider_than 120 '*.py' '*.sh' '*.cmake' '*CMakeLists.txt' 'do')
  [[ -z $wide ]] || { printf 'too wide:\n%s\n' "$wide"; return 1; }
}

# wider_than COLUMNS PATTERN...: lists lines with more characters (not bytes) than COLUMNS.
wider_than() {
  our_files "${@:2}" | LC_ALL=C.UTF-8 xargs -r grep -HnE ".{$(($1 + 1))}" || true
}

check_shell() {
  our_files '*.sh' 'do' .ci/run debian/tests/*-program | xargs -r shellcheck -x
}

# The files that differ from the main branch; in a clone of it, those of its last commit. TIDY=all: every file.
tidy_scope() {
  [[ ${TIDY:-} == all ]] && printf -- '--all' || printf -- '--changed'
}
