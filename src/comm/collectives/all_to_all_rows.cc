#include "plait/all_to_all_rows.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>

#include "base/check.h"
#include "comm/collectives/tasks.h"
#include "comm/flow/chunks.h"
#include "comm/flow/counted_rows.h"
#include "comm/flow/row_flow.h"

namespace plait {
namespace comm {
namespace {

constexpr const char* kRows = "all_to_all_rows";

static_assert(kMostRowGroups * sizeof(std::int64_t) <= kLeastChunkBytes, "a header is in a chunk");

class AllToAllRows final : public FlowTask<RowFlow>, private MatrixParcels {
 public:
  AllToAllRows(Communicator::State& state, const ConstTensorView& x,
               std::span<const std::int64_t> counts, ReceivedRows& received,
               const RowsOptions& options)
      : FlowTask({.operation = Operation::all_to_all_rows,
                  .dtype = x.dtype,
                  .wire = x.dtype,
                  .sizes = {x.cols, options.groups, options.back ? 1 : 0}},
                 flow_),
        group_(state.group()),
        x_(x),
        received_(received),
        options_(options),
        to_(group_.world(), options.groups, static_cast<std::int64_t>(x.row_bytes())),
        from_(group_.world(), options.groups, static_cast<std::int64_t>(x.row_bytes())),
        flow_(state.lanes(), *this, RowCut(x, options.groups, state.lane_capacity().chunk_bytes)) {
    for (int rank = 0; rank < group_.world(); ++rank) {
      const std::span<std::int64_t> own = to_.counts(rank);
      std::memcpy(own.data(), counts.data() + static_cast<std::size_t>(rank) * own.size(),
                  own.size_bytes());
    }
    to_.lay_out(options.back);
  }

  void begin() override {
    learn(group_.rank(), to_.counts(group_.rank()));
    flow_.begin();
  }

 private:
  ConstTensorView outgoing() const override { return x_; }
  const RowBlock& block_to(int peer) const override { return to_.block(peer); }
  std::span<const std::int64_t> counts_to(int peer) const override {
    return to_.all_counts().subspan(static_cast<std::size_t>(peer * options_.groups),
                                    static_cast<std::size_t>(options_.groups));
  }
  TensorView incoming() const override { return received_.rows; }
  const RowBlock& block_from(int peer) const override { return from_.block(peer); }

  std::int64_t learn(int peer, std::span<const std::int64_t> counts) override {
    return from_.learn(peer, counts, kRows, group_);
  }

  void make_places() override {
    from_.lay_out(!options_.back);
    const std::int64_t rows = from_.rows();
    const std::int64_t most = std::min(options_.most_rows, from_.most_rows());
    if (rows > most) {
      const int rank = group_.rank();
      const bool is_own_limit = rows > options_.most_rows;
      group_.fail_and_raise({Code::mismatch, is_own_limit ? rank : from_.rank_of_most(),
                             base::sentence(kRows, ": rank ", rank, " takes at most ", most,
                                            " rows, but ", rows, " are for it")});
    }
    try {
      const TensorView place = {.dtype = x_.dtype, .rows = rows, .cols = x_.cols};
      if (received_.memory.bytes() < place.bytes()) {
        received_ = {};  // first, so that there are not two at a time
        received_.memory = Buffer(place.bytes());
      }
      received_.rows = received_.memory.view(x_.dtype, rows, x_.cols);
      received_.groups = options_.groups;
      received_.counts.assign(from_.all_counts().begin(), from_.all_counts().end());
    } catch (...) {
      group_.fail_and_raise(failure_of_caught(kRows, group_.rank()));
    }
    take_own();
  }

  // Copies the rows that this rank has for itself.
  void take_own() {
    const RowBlock& from = to_.block(group_.rank());
    const RowBlock& to = from_.block(group_.rank());
    from.for_each_run({0, from.rows()}, [&](RowRange source, std::int64_t at) {
      to.for_each_run({at, at + source.count()}, [&](RowRange place, std::int64_t row) {
        const std::int64_t first = source.begin + row - at;
        copy_to_slot(static_cast<std::byte*>(received_.rows.row(place.begin)),
                     x_.row_range(first, first + place.count()), {});
      });
    });
  }

