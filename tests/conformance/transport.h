// What every transport does, whichever way its bytes move.
#pragma once

#include "conformance/ranks.h"

namespace plait::conformance {

class TransportConformance : public RanksTest {};

}  // namespace plait::conformance
