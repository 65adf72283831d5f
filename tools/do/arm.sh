# shellcheck shell=bash
# Compiles for 64-bit Arm, and runs tests there under qemu's emulator of one program.

arm_packages=(crossbuild-essential-arm64 qemu-user qemu-user-binfmt binfmt-support)
arm_libraries=(libhwloc-dev:arm64 libfmt-dev:arm64 libgtest-dev:arm64 libgomp1:arm64)

# Tests of what the emulator lacks: advice on memory that is not to be inherited (MADV_DONTFORK, MADV_WIPEONFORK), and
# mincore.
beyond_the_emulator='ForkedChild|Region\.|CloseOnFork|Fork'

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

# The programs whose tests run; the others' would take hours.
arm_tests=(base/base_test tensor/tensor_test gemm/gemm_test comm/comm_test comm/threads_test comm/shm_test
  comm/tcp_test ops/ops_test)

# test_arm: `./do test arm`.
test_arm() {
  if check 'emulator' let_the_kernel_begin_them && check 'build arm' build_targets arm app/cli/plait \
    "${arm_tests[@]/#/tests/}"; then
    # Tests of programs that were not built have names of their own.
    run_tests arm -E "NOT_BUILT|$beyond_the_emulator"
    skipped+=("arm: what the emulator lacks: $beyond_the_emulator")
    check 'bits of arm' have_the_bits_of_x86
  fi
}

# Results have the bits of AVX2 on all processors that multiply and add in one instruction.
have_the_bits_of_x86() {
  local words there here
  for words in '--cases 60 --seed 3 --ranks 1,2,3' '--cases 40 --seed 3 --layers'; do
    # Word splitting is intended: these are options.
    # shellcheck disable=SC2086
    there=$(build/arm/app/cli/plait verify -t threads --digest $words) &&
      here=$(PLAIT_ISA=avx2 build/release/app/cli/plait verify -t threads --digest $words) || return
    printf '%s\n%s\n' "$there" "${here##*$'\n'}"
    [[ ${there##*$'\n'} == "${here##*$'\n'}" ]] || return
  done
}
