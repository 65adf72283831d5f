// The newest records of one thread: one writer, any number of readers, neither of which ever waits.
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

// As a thread leaves it: the label still a pointer, times of spans still in ticks.
struct Entry {
  Kind kind;
  Lane lane;
  const char* label;
  std::uint64_t begin;
  std::uint64_t end;
  SpanArgs args;
};

// Lines of its own: the rings of two threads must not share pushed_'s.
class alignas(64) Ring {
 public:
  Ring(std::size_t capacity, Stopwatch stopwatch);

  base::Ticks tick() const { return stopwatch_.read(); }

  // By the owning thread only. A second writer would garble records, and nothing worse.
  void push(const Entry& entry) noexcept;

  // The owner is gone, and the calling thread takes its place.
  void adopt() noexcept;

  struct Content {
    std::uint64_t dropped = 0;
    std::vector<Entry> entries;
  };
  Content read() const;
  std::uint64_t dropped() const;

 private:
  // Words, not members, since a reader may look at a slot while it is written, which is defined
  // for atomics only. A slot is a cache line, so that a record touches one.
  struct alignas(64) Slot {
    std::array<std::atomic<std::uint64_t>, 7> words;
  };

  Slot& slot(std::uint64_t index) const { return slots_[index & mask_]; }

  std::uint64_t mask_;
  std::unique_ptr<Slot[]> slots_;
  Stopwatch stopwatch_;
  std::atomic<std::uint64_t> pushed_{0};  // record i lies in slot i & mask_
};

}  // namespace plait::trace
