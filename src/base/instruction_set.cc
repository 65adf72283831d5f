#include "base/instruction_set.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/env.h"
#include "plait/error.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace plait::base {
namespace {

using Bits = std::uint32_t;

constexpr Bits bit(InstructionSet set) { return Bits{1} << static_cast<unsigned>(set); }

struct Entry {
  std::string_view name;
  const char* lacking;   // the reason where the processor lacks the set
  const char* left_out;  // the reason where PLAIT_ISA excludes the set
};

#if defined(__aarch64__)
constexpr std::string_view kBasic = "neon";
constexpr std::array kOfThisKind = {InstructionSet::basic, InstructionSet::neon_bf16,
                                    InstructionSet::neon_bfmmla};
#elif !defined(__x86_64__)
constexpr std::string_view kBasic = "basic";
constexpr std::array kOfThisKind = {InstructionSet::basic};
#else
constexpr std::string_view kBasic = "sse2";
constexpr std::array kOfThisKind = {InstructionSet::basic, InstructionSet::avx2,
                                    InstructionSet::avx512, InstructionSet::avx512_bf16,
                                    InstructionSet::amx};
#endif

// The order is that of the enumeration.
constexpr std::array<Entry, 7> kSets = {{
    {kBasic, nullptr, nullptr},
    {"avx2", "this processor has no AVX2", "PLAIT_ISA leaves out AVX2"},
    {"avx512", "this processor has no AVX-512", "PLAIT_ISA leaves out AVX-512"},
    {"avx512-bf16", "this processor has no AVX-512 for bf16",
     "PLAIT_ISA leaves out AVX-512 for bf16"},
    {"amx", "this processor has no AMX tiles for bf16", "PLAIT_ISA leaves out AMX"},
    {"neon-bf16", "this processor has no NEON for bf16", "PLAIT_ISA leaves out NEON for bf16"},
    {"neon-bfmmla", "this processor has no NEON for matrices of bf16",
     "PLAIT_ISA leaves out NEON for matrices of bf16"},
}};

const Entry& entry(InstructionSet set) { return kSets[static_cast<std::size_t>(set)]; }

// The largest that is used without being named.
constexpr InstructionSet kUnnamed = kOfThisKind.back() == InstructionSet::neon_bfmmla
                                        ? InstructionSet::neon_bf16
                                        : kOfThisKind.back();

// The set, which is of this kind, and those before it.
Bits included_in(InstructionSet set) {
  Bits bits = 0;
  for (const InstructionSet one : kOfThisKind) {
    bits |= bit(one);
    if (one == set) return bits;
  }
  return 0;
}

#if defined(__x86_64__)
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("f16c");
}

bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

// Bits of register EDX, as cpuid sets them.
bool has_features(unsigned features) {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (edx & features) == features;
}

bool has_amx() {
  constexpr unsigned kBf16 = 1U << 22;
  constexpr unsigned kTile = 1U << 24;
  return has_features(kBf16 | kTile);
}

InstructionSet find_processor_set() {
  if (!has_avx2()) return InstructionSet::basic;
  if (!has_avx512()) return InstructionSet::avx2;
  if (!__builtin_cpu_supports("avx512bf16")) return InstructionSet::avx512;
  return has_amx() ? InstructionSet::amx : InstructionSet::avx512_bf16;
}
#elif defined(__aarch64__)
InstructionSet find_processor_set() {
  // The feature has instructions of both sets.
  const bool multiplies_bf16 = (::getauxval(AT_HWCAP2) & HWCAP2_BF16) != 0;
  return multiplies_bf16 ? InstructionSet::neon_bfmmla : InstructionSet::basic;
}
#else
InstructionSet find_processor_set() { return InstructionSet::basic; }
#endif

// Those that PLAIT_ISA allows.
Bits allowed() {
  static const Bits bits = [] {
    const auto text = env("PLAIT_ISA");
    return included_in(text ? parse_instruction_set(*text) : kUnnamed);
  }();
  return bits;
}

}  // namespace

std::string_view name(InstructionSet set) { return entry(set).name; }

std::span<const InstructionSet> instruction_sets() { return kOfThisKind; }

InstructionSet parse_instruction_set(std::string_view text) {
  std::string names;
  for (const InstructionSet set : kOfThisKind) {
    if (name(set) == text) return set;
    names.append(names.empty() ? "" : ", ").append(name(set));
  }
  fail(Code::invalid_argument, sentence("PLAIT_ISA=", text, " is none of ", names));
}

InstructionSet processor_instruction_set() {
  static const InstructionSet set = find_processor_set();
  return set;
}

InstructionSet usable_instruction_set() {
  const Bits bits = allowed() & included_in(processor_instruction_set());
  return *std::find_if(kOfThisKind.rbegin(), kOfThisKind.rend(),
                       [&](InstructionSet set) { return (bits & bit(set)) != 0; });
}

const char* refusal(InstructionSet set) {
  if ((included_in(processor_instruction_set()) & bit(set)) == 0) return entry(set).lacking;
  return (allowed() & bit(set)) == 0 ? entry(set).left_out : nullptr;
}

bool multiplies_f32_faster() {
#if defined(__x86_64__)
  constexpr unsigned kF16 = 1U << 23;
  return __builtin_cpu_is("intel") != 0 && has_features(kF16);
#else
  return false;
#endif
}

bool spreads_words_slowly() {
#if defined(__x86_64__)
  return __builtin_cpu_is("amdfam19h") != 0;
#else
  return false;
#endif
}

std::string instruction_limit_note() {
  try {
    const InstructionSet usable = usable_instruction_set();
    if (usable == std::min(processor_instruction_set(), kUnnamed)) return {};
    return std::string(", PLAIT_ISA=").append(name(usable));
  } catch (const Error&) {
    return {};  // code that uses vector instructions reports the error
  }
}

}  // namespace plait::base
