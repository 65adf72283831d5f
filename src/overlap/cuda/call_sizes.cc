#include "overlap/cuda/call_sizes.h"

#include <algorithm>

namespace plait::overlap::cuda {
namespace {

constexpr long long kAlignment = 1024;

long long rounded_up(long long value, long long to) { return (value + to - 1) / to * to; }

// Few rows are under one flag, so that all free warps send the first rows before the last.
int piece_rows_of(int rows) { return std::clamp(rows / 2048, 1, 16); }

}  // namespace

CallSizes sizes_of(const DeviceProblem& problem, int world) {
  const int most_rows = ceil_div(problem.m, world);
  CallSizes sizes = {
      .tile_columns = ceil_div(problem.n, kTileColumns),
      .tiles_per_source = 0,
      .tile_bytes = static_cast<long long>(kTileRows) * kTileColumns * size_of_kind(problem.wire),
      .pieces = 0,
      .piece_rows = piece_rows_of(most_rows),
      .results_stride =
          rounded_up(static_cast<long long>(problem.n) * size_of_kind(problem.out), 16)};
  // A shard that begins within a tile can have rows in one more.
  sizes.tiles_per_source = (ceil_div(most_rows, kTileRows) + 1) * sizes.tile_columns;
  sizes.pieces = ceil_div(most_rows, sizes.piece_rows);
  return sizes;
}

int tile_width(int units, int n, int clusters) {
  int best = kTileWidths[0];
  long long least = 0;
  for (const int width : kTileWidths) {
    // The clusters multiply in waves. Narrow tiles take some more time for each column, since they
    // read more of x.
    constexpr long long kExtra = 8;  // columns
    const int waves = ceil_div(units * ceil_div(n, width), std::max(clusters, 1));
    const long long time = waves * (width + kExtra);
    if (least != 0 && time >= least) continue;
    best = width;
    least = time;
  }
  return best;
}

long long bytes_of_flags(long long flags) {
  return rounded_up(
      (DeviceMailbox::kBegan + 2 * flags) * static_cast<long long>(sizeof(comm::cuda::Flag)),
      kAlignment);
}

MailboxNeeds needs_of(const DeviceProblem& problem, int world) {
  const CallSizes sizes = sizes_of(problem, world);
  const bool spreads = problem.op == DeviceOperator::matmul_all_reduce;
  MailboxNeeds needs;
  switch (problem.op) {
    case DeviceOperator::matmul:
      break;
    case DeviceOperator::matmul_all_reduce:
    case DeviceOperator::matmul_reduce_scatter:
      needs.flags = 1LL * world * sizes.tiles_per_source * (spreads ? 1 + kMostPieces : 1);
      needs.bytes = 1LL * world * sizes.tiles_per_source * sizes.tile_bytes;
      if (spreads) needs.bytes += problem.m * sizes.results_stride;
      needs.staged = static_cast<long long>(ceil_div(problem.m, kUnitRows)) *
                     (kUnitRows / kTileRows) * sizes.tile_columns * sizes.tile_bytes;
      break;
    case DeviceOperator::all_gather_matmul:
      needs.flags = 1LL * world * sizes.pieces;
      needs.bytes = 2LL * problem.m * problem.k;
      break;
  }
  needs.bytes = rounded_up(needs.bytes, kAlignment);
  return needs;
}

long long mailbox_bytes(const MailboxNeeds& needs) {
  return bytes_of_flags(needs.flags) + 2 * needs.bytes;
}

}  // namespace plait::overlap::cuda
