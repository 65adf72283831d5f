// The lanes of a call's flow, for tests of flows by themselves.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "comm/session/state.h"
#include "overlap/cut.h"
#include "overlap/exchange.h"
#include "plait/communicator.h"

namespace plait::overlap {

struct Lanes {
  Lanes(Communicator& communicator, Cut how, int ways = 1)
      : comm(communicator), cut(std::move(how)), exchange(comm.state().group(), ways) {
    const MailboxDesc desc = Exchange::mailbox_for(ways, 1 << 16);
    exchange.use(comm.state().operator_mailbox(desc, desc, {}));
    begin();
  }

  // The next call.
  void begin() {
    exchange.begin(comm.state().begin_call({.operation = plait::Operation::matmul_all_reduce}));
  }

  template <class Flow, class Ready>
  void step_until(Flow& flow, Ready&& ready) {
    exchange.wait(
        [&] {
          flow.step();
          return ready();
        },
        [&] { return flow.awaited(); });
  }

  template <class Flow>
  void finish(Flow& flow) {
    step_until(flow, [&] { return flow.done(); });
  }

  // Each rank's block of a part of `whole`.
  std::vector<ConstTensorView> blocks(std::size_t part, const ConstTensorView& whole) const {
    const auto [begin, end] = cut.parts()[part].columns;
    std::vector<ConstTensorView> blocks;
    for (const Range& rows : cut.parts()[part].rows())
      blocks.push_back(whole.row_range(rows.begin, rows.end).column_range(begin, end));
    return blocks;
  }

  Communicator& comm;
  Cut cut;
  Exchange exchange;
};

// Parts of 7 columns, the last one narrower; each is one chunk.
inline Cut narrow_parts(std::int64_t rows, std::int64_t columns, int world) {
  std::vector<Range> ranges;
  for (std::int64_t begin = 0; begin < columns; begin += 7)
    ranges.push_back({begin, std::min<std::int64_t>(begin + 7, columns)});
  return Cut::by_columns(Ownership::sharded(rows, columns, world), ranges);
}

template <class Value>
void fill(const TensorView& view, const Value& value) {
  for (std::int64_t row = 0; row < view.rows; ++row) {
    auto* const to = static_cast<float*>(view.row(row));
    for (std::int64_t column = 0; column < view.cols; ++column) to[column] = value(row, column);
  }
}

}  // namespace plait::overlap
