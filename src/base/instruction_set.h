// The vector instructions that kernels may use: those of the processor, or fewer if PLAIT_ISA says
// so.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace plait::base {

// Each set includes all sets before it. On a processor other than x86, kernels without special
// instructions count as sse2.
enum class InstructionSet : std::uint8_t {
  sse2,         // every x86-64 processor
  avx2,         // with FMA and F16C
  avx512,       // F, BW, DQ and VL
  avx512_bf16,  // dot products of bf16
  amx,          // tiles of bf16
};

// "avx512-bf16"
std::string_view name(InstructionSet set);

// The inverse of name(), for values of PLAIT_ISA. Error{invalid_argument} lists the allowed values.
InstructionSet parse_instruction_set(std::string_view text);

// The largest set that the processor and its operating system support, whatever PLAIT_ISA says.
InstructionSet processor_instruction_set();

// The largest set that PLAIT_ISA allows; the variable is read once. Throws as
// parse_instruction_set() does.
InstructionSet instruction_set_limit();

// Null if kernels may use the set; otherwise the reason why not.
const char* refusal(InstructionSet set);

inline bool may_use(InstructionSet set) { return refusal(set) == nullptr; }

// ", PLAIT_ISA=avx2" where the variable excludes instructions that this processor has. Empty
// otherwise, also if the variable's value is invalid.
std::string instruction_limit_note();

}  // namespace plait::base
