// The contract of every transport.
#pragma once

#include "conformance/ranks.h"

namespace plait::conformance {

class TransportConformance : public RanksTest {};

}  // namespace plait::conformance
