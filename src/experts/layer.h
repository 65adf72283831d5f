// A layer of experts: its memory, its lanes, and one call after another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "comm/session/state.h"
#include "experts/checks.h"
#include "experts/flows.h"
#include "experts/placement.h"
#include "experts/products.h"
#include "experts/rows.h"
#include "plait/experts.h"

namespace plait {

class ExpertParallelMLP::State {
 public:
  State(const ExpertsDesc& desc, Communicator& comm, const ExpertsOptions& options);
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  const ExpertsDesc& desc() const { return desc_; }
  const experts::Placement& placement() const { return placement_; }
  const ExpertRows& rows() const { return shown_; }
  void forward(const ExpertsForward& call);
  std::size_t held_bytes() const;

 private:
  bool is_fused() const { return options_.schedule == Schedule::fused; }
  bool weighs_rows() const { return desc_.weights_at == ExpertWeightsAt::activation; }
  int rank() const { return exchange_.rank(); }
  int world() const { return exchange_.world(); }
  std::int64_t groups() const { return placement_.groups(); }
  // The rows whose results this rank adds up.
  std::int64_t first_own() const;
  std::int64_t own_rows() const;
  int owner_of(std::int64_t slot) const;

  Tag tag_of(const ExpertsForward& call) const;
  void run(const Tag& tag);
  void begin_dispatch();
  void find_outgoing();
  void multiply_apart();
  void make_places();
  void find_replicated();
  void copy_row(std::int64_t slot, const TensorView& to, std::int64_t row) const;
  void begin_return();
  void multiply_all();
  void multiply(const experts::RowStore& store, const experts::Work& work);
  void send_results();
  void combine();
  void gather();
  void note_rows();

  void step();
  void between_tiles();
  comm::Awaited awaited();
  template <class Ready>
  void wait(Ready&& ready) {
    exchange_.wait(
        [&] {
          step();
          poll_();
          return ready();
        },
        [&] { return awaited(); });
  }

  ExpertsDesc desc_;
  ExpertsOptions options_;
  Communicator::State& state_;
  experts::Placement placement_;
  experts::RowShape shape_;
  experts::Products products_;
  overlap::Exchange exchange_;
  bool has_mailbox_ = false;
  overlap::PollHook poll_;
  std::uint32_t fingerprint_;

  // The state of one call. Memory is kept for the next.
  const ExpertsForward* call_ = nullptr;
  experts::SlotOrder order_;
  std::vector<Shard> shards_;   // of rows, by rank, if all ranks have the same
  Buffer weighted_memory_;      // rows with their weights behind them
  std::vector<bool> is_apart_;  // by group: its own rows have been multiplied by themselves
  experts::RowStore apart_;
  experts::RowStore store_;
  experts::Progress progress_;
  Buffer results_memory_;  // of slots on other ranks
  std::vector<const void*> results_;
  ExpertRows shown_;

  experts::Dispatch dispatched_;
  experts::KnownRows returned_;
  experts::KnownRows gathered_;
  experts::Stage dispatch_;
  experts::Stage return_;
  experts::Stage gather_;
};

}  // namespace plait
