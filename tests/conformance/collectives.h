// The contract of the collectives, for any transport.
#pragma once

#include "conformance/ranks.h"

namespace plait::conformance {

class CollectivesConformance : public RanksTest {};

// Broadcasts in which ranks name different roots, in a few small worlds.
class RootsConformance : public RanksTest {};

}  // namespace plait::conformance
