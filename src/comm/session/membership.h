// Checks whether this rank may still use its group, first in every call of a communicator.
#pragma once

#include <atomic>

#include "comm/core/transport.h"

namespace plait::comm {

class Membership {
 public:
  explicit Membership(Transport& transport) : transport_(transport), group_(transport.group()) {}

  Group& group() const { return group_; }

  // Refuses a process that was forked from the one whose communicator it is.
  void check_not_forked() const {
    if (group_.in_child()) [[unlikely]]
      refuse_forked();
  }

  // Refuses also a process that is about to end.
  void check_not_left() const {
    check_not_forked();
    if (has_left_.load(std::memory_order_relaxed)) [[unlikely]]
      refuse_left();
  }

  // Refuses also a group that has failed.
  void check_usable() const {
    check_not_left();
    group_.raise_if_failed();
  }

  // True if check_usable() would throw nothing.
  bool is_usable() const {
    return !group_.in_child() && !has_left_.load(std::memory_order_relaxed) && !group_.failed();
  }

  // The process ends while the communicator lives: leaves the group as its destruction would, and
  // refuses all further calls. Other threads may still be in one.
  void leave() noexcept;

  // For a handler of `error`, which has ended a collective on this rank: tells the other ranks,
  // which may be waiting for it elsewhere. If another rank has failed first, all ranks throw that
  // failure. An exception of the caller's hook is thrown unchanged.
  [[noreturn]] void fail_together(const Error& error) const;

 private:
  [[noreturn]] void refuse_forked() const;
  [[noreturn]] void refuse_left() const;

  Transport& transport_;
  Group& group_;
  std::atomic<bool> has_left_{false};
};

}  // namespace plait::comm
