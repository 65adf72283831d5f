// The newest records of one thread. It has one writer and any number of readers, and none of them
// ever waits.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "trace/record.h"
#include "trace/stopwatch.h"

namespace plait::trace {

// A record as its thread writes it: the label is a pointer, and times of spans are ticks.
struct Entry {
  Kind kind;
  Lane lane;
  const char* label;
  std::uint64_t begin;
  std::uint64_t end;
  SpanArgs args = {};
};

// Aligned so that the pushed_ of two threads' rings are never in one cache line.
class alignas(64) Ring {
 public:
  Ring(std::size_t capacity, Stopwatch stopwatch);

  base::Ticks tick() const { return stopwatch_.read(); }

  // Call it from the owning thread only. A second writer would garble records, but do no other
  // harm.
  void push(const Entry& entry) noexcept;

  // Makes the calling thread the owner, after the former owner has ended.
  void adopt() noexcept;

  struct Content {
    std::uint64_t dropped = 0;
    std::vector<Entry> entries;
  };
  Content read() const;
  std::uint64_t dropped() const;

 private:
  // Words instead of members, because a reader may read a slot while it is written, which is
  // defined for atomics only. A slot is one cache line.
  struct alignas(64) Slot {
    std::array<std::atomic<std::uint64_t>, 7> words;
  };

  Slot& slot(std::uint64_t index) const { return slots_[index & mask_]; }

  std::uint64_t mask_;
  std::unique_ptr<Slot[]> slots_;
  Stopwatch stopwatch_;
  std::atomic<std::uint64_t> pushed_{0};  // record i is in slot i & mask_
};

}  // namespace plait::trace
