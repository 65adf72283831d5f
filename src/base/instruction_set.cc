#include "base/instruction_set.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/env.h"
#include "plait/error.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace plait::base {
namespace {

struct Entry {
  std::string_view name;
  const char* lacking;   // the reason where the processor lacks the set
  const char* left_out;  // the reason where PLAIT_ISA excludes the set
};

// The order is that of the enumeration.
constexpr std::array<Entry, 5> kSets = {{
    {"sse2", nullptr, nullptr},
    {"avx2", "this processor has no AVX2", "PLAIT_ISA leaves out AVX2"},
    {"avx512", "this processor has no AVX-512", "PLAIT_ISA leaves out AVX-512"},
    {"avx512-bf16", "this processor has no AVX-512 for bf16",
     "PLAIT_ISA leaves out AVX-512 for bf16"},
    {"amx", "this processor has no AMX tiles for bf16", "PLAIT_ISA leaves out AMX"},
}};

const Entry& entry(InstructionSet set) { return kSets[static_cast<std::size_t>(set)]; }

#if defined(__x86_64__)
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("f16c");
}

bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

bool has_amx() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  constexpr unsigned kBf16 = 1U << 22;
  constexpr unsigned kTile = 1U << 24;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (edx & kBf16) != 0 &&
         (edx & kTile) != 0;
}

InstructionSet find_processor_set() {
  if (!has_avx2()) return InstructionSet::sse2;
  if (!has_avx512()) return InstructionSet::avx2;
  if (!__builtin_cpu_supports("avx512bf16")) return InstructionSet::avx512;
  return has_amx() ? InstructionSet::amx : InstructionSet::avx512_bf16;
}
#else
InstructionSet find_processor_set() { return InstructionSet::sse2; }
#endif

}  // namespace

std::string_view name(InstructionSet set) { return entry(set).name; }

InstructionSet parse_instruction_set(std::string_view text) {
  const auto* const found =
      std::find_if(kSets.begin(), kSets.end(), [&](const Entry& one) { return one.name == text; });
  PLAIT_CHECK(found != kSets.end(), "PLAIT_ISA=", text,
              " is none of sse2, avx2, avx512, avx512-bf16, amx");
  return static_cast<InstructionSet>(found - kSets.begin());
}

InstructionSet processor_instruction_set() {
  static const InstructionSet set = find_processor_set();
  return set;
}

InstructionSet instruction_set_limit() {
  static const InstructionSet limit = [] {
    const auto text = env("PLAIT_ISA");
    return text ? parse_instruction_set(*text) : InstructionSet::amx;
  }();
  return limit;
}

const char* refusal(InstructionSet set) {
  if (set > processor_instruction_set()) return entry(set).lacking;
  return set > instruction_set_limit() ? entry(set).left_out : nullptr;
}

std::string instruction_limit_note() {
  try {
    const InstructionSet limit = instruction_set_limit();
    if (limit >= processor_instruction_set()) return {};
    return std::string(", PLAIT_ISA=").append(name(limit));
  } catch (const Error&) {
    return {};  // code that uses vector instructions reports the error
  }
}

}  // namespace plait::base
