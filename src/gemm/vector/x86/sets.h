// The sets of this folder, each compiled with its own options.
#pragma once

#include "gemm/kernel.h"

namespace plait::gemm::vector {

void multiply_avx2(const TileCall& call);
void multiply_avx512(const TileCall& call);
void multiply_avx512_pairs(const TileCall& call);
void multiply_avx512_bf16(const TileCall& call);

PlainRows plain_rows_avx2(Storage storage);
PlainRows plain_rows_avx512(Storage storage);
PlainRows plain_rows_avx512_bf16(Storage storage);
PlainRows plain_rows_avx512_pairs(Storage storage);

}  // namespace plait::gemm::vector
