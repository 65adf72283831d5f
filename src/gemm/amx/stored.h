// Up to 16 rows by a panel that is still quantised, on tiles.
#pragma once

#include "gemm/kernel.h"

namespace plait::gemm::amx {

// This processor's tiles must be shaped for the call's rows: tiles 0 to 3 are sums, 4 rows of X, 6
// and 7 parts of the panel.
void multiply_stored_s8(const StoredTileCall& call);
void multiply_stored_s4(const StoredTileCall& call);

}  // namespace plait::gemm::amx
