// The bits of one rank, for any transport.
#pragma once

#include "conformance/ranks.h"
#include "plait/experts.h"

namespace plait {

inline const ExpertsDesc kTravelling = {.hidden = 192, .inner = 64, .experts = 10, .top = 3};
inline const ExpertsDesc kInParts = {
    .hidden = 192, .inner = 32, .experts = 10, .top = 3, .parts = 2};

class ExpertsOver : public RanksTest {};

}  // namespace plait
