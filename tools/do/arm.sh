# shellcheck shell=bash
# Compiles for 64-bit Arm, and runs tests there under qemu's emulator of one program.

arm_packages=(crossbuild-essential-arm64 qemu-user qemu-user-binfmt binfmt-support)
arm_libraries=(libhwloc-dev:arm64 libfmt-dev:arm64 libgtest-dev:arm64 libgomp1:arm64)

# The emulator of a program lacks memory that children don't inherit, mincore, and the kernel's word on whether a
# process is stopped. These tests are about them.
beyond_the_emulator=(
  CloseOnFork.AWorkerHoldsNoSharedMemory CloseOnFork.HoldsAtEveryMoment ForkGuard.ACopyStandsForTheSameProcess
  ForkGuard.KnowsChildAndGrandchild LifeFileTest.AClonedChildDoesNotKeepItsPlaceEither
  LifeFileTest.AWorkerThatItForkedDoesNotKeepItsPlace Parallel.ThreadsAreOneInAForkedChild
  Process.AStoppedOneHasNotEnded Process.KnowsAPidWithoutPidfd ProcessMark.IsOfAProcessWhoseEndIsSeen
  Region.AChildThatDropsItUnmapsNothingOfItsOwn Region.GetsThePagesOfAPartAtOnce
  Socket.KeepsNoDescriptorThatItDoesNotKnowOf
)

# How plait treats its blocks, groups and parts is the same everywhere, and these products take longest. The bits of the
# whole are compared with those of x86 (have_the_bits_of_avx2).
same_everywhere=(
  /reference Fuzz RowCopies CachedPanels QuantPanels PackedWeights GroupedGemm PackedPanels TakeManyRows
  RowsFromMemoryGiveTheBitsOfThoseFromACache ViewsOfAWeightGiveTheBitsOfAPackedOne
)

# Some tests, and the wheel's, start programs themselves, so the kernel has to know what begins those for Arm.
begins_them=/proc/sys/fs/binfmt_misc/qemu-aarch64
start_programs=InstructionSetDeathTest

