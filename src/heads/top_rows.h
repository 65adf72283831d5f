// The largest logits of each row, kept while they come in any order.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace plait::heads {

// A logit and its id. The larger key comes first: the order of values is above, and below it that
// of ids, from high to low. 0: no logit.
struct TopEntry {
  std::uint64_t key = 0;
  float value = 0;

  static TopEntry of(float value, std::int64_t id);
  std::int64_t id() const { return static_cast<std::uint32_t>(~key); }
};

class TopRows {
 public:
  TopRows() = default;
  TopRows(std::int64_t rows, std::int64_t k)
      : k_(k), entries_(static_cast<std::size_t>(rows * k)) {}

  // Logits of a row whose ids follow one another.
  void add(std::int64_t row, std::int64_t first_id, const float* values, std::int64_t n);
  void add(std::int64_t row, const TopEntry& entry);
  void add(const TopRows& other);

  std::span<TopEntry> row(std::int64_t row) {
    return std::span(entries_).subspan(static_cast<std::size_t>(row * k_),
                                       static_cast<std::size_t>(k_));
  }
  std::span<const TopEntry> entries() const { return entries_; }

 private:
  std::int64_t k_ = 0;
  std::vector<TopEntry> entries_;  // of each row, the first ones first
};

}  // namespace plait::heads
