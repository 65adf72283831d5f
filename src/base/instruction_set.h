// The vector instructions that kernels may use: those of the processor, or fewer if PLAIT_ISA says
// so.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace plait::base {

// Each kind of processor, x86 or Arm, has its own, of which each includes those of its kind before
// it.
enum class InstructionSet : std::uint8_t {
  basic,        // the vectors of every processor of the kind: sse2 or neon
  avx2,         // x86, with FMA and F16C
  avx512,       // F, BW, DQ and VL
  avx512_bf16,  // dot products of bf16
  amx,          // tiles of bf16
  neon_bf16,    // Arm: multiplications of bf16 that add to f32
  neon_bfmmla,  // Arm: products of matrices of bf16, in an order of their own
};

// Those of this kind of processor, which PLAIT_ISA may name.
std::span<const InstructionSet> instruction_sets();

// "avx512-bf16"
std::string_view name(InstructionSet set);

// The inverse of name(), for values of PLAIT_ISA. Error{invalid_argument} lists the allowed values.
InstructionSet parse_instruction_set(std::string_view text);

// The largest set that the processor and its operating system support, whatever PLAIT_ISA says.
InstructionSet processor_instruction_set();

// The largest that kernels may use; the variable is read once. Without it, that is never
// neon_bfmmla, whose bits no other set has. Throws as parse_instruction_set() does.
InstructionSet usable_instruction_set();

// Null if kernels may use the set; otherwise the reason why not.
const char* refusal(InstructionSet set);

inline bool may_use(InstructionSet set) { return refusal(set) == nullptr; }

// True if this processor multiplies f32 more than twice as fast as pairs of bf16. Intel's that know
// f16 take two cycles for a dot product of bf16 in AVX-512, in which they make four multiply-adds
// (measured on one of the Emerald Rapids generation).
bool multiplies_f32_faster();

// True if multiply-adds of AVX-512 take longer on this processor where each has to spread another
// word from a cache. AMD's Zen 4 is known for it: products of 16 to 64 rows in f32 took 1.4 to 1.6
// times as long there as their multiply-adds alone.
bool spreads_words_slowly();

// ", PLAIT_ISA=avx2" where kernels use other instructions than without the variable. Empty
// otherwise, also if the variable's value is invalid.
std::string instruction_limit_note();

}  // namespace plait::base
