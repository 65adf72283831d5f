// Which vector instructions kernels may use: the processor's, or fewer where PLAIT_ISA says so.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace plait::base {

// Each has all instructions of those before it. Where the processor is no x86, kernels that need
// no particular instructions count as sse2.
enum class InstructionSet : std::uint8_t {
  sse2,         // every x86-64 processor
  avx2,         // with FMA and F16C
  avx512,       // F, BW, DQ and VL
  avx512_bf16,  // dot products of bf16
  amx,          // tiles, of bf16
};

// "avx512-bf16"
std::string_view name(InstructionSet set);

// The inverse of name(), for the value of a variable.
// Error{invalid_argument} lists the allowed values.
InstructionSet parse_instruction_set(std::string_view text);

// The most that the processor and its operating system have, whatever PLAIT_ISA says.
InstructionSet processor_instruction_set();

// The most that PLAIT_ISA allows; it is read once. Error{invalid_argument}: see above.
InstructionSet instruction_set_limit();

// Null: kernels may use the set. Otherwise why not, in words.
const char* refusal(InstructionSet set);

inline bool may_use(InstructionSet set) { return refusal(set) == nullptr; }

// ", PLAIT_ISA=avx2" where the variable leaves out something that this processor has; or nothing,
// also where its value is refused.
std::string instruction_limit_note();

}  // namespace plait::base
