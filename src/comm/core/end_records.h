// How a group has ended, where ranks tell one another by messages.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <mutex>

#include "comm/core/group.h"

namespace plait::comm {

// Memory ordering: a record is complete before `has_` is set (release); a thread that sees it set
// (acquire) reads it whole. The mutex keeps two failures from being recorded at once.
class EndRecords {
 public:
  bool has(End end) const noexcept { return has_[index(end)].load(std::memory_order_acquire); }

  // False: an earlier record of this kind stands.
  bool add(End end, const Failure& failure) noexcept {
    const std::lock_guard lock(mutex_);
    if (has_[index(end)].load(std::memory_order_relaxed)) return false;
    records_[index(end)] = failure;
    has_[index(end)].store(true, std::memory_order_release);
    return true;
  }

  Failure get(End end) const {
    const std::lock_guard lock(mutex_);
    return records_[index(end)];
  }

 private:
  static std::size_t index(End end) { return static_cast<std::size_t>(end); }

  std::array<std::atomic<bool>, kEnds> has_ = {};
  mutable std::mutex mutex_;
  std::array<Failure, kEnds> records_ = {};
};

}  // namespace plait::comm
