// The cases that one world of ranks runs, one after another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "plait/communicator.h"
#include "plait/operator.h"

namespace plait::cli {

// So many cases share a group, and with it mailboxes and what was prepared; then there is a new
// one, over another link.
inline constexpr std::int64_t kCasesPerGroup = 12;

// Of some cases: those that are named, or every `step`th from `first` on.
struct CaseNumbers {
  std::vector<std::int64_t> named;
  std::int64_t first = 0;
  std::int64_t step = 1;
  std::int64_t end = 0;

  std::int64_t size() const {
    if (!named.empty()) return static_cast<std::int64_t>(named.size());
    return first < end ? (end - first - 1) / step + 1 : 0;
  }
  std::int64_t operator[](std::int64_t i) const {
    return named.empty() ? first + i * step : named[static_cast<std::size_t>(i)];
  }
};

struct Rounds {
  std::uint64_t seed = 1;
  CaseNumbers numbers;
  std::vector<Operator> ops;
  bool layers = false;  // in place of operators
};

struct Tally {
  std::int64_t passed = 0;
  std::int64_t failed = 0;
  std::int64_t as_one = 0;  // of those that have passed: compared with one rank that has all k
  bool ended = false;       // early, by an error
};

struct RoundsHooks {
  std::function<void(std::int64_t done)> progress;
  // Before a case, with what those before it came to; `numbers`, of which it is the last, run it
  // again in the company that it has.
  std::function<void(std::span<const std::int64_t> numbers, const Tally& before)> begin;
  std::function<void(std::span<const std::int64_t> numbers, const std::string& sentence)> failure;
};

// Collective; the tally is the same on all ranks. A failure is told by the first that found it. A
// case that ends in an error is the last: what it leaves can't be used.
Tally run_rounds(const Rounds& rounds, Communicator& comm, const RoundsHooks& hooks);

}  // namespace plait::cli
