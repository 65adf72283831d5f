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

namespace plait::verify {

// The number of cases that share a communicator, and with it mailboxes and prepared operators.
// Then a new one is made, over another link.
inline constexpr std::int64_t kCasesPerGroup = 12;

// The numbers of cases: the named ones, or every `step`th from `first` on.
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
  // Cases are of operators, of layers, of the operators of plait/ulysses.h, of layers of experts,
  // or of what follows a product by a vocabulary.
  enum class Kind : std::uint8_t { operators, layers, ulysses, experts, heads };
  Kind kind = Kind::operators;
};

struct Tally {
  std::int64_t passed = 0;
  std::int64_t failed = 0;
  std::int64_t as_one = 0;   // the passed cases of which a sum was compared with one rank
  std::uint64_t digest = 0;  // of the results' bits on all ranks; cases may come in any order
  bool ended = false;        // early, by an error
};

struct RoundsHooks {
  std::function<void(std::int64_t done)> progress;
  // Called before a case, with the counts so far. The case is the last of `numbers`; running all of
  // them again repeats it with the same state.
  std::function<void(std::span<const std::int64_t> numbers, const Tally& before)> begin;
  std::function<void(std::span<const std::int64_t> numbers, const std::string& sentence)> failure;
};

// Collective; the tally is equal on all ranks. The first rank that finds a failure reports it. A
// case that ends in an error is the last, because the communicator can't be used after it.
Tally run_rounds(const Rounds& rounds, Communicator& comm, const RoundsHooks& hooks);

}  // namespace plait::verify
