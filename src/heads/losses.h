// The steps of a loss, which its gradient takes too if both are computed at once.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "heads/agreement.h"
#include "heads/row_sums.h"
#include "plait/vocabulary.h"

namespace plait::heads {

// Collective. The sums over all ranks' logits, for each row. `keep`, if it has memory, receives
// this rank's logits, as many columns as are no padding.
std::vector<RowSums> sums_of_rows(const CrossEntropyCall& call, Agreement& agreement,
                                  const TensorView& keep, Communicator& comm,
                                  const CrossEntropyOptions& options);

// Writes the losses times `sign`, and the logarithms of the sums.
void write_losses(const CrossEntropyCall& call, std::span<const RowSums> rows, double sign,
                  std::int64_t vocabulary, const CrossEntropyOptions& options);

}  // namespace plait::heads
