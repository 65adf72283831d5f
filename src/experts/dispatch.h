// Rows on their way to experts: each once for each rank, however many of its slots are there.
//
// A row has its places behind it: for each of its slots on that rank, the number of the slot among
// those that the sender has for the rank, group by group, and the slot's weight if weights travel.
// Rows are in the order of their first slots. A group is whole when the rows have come whose first
// slots are in it or in a group before it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "comm/core/group.h"
#include "comm/flow/counted_rows.h"
#include "comm/flow/row_flow.h"
#include "experts/placement.h"
#include "experts/rows.h"
#include "plait/tensor_view.h"

namespace plait::experts {

// No rank has more slots for another.
inline constexpr std::int64_t kMostSlots = (std::int64_t{1} << 31) - 1;

// The rows of a batch as they travel, but for their places.
class RowSource {
 public:
  virtual ~RowSource() = default;
  virtual void write_row(std::int64_t row, std::byte* to) const = 0;

  // The weight of each slot, if weights travel: it follows a row in the store. Null otherwise.
  virtual const float* slot_weights() const { return nullptr; }
};

class Dispatch final : public comm::RowParcels {
 public:
  struct Shape {
    std::int64_t shared_bytes;  // of a row, the same in all of its slots
    bool has_weights;
    std::int64_t result_bytes;
    std::int64_t top;    // slots of a row, each of them once for each part of its expert
    std::int64_t parts;  // of an expert

    std::int64_t stored_bytes() const { return shared_bytes + weight_bytes(); }
    std::int64_t travelling_bytes() const {
      return shared_bytes +
             top * (static_cast<std::int64_t>(sizeof(std::int32_t)) + weight_bytes());
    }
    std::int64_t weight_bytes() const {
      return has_weights ? static_cast<std::int64_t>(sizeof(float)) : 0;
    }
  };

  // `make`: called when all numbers are known, in `from`.
  Dispatch(comm::Group& group, std::int64_t groups, const Shape& shape, std::function<void()> make);

  // The rows of a batch, and its slots: both outlive the call.
  struct Batch {
    std::int64_t rows;
    const RowSource& source;
    const SlotOrder& order;
  };
  void begin(const Batch& batch);

  // When `from` is laid out: rows go to this store.
  void set_places(const RowStore& store);

  // How many of the peer's slots for this rank have their rows: the first ones. After
  // make_places().
  std::int64_t received(int peer) const { return arrivals_[index(peer)].first; }

  comm::CountedRows from;  // slots, by source

 private:
  // The slots of a peer that have rows.
  struct Arrivals {
    std::int64_t rows = 0;   // that come
    std::int64_t taken = 0;  // of them
    std::int64_t first = 0;  // slots: all of these, and perhaps others after them
    std::vector<bool> has_row;
  };
  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

  std::int64_t rows_to(int peer) const override { return std::ssize(blocks_[index(peer)].rows); }
  std::span<const std::int64_t> counts_to(int peer) const override {
    return std::span(headers_).subspan(index(peer) * static_cast<std::size_t>(groups_ + 1),
                                       static_cast<std::size_t>(groups_ + 1));
  }
  std::int64_t learn(int peer, std::span<const std::int64_t> counts) override;
  void make_places() override { make_(); }
  std::int64_t rows_from(int peer) const override { return arrivals_[index(peer)].rows; }
  void write(int peer, const comm::RowPiece& piece, std::byte* to) override;
  void read(int peer, const comm::RowPiece& piece, const std::byte* from) override;
  void place(int peer, std::int32_t slot, const std::byte* row, const std::byte* weight);

  comm::Group& group_;
  std::int64_t groups_;
  Shape shape_;
  std::function<void()> make_;
  const RowSource* source_ = nullptr;
  const SlotOrder* order_ = nullptr;
  TensorView places_ = {};

  // The slots for a peer follow one another, from 0 on.
  struct Row {
    std::int64_t of_batch;
    std::int32_t first_slot;
  };
  struct Block {
    std::vector<Row> rows;
    std::vector<std::int32_t> next;  // by slot: the row's next one, or kNone
  };
  static constexpr std::int32_t kNone = -1;

  std::vector<std::int64_t> headers_;  // by peer: slots of each group, and rows that travel
  std::vector<Block> blocks_;          // by peer
  std::vector<Arrivals> arrivals_;     // by peer
  std::vector<std::int32_t> last_;     // of a row's slots for a peer, while its block is made
};

}  // namespace plait::experts
