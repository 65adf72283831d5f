// Few rows by a panel as it is stored, in registers, in the orders in which the kernels sum.
//
// With few rows a product waits for the weight, and a panel that is expanded on its way is written
// and read once more than it need be. Here values become f32 or bf16 in registers and go straight
// into multiply-adds. Each function gives the bits of one kind of kernel: docs/design/0006 says why
// it can.
#pragma once

#include "gemm/kernel.h"

namespace plait::gemm {

// Moves a call on by a group.
template <Storage stored>
[[gnu::always_inline]] inline void advance(StoredTileCall& call) {
  call.rows += call.k / kKStep * call.step_stride;
  call.panel += call.k * kPanelColumns * static_cast<std::int64_t>(bits_of(stored)) / 8;
  if (call.offsets != nullptr) call.offsets += call.offset_step;
  if (call.leaves > 0)
    ++call.leaf;
  else
    call.sums += std::int64_t{call.row_count} * kPanelColumns;
}

// Calls `one` with each group of the call.
template <Storage stored, class One>
void for_each_group(const StoredTileCall& call, const One& one) {
  StoredTileCall group = call;
  group.groups = 1;
  for (int g = 0; g < call.groups; ++g, advance<stored>(group)) one(group);
}

// MXCSR as AMX calculates, whatever a thread says: it rounds to nearest, denormals are 0, and no
// exception is raised.
inline constexpr unsigned kAmxFloats = 0x9fc0;

// One fused multiply-add after another, as every f32 kernel that fuses has it.
FewRows few_rows_in_sequence(Storage storage);

// Likewise, for a processor that has these instructions.
FewRows few_rows_in_avx2(Storage storage);
FewRows few_rows_in_avx512(Storage storage);  // none by s4

// One dot product of a pair of bf16 after another, as the vector kernel multiplies bf16.
// Rows are bf16, and panels s8 or s4.
FewRows few_rows_in_pairs(Storage storage);

// Adds in the order in which AMX sums bf16: the even and the odd ones of every kKStep k each in a
// chain of fused multiply-adds from 0, the chains' sum added to the sum so far; denormals are 0.
// Rows are bf16, and panels s8 or s4.
FewRows few_rows_in_chains(Storage storage);

// In the same order, by plain weights of bf16.
PlainRows plain_rows_in_chains(Storage storage);

}  // namespace plait::gemm
