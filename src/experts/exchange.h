// The way of a call's rows to their experts, and of the results back: an exchange, and the products
// whenever there are rows for them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "comm/core/executor.h"
#include "comm/session/state.h"
#include "experts/dispatch.h"
#include "experts/flows.h"
#include "experts/placement.h"
#include "experts/rows.h"
#include "overlap/calls.h"
#include "overlap/exchange.h"
#include "plait/collectives.h"

namespace plait::experts {

// Called now and then by the thread that made the call, while it multiplies.
using PollStep = base::FunctionRef<void()>;

// The layer's side of it.
class RowUser : public RowSource {
 public:
  // Makes the results of these rows of the store.
  virtual void multiply(const RowStore& store, const Work& work, PollStep poll_step) = 0;

  // All results are made, and may be on their way. `counts`: the rows of each of this rank's
  // experts in the store.
  virtual void finish(const RowStore& /*store*/, std::span<const std::int64_t> /*counts*/,
                      PollStep /*poll_step*/) {}

  // The caller's other work.
  virtual void work_beside(PollStep /*poll_step*/) {}
};

class ExpertExchange {
 public:
  struct Shape {
    Dispatch::Shape rows;
    std::int64_t gathered_bytes;  // of a row of out
  };
  ExpertExchange(Communicator::State& state, const Placement& placement, const Shape& shape);
  ExpertExchange(const ExpertExchange&) = delete;
  ExpertExchange& operator=(const ExpertExchange&) = delete;

  struct Call {
    std::int64_t rows;
    std::span<const std::int64_t> ids;
    bool fused;
    bool replicated = false;
    bool whole_groups = false;  // all rows of an expert are multiplied at once
  };
  // Collective. Returns when all results are here.
  void run(const Tag& tag, const Call& call, RowUser& user, overlap::PollHook& poll);

  // The result of each slot of this rank's own rows; null: it has no expert.
  std::span<const void* const> results() const { return results_; }
  std::int64_t first_own() const;
  std::int64_t own_rows() const;

  // All ranks have the same rows: this rank's own rows of `out` go to all others.
  void gather(const TensorView& out);

  // Work on bytes of this rank's own, which a modelled rank takes time for.
  template <class Do>
  void run_here(Label label, std::int64_t bytes, Do&& work) const {
    exchange_.run([&] { return comm::MemoryWork{.label = label, .read = bytes, .written = bytes}; },
                  work);
  }

  // Makes steps in what has begun, between tiles.
  void between_tiles();

  // The mailbox of all calls. Collective, the first time.
  void prepare(const Tag& tag);

  // Rows for this rank's experts in the last call, and this rank's rows for another's.
  std::int64_t rows_from(int rank, std::int64_t group) const;
  std::int64_t rows_to(int rank) const { return std::ssize(order_.slots(rank)); }

  std::size_t held_bytes() const {
    return apart_.held_bytes() + store_.held_bytes() + results_memory_.bytes();
  }

 private:
  int rank() const { return exchange_.rank(); }
  int world() const { return exchange_.world(); }
  std::int64_t groups() const { return placement_.groups(); }
  int owner_of(std::int64_t slot) const;

  void begin_dispatch();
  void take_apart();
  bool multiply_apart();
  void make_places();
  void find_replicated();
  void take(std::int64_t slot, const RowStore& store, std::int64_t row);
  void begin_return();
  void multiply_all();
  void multiply(const RowStore& store, Work& work);
  void send_results();
  void finish();
  void use_wait();

  void step();
  comm::Awaited awaited();
  template <class Ready>
  void wait(Ready&& ready) {
    const auto look = [&] {
      step();
      (*poll_)();
      return ready();
    };
    if (!is_wait_used_ && !look()) use_wait();
    exchange_.wait(look, [&] { return awaited(); });
  }

  Communicator::State& state_;
  const Placement& placement_;
  Shape shape_;
  std::size_t chunk_bytes_;
  overlap::Exchange exchange_;
  bool has_mailbox_ = false;

  // The state of one call. Memory is kept for the next.
  Call call_ = {};
  RowUser* user_ = nullptr;
  overlap::PollHook* poll_ = nullptr;
  bool is_wait_used_ = false;
  SlotOrder order_;
  std::vector<Shard> shards_;   // of rows, by rank, if all ranks have the same
  std::vector<bool> is_apart_;  // by group: its own rows are multiplied by themselves
  RowStore apart_;
  Work work_apart_ = {};  // the last rows of it that were multiplied
  RowStore store_;
  Progress progress_;
  Buffer results_memory_;  // of slots on other ranks
  std::vector<const void*> results_;

  Dispatch dispatched_;
  KnownRows returned_;
  KnownRows gathered_;
  Stage dispatch_;
  Stage return_;
  Stage gather_;
};

}  // namespace plait::experts
