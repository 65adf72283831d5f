// Rows for other ranks, of which only their sender knows how many there are: tokens for experts.
//
//   plait::ReceivedRows tokens, results;
//   plait::all_to_all_rows(x, counts, tokens, comm, {.groups = experts});
//   ... y = a product of tokens.rows for each group ...
//   plait::all_to_all_rows(y, tokens.counts, results, comm, {.groups = experts, .back = true});
//
// Each rank has `groups` groups, its experts, as many as all others; counts[rank * groups + group]
// of x's rows are for a group of a rank. They lie in this order. A rank receives its rows in the
// order of their groups, those of each in the order of their sources, and each source's as it has
// them. `back` is the way back: x is in the order in which rows were received, `counts` says how
// many of each group go to each rank, and what is received is in the order of the first call's x.
//
// The order is the same in every run, whichever rows arrive first. A rank may have no rows for some
// ranks, or none at all, but it takes part in each call. Counts travel with the first rows. A rank
// allocates what it receives when it knows from all others how many rows they have for it.
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

  // How many rows this rank receives at most. If there are more, all ranks throw Error{mismatch},
  // before memory for them is allocated.
  std::int64_t most_rows = std::numeric_limits<std::int64_t>::max();
};

// The rows that have been received. It may be used again for another call, and then keeps its
// memory if that is large enough.
struct ReceivedRows {
  Buffer memory;
  TensorView rows = {};  // in `memory`, without gaps
  std::int64_t groups = 0;
  std::vector<std::int64_t> counts = {};  // counts[source * groups + group]

  // How many rows each group has.
  PLAIT_EXPORT std::vector<std::int64_t> rows_of_groups() const;
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
