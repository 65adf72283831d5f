// The suite that collectives.h and its parts define.
#pragma once

#include "conformance/ranks.h"

namespace plait::conformance {

class CollectivesConformance : public RanksTest {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CollectivesConformance);

}  // namespace plait::conformance
