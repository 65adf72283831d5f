// Calls of three ranks that cut them differently: the chunks of rank 0 are larger.
#pragma once

#include <cstdint>
#include <vector>

#include "gemm/matrix.h"
#include "overlap/block_gather.h"
#include "overlap/block_reduce.h"
#include "overlap/lanes.h"

namespace plait::overlap::other_cuts {

constexpr int kWorld = 3;
constexpr std::int64_t kRows = 12;
constexpr std::int64_t kColumns = 600;

// Rank 0 cuts columns in two where the others cut them in three.
inline Cut cut_of(int rank) {
  const std::int64_t width = rank == 0 ? 300 : 200;
  std::vector<Range> columns;
  for (std::int64_t begin = 0; begin < kColumns; begin += width)
    columns.push_back({begin, begin + width});
  return Cut::by_columns(Ownership::sharded(kRows, kColumns, kWorld), columns);
}

inline void gather_rows(Communicator& comm) {
  Lanes lanes(comm, cut_of(comm.rank()));  // the mailbox is the same on all, and so is the tag
  const Matrix own(Dtype::f32, kRows / kWorld, kColumns);
  const Matrix all(Dtype::f32, kRows, kColumns);
  BlockGather gather(lanes.exchange, lanes.cut, Way::out);
  gather.begin({.own = own.view, .first_row = comm.rank() * kRows / kWorld, .all = all.view});
  gather.ready(lanes.cut.chunks());
  lanes.finish(gather);
}

inline void sum(Communicator& comm) {
  Lanes lanes(comm, cut_of(comm.rank()));  // the mailbox is the same on all, and so is the tag
  const Matrix parts(Dtype::f32, kRows, kColumns);
  const Matrix out(Dtype::f32, kRows / kWorld, kColumns);
  BlockReduce reduce(lanes.exchange, lanes.cut, Dtype::f32, 1);
  reduce.begin({.out = out.view, .first_row = comm.rank() * kRows / kWorld});
  for (std::size_t part = 0; part < lanes.cut.parts().size(); ++part)
    reduce.ready(static_cast<int>(part), lanes.blocks(part, parts.view));
  lanes.finish(reduce);
}

}  // namespace plait::overlap::other_cuts
