// The sets of 64-bit Arm, a file each.
#pragma once

#include "gemm/vector/sets.h"

namespace plait::gemm::vector {

void multiply_neon(const TileCall& call);
PlainRows plain_rows_neon(Storage storage);

void multiply_neon_bf16(const TileCall& call);
PlainRows plain_rows_neon_bf16(Storage storage);

void multiply_neon_bfmmla(const TileCall& call);

}  // namespace plait::gemm::vector
