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

# test_arm: `./do test arm`. The tests are those of the processor's own instructions and of the system; other programs'
# would take hours.
test_arm() {
  local beyond
  beyond=$(IFS='|' && printf '%s' "${beyond_the_emulator[*]}")
  if check 'emulator' let_the_kernel_begin_them &&
    check 'build arm' build_targets arm app/cli/plait tests/base/base_test tests/gemm/gemm_test; then
    # Programs that were not built have tests of this name.
    run_tests arm -E "NOT_BUILT|^($beyond)\$"
    skipped+=("arm: beyond the emulator: ${beyond_the_emulator[*]}"
      'arm: ranks that are processes, and all other tests: they would take hours')
    check 'bits of arm' have_the_bits_of_avx2 || true
  fi
}

# Results have the bits of AVX2 on all processors that multiply and add in one instruction.
have_the_bits_of_avx2() {
  local words set there here
  for words in '--cases 60 --seed 3 --ranks 1,2,3' '--cases 40 --seed 3 --layers' '--cases 20 --experts' \
    '--cases 20 --heads' '--cases 20 --ulysses'; do
    # Word splitting is intended: these are options.
    # shellcheck disable=SC2086
    here=$(PLAIT_ISA=avx2 build/release/app/cli/plait verify -t threads --digest $words) || return
    for set in neon neon-bf16; do
      # shellcheck disable=SC2086
      there=$(PLAIT_ISA=$set build/arm/app/cli/plait verify -t threads --digest $words) || return
      printf '%s, %s: %s\n' "$words" "$set" "$there"
      [[ ${there##*$'\n'} == "${here##*$'\n'}" ]] || { printf 'here: %s\n' "$here"; return 1; }
    done
  done
}
