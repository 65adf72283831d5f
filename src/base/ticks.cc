#include "base/ticks.h"

#include <fstream>
#include <string>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace plait::base {

#if defined(__x86_64__)
namespace {

constexpr unsigned kPowerManagement = 0x80000007;
constexpr unsigned kInvariantTsc = 1U << 8;

// The kernel checks whether the counters of all cores agree, and removes "tsc" from this list if
// they do not (several boards, a hypervisor that does not keep them in step). Without the list the
// answer is unknown, so it counts as no.
bool kernel_trusts_tsc() {
  std::ifstream list("/sys/devices/system/clocksource/clocksource0/available_clocksource");
  for (std::string source; list >> source;) {
    if (source == "tsc") return true;
  }
  return false;
}

}  // namespace

bool ticks_are_steady() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid(kPowerManagement, &eax, &ebx, &ecx, &edx) != 0 && (edx & kInvariantTsc) != 0 &&
         kernel_trusts_tsc();
}
#elif defined(__aarch64__)
// The architecture guarantees a system-wide counter of fixed frequency.
bool ticks_are_steady() { return true; }
#else
bool ticks_are_steady() { return false; }
#endif

}  // namespace plait::base
