// Numbers the calls of a communicator, and counts those that are complete.
#pragma once

#include <atomic>
#include <cstdint>

namespace plait::comm {

class CallCounter {
 public:
  // The number of the call that begins. All ranks make the same calls in the same order.
  std::uint32_t begin() { return ++begun_; }

  // Between the beginning and the end of an operator on this rank: no other may begin. Its
  // collectives don't count for themselves.
  bool is_in_operator() const { return in_operator_; }
  void set_in_operator(bool is_in) { in_operator_ = is_in; }

  void complete_operator() { add(); }
  void complete_collective() {
    if (!in_operator_) add();
  }

  // Memory ordering: relaxed, and one thread at a time counts. Another may ask meanwhile.
  std::uint64_t completed() const { return completed_.load(std::memory_order_relaxed); }

 private:
  void add() { completed_.store(completed() + 1, std::memory_order_relaxed); }

  std::uint32_t begun_ = 0;
  std::atomic<std::uint64_t> completed_{0};
  bool in_operator_ = false;
};

}  // namespace plait::comm
