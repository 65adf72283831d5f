# shellcheck shell=bash
# The environment that the sanitizers need.

export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_stack_use_after_return=1:strict_string_checks=1}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
export TSAN_OPTIONS=${TSAN_OPTIONS:-halt_on_error=1:second_deadlock_stack=1}

# The thread sanitizer stops ("unexpected memory mapping") if the kernel places programs with more random bits than it
# supports; setarch -R disables the randomness. CMake runs the tests to list them, so the build needs it too.
# shellcheck disable=SC2034
prepare_tsan() {
  local bits
  bits=$(cat /proc/sys/vm/mmap_rnd_bits 2>/dev/null || echo 0)
  personality=()
  if ((bits <= 28)) && probe_tsan; then
    return
  fi
  if setarch -R true 2>/dev/null; then
    personality=(setarch -R)
    say 'tsan runs under setarch -R: this kernel randomises addresses further than it can bear'
  fi
}

# A program that only starts the sanitizer.
probe_tsan() {
  local probe=build/tsan-probe
  mkdir -p build
  echo 'int main() {}' | g++ -x c++ -fsanitize=thread -o "$probe" - && "./$probe" 2>/dev/null
}