  Group& group_;
  ConstTensorView x_;
  ReceivedRows& received_;
  RowsOptions options_;
  CountedRows to_;
  CountedRows from_;
  RowFlow flow_;
};

// Checks that the counts are not negative and add up to the rows of x.
void check_counts(std::span<const std::int64_t> counts, const ConstTensorView& x,
                  const RowsOptions& options, int world) {
  PLAIT_CHECK(options.groups >= 1 && options.groups <= kMostRowGroups, kRows, ": ", options.groups,
              " groups; there can be 1 to ", kMostRowGroups);
  PLAIT_CHECK(std::ssize(counts) == world * options.groups, kRows, ": ", counts.size(),
              " counts for ", options.groups, " groups on each of ", world, " ranks");
  std::int64_t left = x.rows;
  for (const std::int64_t count : counts) {
    PLAIT_CHECK(count >= 0, kRows, ": a group gets ", count, " rows");
    PLAIT_CHECK(count <= left, kRows, ": the counts add up to more than the ", x.rows,
                " rows of the input");
    left -= count;
  }
  PLAIT_CHECK(left == 0, kRows, ": the counts add up to ", x.rows - left, ", not to the ", x.rows,
              " rows of the input");
}

void check_input(const ConstTensorView& x, const ReceivedRows& received) {
  PLAIT_CHECK(x.device == kCpu, kRows, ": the input is on ", name(x.device),
              ", whose memory this build cannot reach");
  PLAIT_CHECK(x.dtype <= Dtype::s8, kRows, ": the input has the dtype ", static_cast<int>(x.dtype),
              ", which is none");
  const auto most = kMostBytesOfRows / static_cast<std::int64_t>(size_of(x.dtype));
  PLAIT_CHECK(
      x.rows >= 0 && x.rows <= kMostRows && x.cols >= 0 && (x.cols == 0 || x.rows <= most / x.cols),
      kRows, ": the input is of ", x.rows, " x ", x.cols, " elements");
  if (x.bytes() == 0) return;
  PLAIT_CHECK(x.data != nullptr, kRows, ": the input has ", x.rows, " rows and no address");
  PLAIT_CHECK(x.rows == 1 || x.row_stride >= x.cols, kRows, ": rows of ", x.cols, " elements are ",
              x.row_stride, " apart");
  const std::less<> before;  // orders unrelated addresses; < need not
  const std::byte* const memory = received.memory.data();
  const bool is_inside = received.memory.bytes() > 0 && !before(x.data, memory) &&
                         before(x.data, memory + received.memory.bytes());
  PLAIT_CHECK(!is_inside, kRows, ": the input lies in the memory of what is received");
}

std::unique_ptr<Task> checked(const ConstTensorView& x, std::span<const std::int64_t> counts,
                              ReceivedRows& received, Communicator& comm,
                              const RowsOptions& options) {
  check_input(x, received);
  check_counts(counts, x, options, comm.world());
  PLAIT_CHECK(options.most_rows >= 0, kRows, ": rank ", comm.rank(), " takes at most ",
              options.most_rows, " rows");
  return std::make_unique<AllToAllRows>(comm.state(), x, counts, received, options);
}

}  // namespace
}  // namespace comm

std::vector<std::int64_t> ReceivedRows::rows_of_groups() const {
  std::vector<std::int64_t> sums(static_cast<std::size_t>(groups));
  for (std::size_t i = 0; i < counts.size(); ++i) sums[i % sums.size()] += counts[i];
  return sums;
}

void all_to_all_rows(const ConstTensorView& x, std::span<const std::int64_t> counts,
                     ReceivedRows& received, Communicator& comm, const RowsOptions& options) {
  const auto task = comm::checked(x, counts, received, comm, options);
  const Span span(comm.trace(), Lane::comm, comm::kRows,
                  {.bytes = static_cast<std::int64_t>(x.bytes())});
  comm.state().run(*task);
}

Pending start_all_to_all_rows(const ConstTensorView& x, std::span<const std::int64_t> counts,
                              ReceivedRows& received, Communicator& comm,
                              const RowsOptions& options) {
  std::unique_ptr<comm::Task> task = comm::checked(x, counts, received, comm, options);
  task->record(comm.trace(), comm::kRows, static_cast<std::int64_t>(x.bytes()));
  return {std::move(task), comm};
}

}  // namespace plait
