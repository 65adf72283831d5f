// Rows for other ranks, of which only their sender knows how many there are: tokens for experts.
//
//   plait::ReceivedRows tokens, results;
//   plait::all_to_all_rows(x, counts, tokens, comm, {.groups = experts});
//   gemm.run({.x = tokens.rows, .rows = tokens.rows_of_groups(), .weights = mine, .out = y});
//   plait::all_to_all_rows(y, tokens.counts, results, comm, {.groups = experts, .back = true});
//
// Every rank has `groups` groups, such as its experts; counts[rank * groups + group] of x's rows go
// to this group of this rank, and lie in this order. What a rank receives is in the order of its
// groups; a group's rows are in the order of their sources, and those of a source in the order in
// which they lie there. So the order does not depend on which rows arrive first. With `back`, rows
// go back: x is in the order in which rows were received, counts[rank * groups + group] of a
// group's rows go to this rank, and what it receives is in the order of the first call's x.
//
// Counts travel with the first rows. A rank allocates what it receives when all others have told it
// how many rows they have. A rank without rows takes part in the call too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "plait/buffer.h"
#include "plait/collectives.h"
#include "plait/communicator.h"
#include "plait/export.h"
#include "plait/tensor_view.h"

namespace plait {

inline constexpr std::int64_t kMostRowGroups = 512;

struct RowsOptions {
  std::int64_t groups = 1;  // of each rank
  bool back = false;

  // How many rows this rank receives at most. If there are more, the group fails: all ranks throw
  // Error{mismatch}, in this call or the next, and no memory is allocated for the rows.
  std::int64_t most_rows = std::numeric_limits<std::int64_t>::max();
};

// The rows that have been received. It may be used again for another call, and then keeps its
// memory if that is large enough.
struct PLAIT_EXPORT ReceivedRows {
  Buffer memory;
  TensorView rows = {};  // in `memory`, without gaps
  std::int64_t groups = 0;
  std::vector<std::int64_t> counts = {};  // counts[source * groups + group]

  // How many rows each group has.
  std::vector<std::int64_t> rows_of_groups() const;
};

// x has any dtype, and may have gaps between rows. It must not lie in received.memory.
PLAIT_EXPORT void all_to_all_rows(const ConstTensorView& x, std::span<const std::int64_t> counts,
                                  ReceivedRows& received, Communicator& comm,
                                  const RowsOptions& options = {});

// `counts` is copied; x and `received` must live until it is done.
PLAIT_EXPORT Pending start_all_to_all_rows(const ConstTensorView& x,
                                           std::span<const std::int64_t> counts,
                                           ReceivedRows& received, Communicator& comm,
                                           const RowsOptions& options = {});

}  // namespace plait