# Root's work comes first, before anything is built.
need_arm_packages() {
  local missing
  need_packages build
  missing=$(missing_packages "${arm_packages[@]}")
  dpkg-query -W "${arm_libraries[@]}" >/dev/null 2>&1 || missing+=" ${arm_libraries[*]}"
  if [[ -n ${missing// /} ]]; then
    need_root "plait needs these Debian packages, and only root can install them: $missing"
    # shellcheck disable=SC2154  # need_root() sets it
    "${root[@]}" dpkg --add-architecture arm64
    # Word splitting is intended: one name per word.
    # shellcheck disable=SC2086
    install_packages $missing
  fi
  [[ -e $begins_them ]] || run_logged 'emulator' let_the_kernel_begin_them || say "$why_not_begun"
}

why_not_begun='the kernel begins no programs for Arm; root lets it by: update-binfmts --enable qemu-aarch64'

let_the_kernel_begin_them() {
  ((EUID == 0)) || { command -v sudo && may_sudo && root=(sudo); } || return
  [[ -e /proc/sys/fs/binfmt_misc/status ]] ||
    "${root[@]}" mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc || return
  "${root[@]}" update-binfmts --enable qemu-aarch64 && [[ -e $begins_them ]]
}

# Tests of what depends on the instructions, the memory or the system, and of ranks. Others would take hours.
# shellcheck disable=SC2034  # build() reads it
arm_targets=(app/cli/plait tests/base/base_test tests/tensor/tensor_test tests/gemm/gemm_test tests/comm/threads_test
  tests/comm/shm_test tests/comm/tcp_test)

# joined SEPARATOR WORD...
joined() { (IFS=$1 && printf '%s' "${*:2}"); }

test_arm() {
  local beyond left_out_here
  beyond="^($(joined '|' "${beyond_the_emulator[@]}"))\$"
  left_out_here=$(joined '|' "${same_everywhere[@]}")
  if [[ ! -e $begins_them ]]; then
    left_out_here+="|$start_programs"
    skipped+=("arm: $start_programs: $why_not_begun")
  fi
  if check 'build arm' build arm && check 'names of arm' all_name_tests; then
    # Programs that were not built have tests of that name. Three ranks stand for any number.
    run_tests arm -L unit -E "NOT_BUILT|_as_a_user|/(threads|shm|tcp)[124-9]\$|/linked_|$left_out_here|$beyond"
    skipped+=("arm: beyond the emulator: ${beyond_the_emulator[*]}"
      "arm: the same on every processor: ${same_everywhere[*]}" 'arm: all other tests: they would take hours')
    check 'arm, large pages' bear_large_pages "$left_out_here|$beyond" || true
    check 'arm, by matrices' multiply_by_matrices || true
    check 'bits of arm' have_the_bits_of_x86 || true
  fi
}

# A name or pattern that no test has would leave out nothing, unseen.
all_name_tests() {
  local tests name
  tests=$(ctest --test-dir build/arm --show-only=json-v1 | sed -nE 's/^ *"name" : "(.*[./].*)",?$/\1/p') || return
  for name in "${beyond_the_emulator[@]/#/^}" "${same_everywhere[@]}" "$start_programs"; do
    [[ $name != ^* ]] || name+=\$
    grep -qE -- "$name" <<<"$tests" || { echo "no test has the name $name"; return 1; }
  done
}

# Many systems of Arm have pages of 64 KiB.
bear_large_pages() {
  # shellcheck disable=SC2154  # step.sh has the folder
  local report=$PWD/$logs/arm-large-pages.xml
  QEMU_PAGESIZE=65536 ctest_preset arm/tests/base "$report" -L unit -E "$1" &&
    QEMU_PAGESIZE=65536 ctest_preset arm/tests/comm "$report" -R '^Shm/MailboxConformance.*/shm3$'
}

# The kernel that is used only if it is named. Its results are right in verify's cases too, and have bits of their own.
multiply_by_matrices() {
  local report=$PWD/$logs/arm-matrices.xml
  PLAIT_ISA=neon-bfmmla ctest_preset arm/tests/gemm "$report" -R 'Kernel.*/vector_neon_bfmmla$' &&
    PLAIT_ISA=neon-bfmmla tools/check_digests.py --unlike qemu-aarch64 build/arm/app/cli/plait
}

# Other results have the bits that are on file and were made on x86, also where ranks are processes.
have_the_bits_of_x86() {
  local set status=0 here there words='verify --digest --cases 6 --seed 3'
  local -A running
  for set in neon neon-bf16; do
    PLAIT_ISA=$set tools/check_digests.py qemu-aarch64 build/arm/app/cli/plait >"build/arm/$set.digests" &
    running[$set]=$!
  done
  for set in "${!running[@]}"; do
    wait "${running[$set]}" || status=1
    echo "with $set:" && cat "build/arm/$set.digests"
  done
  # Word splitting is intended: these are options.
  # shellcheck disable=SC2086
  there=$(PLAIT_RENDEZVOUS=127.0.0.1:$(free_port) \
    build/release/app/cli/plait run -n 3 qemu-aarch64 build/arm/app/cli/plait $words -t tcp) || status=1
  # shellcheck disable=SC2086
  here=$(PLAIT_ISA=avx2 build/release/app/cli/plait $words -t threads --ranks 3) || status=1
  printf 'on x86: %s\non Arm, over TCP: %s\n' "$here" "$there"
  [[ ${here##*$'\n'} == "${there##*$'\n'}" ]] || status=1
  return "$status"
}

free_port() {
  python3 -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# The wheel of `./do wheel arm`: experimental, and without MPI's plugins.
build_arm_wheel() {
  rm -rf build/arm/{prefix,wheels,wheelhouse}
  # Its tags are those of the system that Python takes this one for.
  cmake --install build/arm --prefix build/arm/prefix --strip &&
    in_venv env _PYTHON_HOST_PLATFORM=linux-aarch64 python -m pip wheel . --no-build-isolation --no-deps \
      -w build/arm/wheels -C build-dir=build/arm/wheel -C "cmake.define.PLAIT_PREFIX=$PWD/build/arm/prefix" \
      -C "cmake.define.CMAKE_TOOLCHAIN_FILE=$PWD/cmake/aarch64.cmake" &&
    in_venv python -m auditwheel repair --exclude libgomp.so.1 -w build/arm/wheelhouse build/arm/wheels/plait-*.whl &&
    in_venv python -B tools/add_licenses.py build/arm/wheelhouse/plait-*.whl &&
    in_venv python -m abi3audit --strict build/arm/wheelhouse/plait-*.whl
}

# Debian's Python for Arm, which can't be installed beside this machine's, so it is unpacked.
arm_python=$PWD/build/arm/python
prepare_arm_python() {
  local package
  [[ ! -e $arm_python/complete ]] || return 0
  rm -rf "$arm_python" && mkdir -p "$arm_python/packages" &&
    (cd "$arm_python/packages" && apt-get download {libffi8,libexpat1,python3.11-minimal}:arm64 \
      libpython3.11-{minimal,stdlib}:arm64) || return
  for package in "$arm_python"/packages/*.deb; do
    dpkg -x "$package" "$arm_python" || return
  done
  touch "$arm_python/complete"
}

# Installed beside NumPy for Arm, the wheel is imported and makes a product, and its command checks random ones.
try_arm_wheel() {
  local site=build/arm/site tag platforms=()
  for tag in manylinux_2_2{7,8}_aarch64 \
    $(basename build/arm/wheelhouse/plait-*.whl .whl | sed 's/.*abi3-//' | tr . ' '); do
    platforms+=(--platform "$tag")
  done
  rm -rf "$site" && prepare_arm_python &&
    in_venv python -m pip install --no-compile --no-deps --only-binary :all: --target "$site" --python-version 3.11 \
      "${platforms[@]}" build/arm/wheelhouse/plait-*.whl \
      "$(grep '^nanobind-backend==' python/requirements-test.txt)" "$(grep '^numpy==' python/requirements-test.txt)" &&
    run_arm_python tools/do/try_wheel.py numpy plait &&
    run_arm_python -m plait verify -t threads,shm --cases 3
}

run_arm_python() {
  PYTHONHOME=$arm_python/usr PYTHONPATH=$PWD/build/arm/site PYTHONDONTWRITEBYTECODE=1 \
    LD_LIBRARY_PATH=$arm_python/usr/lib/aarch64-linux-gnu:$arm_python/lib/aarch64-linux-gnu \
    "$arm_python/usr/bin/python3.11" "$@"
}
