// Ranks that are in different calls, for any transport.
#pragma once

#include "conformance/ranks.h"

namespace plait::conformance {

class CallPairsConformance : public RanksTest {};

}  // namespace plait::conformance
