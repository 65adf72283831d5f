# shellcheck shell=bash
# The Python package: its wheel, the checks that read its sources, and its tests.
#
# Its tools live in build/venv. The module of the wheel that is tested links the release build's libplait, so that the
# library is compiled once; `pip install .` compiles it by itself, and ./do wheel makes what others can install.

venv=build/venv

python_in_venv() { "$venv/bin/python" "$@"; }

# Made anew where the list of packages has changed.
prepare_venv() {
  local stamp=$venv/requirements.txt
  cmp -s python/requirements-test.txt "$stamp" && return
  rm -rf "$venv"
  python3 -m venv "$venv" &&
    python_in_venv -m pip install --quiet -r python/requirements-test.txt &&
    cp python/requirements-test.txt "$stamp"
}

# build_wheel: of the release build.
build_wheel() {
  rm -rf build/prefix build/wheels
  cmake --install build/release --prefix build/prefix --strip >/dev/null &&
    PATH=$PWD/$venv/bin:$PATH python_in_venv -m pip wheel . --no-build-isolation --no-deps -w build/wheels \
      -C "cmake.define.PLAIT_PREFIX=$PWD/build/prefix" &&
    python_in_venv -m pip install --quiet --no-deps --force-reinstall build/wheels/plait-*.whl
}

# What a source distribution lacks would be missed by every `pip install plait` that compiles.
check_sdist() {
  local folder=build/sdist
  rm -rf "$folder"
  python_in_venv -m build --sdist --no-isolation --outdir "$folder" . &&
    tar -xzf "$folder"/plait-*.tar.gz -C "$folder" --strip-components=1 &&
    cmake -S "$folder/python" -B "$folder/build" -G Ninja -DPython_EXECUTABLE="$PWD/$venv/bin/python" \
      -Dnanobind_DIR="$(python_in_venv -m nanobind --cmake_dir)" &&
    ninja -C "$folder/build" -n >/dev/null
}

check_python_sources() {
  local sources=(python tools/make_stub.py)
  python_in_venv -m ruff check "${sources[@]}" && python_in_venv -m ruff format --check "${sources[@]}" &&
    python_in_venv -m mypy && python_in_venv tools/make_stub.py --check
}

# test_python: a step each. They need the release build.
test_python() {
  check 'python tools' prepare_venv && check 'python wheel' build_wheel || return 0
  check 'python sources' check_python_sources || true
  check 'python sdist' check_sdist || true
  run_pytest python/tests/test_*.py
}

# run_pytest FILE...: in one process. Counts its tests among ours.
run_pytest() {
  local report=$PWD/build/log/python-tests.xml result=PASS good bad
  rm -f "$report"
  run_logged 'python tests' python_in_venv -m pytest -q --junit-xml="$report" "$@" || result=FAIL
  read -r good bad <<<"$(tools/do/count_pytest.py "$report")"
  [[ $result == PASS ]] || show_log "$(log_of 'python tests')"
  [[ $result == PASS || $bad -gt 0 ]] || bad=1
  passed=$((passed + good))
  failed=$((failed + bad))
  rows+=("python tests ($((good + bad)))|$result|$seconds")
}

# repaired_wheel: for other machines than this one, in build/wheelhouse. The libraries that the command needs go into
# it; OpenMP's stays outside, because a copy beside that of torch would make two pools of threads.
repaired_wheel() {
  rm -rf build/wheelhouse
  python_in_venv -m auditwheel repair --exclude libgomp.so.1 --exclude 'libmpi*' --exclude 'libopen-*' \
    --wheel-dir build/wheelhouse build/wheels/plait-*.whl
}
