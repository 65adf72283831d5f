// The two operators, prepared for calls with any number of rows and any plan.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/flow/exchange_flow.h"
#include "overlap/calls.h"
#include "overlap/exchange.h"
#include "overlap/multiplier.h"
#include "plait/buffer.h"
#include "plait/ulysses.h"
#include "ulysses/block_cut.h"
#include "ulysses/columns.h"

namespace plait::ulysses {

// All that calls of a kind have in common.
struct Kind {
  bool product_first;  // matmul_all_to_all
  std::int64_t n, k;   // of the weight
  Dtype x;
  WeightKind weight;
  Dtype out;
  int threads;
  std::string backend;
  ColumnGroups columns;  // joined

  bool operator==(const Kind&) const = default;

  std::string_view caller() const {
    return product_first ? "matmul_all_to_all" : "all_to_all_matmul";
  }
  Dtype travelling() const { return product_first ? out : x; }
};

struct Operands {
  const ConstTensorView& x;
  const Weight& weight;
  const TensorView& out;
};

class UlyssesOp final : private comm::Parcels {
 public:
  UlyssesOp(Kind kind, Communicator& comm);

  const Kind& kind() const { return kind_; }

  // Collective. The operands have been checked; `m` are the rows of all ranks.
  void run(const Operands& operands, std::int64_t m, const UlyssesOptions& options);

 private:
  // Chunks of the blocks that go to each rank, and come from it.
  std::uint32_t chunks_to(int peer) const override { return ready_[index(peer)]; }
  std::uint32_t chunks_from(int peer) const override { return from_[index(peer)].chunks(); }
  ConstTensorView outgoing(std::uint32_t chunk, int peer) const override;
  TensorView incoming(std::uint32_t chunk, int peer) const override;

  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
  int rank() const { return exchange_.rank(); }
  int world() const { return exchange_.world(); }
  Range rows_of(int rank) const { return shards_[index(rank)]; }
  const std::vector<ColumnRange>& group(int rank) const { return places_.groups[index(rank)]; }

  void fit(std::int64_t m, const Plan& plan);
  void make_rows();
  void make_blocks();

  void run_numbered(const Operands& operands, const UlyssesOptions& options, const Tag& tag);
  void multiply_first();
  void multiply_into_memory();
  void multiply_into_slots();
  void multiply_for(int peer);
  bool multiply_own_part();
  bool has_part_for(int peer) const;
  void multiply(const Window& window, const TensorView& to);
  bool has_whole_x() const;
  void multiply_last(const UlyssesOptions& options);
  void take_own();
  TensorView place_of(const Window& window) const;
  void add_copies(Range rows) const;
  std::int64_t rows_that_came() const;
  void let_all_go();

  void wait_step();
  void between_tiles();
  template <class Ready>
  void wait(Ready&& ready) {
    exchange_.wait(ready, [&] { return awaited(); });
  }
  comm::Awaited awaited() const;

  Kind kind_;
  Places places_;  // if the product comes first: the columns themselves
  Communicator& comm_;
  Communicator::State& state_;
  bool linked_;
  overlap::Multiplier multiplier_;
  overlap::Exchange exchange_;
  comm::ExchangeFlow flow_;
  overlap::PollHook poll_;

  // The rows and the plan that the last call was cut for.
  std::optional<Plan> plan_;
  std::int64_t m_ = -1;
  Tag tag_;
  std::vector<Range> shards_;  // of rows, by rank
  std::vector<BlockCut> to_;   // by rank; this rank's own too
  std::vector<BlockCut> from_;
  bool writes_into_slots_ = false;
  std::int64_t poll_interval_ = 0;
  bool is_serial_ = false;
  bool rows_in_turns_ = false;
  std::int64_t least_rows_ = 0;  // of a product, if it comes last
  Buffer memory_;
  Buffer copies_;  // own rows of the places beyond the whole

  // The call.
  std::vector<std::uint32_t> ready_;    // chunks that may be sent, by rank
  std::vector<std::size_t> next_part_;  // to be multiplied, by rank
  std::vector<TensorView> blocks_;      // of results for other ranks, in memory_
  ConstTensorView x_;
  TensorView out_;
  TensorView rows_;  // own rows of X with all k
};

}  // namespace plait::ulysses
