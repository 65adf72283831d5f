// Ranks in processes of their own that go on when some are lost. survivors_test has the tests.
#pragma once

#include "conformance/ranks.h"

namespace plait {

class Processes : public RanksTest {};

}  // namespace plait
