// Sums over the ranks of other communicators that are under way while an operator runs. Each rank
// starts those of different communicators in an order of its own, and waits for some of them before
// the operator and for the others after it, in an order of its own too.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "plait/collectives.h"
#include "plait/communicator.h"

namespace plait::verify {

class OtherSums {
 public:
  // Collective: makes the other communicators, of the same ranks in other orders.
  explicit OtherSums(Communicator& comm);
  ~OtherSums();

  // New sums of random values, whose size and contents follow from `seed` on every rank. In the
  // default float mode; the others may be called in any.
  void make(std::uint64_t seed);

  void start(std::mt19937_64& random);
  void progress();
  void wait_for_some(std::mt19937_64& random);
  void wait_for_all(std::mt19937_64& random);

  // When all have been waited for.
  bool are_right() const;

 private:
  class Sum;

  std::array<std::optional<Communicator>, 2> comms_;
  std::vector<std::unique_ptr<Sum>> sums_;
};

}  // namespace plait::verify
