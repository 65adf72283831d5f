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
inline constexpr std::size_t kCasesPerGroup = 12;

struct Rounds {
  std::uint64_t seed = 1;
  std::vector<std::int64_t> numbers;  // of the cases
  std::vector<Operator> ops;
  bool layers = false;  // in place of operators
};

struct Tally {
  std::int64_t passed = 0;
  std::int64_t failed = 0;
  bool ended = false;  // early, by an error
};

struct RoundsHooks {
  std::function<void(std::int64_t done)> progress;
  // Before a case, with what those before it came to; `numbers`, of which it is the last, run it
  // again in the company that it has.
  std::function<void(std::span<const std::int64_t> numbers, const Tally& before)> begin;
  std::function<void(std::span<const std::int64_t> numbers, const std::string& sentence)> failure;
};

// Collective; the tally is the same on all ranks. Failures are told on the rank that found them. A
// case that ends in an error is the last: what it leaves can't be used.
Tally run_rounds(const Rounds& rounds, Communicator& comm, const RoundsHooks& hooks);

}  // namespace plait::cli
