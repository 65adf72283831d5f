// What the collectives do, over any transport.
#pragma once

#include "conformance/ranks.h"

namespace plait::conformance {

class CollectivesConformance : public RanksTest {};

// Broadcasts whose ranks name different roots: for a few small worlds.
class RootsConformance : public RanksTest {};

}  // namespace plait::conformance
