// Runs a rank's work if its processor does not: a simulated rank (comm/modelled) takes the time of
// a modelled device for all of it, and a TimedProduct a given time for products. A group that has
// none (null) is the usual case. Flows and schedules then do the work themselves.
//
//   lanes.run([&] { return MemoryWork{.label = "copy", .read = n, .written = n}; },
//             [&] { std::memcpy(to, from, n); });
#pragma once

#include <cstdint>

#include "base/function_ref.h"
#include "comm/core/group.h"
#include "plait/trace.h"

namespace plait::comm {

struct Question;

// A copy or a sum: how many bytes a rank reads and writes.
struct MemoryWork {
  Label label;
  std::int64_t read, written;
  SpanArgs args = {};
  bool to_peer = false;       // written where the peer will read it
  bool must_be_done = false;  // ranks need what it writes, also in a simulation without storage
};

struct ProductWork {
  std::int64_t rows, columns, k;
  double x_bytes, weight_bytes, out_bytes;  // of an element
  base::Nanoseconds poll;
  Label label = "product";

  // Set for several products that follow one another in one call and could be one kernel: how
  // large that is (0: this product is by itself), and whether this is the first of them.
  std::int64_t all_rows = 0, all_columns = 0;
  bool first = true;
  bool own_weight = false;  // no other of them reads its weight

  bool fused() const { return all_rows > 0 && all_columns > 0; }

  std::int64_t flops() const { return 2 * rows * columns * k; }
};

class Executor {
 public:
  using PollStep = base::FunctionRef<void()>;

  virtual ~Executor() = default;

  // These three say whether they have taken the work. False: the processor is to do it.
  virtual bool run(const MemoryWork& /*work*/) { return false; }

  // True if the rank's time is this executor's: then it takes all of the rank's waits, and advances
  // in them what the rank has started (started.h).
  virtual bool has_clock() const { return false; }

  // Waits until question.ready() says yes. Throws if nothing can ever make it.
  virtual bool wait(const Question& /*question*/) { return false; }

  // Polls a mailbox once, for a rank that does so between pieces of its own work.
  virtual bool poll() { return false; }

  // True if it takes products. Then multiply() returns when the product would be there, and calls
  // `poll_step` about every `poll` meanwhile.
  virtual bool has_products() const { return false; }
  virtual void multiply(const ProductWork& /*product*/, PollStep /*poll_step*/) {}
};

// Null: products are multiplied.
inline Executor* product_executor(const Group& group) {
  Executor* const executor = group.executor();
  return executor != nullptr && executor->has_products() ? executor : nullptr;
}

// Null: time is the host's.
inline Executor* clock_of(const Group& group) {
  Executor* const executor = group.executor();
  return executor != nullptr && executor->has_clock() ? executor : nullptr;
}

// While it lives, the group has another executor. Between calls.
class ScopedExecutor {
 public:
  ScopedExecutor(Group& group, Executor& executor) : group_(group), before_(group.executor()) {
    group.set_executor(&executor);
  }
  ScopedExecutor(const ScopedExecutor&) = delete;
  ScopedExecutor& operator=(const ScopedExecutor&) = delete;
  ~ScopedExecutor() { group_.set_executor(before_); }

 private:
  Group& group_;
  Executor* before_;
};

}  // namespace plait::comm
