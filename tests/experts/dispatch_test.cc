// Rows travel once to each rank, and what a peer says of them is checked.
#include "experts/dispatch.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "comm/session/state.h"
#include "conformance/ranks.h"

namespace plait::experts {
namespace {

// A row is its number, and slots have weights.
class Numbers final : public RowSource {
 public:
  void write_row(std::int64_t row, std::byte* to) const override {
    std::memcpy(to, &row, sizeof(row));
  }
  const float* slot_weights() const override { return weights_.data(); }

 private:
  std::vector<float> weights_ = {0.0F, 1.0F, 2.0F, 3.0F, 4.0F, 5.0F};
};

constexpr Dispatch::Shape kShape = {.shared_bytes = sizeof(std::int64_t),
                                    .has_weights = true,
                                    .result_bytes = 4,
                                    .top = 3,
                                    .parts = 1};
constexpr int kPeer = 1;

// The first rank sends the second two rows, and reads them as if they were the second's for it. The
// first row has three slots, of two groups, and the second one.
class ToAPeer {
 public:
  explicit ToAPeer(Communicator& comm)
      : store_(kShape.stored_bytes(), kShape.result_bytes),
        dispatch_(comm.state().group(), 2, kShape,
                  [this] {
                    dispatch_.from.lay_out(true);
                    store_.make(dispatch_.from.rows());
                    dispatch_.set_places(store_);
                  }),
        chunk_(static_cast<std::size_t>(2 * kShape.travelling_bytes())) {
    order_.sort(std::vector<std::int64_t>{0, 1, 0, -1, 1, -1},
                Placement({.experts = 2}, 2, std::vector<int>{kPeer, kPeer}));
    dispatch_.begin({.rows = 2, .source = source_, .order = order_});
    parcels().write(kPeer, rows(0, 2), chunk_.data());
  }

  comm::RowParcels& parcels() { return dispatch_; }
  Dispatch& dispatch() { return dispatch_; }
  const RowStore& store() const { return store_; }

  // The slot of a row at this place behind it, in the chunk.
  void say(std::int64_t row, std::int64_t place, std::int32_t slot) {
    const std::int64_t at = row * kShape.travelling_bytes() + kShape.shared_bytes + place * 8;
    std::memcpy(chunk_.data() + at, &slot, sizeof(slot));
  }

  void learn(const std::vector<std::int64_t>& counts) {
    parcels().learn(kPeer, counts);
    parcels().make_places();
  }
  void read(std::int64_t begin, std::int64_t end) {
    parcels().read(kPeer, rows(begin, end), chunk_.data() + begin * kShape.travelling_bytes());
  }

 private:
  static comm::RowPiece rows(std::int64_t begin, std::int64_t end) {
    return {.rows = {begin, end}, .columns = {0, kShape.travelling_bytes()}};
  }

  Numbers source_;
  SlotOrder order_;
  RowStore store_;
  Dispatch dispatch_;
  std::vector<std::byte> chunk_;
};

TEST(Dispatch, SendsARowOnceForAllOfItsSlots) {
  run_in_threads(2, [](Communicator& comm) {
    if (comm.rank() == kPeer) return;
    ToAPeer one(comm);
    const auto counts = one.parcels().counts_to(kPeer);
    EXPECT_EQ(one.parcels().rows_to(kPeer), 2);
    EXPECT_EQ(std::vector<std::int64_t>(counts.begin(), counts.end()),
              (std::vector<std::int64_t>{2, 2, 2}));
    one.learn({2, 2, 2});
    EXPECT_EQ(one.parcels().rows_from(kPeer), 2);
    EXPECT_EQ(one.dispatch().received(kPeer), 0);
    one.read(0, 1);
    EXPECT_EQ(one.dispatch().received(kPeer), 3);
    one.read(1, 2);
    EXPECT_EQ(one.dispatch().received(kPeer), 4);
    const std::vector<std::int64_t> rows = {0, 0, 0, 1};
    const std::vector<float> weights = {0.0F, 2.0F, 1.0F, 4.0F};
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const auto* const at =
          static_cast<const std::byte*>(one.store().bytes().row(static_cast<std::int64_t>(i)));
      EXPECT_EQ(std::memcmp(at, &rows[i], 8), 0) << i;
      float weight;
      std::memcpy(&weight, at + sizeof(std::int64_t), sizeof(weight));
      EXPECT_EQ(weight, weights[i]) << i;
    }
  });
}

std::string refusal_of(const std::function<void(ToAPeer&)>& act) {
  std::string said;
  run_in_threads(2, [&](Communicator& comm) {
    if (comm.rank() == kPeer) return;
    ToAPeer one(comm);
    said = expect_error(Code::mismatch, [&] { act(one); }).what();
  });
  return said;
}

TEST(Dispatch, RefusesWhatARankCanNotSend) {
  const std::string who = "expert_parallel_mlp: rank 1 sends rank 0 ";
  EXPECT_EQ(refusal_of([](ToAPeer& one) { one.learn({2, 2, -1}); }), who + "-1 rows for 4 slots");
  EXPECT_EQ(refusal_of([](ToAPeer& one) { one.learn({2, 2, 5}); }), who + "5 rows for 4 slots");
  EXPECT_EQ(refusal_of([](ToAPeer& one) { one.learn({2, 2, 1}); }), who + "1 rows for 4 slots");
  EXPECT_EQ(refusal_of([](ToAPeer& one) { one.learn({kMostSlots, 1, kMostSlots}); }),
            who + "2147483647 rows for 2147483648 slots");
  for (const std::int32_t slot : {4, -2, 0}) {
    const auto act = [&](ToAPeer& one) {
      one.learn({2, 2, 2});
      one.say(1, 0, slot);
      one.read(0, 2);
    };
    EXPECT_EQ(refusal_of(act),
              who + "a row for slot " + std::to_string(slot) + "; slots 0 to 3 get one each");
  }
  const auto leave_out = [](ToAPeer& one) {
    one.learn({2, 2, 2});
    one.say(0, 1, -1);
    one.read(0, 2);
  };
  EXPECT_EQ(refusal_of(leave_out), who + "no row for slot 1 of 4");
}

}  // namespace
}  // namespace plait::experts
