// The contract of the collectives, for any transport.
#pragma once

#include <chrono>

#include "conformance/ranks.h"

namespace plait::conformance {

class CollectivesConformance : public RanksTest {};

// Broadcasts in which ranks name different roots, in a few small worlds.
class RootsConformance : public RanksTest {};

// Several communicators of the same ranks. Where one waits for the other, that ends soon.
class SeveralGroupsConformance : public RanksTest {
 protected:
  void run(const Body& body) const { RanksTest::run(body, {.timeout = std::chrono::minutes(1)}); }
};

}  // namespace plait::conformance
