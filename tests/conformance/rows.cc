// Rows for other ranks, of which only the sender knows how many there are.
#include <chrono>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "comm/session/state.h"
#include "conformance/collectives.h"
#include "plait/all_to_all_rows.h"

namespace plait::conformance {
namespace {

// How many rows each rank has for each group of each rank, which all ranks of the test know.
class Routing {
 public:
  Routing(int world, std::int64_t groups) : world_(world), groups_(groups) {
    counts_.resize(static_cast<std::size_t>(world) * counts_of_a_rank());
  }

  std::int64_t& at(int from, int to, std::int64_t group) {
    return counts_[static_cast<std::size_t>(from) * counts_of_a_rank() +
                   static_cast<std::size_t>(to * groups_ + group)];
  }
  std::span<const std::int64_t> of(int from) const {
    return std::span(counts_).subspan(static_cast<std::size_t>(from) * counts_of_a_rank(),
                                      counts_of_a_rank());
  }
  // The first row of those for a group of a rank among all of the sender.
  std::int64_t first(int from, int to, std::int64_t group) const {
    std::int64_t row = 0;
    for (std::int64_t i = 0; i < to * groups_ + group; ++i)
      row += of(from)[static_cast<std::size_t>(i)];
    return row;
  }
  std::int64_t rows(int from) const { return first(from, world_, 0); }
  std::int64_t groups() const { return groups_; }
  int world() const { return world_; }

  static Routing random(int world, std::int64_t groups, std::int64_t most, std::minstd_rand& same) {
    Routing routing(world, groups);
    for (std::int64_t& count : routing.counts_)
      count = same() % 3 == 0 ? 0 : static_cast<std::int64_t>(same() % (most + 1));
    return routing;
  }

 private:
  std::size_t counts_of_a_rank() const { return static_cast<std::size_t>(world_ * groups_); }

  int world_;
  std::int64_t groups_;
  std::vector<std::int64_t> counts_;
};

// A byte of a row that shows whose it is, which row, and which place in it.
std::byte byte_of(int rank, std::int64_t row, std::size_t place) {
  const auto mixed = static_cast<std::uint64_t>(rank + 1) * 0x9e3779b97f4a7c15U +
                     static_cast<std::uint64_t>(row) * 0xbf58476d1ce4e5b9U + place * 0x94d049bbU;
  return static_cast<std::byte>(mixed >> 29);
}

struct Matrix {
  Matrix(int rank, std::int64_t rows, std::int64_t cols, Dtype dtype, std::int64_t gap)
      : bytes(static_cast<std::size_t>(rows * (cols + gap)) * size_of(dtype)),
        view{.data = bytes.data(),
             .dtype = dtype,
             .rows = rows,
             .cols = cols,
             .row_stride = cols + gap} {
    for (std::int64_t row = 0; row < rows; ++row) {
      auto* const to = static_cast<std::byte*>(view.row(row));
      for (std::size_t place = 0; place < view.row_bytes(); ++place)
        to[place] = byte_of(rank, row, place);
    }
  }

