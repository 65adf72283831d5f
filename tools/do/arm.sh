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

# Ranks are programs that others start, so the kernel has to know what begins those for Arm.
begins_them=/proc/sys/fs/binfmt_misc/qemu-aarch64

need_arm_packages() {
  local missing
  need_packages build
  [[ -e $begins_them ]] ||
    need_root "only root can tell the kernel what begins programs for Arm: update-binfmts --enable qemu-aarch64"
  missing=$(missing_packages "${arm_packages[@]}")
  dpkg-query -W "${arm_libraries[@]}" >/dev/null 2>&1 || missing+=" ${arm_libraries[*]}"
  [[ -n ${missing// /} ]] || return 0
  need_root "plait needs these Debian packages, and only root can install them: $missing"
  # shellcheck disable=SC2154  # need_root() sets it
  "${root[@]}" dpkg --add-architecture arm64
  # Word splitting is intended: one name per word.
  # shellcheck disable=SC2086
  install_packages $missing
}

let_the_kernel_begin_them() {
  [[ ! -e $begins_them ]] || return 0
  [[ -e /proc/sys/fs/binfmt_misc/status ]] ||
    "${root[@]}" mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc || return
  "${root[@]}" update-binfmts --enable qemu-aarch64
}

# Tests of what depends on the instructions, the memory or the system, and of ranks. Others would take hours.
# shellcheck disable=SC2034  # build() reads it
arm_targets=(app/cli/plait tests/base/base_test tests/tensor/tensor_test tests/gemm/gemm_test tests/comm/threads_test
  tests/comm/shm_test tests/comm/tcp_test)

# test_arm: `./do test arm`.
test_arm() {
  local beyond
  beyond=$(IFS='|' && printf '%s' "${beyond_the_emulator[*]}")
  if check 'emulator' let_the_kernel_begin_them && check 'build arm' build arm; then
    # Programs that were not built have tests of that name. Three ranks stand for any number; random texts, and how
    # panels and rows are kept, are the same everywhere.
    local elsewhere='NOT_BUILT|_as_a_user|Fuzz|RowCopies|CachedPanels|QuantPanels|PackedWeights'
    run_tests arm -L unit -E "$elsewhere|/(threads|shm|tcp)[124-9]\$|/linked_|^($beyond)\$"
    skipped+=("arm: beyond the emulator: ${beyond_the_emulator[*]}" 'arm: all other tests: they would take hours')
    check 'arm, large pages' bear_large_pages || true
    check 'bits of arm' have_the_bits_of_avx2 || true
  fi
}

# Many systems of Arm have pages of 64 KiB.
bear_large_pages() {
  local beyond
  beyond=$(IFS=: && printf '%s' "${beyond_the_emulator[*]}")
  QEMU_PAGESIZE=65536 build/arm/tests/base/base_test --gtest_filter="-$beyond" &&
    QEMU_PAGESIZE=65536 build/arm/tests/comm/shm_test --gtest_filter='Shm/MailboxConformance.*/shm3'
}

# Results have the bits of AVX2 on all processors that multiply and add in one instruction. Both are computed here: a
# file of them would have to be made again whenever other problems are drawn. Ranks of shm are programs.
have_the_bits_of_avx2() {
  local words set here
  local -A there
  for words in '-t threads,shm --cases 40 --seed 3 --ranks 1,2,3' '-t threads --cases 40 --seed 3 --layers' \
    '-t threads --cases 20 --experts' '-t threads --cases 20 --heads' '-t threads --cases 20 --ulysses'; do
    # Word splitting is intended: these are options.
    # shellcheck disable=SC2086
    for set in neon neon-bf16; do
      PLAIT_ISA=$set build/arm/app/cli/plait verify --digest $words >"build/arm/$set.digest" & there[$set]=$!
    done
    # shellcheck disable=SC2086
    here=$(PLAIT_ISA=avx2 build/release/app/cli/plait verify --digest $words) || return
    printf '%s: %s\n' "$words" "$here"
    for set in neon neon-bf16; do
      if ! wait "${there[$set]}" || [[ $(tail -n 1 "build/arm/$set.digest") != "${here##*$'\n'}" ]]; then
        echo "with $set:" && cat "build/arm/$set.digest"
        return 1
      fi
    done
  done
}
