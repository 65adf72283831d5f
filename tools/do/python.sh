# shellcheck shell=bash
# The Python package: its wheel, the checks that read its sources, and its tests.
#
# Its tools live in build/venv. The module of the wheel that is tested links the release build's libplait, so that the
# library is compiled once; `pip install .` compiles it by itself.

venv=build/venv

in_venv() { PATH=$PWD/$venv/bin:$PATH "$@"; }

# Made anew where the list of packages has changed.
prepare_venv() {
  local stamp=$venv/requirements.txt
  cmp -s python/requirements-test.txt "$stamp" && return
  rm -rf "$venv"
  python3 -m venv "$venv" &&
    in_venv python -m pip install -r python/requirements-test.txt &&
    cp python/requirements-test.txt "$stamp"
}

# The newest Megatron-Core declares that it needs Python 3.12, and works with 3.11 too: it is unpacked into a folder of
# its own. It imports triton, which nothing else here needs.
newest_megatron=build/megatron-core-0.19.2
prepare_newest_megatron() {
  local wheel wheels=$newest_megatron/wheels
  [[ ! -e $newest_megatron/complete ]] || return 0
  rm -rf "$newest_megatron"
  in_venv python -m pip download --no-deps --only-binary :all: -d "$wheels" triton==3.9.0 &&
    in_venv python -m pip download --no-deps --only-binary :all: -d "$wheels" --python-version 3.12 \
      megatron-core==0.19.2 || return
  for wheel in "$wheels"/*.whl; do
    python3 -m zipfile -e "$wheel" "$newest_megatron" || return
  done
  rm -rf "$wheels"
  touch "$newest_megatron/complete"
}

# Of the release build, for any Linux that is no older than this one, and installed from that. The libraries that the
# command needs go into it. OpenMP's stays outside: a copy beside that of torch would make two pools of threads. And so
# do those of MPI, which belong to the launcher.
build_wheel() {
  rm -rf build/prefix build/wheels build/wheelhouse
  cmake --install build/release --prefix build/prefix --strip &&
    in_venv python -m pip wheel . --no-build-isolation --no-deps -w build/wheels \
      -C "cmake.define.PLAIT_PREFIX=$PWD/build/prefix" &&
    in_venv python -m auditwheel repair --exclude libgomp.so.1 --exclude 'libmpi.so*' -w build/wheelhouse \
      build/wheels/plait-*.whl &&
    in_venv python -m pip install --no-deps --force-reinstall build/wheelhouse/plait-*.whl
}

# The wheel in an empty environment of every Python that is here: it has to load, to compute, and to have its command.
check_pythons() {
  local python program name folder=build/pythons
  rm -rf "$folder"
  program='import sys, plait
with plait.Communicator.connect() as comm:
    plait.barrier(comm)
assert not {"torch", "numpy"} & set(sys.modules)
print(sys.version.split()[0], plait.__version__)'
  while read -r python; do
    name=$folder/$("$python" -c 'import platform; print(platform.python_version())')
    [[ ! -e $name ]] || continue
    "$python" -m venv --without-pip "$name" &&
      in_venv python -m pip --python "$name/bin/python" install --no-deps build/wheelhouse/plait-*.whl \
        "$(grep '^nanobind-backend==' python/requirements-test.txt)" &&
      "$name/bin/python" -c "$program" && "$name/bin/plait" --version || return
  done < <(pythons)
}

# pythons: those that plait is for, of the system and of pyenv.
pythons() {
  local python
  for python in /usr/bin/python3.[0-9]* "${PYENV_ROOT:-$HOME/.pyenv}"/versions/*/bin/python3; do
    [[ $python != *-config ]] || continue
    if "$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
      printf '%s\n' "$python"
    fi
  done
}

# What a source distribution lacks, every `pip install` of it would miss: it is unpacked and configured.
check_sdist() {
  local folder=build/sdist
  rm -rf "$folder"
  in_venv python -m build --sdist --no-isolation --outdir "$folder" . &&
    tar -xzf "$folder"/plait-*.tar.gz -C "$folder" --strip-components=1 &&
    cmake -S "$folder/python" -B "$folder/build" -G Ninja -DPython_EXECUTABLE="$PWD/$venv/bin/python" \
      -Dnanobind_DIR="$(in_venv python -m nanobind --cmake_dir)" &&
    ninja -C "$folder/build" -n >"$folder/build/commands"
}

check_python_sources() {
  local sources=(python examples/python bench/python tools/make_stub.py tools/make_reference.py)
  in_venv ruff check "${sources[@]}" && in_venv ruff format --check "${sources[@]}" && in_venv mypy &&
    in_venv python tools/make_stub.py --check && in_venv python tools/make_reference.py --check
}

# They need the release build.
test_python() {
  check 'python tools' prepare_venv && check 'python wheel' build_wheel || return 0
  check 'python sources' check_python_sources || true
  check 'other Pythons' check_pythons || true
  check 'python clang-tidy' tools/do/tidy.py --build build/wheel "$(tidy_scope)" || true
  check 'python sdist' check_sdist || true
  run_pytest 'python tests' python -m pytest python/tests/test_*.py
  # The programs among the first start ranks of their own: the examples, and Megatron scripts.
  local ranks=python/tests/ranks
  run_pytest 'python tests, 2 ranks' torchrun --standalone --nproc-per-node 2 -m pytest $ranks/test_*.py
  run_pytest 'python tests, 4 ranks' torchrun --standalone --nproc-per-node 4 -m pytest $ranks/test_*.py
  run_pytest 'python tests, Megatron' torchrun --standalone --nproc-per-node 2 -m pytest $ranks/with_megatron
  if check 'newest Megatron' prepare_newest_megatron; then
    run_pytest 'python tests, newest Megatron' env PYTHONPATH="$PWD/$newest_megatron" \
      torchrun --standalone --nproc-per-node 2 -m pytest $ranks/with_megatron
  fi
  run_pytest 'python tests, transformers' torchrun --standalone --nproc-per-node 2 -m pytest $ranks/with_transformers
}

# run_pytest NAME COMMAND...: its tests count among ours.
run_pytest() {
  local name=$1 result=PASS good bad report
  report=$PWD/build/log/${name//[ ,]/-}.xml
  rm -f "$report"
  run_logged "$name" in_venv env OMP_NUM_THREADS=1 timeout 900 "${@:2}" -q -p no:cacheprovider \
    --junit-xml="$report" || result=FAIL
  read -r good bad <<<"$(tools/do/count_tests.py "$report")"
  tools/do/count_tests.py --failed "$report"
  # Something went wrong that is no test: the launch, or there were no tests at all.
  [[ $result == PASS || $bad -gt 0 ]] || { bad=1; show_log "$(log_of "$name")"; }
  if [[ -n ${CI:-} ]]; then
    while IFS= read -r line; do
      say "--- skipped itself for a reason that tools/do/expected_skips.txt lacks: $line"
      bad=$((bad + 1)) result=FAIL
    done < <(tools/do/count_tests.py --unexpected=python "$report")
  fi
  passed=$((passed + good))
  failed=$((failed + bad))
  rows+=("$name ($((good + bad)))|$result|$seconds")
  while IFS= read -r line; do skipped+=("$name: $line"); done < <(tools/do/count_tests.py --skipped "$report")
}