  std::vector<std::byte> bytes;
  TensorView view;
};

bool is_row(const TensorView& matrix, std::int64_t at, int rank, std::int64_t row) {
  const auto* const found = static_cast<const std::byte*>(matrix.row(at));
  for (std::size_t place = 0; place < matrix.row_bytes(); ++place) {
    if (found[place] != byte_of(rank, row, place)) return false;
  }
  return true;
}

// Each group's rows, by source, in the source's order.
void expect_in_order(const Routing& routing, const ReceivedRows& received, int rank) {
  std::int64_t at = 0;
  for (std::int64_t group = 0; group < routing.groups(); ++group) {
    for (int source = 0; source < routing.world(); ++source) {
      const std::int64_t first = routing.first(source, rank, group);
      const std::int64_t count =
          routing.of(source)[static_cast<std::size_t>(rank * routing.groups() + group)];
      EXPECT_EQ(received.counts[static_cast<std::size_t>(source * routing.groups() + group)],
                count);
      for (std::int64_t row = first; row < first + count; ++row, ++at) {
        ASSERT_LT(at, received.rows.rows);
        ASSERT_TRUE(is_row(received.rows, at, source, row))
            << "row " << at << " should be row " << row << " of rank " << source;
      }
    }
  }
  EXPECT_EQ(at, received.rows.rows);
}

struct Shape {
  std::int64_t cols;
  Dtype dtype;
  std::int64_t gap = 0;
};

// There and back again.
void exchange(Communicator& comm, const Routing& routing, const Shape& shape,
              ReceivedRows& received) {
  const int rank = comm.rank();
  const Matrix x(rank, routing.rows(rank), shape.cols, shape.dtype, shape.gap);
  all_to_all_rows(x.view, routing.of(rank), received, comm, {.groups = routing.groups()});
  expect_in_order(routing, received, rank);
  ReceivedRows returned;
  all_to_all_rows(received.rows, received.counts, returned, comm,
                  {.groups = routing.groups(), .back = true});
  ASSERT_EQ(returned.rows.rows, x.view.rows);
  for (std::int64_t row = 0; row < x.view.rows; ++row)
    ASSERT_TRUE(is_row(returned.rows, row, rank, row)) << row;
  const auto sent = routing.of(rank);
  EXPECT_EQ(returned.counts, std::vector<std::int64_t>(sent.begin(), sent.end()));
}

// Tells all peers that this rank has so many rows for them.
void send_count(Communicator& comm, std::int64_t count) {
  comm::Lanes& lanes = comm.state().lanes();
  lanes.begin(
      comm.state().begin_call({.operation = Operation::all_to_all_rows, .sizes = {4, 1, 0}}));
  for (const int peer : lanes.peers()) {
    std::byte* const header = lanes.outbox(comm::Way::out, peer);
    std::memset(header, 0, 64);
    std::memcpy(header, &count, sizeof(count));
    lanes.post(comm::Way::out, peer, 64);
  }
}

}  // namespace

TEST_P(CollectivesConformance, RowsReachTheirGroupsAndComeBack) {
  run([&](Communicator& comm) {
    std::minstd_rand same(45);
    std::minstd_rand own(static_cast<unsigned>(comm.rank()) + 7);
    ReceivedRows received;  // of all calls, so that it grows and is used again
    // Rows shorter than a chunk, about as long as one, and longer.
    const Shape shapes[] = {{1, Dtype::s8},
                            {64, Dtype::bf16, 3},
                            {600, Dtype::f32},
                            {8192, Dtype::f32, 1},
                            {20011, Dtype::f16, 5}};
    for (const Shape& shape : shapes) {
      for (const std::int64_t groups : {1, 3, 64}) {
        if (own() % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(own() % 700));
        const std::int64_t most = shape.cols > 1000 || groups == 64 ? 3 : 90;
        exchange(comm, Routing::random(world(), groups, most, same), shape, received);
      }
    }
  });
}

TEST_P(CollectivesConformance, AllRowsMayBeForOneRankOrNone) {
  run([&](Communicator& comm) {
    ReceivedRows received;
    for (int to = 0; to < world(); ++to) {
      Routing routing(world(), 2);
      for (int from = 0; from < world(); ++from)
        routing.at(from, to, 1) = std::int64_t{40} * (world() - from);
      exchange(comm, routing, {777, Dtype::f32}, received);
      EXPECT_EQ(
          received.rows_of_groups(),
          (std::vector<std::int64_t>{0, comm.rank() == to ? 20 * world() * (world() + 1) : 0}));
    }
    exchange(comm, Routing(world(), 3), {777, Dtype::f32}, received);
    std::minstd_rand same(3);
    exchange(comm, Routing::random(world(), 3, 50, same), {0, Dtype::f32}, received);
    exchange(comm, Routing::random(world(), kMostRowGroups, 1, same), {5, Dtype::f32}, received);
  });
}

// More than caches hold, which is written past them.
TEST_P(CollectivesConformance, ManyRowsFindTheirPlaces) {
  run([&](Communicator& comm) {
    ReceivedRows received;
    Routing routing(world(), 2);
    for (int from = 0; from < world(); ++from) {
      for (int to = 0; to < world(); ++to) routing.at(from, to, (from + to) % 2) = 300 + from;
    }
    exchange(comm, routing, {1024, Dtype::f32}, received);
  });
}

TEST_P(CollectivesConformance, RowsTravelWhileTheCallerDoesOtherThings) {
  run([&](Communicator& comm) {
    std::minstd_rand same(17);
    const Routing routing = Routing::random(world(), 4, 60, same);
    const Matrix x(comm.rank(), routing.rows(comm.rank()), 500, Dtype::f32, 0);
    ReceivedRows received;
    std::vector<float> sum(1000, 1.0F);
    Pending exchanging = start_all_to_all_rows(x.view, routing.of(comm.rank()), received, comm,
                                               {.groups = routing.groups()});
    Pending reducing = start_all_reduce({sum.data(), sum.size()}, {sum.data(), sum.size()}, comm);
    if (comm.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    while (!reducing.done()) std::this_thread::yield();
    EXPECT_TRUE(exchanging.done());
    expect_in_order(routing, received, comm.rank());
    EXPECT_EQ(sum.back(), static_cast<float>(world()));
  });
}

TEST_P(CollectivesConformance, RefusesRowsThatItCannotSend) {
  run([&](Communicator& comm) {
    std::vector<float> data(60);
    ReceivedRows received;
    const auto x = ConstTensorView::of(data.data(), 6, 10);
    std::vector<std::int64_t> counts(static_cast<std::size_t>(world()), 0);
    const auto refusal = [&](const ConstTensorView& rows, const RowsOptions& options = {}) {
      return std::string(expect_error(Code::invalid_argument, [&] {
                           all_to_all_rows(rows, counts, received, comm, options);
                         }).what());
    };
    counts[0] = 5;
    EXPECT_EQ(refusal(x),
              "all_to_all_rows: the counts add up to 5, not to the 6 rows of the input");
    counts[0] = 7;
    EXPECT_EQ(refusal(x),
              "all_to_all_rows: the counts add up to more than the 6 rows of the input");
    counts[0] = -1;
    EXPECT_EQ(refusal(x), "all_to_all_rows: a group gets -1 rows");
    counts[0] = 6;
    EXPECT_EQ(refusal(x, {.groups = 2}), "all_to_all_rows: " + std::to_string(world()) +
                                             " counts for 2 groups on each of " +
                                             std::to_string(world()) + " ranks");
    EXPECT_EQ(refusal(x, {.groups = 513}), "all_to_all_rows: 513 groups; there can be 1 to 512");
    EXPECT_EQ(refusal(x, {.groups = 0}), "all_to_all_rows: 0 groups; there can be 1 to 512");
    EXPECT_EQ(refusal(x, {.most_rows = -2}),
              "all_to_all_rows: rank " + std::to_string(comm.rank()) + " takes at most -2 rows");
    ConstTensorView bad = x;
    bad.data = nullptr;
    EXPECT_EQ(refusal(bad), "all_to_all_rows: the input has 6 rows and no address");
    bad = x;
    bad.row_stride = 9;
    EXPECT_EQ(refusal(bad), "all_to_all_rows: rows of 10 elements are 9 apart");
    bad = x;
    bad.dtype = kNoDtype;
    EXPECT_EQ(refusal(bad), "all_to_all_rows: the input has the dtype 255, which is none");
    bad = x;
    bad.device = Device::cuda(1);
    EXPECT_EQ(refusal(bad),
              "all_to_all_rows: the input is on cuda:1, whose memory this build cannot reach");
    bad = x;
    bad.rows = std::int64_t{1} << 60;
    EXPECT_TRUE(contains(refusal(bad), "the input is of 1152921504606846976 x 10 elements"));
    all_to_all_rows(x, counts, received, comm);
    counts.assign(counts.size(), 0);
    counts[0] = received.rows.rows;
    if (received.rows.rows > 0) {
      EXPECT_EQ(refusal(received.rows),
                "all_to_all_rows: the input lies in the memory of what is received");
    }
    barrier(comm);
  });
}

TEST_P(CollectivesConformance, RefusesMoreRowsThanARankTakes) {
  run([&](Communicator& comm) {
    const int last = world() - 1;
    Routing routing(world(), 1);
    for (int from = 0; from < world(); ++from) routing.at(from, last, 0) = 10;
    const Matrix x(comm.rank(), 10, 4, Dtype::f32, 0);
    ReceivedRows received;
    const Error error = expect_error(Code::mismatch, [&] {
      barrier(comm);  // or a rank that still connects might get the error there
      const std::int64_t most = comm.rank() == last ? 10 * world() - 1 : 1000;
      all_to_all_rows(x.view, routing.of(comm.rank()), received, comm, {.most_rows = most});
      barrier(comm);  // a rank that is done early gets the error in its next call
    });
    EXPECT_EQ(error.culprit(), last);
    EXPECT_EQ(std::string(error.what()), "all_to_all_rows: rank " + std::to_string(last) +
                                             " takes at most " + std::to_string(10 * world() - 1) +
                                             " rows, but " + std::to_string(10 * world()) +
                                             " are for it");
    EXPECT_EQ(received.memory.bytes(), comm.rank() == last ? 0U : received.memory.bytes());
  });
}

// Other builds, or other programs, may send anything.
TEST_P(CollectivesConformance, RefusesNumbersOfRowsThatCannotBe) {
  if (world() == 1) return;
  for (const std::int64_t count : {std::int64_t{-3}, std::int64_t{1} << 62}) {
    run([&](Communicator& comm) {
      const std::vector<std::int64_t> counts(static_cast<std::size_t>(world()), 1);
      const Matrix x(comm.rank(), world(), 4, Dtype::f32, 0);
      ReceivedRows received;
      const Error error = expect_error(Code::mismatch, [&] {
        barrier(comm);  // or a rank that still connects might get the error there
        if (comm.rank() != world() - 1) return all_to_all_rows(x.view, counts, received, comm);
        send_count(comm, count);
        for (;; std::this_thread::yield()) comm.state().check_ranks();
      });
      EXPECT_TRUE(contains(error.what(), " sends rank ") &&
                  contains(error.what(), " " + std::to_string(count) + " rows"))
          << error.what();
    });
  }
}

TEST_P(CollectivesConformance, NoticesRowsOfOtherSizes) {
  if (world() == 1) return;
  enum class Odd { columns, groups, dtype, way, skipped };
  for (const Odd odd : {Odd::columns, Odd::groups, Odd::dtype, Odd::way, Odd::skipped}) {
    run([&](Communicator& comm) {
      const bool is_odd = comm.rank() == world() - 1;
      const std::int64_t groups = is_odd && odd == Odd::groups ? 2 : 1;
      const std::vector<std::int64_t> counts(static_cast<std::size_t>(world() * groups), 1);
      const Matrix x(comm.rank(), static_cast<std::int64_t>(counts.size()),
                     is_odd && odd == Odd::columns ? 10 : 12,
                     is_odd && odd == Odd::dtype ? Dtype::bf16 : Dtype::f16, 0);
      ReceivedRows received;
      try {
        barrier(comm);  // or a rank that still connects might get the error there
        if (!GetParam().maker.sees_calls) set_timeout(comm, std::chrono::milliseconds(700));
        for (;;) {  // a rank that is done early gets the error in a later call
          if (is_odd && odd == Odd::skipped) barrier(comm);
          all_to_all_rows(x.view, counts, received, comm,
                          {.groups = groups, .back = is_odd && odd == Odd::way});
        }
      } catch (const Error& error) {
        const std::string said = error.what();
        if (!GetParam().maker.sees_calls && error.code() == Code::timeout) return;
        EXPECT_EQ(error.code(), Code::mismatch) << said;
        const std::string last = "rank " + std::to_string(world() - 1);
        EXPECT_TRUE(contains(said, last)) << said;
        if (odd == Odd::columns) {
          EXPECT_TRUE(contains(said, "columns: ")) << said;
        } else if (odd == Odd::groups) {
          EXPECT_TRUE(contains(said, "groups: ")) << said;
        } else if (odd == Odd::dtype) {
          EXPECT_TRUE(contains(said, "the dtype: ")) << said;
        } else if (odd == Odd::way) {
          EXPECT_TRUE(contains(said, "the way back: ")) << said;
        } else {
          EXPECT_TRUE(contains(said, "the operator: ")) << said;
        }
      }
    });
  }
}

}  // namespace plait::conformance
